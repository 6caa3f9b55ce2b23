"""Counters: spending at a rate (GCRA, ITU-T I.371) and barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

from ._sql import COUNTERS
from ._state import State

_SWEEP_EVERY = 32
_BROKEN = -1

ROUNDING = 1e-6
"""Seconds: a shorter delay is none, since sums of floats are not exact."""


class Rates:
    """Spending at a rate: one number per key, the theoretical arrival time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._until_sweep = _SWEEP_EVERY

    def spend(self, op: Spend) -> Spent | Reply:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        known = state.repeated(session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        before = self._arrival(op.key)
        arrival = state.now if before is None else before
        answers: list[Spending] = []
        for request in op.requests:
            spending = self._book(op, request, arrival)
            answers.append(spending)
            if spending.booked:
                arrival = spending.booking
        if any(spending.booked for spending in answers):
            state.run(COUNTERS.set_arrival_time, key=op.key, arrival=arrival)
        answer = Spent(tuple(answers))
        state.remember(session, op.n, name, answer)
        self._sweep()
        return answer

    def refund(self, op: Refund) -> Reply:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        known = state.repeated(session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        arrival = self._arrival(op.key)
        if arrival is not None:
            unspent = op.cost / op.rate - (arrival - op.booking)
            if unspent > 0:
                state.run(COUNTERS.set_arrival_time, key=op.key, arrival=arrival - unspent)
        state.remember(session, op.n, name, Reply.OK)
        return Reply.OK

    def _book(self, op: Spend, request: SpendRequest, before: float) -> Spending:
        now = self._state.now
        start = max(now, before)
        arrival = start + request.cost / op.rate
        # not from the arrival: that may be so far off that it lost its digits
        delay = start - now + (request.cost - op.burst) / op.rate
        if delay < ROUNDING:
            delay = 0.0
        if request.max_wait is not None and delay > request.max_wait:
            return Spending(False, delay, 0.0)
        return Spending(True, delay, arrival)

    def _arrival(self, key: str) -> float | None:
        row = self._state.one(COUNTERS.arrival_time, key=key)
        return row and row[0]

    def _sweep(self) -> None:
        """Forget keys whose time has passed, twice as many as can have come since: they are as good as new."""
        self._until_sweep -= 1
        if self._until_sweep <= 0:
            self._until_sweep = _SWEEP_EVERY
            self._state.run(COUNTERS.sweep, now=self._state.now, count=2 * _SWEEP_EVERY)


@dataclass(slots=True)
class Meeting:
    """The state of one barrier; written back by `_save`."""

    key: str
    parties: int
    on_departure: str
    generation: int = 0
    broken: bool = False
    arrived: int = 0


class Barriers:
    """The family of arrivals."""

    def __init__(self, state: State) -> None:
        self._state = state

    def arrive(self, op: Arrive) -> ArrivalAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        barrier = self._barrier(op.key) or Meeting(op.key, op.parties, op.on_departure)
        known = state.one(COUNTERS.arrival, key=op.key, participant=op.participant)
        if known is not None:
            return _outcome(known) or Waiting(barrier.generation, state.ask_again_in())
        if barrier.broken:
            return Broken(barrier.generation)
        if not barrier.arrived:
            barrier.parties, barrier.on_departure = op.parties, op.on_departure
        elif barrier.parties != op.parties:
            return Mismatch(barrier.parties)
        state.run(COUNTERS.arrive, key=op.key, participant=op.participant, session=session.id)
        barrier.arrived += 1
        answer: Waiting | Tripped = Waiting(barrier.generation, state.ask_again_in())
        if barrier.arrived >= barrier.parties:
            answer = self._trip(barrier, op.participant)
        self._save(barrier)
        return answer

    def withdraw(self, op: Withdraw) -> ArrivalAnswer:
        known = self._state.one(COUNTERS.arrival, key=op.key, participant=op.participant)
        if known is None:
            return Reply.UNKNOWN
        self._state.run(COUNTERS.depart, id=known[0])
        if (outcome := _outcome(known)) is not None:
            return outcome
        barrier = self._barrier(op.key)
        assert barrier is not None
        barrier.arrived -= 1
        if barrier.on_departure == "break":
            self._break(barrier)
        self._save(barrier)
        return Reply.WITHDRAWN

    def drop(self, thing: Any) -> None:
        """The session of a participant has ended."""
        key, participant = thing
        self.withdraw(Withdraw(key, participant))

    def reset(self, op: ResetBarrier) -> Reply:
        barrier = self._barrier(op.key)
        if barrier is not None:
            self._break(barrier)
            barrier.broken = False
            barrier.generation += 1
            self._save(barrier)
        return Reply.OK

    def arrivals(self, op: Arrivals) -> Gathering:
        barrier = self._barrier(op.key)
        if barrier is None:
            return Gathering(0, 0, 0, False)
        return Gathering(barrier.parties, barrier.generation, barrier.arrived, barrier.broken)

    def _trip(self, barrier: Meeting, last: str) -> Tripped:
        state = self._state
        outcome = Tripped(barrier.generation, 0)
        for place, (arrival, participant, process) in enumerate(state.all(COUNTERS.waiting, key=barrier.key)):
            outcome = Tripped(barrier.generation, place)
            state.run(COUNTERS.tell, id=arrival, generation=barrier.generation, place=place)
            if participant != last:
                state.hint(process, barrier.key, participant, outcome)
        barrier.arrived = 0
        barrier.generation += 1
        return outcome

    def _break(self, barrier: Meeting) -> None:
        state = self._state
        barrier.broken = True
        for arrival, participant, process in state.all(COUNTERS.waiting, key=barrier.key):
            state.run(COUNTERS.tell, id=arrival, generation=barrier.generation, place=_BROKEN)
            state.hint(process, barrier.key, participant, Broken(barrier.generation))
        barrier.arrived = 0

    def _barrier(self, key: str) -> Meeting | None:
        row = self._state.one(COUNTERS.barrier, key=key)
        if row is None:
            return None
        parties, on_departure, generation, broken, arrived = row
        return Meeting(key, parties, on_departure, generation, bool(broken), arrived)

    def _save(self, barrier: Meeting) -> None:
        self._state.run(
            COUNTERS.save_barrier,
            key=barrier.key,
            parties=barrier.parties,
            on_departure=barrier.on_departure,
            generation=barrier.generation,
            broken=barrier.broken,
            arrived=barrier.arrived,
        )


def _outcome(arrival: Any) -> Tripped | Broken | None:
    _, generation, place = arrival
    if generation is None:
        return None
    return Broken(generation) if place == _BROKEN else Tripped(generation, place)
