"""Counters: spending at a rate (GCRA, ITU-T I.371) and barriers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.engine import (
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
)

from ._state import Session, State, Thing

_SWEEP_EVERY = 256

ROUNDING = 1e-6
"""Seconds: a shorter delay is none, since sums of floats are not exact."""


class Rates:
    """Spending at a rate: one number per key, the theoretical arrival time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._arrival: dict[str, float] = {}
        self._until_sweep = _SWEEP_EVERY

    def spend(self, op: Spend) -> Spent | Reply:
        name = f"spend {op.key}"
        known = self._state.repeated(op.session, op.n, name)
        if known is not None:
            return known
        answer = Spent(tuple(self._book(op, request) for request in op.requests))
        self._state.remember(op.session, op.n, name, answer)
        self._sweep()
        return answer

    def refund(self, op: Refund) -> Reply:
        known = self._state.repeated(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        arrival = self._arrival.get(op.key)
        if arrival is not None:
            unspent = op.cost / op.rate - (arrival - op.booking)
            if unspent > 0:
                self._arrival[op.key] = arrival - unspent
        self._state.remember(op.session, op.n, name, Reply.OK)
        return Reply.OK

    def _book(self, op: Spend, request: SpendRequest) -> Spending:
        now = self._state.now
        start = max(now, self._arrival.get(op.key, now))
        arrival = start + request.cost / op.rate
        # not from the arrival: that may be so far off that it lost its digits
        delay = start - now + (request.cost - op.burst) / op.rate
        if delay < ROUNDING:
            delay = 0.0
        if request.max_wait is not None and delay > request.max_wait:
            return Spending(False, delay, 0.0)
        self._arrival[op.key] = arrival
        return Spending(True, delay, arrival)

    def _sweep(self) -> None:
        """Forget keys whose time has passed: they are as good as new."""
        self._until_sweep -= 1
        if self._until_sweep <= 0:
            self._until_sweep = max(_SWEEP_EVERY, len(self._arrival))
            now = self._state.now
            self._arrival = {key: arrival for key, arrival in self._arrival.items() if arrival > now}


@dataclass(slots=True)
class Meeting:
    """The state of one barrier."""

    parties: int
    on_departure: str
    generation: int = 0
    broken: bool = False
    arrived: dict[str, Session] = field(default_factory=dict[str, Session])
    outcomes: dict[str, tuple[Session, Tripped | Broken]] = field(
        default_factory=dict[str, tuple[Session, Tripped | Broken]]
    )


class Barriers:
    """The family of arrivals."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._barriers: dict[str, Meeting] = {}

    def arrive(self, op: Arrive) -> ArrivalAnswer:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        barrier = self._barriers.setdefault(op.key, Meeting(op.parties, op.on_departure))
        if op.participant in barrier.outcomes:
            return barrier.outcomes[op.participant][1]
        if op.participant in barrier.arrived:
            return Waiting(barrier.generation, self._state.ask_again_in())
        if barrier.broken:
            return Broken(barrier.generation)
        if not barrier.arrived:
            barrier.parties, barrier.on_departure = op.parties, op.on_departure
        elif barrier.parties != op.parties:
            return Mismatch(barrier.parties)
        session.things["arrivals"][op.key, op.participant] = None
        barrier.arrived[op.participant] = session
        if len(barrier.arrived) < barrier.parties:
            return Waiting(barrier.generation, self._state.ask_again_in())
        for place, (participant, party) in enumerate(barrier.arrived.items()):
            outcome = Tripped(barrier.generation, place)
            barrier.outcomes[participant] = (party, outcome)
            if participant != op.participant:
                self._state.hint(party.process, op.key, participant, outcome)
        barrier.arrived.clear()
        barrier.generation += 1
        return barrier.outcomes[op.participant][1]

    def withdraw(self, op: Withdraw) -> ArrivalAnswer:
        barrier = self._barriers.get(op.key)
        if barrier is None:
            return Reply.UNKNOWN
        if (outcome := barrier.outcomes.pop(op.participant, None)) is not None:
            del outcome[0].things["arrivals"][op.key, op.participant]
            return outcome[1]
        if (session := barrier.arrived.get(op.participant)) is None:
            return Reply.UNKNOWN
        del session.things["arrivals"][op.key, op.participant]
        self._depart(op.key, barrier, op.participant)
        return Reply.WITHDRAWN

    def drop(self, thing: Thing) -> None:
        """The session of a participant has ended."""
        key, participant = thing
        barrier = self._barriers[key]
        if barrier.outcomes.pop(participant, None) is None:
            self._depart(key, barrier, participant)

    def reset(self, op: ResetBarrier) -> Reply:
        barrier = self._barriers.get(op.key)
        if barrier is not None:
            self._break(op.key, barrier)
            barrier.broken = False
            barrier.generation += 1
        return Reply.OK

    def arrivals(self, op: Arrivals) -> Gathering:
        barrier = self._barriers.get(op.key)
        if barrier is None:
            return Gathering(0, 0, 0, False)
        return Gathering(barrier.parties, barrier.generation, len(barrier.arrived), barrier.broken)

    def has(self, thing: Thing) -> bool:
        """Whether there is an outcome, and nothing to wait for."""
        return thing[1] in self._barriers[thing[0]].outcomes

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
