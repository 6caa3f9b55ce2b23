"""Barriers: all parties of a generation go on together, or all learn that it is broken."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tenure.engine import (
    ArrivalAnswer,
    Arrivals,
    Arrive,
    Broken,
    Gathering,
    Mismatch,
    Reply,
    ResetBarrier,
    SessionItem,
    Tripped,
    Waiting,
    Withdraw,
)

from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table

_BROKEN = -1


@dataclass(slots=True)
class Barrier:
    """A barrier; `arrived` counts the waiting participants, `born` is a token that tells it from earlier ones.

    Time alone keeps it until `keep_until`. At `forget_at` it may go; that is infinite while something else keeps it.
    """

    key: str
    parties: int
    on_departure: str
    born: int
    generation: int = 0
    broken: bool = False
    arrived: int = 0
    keep_until: float = 0.0
    forget_at: float = inf


@dataclass(slots=True)
class Participant:
    """A participant, which waits or has the outcome of a generation: its place, or that it was broken."""

    key: str
    name: str
    session: int
    rank: int
    waits: bool = True
    generation: int = 0
    place: int = 0

    @property
    def outcome(self) -> Tripped | Broken:
        return Broken(self.generation) if self.place == _BROKEN else Tripped(self.generation, self.place)


BARRIERS = Layout("barrier", Barrier, ("key",), forget=Order((), ("forget_at", "key")))
PARTICIPANTS = Layout(
    "participant",
    Participant,
    ("key", "name"),
    all=Order(("key",), ("name",)),
    waiting=Order(("key",), ("rank",), when=("waits", True)),
    session=OF_SESSION,
)


class Barriers:
    """The family of arrivals."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._barriers: Table[Barrier] = state.table(BARRIERS)
        self._participants: Table[Participant] = state.table(PARTICIPANTS)

    def arrive(self, op: Arrive) -> ArrivalAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        barrier = self._barrier(op.key) or Barrier(op.key, op.parties, op.on_departure, state.token())
        participant = self._participants.get(op.key, op.participant)
        if participant is not None:
            return self._waiting(barrier) if participant.waits else participant.outcome
        if barrier.broken:
            return Broken(barrier.generation)
        if not barrier.arrived:
            barrier.parties, barrier.on_departure = op.parties, op.on_departure
        elif barrier.parties != op.parties:
            return Mismatch(barrier.parties)
        participant = Participant(op.key, op.participant, session.number, state.rank())
        self._participants.save(participant)
        barrier.arrived += 1
        barrier.keep_until = max(barrier.keep_until, state.now + 2 * session.ttl)
        answer: Waiting | Tripped | Broken = self._waiting(barrier)
        if barrier.arrived == barrier.parties:
            for place, each in enumerate(self._all_waiting(barrier)):
                answer = self._decide(each, barrier, place)
                if each.name != op.participant:
                    self._hint(each)
            barrier.generation += 1
        self._save(barrier)
        return answer

    def withdraw(self, op: Withdraw) -> ArrivalAnswer:
        participant = self._participants.get(op.key, op.participant)
        if participant is None:
            return Reply.UNKNOWN
        self.drop(participant)
        return Reply.WITHDRAWN if participant.waits else participant.outcome

    def drop(self, participant: Participant) -> None:
        """Remove a participant, whose session may have ended."""
        self._participants.remove(participant)
        barrier = self._barriers.get(participant.key)
        assert barrier is not None
        if participant.waits:
            barrier.arrived -= 1
            if barrier.on_departure == "break":
                self._break(barrier)
        self._save(barrier)

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
        broken = bool(barrier.broken)  # a file has no booleans
        return Gathering(barrier.parties, barrier.generation, barrier.arrived, broken, barrier.born)

    def item(self, participant: Participant) -> SessionItem:
        """Describe a participant as a part of its session."""
        return SessionItem("arrivals", participant.key, participant.name, not participant.waits)

    def forget(self, count: int) -> None:
        """Forget up to `count` barriers that nothing keeps any more."""
        state = self._state
        for barrier in self._barriers.some("forget", limit=count):
            if barrier.forget_at > state.now:
                break
            self._save(barrier)
        first = self._barriers.first("forget")
        state.wake_at("barrier", None)
        state.wake_at("barrier", inf if first is None else first.forget_at)

    def _break(self, barrier: Barrier) -> None:
        barrier.broken = True
        for participant in self._all_waiting(barrier):
            self._decide(participant, barrier, _BROKEN)
            self._hint(participant)

    def _all_waiting(self, barrier: Barrier) -> list[Participant]:
        """The waiting participants in the order of their arrival; none waits afterwards."""
        count, barrier.arrived = barrier.arrived, 0
        return self._participants.some("waiting", barrier.key, limit=count)

    def _decide(self, participant: Participant, barrier: Barrier, place: int) -> Tripped | Broken:
        participant.waits, participant.generation, participant.place = False, barrier.generation, place
        self._participants.save(participant)
        return participant.outcome

    def _hint(self, participant: Participant) -> None:
        process = self._state.process(participant.session)
        self._state.hint(process, participant.key, participant.name, participant.outcome)

    def _waiting(self, barrier: Barrier) -> Waiting:
        return Waiting(barrier.generation, self._state.ask_again_in(), barrier.born)

    def _barrier(self, key: str) -> Barrier | None:
        """A barrier in use; a barrier that nothing keeps is forgotten."""
        barrier = self._barriers.get(key)
        if barrier is None or not self._is_forgotten(barrier):
            return barrier
        self._barriers.remove(barrier)
        return None

    def _is_forgotten(self, barrier: Barrier) -> bool:
        if barrier.keep_until > self._state.now or barrier.broken or barrier.arrived:
            return False
        return self._participants.first("all", barrier.key) is None

    def _save(self, barrier: Barrier) -> None:
        """Keep a barrier, or forget it if nothing keeps it."""
        if self._is_forgotten(barrier):
            if self._barriers.get(barrier.key) is not None:
                self._barriers.remove(barrier)
            return
        barrier.forget_at = barrier.keep_until if barrier.keep_until > self._state.now else inf
        self._barriers.save(barrier)
        self._state.wake_at("barrier", barrier.forget_at)
