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
    Mismatch,
    Refund,
    Reply,
    ResetBarrier,
    Spend,
    Spending,
    SpendRequest,
    Spent,
    Tripped,
    Waiting,
    Withdraw,
    book_spending,
    refunded,
)

from ._due import Due
from ._state import ItemKey, Session, State


class Rates:
    """Spending at a rate: one number per key, the theoretical arrival time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._arrival: dict[str, float] = {}
        self._due = Due(self._look)

    def spend(self, op: Spend) -> Spent | Reply:
        name = f"spend {op.key}"
        known = self._state.cached_reply(op.session, op.n, name)
        if known is not None:
            return known
        answer = Spent(tuple(self._book(op, request) for request in op.requests))
        self._state.cache_reply(op.session, op.n, name, answer)
        return answer

    def refund(self, op: Refund) -> Reply:
        known = self._state.cached_reply(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        arrival = self._arrival.get(op.key)
        if arrival is not None:
            self._arrival[op.key] = refunded(op, arrival)
        self._state.cache_reply(op.session, op.n, name, Reply.OK)
        return Reply.OK

    def _book(self, op: Spend, request: SpendRequest) -> Spending:
        spending = book_spending(op, request, self._arrival.get(op.key), self._state.now)
        if spending.booked:
            self._arrival[op.key] = spending.booking
            self._due.add(op.key, spending.booking)
        return spending

    def forget(self) -> None:
        """Forget a few keys whose arrival time has passed: they are as if never used."""
        self._due.look(self._state.now, A_FEW)

    def _look(self, key: str) -> float | None:
        arrival = self._arrival[key]
        if arrival > self._state.now:
            return arrival
        del self._arrival[key]
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
