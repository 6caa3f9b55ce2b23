"""Counters: spending at a rate (GCRA, ITU-T I.371) and barriers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tenure.engine import (
    A_FEW,
    ArrivalAnswer,
    Arrivals,
    Arrive,
    Broken,
    Gathering,
    HoldOff,
    Limiter,
    Look,
    Looked,
    Mismatch,
    Notice,
    Refund,
    Reply,
    ResetBarrier,
    Spend,
    Spent,
    Tripped,
    Waiting,
    Withdraw,
)

from ._due import Due
from ._state import ItemKey, Session, State


class Rates:
    """Spending at rates, by key."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._limiters: dict[str, Limiter] = {}
        self._waiting: dict[str, dict[str, float]] = {}
        """The processes that wait, by key, and when the last of each is due, on the limiter's clock."""
        self._due = Due(self._look_again)

    def spend(self, op: Spend) -> Spent | Reply:
        name = f"spend {op.key}"
        known = self._state.cached_reply(op.session, op.n, name)
        if known is not None:
            return known
        now, limiter = self._state.now, self._limiter(op.key)
        answer = Spent(tuple(limiter.spend(op.limits, request, now) for request in op.requests))
        if any(spending.booked and spending.delay > 0 for spending in answer.answers):
            time, process = limiter.time(now), self._state.sessions[op.session].process
            waiting = {name: due for name, due in self._waiting.get(op.key, {}).items() if due >= time}
            self._waiting[op.key] = {**waiting, process: limiter.last_due}
        self._keep(op.key, limiter)
        self._state.cache_reply(op.session, op.n, name, answer)
        return answer

    def refund(self, op: Refund) -> Reply:
        known = self._state.cached_reply(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        limiter = self._limiter(op.key)
        for request in op.requests:
            limiter.refund(op.limits, request, self._state.now)
        self._keep(op.key, limiter)
        self._state.cache_reply(op.session, op.n, name, Reply.OK)
        return Reply.OK

    def hold_off(self, op: HoldOff) -> Reply:
        known = self._state.cached_reply(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        limiter = self._limiter(op.key)
        time = limiter.time(self._state.now)
        if limiter.hold_off(op.seconds, self._state.now):
            for process, due in sorted(self._waiting.get(op.key, {}).items()):
                if due >= time:
                    self._state.hint(process, op.key, "", Notice.HELD)
        self._keep(op.key, limiter)
        self._state.cache_reply(op.session, op.n, name, Reply.OK)
        return Reply.OK

    def look(self, op: Look) -> Looked:
        return self._limiter(op.key).look(op.limits, self._state.now)

    def _limiter(self, key: str) -> Limiter:
        """The limiter; a new one if it says nothing any more."""
        limiter = self._limiters.get(key)
        if limiter is None or not limiter.is_used(self._state.now):
            self._forget(key)
            return Limiter()
        return limiter

    def _keep(self, key: str, limiter: Limiter) -> None:
        if limiter.is_used(self._state.now):
            self._limiters[key] = limiter
            self._due.add(key, limiter.used_until())
        else:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._limiters.pop(key, None)
        self._waiting.pop(key, None)

    def forget(self) -> None:
        """Forget a few limiters that say nothing any more: they are as if never used."""
        self._due.look(self._state.now, A_FEW)

    def _look_again(self, key: str) -> float | None:
        limiter = self._limiters.get(key)
        if limiter is not None and limiter.is_used(self._state.now):
            return limiter.used_until()
        self._forget(key)
        return None


@dataclass(slots=True)
class Meeting:
    """The state of one barrier."""

    parties: int
    on_departure: str
    born: int
    generation: int = 0
    broken: bool = False
    keep_until: float = -inf
    arrived: dict[str, Session] = field(default_factory=dict[str, Session])
    outcomes: dict[str, tuple[Session, Tripped | Broken]] = field(
        default_factory=dict[str, tuple[Session, Tripped | Broken]]
    )

    def is_forgotten(self, now: float) -> bool:
        """Whether nothing but time has kept it, and that has passed."""
        return not self.arrived and not self.outcomes and not self.broken and self.keep_until <= now


class Barriers:
    """The family of arrivals."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._barriers: dict[str, Meeting] = {}
        self._due = Due(self._look)

    def forget(self) -> None:
        """Forget a few barriers that nothing keeps any more."""
        self._due.look(self._state.now, A_FEW)

    def _look(self, key: str) -> float | None:
        barrier = self._find(key)
        return barrier.keep_until if barrier and barrier.keep_until > self._state.now else None

    def _find(self, key: str) -> Meeting | None:
        """A barrier that is not forgotten. It is looked at again later: the caller may leave nothing that keeps it."""
        barrier = self._barriers.get(key)
        if barrier is None:
            return None
        if barrier.is_forgotten(self._state.now):
            del self._barriers[key]
            return None
        self._due.add(key, barrier.keep_until)
        return barrier

    def arrive(self, op: Arrive) -> ArrivalAnswer:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        barrier = self._find(op.key)
        if barrier is None:
            barrier = self._barriers[op.key] = Meeting(op.parties, op.on_departure, self._state.token())
        if op.participant in barrier.outcomes:
            return barrier.outcomes[op.participant][1]
        if op.participant in barrier.arrived:
            return Waiting(barrier.generation, self._state.ask_again_in(), barrier.born)
        if barrier.broken:
            return Broken(barrier.generation)
        if not barrier.arrived:
            barrier.parties, barrier.on_departure = op.parties, op.on_departure
        elif barrier.parties != op.parties:
            return Mismatch(barrier.parties)
        session.attach("arrivals", op.key, op.participant)
        barrier.keep_until = max(barrier.keep_until, self._state.now + 2 * session.ttl)
        barrier.arrived[op.participant] = session
        if len(barrier.arrived) < barrier.parties:
            return Waiting(barrier.generation, self._state.ask_again_in(), barrier.born)
        for place, (participant, party) in enumerate(barrier.arrived.items()):
            outcome = Tripped(barrier.generation, place)
            barrier.outcomes[participant] = (party, outcome)
            if participant != op.participant:
                self._state.hint(party.process, op.key, participant, outcome)
        barrier.arrived.clear()
        barrier.generation += 1
        return barrier.outcomes[op.participant][1]

    def withdraw(self, op: Withdraw) -> ArrivalAnswer:
        barrier = self._find(op.key)
        if barrier is None:
            return Reply.UNKNOWN
        if (outcome := barrier.outcomes.pop(op.participant, None)) is not None:
            outcome[0].detach("arrivals", op.key, op.participant)
            return outcome[1]
        if (session := barrier.arrived.get(op.participant)) is None:
            return Reply.UNKNOWN
        session.detach("arrivals", op.key, op.participant)
        self._depart(op.key, barrier, op.participant)
        return Reply.WITHDRAWN

    def drop(self, item: ItemKey) -> None:
        """The session of a participant has ended."""
        key, participant = item
        barrier = self._find(key)
        assert barrier is not None
        if barrier.outcomes.pop(participant, None) is None:
            self._depart(key, barrier, participant)

    def reset_barrier(self, op: ResetBarrier) -> Reply:
        barrier = self._find(op.key)
        if barrier is not None:
            self._break(op.key, barrier)
            barrier.broken = False
            barrier.generation += 1
        return Reply.OK

    def arrivals(self, op: Arrivals) -> Gathering:
        barrier = self._find(op.key)
        if barrier is None:
            return Gathering(0, 0, 0, False)
        waiting = len(barrier.arrived)
        return Gathering(barrier.parties, barrier.generation, waiting, barrier.broken, barrier.born)

    def has(self, item: ItemKey) -> bool:
        """Whether there is an outcome, and nothing to wait for."""
        return item[1] in self._barriers[item[0]].outcomes

    def _depart(self, key: str, barrier: Meeting, participant: str) -> None:
        del barrier.arrived[participant]
        if barrier.on_departure == "break":
            self._break(key, barrier)

    def _break(self, key: str, barrier: Meeting) -> None:
        barrier.broken = True
        outcome = Broken(barrier.generation)
        for participant, session in barrier.arrived.items():
            barrier.outcomes[participant] = (session, outcome)
            self._state.hint(session.process, key, participant, outcome)
        barrier.arrived.clear()
