"""Counters: spending at a rate (GCRA, ITU-T I.371) and barriers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenure.engine import (
    ArrivalAnswer,
    Arrivals,
    Arrive,
    Booked,
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

from ._sql import COUNTERS
from ._state import State

_BROKEN = -1


class Rates:
    """Spending at rates, by key."""

    def __init__(self, state: State) -> None:
        self._state = state

    def spend(self, op: Spend) -> Spent | Reply:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        known = state.replies.cached(session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        limiter = self._limiter(op.key)
        answer = Spent(tuple(limiter.spend(op.limits, request, state.now) for request in op.requests))
        if any(spending.booked for spending in answer.answers):
            self._keep(op.key, limiter)
        if any(spending.booked and spending.delay > 0 for spending in answer.answers):
            state.run(COUNTERS.forget_waiters, key=op.key, time=limiter.time(state.now))
            state.run(COUNTERS.wait_for_limiter, key=op.key, process=session.process, due=limiter.last_due)
        state.replies.cache(session, op.n, name, answer)
        return answer

    def refund(self, op: Refund) -> Reply:
        def refund(limiter: Limiter) -> None:
            for request in op.requests:
                limiter.refund(op.limits, request, self._state.now)

        return self._change(op, refund)

    def hold_off(self, op: HoldOff) -> Reply:
        def hold_off(limiter: Limiter) -> None:
            state = self._state
            time = limiter.time(state.now)
            if limiter.hold_off(op.seconds, state.now):
                for (process,) in state.all(COUNTERS.waiting_for_limiter, key=op.key, time=time):
                    state.hint(process, op.key, "", Notice.HELD)

        return self._change(op, hold_off)

    def look(self, op: Look) -> Looked:
        return self._limiter(op.key).look(op.limits, self._state.now)

    def forget(self, count: int) -> None:
        """Forget limiters that say nothing any more: they are as if never used."""
        state = self._state
        if state.soonest.limiter is not None and state.soonest.limiter <= state.now:
            for (key,) in state.all(COUNTERS.outdated_limiters, now=state.now, count=count):
                state.run(COUNTERS.delete_limiter, key=key)
                state.run(COUNTERS.delete_waiters, key=key)

    def _change(self, op: Refund | HoldOff, change: Callable[[Limiter], None]) -> Reply:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        if state.replies.cached(session, op.n, name := f"spend {op.key}") is None:
            change(limiter := self._limiter(op.key))
            self._keep(op.key, limiter)
            state.replies.cache(session, op.n, name, Reply.OK)
        return Reply.OK

    def _limiter(self, key: str) -> Limiter:
        """The limiter; a new one if it says nothing any more."""
        row = self._state.one(COUNTERS.limiter, key=key, now=self._state.now)
        if row is None:
            return Limiter()
        held_until, held, last_due, booked = json.loads(row[0])
        return Limiter(held_until, held, last_due, {name: Booked(*one) for name, one in booked.items()})

    def _keep(self, key: str, limiter: Limiter) -> None:
        if not limiter.is_used(self._state.now):
            self._state.run(COUNTERS.delete_limiter, key=key)
            return
        text = json.dumps([limiter.held_until, limiter.held, limiter.last_due, limiter.booked])
        self._state.run(COUNTERS.keep_limiter, key=key, until=limiter.used_until(), state=text)


@dataclass(slots=True)
class Meeting:
    """The state of one barrier; written back by `_save`."""

    key: str
    parties: int
    on_departure: str
    born: int
    generation: int = 0
    broken: bool = False
    arrived: int = 0
    keep_until: int = 0
    look_at: int | None = None


class Barriers:
    """The family of arrivals."""

    def __init__(self, state: State) -> None:
        self._state = state

    def arrive(self, op: Arrive) -> ArrivalAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        barrier = self._barrier(op.key) or Meeting(op.key, op.parties, op.on_departure, state.token())
        known = state.one(COUNTERS.arrival, key=op.key, participant=op.participant)
        if known is not None:
            return _outcome(known) or Waiting(barrier.generation, state.ask_again_in(), barrier.born)
        if barrier.broken:
            return Broken(barrier.generation)
        if not barrier.arrived:
            barrier.parties, barrier.on_departure = op.parties, op.on_departure
        elif barrier.parties != op.parties:
            return Mismatch(barrier.parties)
        state.run(COUNTERS.arrive, key=op.key, participant=op.participant, session=session.id)
        barrier.arrived += 1
        barrier.keep_until = max(barrier.keep_until, state.wall + 2 * session.ttl)
        answer: Waiting | Tripped = Waiting(barrier.generation, state.ask_again_in(), barrier.born)
        if barrier.arrived >= barrier.parties:
            answer = self._trip(barrier, op.participant)
        self._save(barrier)
        return answer

    def withdraw(self, op: Withdraw) -> ArrivalAnswer:
        known = self._state.one(COUNTERS.arrival, key=op.key, participant=op.participant)
        if known is None:
            return Reply.UNKNOWN
        self._state.run(COUNTERS.depart, id=known[0])
        barrier = self._barrier(op.key)
        if (outcome := _outcome(known)) is not None:
            return outcome
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

    def reset_barrier(self, op: ResetBarrier) -> Reply:
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
        return Gathering(barrier.parties, barrier.generation, barrier.arrived, barrier.broken, barrier.born)

    def _trip(self, barrier: Meeting, last: str) -> Tripped:
        state = self._state
        outcome = Tripped(barrier.generation, 0)
        for place, (arrival, participant, process) in enumerate(state.all(COUNTERS.waiting, key=barrier.key)):
            outcome = Tripped(barrier.generation, place)
            state.run(COUNTERS.set_outcome, id=arrival, generation=barrier.generation, place=place)
            if participant != last:
                state.hint(process, barrier.key, participant, outcome)
        barrier.arrived = 0
        barrier.generation += 1
        return outcome

    def _break(self, barrier: Meeting) -> None:
        state = self._state
        barrier.broken = True
        for arrival, participant, process in state.all(COUNTERS.waiting, key=barrier.key):
            state.run(COUNTERS.set_outcome, id=arrival, generation=barrier.generation, place=_BROKEN)
            state.hint(process, barrier.key, participant, Broken(barrier.generation))
        barrier.arrived = 0

    def forget(self, count: int) -> None:
        """Forget barriers that nothing keeps any more."""
        state = self._state
        if state.soonest.barrier is None or state.soonest.barrier > state.wall:
            return
        for (key,) in state.all(COUNTERS.to_look_at, now=state.wall, count=count):
            if (barrier := self._barrier(key)) is not None:
                barrier.look_at = None
                self._save(barrier)

    def _barrier(self, key: str) -> Meeting | None:
        """A barrier that is in use; one that nothing keeps any more is forgotten."""
        row = self._state.one(COUNTERS.barrier, key=key)
        if row is None:
            return None
        parties, on_departure, generation, broken, arrived, keep_until, look_at, born = row
        barrier = Meeting(
            key, parties, on_departure, born, generation, bool(broken), arrived, keep_until, look_at
        )
        if self._is_forgotten(barrier):
            self._state.run(COUNTERS.delete_barrier, key=key)
            return None
        return barrier

    def _is_forgotten(self, barrier: Meeting) -> bool:
        if barrier.keep_until > self._state.wall or barrier.broken or barrier.arrived:
            return False
        return not self._state.one(COUNTERS.any_arrival, key=barrier.key)[0]

    def _save(self, barrier: Meeting) -> None:
        if self._is_forgotten(barrier):
            self._state.run(COUNTERS.delete_barrier, key=barrier.key)
            return
        if barrier.look_at is None and barrier.keep_until > self._state.wall:
            barrier.look_at = barrier.keep_until
        self._state.run(
            COUNTERS.save_barrier,
            key=barrier.key,
            parties=barrier.parties,
            on_departure=barrier.on_departure,
            generation=barrier.generation,
            broken=barrier.broken,
            arrived=barrier.arrived,
            keep_until=barrier.keep_until,
            look_at=barrier.look_at,
            born=barrier.born,
        )


def _outcome(arrival: Any) -> Tripped | Broken | None:
    _, generation, place = arrival
    if generation is None:
        return None
    return Broken(generation) if place == _BROKEN else Tripped(generation, place)
