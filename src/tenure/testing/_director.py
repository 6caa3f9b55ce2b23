"""The director of a run, which decides all that the loop leaves open; this director decides as the loop would.

The loops of virtual time ask it for the order in which ready tasks take their step, for how far the clock jumps, and
whether anything else happens between two steps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import anyio

from ._trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

MAX_TURNS = 100_000


class Block(Protocol):
    host: Any
    """The native task that runs it."""

    @property
    def cancel_called(self) -> bool: ...

    @property
    def cancelled_natively(self) -> bool: ...

    def cancel(self, *, native: bool = False) -> None: ...


class Newcomer(NamedTuple):
    task: object
    arrives: anyio.Event


class Director:
    """Keeps the natural order: first come first served on asyncio, first created first served on trio."""

    newcomers_wait = True
    lateness: float = 0.0
    """The largest number of seconds by which a timer may come late, together with later timers."""

    def __init__(self, *, tracing: bool = False) -> None:
        self.steps: int = 0
        self.turns: int = 0
        self.trace: Trace | None = Trace() if tracing else None
        self.whole: Block | None = None
        self.blocks: list[Block] = []
        self.endless: bool = False
        self.newcomers: list[Newcomer] = []
        self.check: Callable[[], None] | None = None
        """A function that raises what is wrong, between any two steps."""
        self.broken: BaseException | None = None
        """The first error that it raised."""
        self.switches: int = 0
        """The number of cancellations, and of steps of another task than took the step before."""
        self.interleaving: int = 0
        """A hash of the order in which tasks took their steps and were cancelled; of two runs in one order the same."""
        self._numbers: dict[object, int] = {}
        self._ran_last = -1

    def number(self, task: object) -> int:
        """The number of a task, in the order in which tasks are first seen; unlike an id, the same in every run."""
        return self._numbers.setdefault(task, len(self._numbers))

    @property
    def choose(self) -> Callable[[int], int] | None:
        return None

    def begin(self, task: object) -> None:
        number = self.number(task)
        if self.trace is not None:
            self.trace.step(number, task, 0.0)

    def arrange(self, tasks: Sequence[object | None], *, now: float) -> Sequence[int]:  # noqa: ARG002
        """The order in which a turn's steps are taken. None stands for a callback of the loop's own."""
        self.turns += 1
        if self.turns > MAX_TURNS and not self.endless:
            self.endless = True
            if self.whole is not None:
                self.whole.cancel()
        for task in tasks:
            if task is not None:
                self.number(task)
        return range(len(tasks))

    def before_step(self, task: object | None, *, now: float) -> None:
        """Note that a task is about to take its step, or (None) the loop to call a callback of its own."""
        self.steps += 1
        if self.check is not None:
            self._verify(self.check)
        if task is None:
            return
        number = self.number(task)
        if number != self._ran_last:
            self._ran_last = number
            self.switches += 1
        self.interleaving = hash((self.interleaving, number))
        if self.trace is not None:
            self.trace.step(number, task, now)

    def _verify(self, check: Callable[[], None]) -> None:
        try:
            check()
        except BaseException as error:  # noqa: BLE001 # it is raised when the loop has ended
            self.check = None
            trace = error.__traceback__
            self.broken = error.with_traceback(trace and trace.tb_next)
            if self.whole is not None:
                self.whole.cancel()

    def idle(self) -> bool:
        """Let newcomers arrive, since nothing else can run before the time jumps; True if a task can run now."""
        newcomers, self.newcomers = self.newcomers, []
        for newcomer in newcomers:
            newcomer.arrives.set()
        return bool(newcomers)

    def late(self, timers: Sequence[float]) -> int:  # noqa: ARG002
        """The index of the timer to jump to; the `timers` are close together, and sorted."""
        return 0

    def hurry(self, timers: Sequence[float]) -> int | None:  # noqa: ARG002
        """The index of the timer to jump to while tasks are ready to run; None lets no time pass."""
        return None

    def enter(self, block: Block) -> None:
        self.blocks.append(block)

    def leave(self, block: Block) -> None:
        self.blocks.remove(block)

    def cancel(self, block: Block, *, native: bool) -> None:
        number = self.number(block.host)
        self.switches += 1
        self.interleaving = hash((self.interleaving, -1 - number, native))
        who = "the whole scenario" if block is self.whole else f"#{number}"
        self.note(f"{who} is cancelled{', natively' if native else ''}")
        block.cancel(native=native)

    def note(self, what: str) -> None:
        if self.trace is not None:
            self.trace.note(what)


class _Current:
    director: Director | None = None


def current_director() -> Director | None:
    return _Current.director


@contextmanager
def directing(director: Director) -> Generator[None]:
    if _Current.director is not None:
        raise RuntimeError("an exploration is under way already: they cannot be nested")
    _Current.director = director
    try:
        yield
    finally:
        _Current.director = None
