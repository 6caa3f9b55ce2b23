"""The gate of runners: how many runners of a kind take tasks at once, and what each of them holds; the others rest.

Three things decide: adaptive concurrency (`allowed`), the places that kinds share, and the permits of a fleet's limit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from math import inf

from tenure.waiting import Line, this_task

from ._permits import Permit, Permits
from ._places import SharedSlots


class RunnerGate:
    """The turns of the `runners` of a kind; `recheck` has those that wait for a task ask for their turn again."""

    def __init__(
        self,
        kind: str | None,
        runners: int,
        allowed: int,
        recheck: Callable[[], object],
        *,
        places: SharedSlots | None,
        permits: Permits | None,
    ) -> None:
        self.allowed = allowed
        self._kind = kind
        self._runners = runners
        self._recheck = recheck
        self._places = places
        self._permits = permits
        self._busy = 0
        self._held: dict[object, Permit] = {}  # by the task of the runner
        self._resting: Line[None, None] = Line(lambda _: None)
        if places is not None:
            places.on_change(kind, self._adjust)

    def allow(self, allowed: int) -> None:
        """Let so many tasks run at once."""
        self.allowed = allowed
        self._adjust()

    def began(self) -> None:
        """A runner has found a task."""
        self._busy += 1
        if self._permits is not None:
            self._permits.found_task()
            self._adjust()

    def check(self) -> None:
        """Raise `LeaseLost` if the permit of this runner has passed."""
        if self._permits is not None:
            self._held[this_task()].lease.check()

    def ended(self) -> None:
        """Note that a runner has let go of its task."""
        self._busy -= 1

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[Slot]:
        """Rest until a runner more may take tasks, and obtain what it needs. Cancellation: nothing is held."""
        while not self._may_begin(self._active):
            await self._resting.wait(self._resting.join(None))
        if self._permits is None:
            yield Slot(self, None)
        else:
            async with self._permits.permit() as permit:
                self._held[this_task()] = permit
                try:
                    yield Slot(self, permit)
                finally:
                    del self._held[this_task()]

    def time_limit(self, permit: Permit | None) -> float | None:
        """The seconds for which a runner may wait for a task; None: it has to rest."""
        if self._active > self._most:
            return None
        seconds = inf if permit is None else permit.time_limit()
        if seconds is None or self._places is None:
            return seconds
        return min(seconds, self._places.time_limit(self._kind))

    def idled(self) -> None:
        """A runner has found no task in that time."""
        if self._permits is not None:
            self._permits.found_none()
        if self._places is not None:
            self._places.found_none(self._kind)

    @property
    def _active(self) -> int:
        return self._runners - len(self._resting)

    @property
    def _most(self) -> int:
        return self.allowed if self._places is None else min(self.allowed, self._places.most(self._kind))

    def _may_begin(self, active: int) -> bool:
        permits = self._permits
        return active <= self._most and (permits is None or active - self._busy <= permits.ahead)

    def _adjust(self) -> None:
        while (runner := self._resting.head()) is not None and self._may_begin(self._active + 1):
            self._resting.grant(runner, None)
        waiting = self._active - self._busy
        if waiting and (self._active > self.allowed or self._takes_too_much(waiting)):
            self._recheck()

    def _takes_too_much(self, waiting: int) -> bool:
        # they come and go with every task, and looking again costs as much as there are runners that wait: so while
        # there are free places, twice as many may wait as can have one
        if self._places is None or self._active <= self._most:
            return False
        return self._places.full or waiting > 2 * (self._most - self._busy)


class Slot:
    """The slot of one runner, as `Runners` has it."""

    __slots__ = ("_gate", "_permit")

    def __init__(self, gate: RunnerGate, permit: Permit | None) -> None:
        self._gate = gate
        self._permit = permit

    def time_limit(self) -> float | None:
        """The seconds to wait for a task; None: the slot is over."""
        return self._gate.time_limit(self._permit)

    def idled(self) -> None:
        """No task has come in that time."""
        self._gate.idled()
