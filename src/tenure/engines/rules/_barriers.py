"""Barriers: all parties of a generation go on together, or all learn that it is broken."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import tenure.engine as e

from ._places import Place, Places
from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table

_BROKEN = -1


@dataclass(slots=True)
class Barrier:
    """A barrier; `born` is a token that tells it from earlier ones. It counts its participants, and those who wait.

    Time alone keeps it until `keep_until`. At `forget_at` or later it may go: never while something else keeps it.
    """

    key: str
    parties: int
    on_departure: str
    born: int
    keep_until: float
    forget_at: float
    generation: int = 0
    broken: bool = False
    participants: int = 0
    arrived: int = 0


@dataclass(slots=True)
class Participant(Place):
    """A participant, which waits or has the outcome of a generation: its place, or that it was broken."""

    generation: int
    place: int

    @property
    def outcome(self) -> e.Tripped | e.Broken:
        return e.Broken(self.generation) if self.place == _BROKEN else e.Tripped(self.generation, self.place)


BARRIERS = Layout("barrier", Barrier, ("key",), forget=Order((), ("forget_at", "key")))
PARTICIPANTS = Layout(
    "participant",
    Participant,
    ("key", "name"),
    line=Order(("key",), ("rank",), when=("waits", True), grows=True),
    session=OF_SESSION,
)


class Barriers(Places[Participant]):
    """The family of arrivals."""

    def __init__(self, state: State) -> None:
        super().__init__(state, "arrivals", PARTICIPANTS)
        self._barriers: Table[Barrier] = state.table(BARRIERS)

    def arrive(self, op: e.Arrive) -> e.ArrivalAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return e.Reply.GONE
        barrier, keep_until = self._barrier(op.key), state.now + 2 * session.ttl
        if barrier is None:
            barrier = Barrier(op.key, op.parties, op.on_departure, state.token(), keep_until, keep_until)
            state.wake_at("barrier", keep_until)
        elif (participant := self._places.get(op.key, op.participant)) is not None:
            return self._waiting(barrier) if participant.waits else participant.outcome
        elif barrier.broken:
            return e.Broken(barrier.generation)
        if not barrier.arrived:
            barrier.parties, barrier.on_departure = op.parties, op.on_departure
        elif barrier.parties != op.parties:
            return e.Mismatch(barrier.parties)
        trips = barrier.arrived + 1 == barrier.parties
        participant = Participant(
            *(op.key, op.participant, session.number, state.rank(), not trips),
            *(barrier.generation, barrier.arrived),
        )
        self._places.save(participant)
        if trips:
            for place, waiting in enumerate(self._all_waiting(barrier)):
                self._hint(waiting, self._decide(waiting, barrier, place))
            barrier.generation += 1
        else:
            barrier.arrived += 1
        barrier.participants += 1
        barrier.keep_until = max(barrier.keep_until, keep_until)
        self._save(barrier)
        return participant.outcome if trips else self._waiting(barrier)

    def withdraw(self, op: e.Withdraw) -> e.ArrivalAnswer:
        participant = self._places.get(op.key, op.participant)
        if participant is None:
            return e.Reply.UNKNOWN
        self.drop(participant)
        return e.Reply.WITHDRAWN if participant.waits else participant.outcome

    def drop(self, participant: Participant) -> None:
        """Remove a participant, whose session may have ended."""
        self._places.remove(participant)
        barrier = self._barriers.get(participant.key)
        assert barrier is not None
        barrier.participants -= 1
        if participant.waits:
            barrier.arrived -= 1
            if barrier.on_departure == "break":
                self._break(barrier)
        self._save(barrier)

    def reset_barrier(self, op: e.ResetBarrier) -> e.Reply:
        barrier, now = self._barrier(op.key), self._state.now
        if barrier is None and op.parties:
            barrier = Barrier(op.key, op.parties, "break", self._state.token(), now, inf)
        if barrier is not None:
            self._break(barrier)
            if not op.parties:
                barrier.broken = False
                barrier.generation += 1
            self._save(barrier)
        return e.Reply.OK

    def barrier(self, op: e.Scan[e.Page[e.BarrierStatus]]) -> e.Page[e.BarrierStatus]:
        barrier = self._barrier(op.key)
        if barrier is None:
            return e.Page((e.BarrierStatus(0, 0, 0, False),))
        broken = bool(barrier.broken)  # a file has no booleans
        status = e.BarrierStatus(barrier.parties, barrier.generation, barrier.arrived, broken, barrier.born)
        return e.Page((status,))

    def forget(self, count: int) -> None:
        """Forget up to `count` barriers that nothing keeps."""
        state = self._state
        for barrier in self._barriers.some("forget", limit=count):
            if barrier.forget_at > state.now:
                break
            if self._is_kept(barrier):
                again = barrier.keep_until if barrier.keep_until > state.now else inf
                self._barriers.move(barrier, forget_at=again)
            else:
                self._barriers.remove(barrier)
        first = self._barriers.first("forget")
        state.wake_at("barrier", None)
        state.wake_at("barrier", inf if first is None else first.forget_at)

    def _break(self, barrier: Barrier) -> None:
        barrier.broken = True
        for participant in self._all_waiting(barrier):
            self._hint(participant, self._decide(participant, barrier, _BROKEN))

    def _all_waiting(self, barrier: Barrier) -> list[Participant]:
        """The waiting participants in the order of their arrival; none waits afterwards."""
        count, barrier.arrived = barrier.arrived, 0
        return self._places.some("line", barrier.key, limit=count)

    def _decide(self, participant: Participant, barrier: Barrier, place: int) -> e.Tripped | e.Broken:
        self._places.move(participant, waits=False, generation=barrier.generation, place=place)
        return participant.outcome

    def _waiting(self, barrier: Barrier) -> e.Waiting:
        return e.Waiting(barrier.generation, self._state.ask_again_in(), barrier.born)

    def _barrier(self, key: str) -> Barrier | None:
        """A barrier in use; a barrier that nothing keeps is forgotten."""
        barrier = self._barriers.get(key)
        if barrier is None or self._is_kept(barrier):
            return barrier
        self._barriers.remove(barrier)
        return None

    def _is_kept(self, barrier: Barrier) -> bool:
        return bool(barrier.keep_until > self._state.now or barrier.broken or barrier.participants)

    def _save(self, barrier: Barrier) -> None:
        """Keep a barrier, or forget it if nothing keeps it."""
        if self._is_kept(barrier):
            self._barriers.save(barrier)
        else:
            self._barriers.remove(barrier)
