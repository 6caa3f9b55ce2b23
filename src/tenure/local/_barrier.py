"""The parties in the line are the arrivals: a count could become wrong when a party leaves (python/cpython#155233)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tenure.arguments import AsyncBlock, check_count
from tenure.errors import BarrierBroken
from tenure.waiting import Line, checkpoint

if TYPE_CHECKING:
    from tenure.waiting import Waiter


@dataclass(frozen=True, slots=True)
class BarrierStatistics:
    """The state of a `Barrier` at one moment."""

    parties: int
    """The number of tasks that have to arrive."""
    tasks_waiting: int
    """The number of waiting tasks."""
    generation: int
    """The number of times that all parties have passed together, or the barrier was broken."""
    broken: bool
    """True while the barrier is broken; `reset` mends it."""


class Barrier(AsyncBlock):
    """A meeting point for `parties` tasks: when as many have arrived, all go on; then the next generation may.

    With `on_departure="break"` a party that is cancelled while it waits breaks the barrier: waiting parties and
    later ones get `BarrierBroken`, until `reset`. With "drop" it is forgotten and the others wait for another.

    Cancellation: asyncio's native ``task.cancel()`` may reach a party in the tick in which all were let go: it alone
    raises.

    Source: the broken state is as in Java's `CyclicBarrier`, "drop" as in `asyncio.Barrier`.
    """

    __slots__ = ("_breaks", "_broken", "_generation", "_line", "_parties")

    def __init__(self, parties: int, *, on_departure: Literal["break", "drop"] = "break") -> None:
        if on_departure not in ("break", "drop"):
            raise ValueError(f'on_departure must be "break" or "drop", not {on_departure!r}')
        self._parties = check_count("parties", parties)
        self._breaks = on_departure == "break"
        self._broken = ""
        self._generation = 0
        self._line: Line[int, int] = Line(self._left)

    @property
    def parties(self) -> int:
        """The number of tasks that have to arrive."""
        return self._parties

    @property
    def n_waiting(self) -> int:
        """The number of tasks that have arrived and wait."""
        return sum(1 for _ in self._line)

    @property
    def broken(self) -> bool:
        """True if the barrier was aborted, or a party left it, and it was not reset since."""
        return bool(self._broken)

    async def wait(self) -> int:
        """Wait for the others and return the place in the order of arrival, from 0 to `parties` - 1.

        Always a checkpoint. Raises `BarrierBroken` if the barrier is broken, or is broken or reset meanwhile.

        Cancellation: breaks the barrier for all waiting parties; with "drop" it has no effect.
        """
        line = self._line
        line.home.bind()  # before it joins, since who leaves breaks the barrier
        if self._broken or len(line) + 1 >= self._parties:
            # A party that may be the last yields first: nothing is awaited between the moment when all are let
            # go and the return, so a cancellation cannot hit one of them and spare the others.
            try:
                await checkpoint()
            except BaseException:
                self._depart()
                raise
            if self._broken:
                raise self._error()
            waiting = list(line)
            if len(waiting) + 1 == self._parties:
                self._generation += 1
                for place, waiter in enumerate(waiting):
                    line.grant(waiter, place)
                return len(waiting)
        return await line.wait(line.join(self._generation))

    def abort(self) -> None:
        """Break the barrier: waiting parties and later ones get `BarrierBroken`, until `reset`."""
        self._break("it was aborted")

    def reset(self) -> None:
        """Start over, broken or not: waiting parties get `BarrierBroken`, later parties do not."""
        self._break("it was reset")
        self._broken = ""

    def statistics(self) -> BarrierStatistics:
        """The current state."""
        return BarrierStatistics(self._parties, self.n_waiting, self._generation, self.broken)

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        state = f", broken: {self._broken}" if self._broken else ""
        return f"<Barrier {self.n_waiting}/{self._parties} waiting{state}>"

    def _left(self, waiter: Waiter[int, int]) -> None:
        # a party that was cancelled before a reset and runs after it must not break the next generation
        if waiter.want == self._generation:
            self._depart()

    def _depart(self) -> None:
        if self._breaks:
            self._break("a party left it")

    def _break(self, reason: str) -> None:
        if not self._broken:
            self._broken = reason
            self._generation += 1
            self._line.fail_all(self._error)

    def _error(self) -> BarrierBroken:
        return BarrierBroken(f"the barrier of {self._parties} is broken: {self._broken}")
