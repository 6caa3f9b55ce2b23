"""Cancelling in every place: between every two steps of a run, block by block."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from ._director import Block, Director
from ._explore import ScheduleFailed
from ._report import report
from ._runs import checked_backends, is_asyncios_own, run_once, without_asyncio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True)
class Cancellations:
    """The cancellations of a search by `cancel_everywhere()` that found nothing.

    `runs` counts the runs, and `windows` the cancellations by the window in which they met their block: "W1" parked,
    with nothing about to wake it; "W2" parked, and the very next step would have woken it; "W2N" as W2 or W1, with a
    newcomer in that tick; "W3" woken, before it ran.
    """

    runs: int
    windows: Mapping[str, int]


class _Point(NamedTuple):
    block: int
    step: int
    idle: bool
    window: str


class _Scout(Director):
    def __init__(self, backend: str) -> None:
        super().__init__()
        self.points: list[_Point] = []
        self.entered = 0
        self.had_newcomers = False
        self._is_parked = _parked_on_asyncio if backend == "asyncio" else _parked_on_trio
        self._numbered: dict[Block, int] = {}
        # The points before the step that is under way: it may yet wake a task parked there.
        self._last: list[tuple[int, Block]] = []

    def enter(self, block: Block) -> None:
        super().enter(block)
        self._numbered[block] = self.entered
        self.entered += 1

    def before_step(self, task: object | None, *, now: float) -> None:
        self._look(idle=False)
        super().before_step(task, now=now)

    def idle(self) -> bool:
        self._look(idle=True)
        self.had_newcomers = self.had_newcomers or bool(self.newcomers)
        return super().idle()

    def _look(self, *, idle: bool) -> None:
        for place, block in self._last:
            if block not in self.blocks or not self._is_parked(block.host):
                self.points[place] = self.points[place]._replace(window="W2")
        self._last = []
        for block in self.blocks:
            window = "W1" if self._is_parked(block.host) else "W3"
            if window == "W1" and not idle:
                self._last.append((len(self.points), block))
            self.points.append(_Point(self._numbered[block], self.steps, idle, window))


class _CancelOnce(Director):
    def __init__(self, point: _Point, *, native: bool, newcomer: bool, tracing: bool = False) -> None:
        super().__init__(tracing=tracing)
        self._point = point
        self._native = native
        self._newcomer = newcomer
        self._entered: list[Block] = []
        self._fired = False
        self._arriving: set[object] = set()

    def enter(self, block: Block) -> None:
        super().enter(block)
        self._entered.append(block)

    def arrange(self, tasks: Sequence[object | None], *, now: float) -> Sequence[int]:
        order = super().arrange(tasks, now=now)
        if not (self._fired and self._newcomer):
            return order
        # The newcomer comes first, and whom we cancelled runs last.
        victim = self._entered[self._point.block].host
        self._newcomer = not any(task is victim for task in tasks)
        return sorted(
            order,
            key=lambda place: 2 if tasks[place] is victim else 0 if tasks[place] in self._arriving else 1,
        )

    def before_step(self, task: object | None, *, now: float) -> None:
        if not self._point.idle and self.steps == self._point.step:
            self._fire()
        super().before_step(task, now=now)

    def idle(self) -> bool:
        if self._point.idle and self.steps == self._point.step and self._fire():
            return True
        return super().idle()

    def _fire(self) -> bool:
        if self._fired or len(self._entered) <= self._point.block:
            return False
        self._fired = True
        block = self._entered[self._point.block]
        if block not in self.blocks:
            return False
        self.cancel(block, native=self._native)
        if self._newcomer:
            self._arriving = {waiting.task for waiting in self.newcomers}
            super().idle()
        return True


def cancel_everywhere(
    scenario: Callable[[], Awaitable[object]],
    *,
    backends: Sequence[str] | None = None,
    cancel: Literal[True, "scope", "native"] = True,
) -> Cancellations:
    """Run `scenario` again and again, and cancel each of its `cancellable()` blocks in every place, one a run.

    The tasks run in their natural order, in virtual time, so that runs are alike up to the cancellation. A place is
    between two steps of tasks during the block, or a moment at which all wait (see `Cancellations.windows`). The block
    is cancelled by its scope and, on asyncio, by its task's own `cancel()`; `cancel` is "scope" or "native" for one of
    them alone. A task of the scenario that waits in `await newcomer()` comes in the same tick, in further runs of its
    own.

    The scenario asserts what must hold afterwards; it fails as in `explore()`, and the first failure raises
    `ScheduleFailed`. Raises `ValueError` for bad arguments and for a scenario that enters no `cancellable()`,
    `ModuleNotFoundError` for trio where it is missing. By default, `backends` are those installed, and asyncio alone if
    the scenario uses asyncio itself.
    """
    __tracebackhide__ = True
    runs = 0
    windows: Counter[str] = Counter()
    if not cancel:
        raise ValueError("cancel: True, 'scope' or 'native', not False")
    for backend in checked_backends(backends, cancel):
        scout = _Scout(backend)
        with without_asyncio(backend):
            error = run_once(scenario, backend, scout)
            if error is not None and is_asyncios_own(backends, backend, error):
                error = None
                gc.collect()
                break
        if error is not None:
            _raise(scenario, Director(tracing=True), error, backend, "with nothing cancelled")
        if not scout.entered:
            raise ValueError(
                "scenario: it marks nothing by `with cancellable()`, so there is nothing to cancel"
            )
        natively = (
            [False]
            if backend == "trio"
            else [way for way, kept in ((False, "scope"), (True, "native")) if cancel in {True, kept}]
        )
        for point in scout.points:
            for native in natively:
                for newcomer in (False, True) if scout.had_newcomers else (False,):
                    _run_cancelled_at(scenario, backend, point, native, newcomer)
                    windows["W2N" if newcomer and point.window != "W3" else point.window] += 1
                    runs += 1
        runs += 1
    return Cancellations(runs, windows)


def _run_cancelled_at(
    scenario: Callable[[], Awaitable[object]], backend: str, point: _Point, native: bool, newcomer: bool
) -> None:
    __tracebackhide__ = True
    director = _CancelOnce(point, native=native, newcomer=newcomer)
    error = run_once(scenario, backend, director)
    if error is None:
        return
    how = f"block {point.block + 1} cancelled{' natively' if native else ''} before step {point.step + 1}"
    where = f"in {point.window}{', with a newcomer' if newcomer else ''}{', while all wait' if point.idle else ''}"
    director = _CancelOnce(point, native=native, newcomer=newcomer, tracing=True)
    _raise(scenario, director, error, backend, f"{how}, {where}")


def _raise(
    scenario: Callable[[], Awaitable[object]],
    director: Director,
    error: BaseException,
    backend: str,
    how: str,
) -> NoReturn:
    __tracebackhide__ = True
    error = run_once(scenario, backend, director) or error
    message = report(error, backend, director.trace, notes=[], how=f", {how}")
    trace = "" if director.trace is None else director.trace.text()
    place = f"{backend}: {how}"
    raise ScheduleFailed(message, seed=place, schedule=place, backend=backend, trace=trace) from error


def _parked_on_asyncio(task: Any) -> bool:
    waiter = task._fut_waiter
    return waiter is not None and not waiter.done()


def _parked_on_trio(task: Any) -> bool:
    return task._next_send_fn is None
