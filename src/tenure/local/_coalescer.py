from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import anyio
from anyio import AsyncContextManagerMixin, BrokenResourceError, ClosedResourceError
from anyio.lowlevel import checkpoint_if_cancelled

from tenure.arguments import AsyncBlock, Seconds, check_flag, seconds_of
from tenure.local._outcome import Failed, Returned
from tenure.local._reentrancy import Reentrancy, is_reentrant
from tenure.observe import Reporter
from tenure.upkeep import Upkeep, in_one_task, unwrapped_task_group
from tenure.waiting import Home, Line, apart

if TYPE_CHECKING:
    from tenure.local._outcome import Outcome
    from tenure.waiting import Waiter

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CoalescerStatistics:
    """The state of a `Coalescer` at one moment, and what it has done."""

    tasks_waiting: int
    """The number of waiting puts, including those whose batch is being flushed."""
    batches: int
    """The number of batches that are gathered and not yet being flushed."""
    flushing: bool
    """A flush is under way."""
    flushed: int
    """The number of flushes that have succeeded."""
    failed: int
    """The number of flushes that have raised or were cancelled."""


class _Batch(Generic[K, V]):
    __slots__ = ("due", "full", "keys", "last_due", "line", "raising", "reporter")

    def __init__(self, last_due: float, reporter: Reporter, home: Home) -> None:
        self.reporter = reporter
        self.raising = 0
        """The number of puts that raise the error of the flush."""
        self.line: Line[tuple[K, V], Outcome[None]] = Line(self._left, home)
        self.keys: Counter[K] = Counter()
        self.last_due = last_due
        self.due = last_due
        self.full = False

    def join(self, key: K, value: V) -> Waiter[tuple[K, V], Outcome[None]]:
        self.keys[key] += 1
        return self.line.join((key, value))

    def land(
        self,
        waiters: list[Waiter[tuple[K, V], Outcome[None]]],
        outcome: Outcome[None] | None,
    ) -> None:
        for waiter in waiters:
            if outcome is None:
                self.line.fail(waiter, BrokenResourceError("cancelled while it was being flushed"))
            else:
                self.raising += self.line.grant(waiter, outcome)
        if isinstance(outcome, Failed) and not self.raising:
            self.reporter.warn("coalescer.flush_failed", error=outcome.error)

    def _left(self, waiter: Waiter[tuple[K, V], Outcome[None]]) -> None:
        key, _ = waiter.want
        self.keys[key] -= 1
        if not self.keys[key]:
            del self.keys[key]
        if waiter.granted and isinstance(failed := waiter.value, Failed):
            # it was cancelled before it could raise the error
            self.raising -= 1
            if not self.raising:
                self.reporter.warn("coalescer.flush_failed", error=failed.error)


class Coalescer(AsyncBlock, AsyncContextManagerMixin, Generic[K, V]):
    """Gathers values and hands them over in batches: ``await flush({key: value, ...})``.

        async with Coalescer(save, window=0.02, max_wait=0.1, merge=operator.add) as hits:
            await hits.put("home", 1)  # returns when its batch is flushed

    - `window`: seconds without a put after which a batch is flushed.
    - `max_wait`: the most seconds from the first put to the flush (None: no limit).
    - `max_items`: the most keys of a batch (None: any number).
    - `leading`: the first put after a pause is flushed at once, alone.
    - `merge(earlier, later)` makes one value of two for a key; without it the last value counts.

    One flush runs at a time. Every put of a batch raises the `Exception` of its flush or of `merge`.

    Cancellation: see `put`. A block that is cancelled still flushes the gathered values.
    Source: the timing of lodash's `debounce`, for all puts together.
    """

    def __init__(
        self,
        flush: Callable[[dict[K, V]], Awaitable[object]],
        *,
        window: Seconds,
        max_wait: Seconds | None = None,
        max_items: int | None = None,
        leading: bool = False,
        merge: Callable[[V, V], V] | None = None,
    ) -> None:
        if not callable(flush):
            raise TypeError(f"flush must be an async function, not {flush!r}")
        window, max_wait = seconds_of(window), seconds_of(max_wait)
        if not window >= 0:
            raise ValueError(f"window must be at least 0 seconds, not {window!r}")
        if max_wait is not None and not max_wait >= window:
            raise ValueError(f"max_wait must be at least the window of {window} s, or None, not {max_wait!r}")
        if max_items is not None and not max_items >= 1:
            raise ValueError(f"max_items must be at least 1, or None, not {max_items!r}")
        self._flush = flush
        self._reporter = Reporter()
        self._window = window
        self._max_wait = inf if max_wait is None else max_wait
        self._max_items = inf if max_items is None else max_items
        self._leading = check_flag("leading", leading)
        self._merge = merge
        self._batches: deque[_Batch[K, V]] = deque()
        self._flushing: _Batch[K, V] | None = None
        self._home = Home(self)
        self._window_end = -inf
        self._open = False
        self._news = anyio.Event()
        self._flushed = self._failed = 0

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        """Start gathering."""
        async with in_one_task("coalescer"), unwrapped_task_group() as group:
            self._home.bind()
            self._open = True
            finished = anyio.Event()
            job = Upkeep(group).start("coalescer", self._work, finished)
            try:
                yield self
            finally:
                self._open = False
                self._news.set()
                with anyio.CancelScope(shield=True):
                    await finished.wait()
                job.cancel()

    async def put(self, key: K, value: V) -> None:
        """Put a value, and wait until it is flushed; raise the error of the flush.

        Raises `ClosedResourceError` outside of the block, `BrokenResourceError` if the flush was cancelled by
        something of its own, and `RuntimeError` inside of `flush`. Always a checkpoint.

        Cancellation: before its flush begins, the value is taken out again and the others stay; later, the
        value goes where the others go.
        """
        if is_reentrant(self):
            raise RuntimeError(f"{self!r} was put into from inside of its own flush: a deadlock")
        if not self._open:
            raise ClosedResourceError
        self._home.bind()
        if self._batches and not self._batches[-1].keys:
            self._batches.pop()  # all were cancelled: its times belong to no caller
        now = anyio.current_time()
        leads = self._leading and now >= self._window_end and not self._batches
        self._window_end = now + self._window
        if not self._batches or self._batches[-1].full:
            self._batches.append(_Batch(now + self._max_wait, self._reporter, self._home))
            self._news.set()
        batch = self._batches[-1]
        waiter = batch.join(key, value)
        batch.due = min(now + self._window, batch.last_due)
        if leads or len(batch.keys) >= self._max_items:
            batch.full = True
            self._news.set()
        outcome = await batch.line.wait(waiter)
        try:
            outcome.result()
        finally:
            # the traceback of an error holds this frame: let go of it, or both wait for the garbage collector
            del outcome, waiter

    def statistics(self) -> CoalescerStatistics:
        """The current state."""
        batches = [*self._batches] if self._flushing is None else [self._flushing, *self._batches]
        return CoalescerStatistics(
            tasks_waiting=sum(len(batch.line) for batch in batches),
            batches=len(self._batches),
            flushing=self._flushing is not None,
            flushed=self._flushed,
            failed=self._failed,
        )

    def __repr__(self) -> str:
        state = self.statistics()
        doing = "open" if self._open else "closed"
        return f"<Coalescer {doing}, {state.tasks_waiting} waiting in {state.batches} batches>"

    async def _work(self, finished: anyio.Event) -> None:
        try:
            while self._open or self._batches:
                self._news = anyio.Event()
                due = self._next()
                if due > anyio.current_time():
                    with anyio.move_on_at(due):
                        await self._news.wait()
                else:
                    await checkpoint_if_cancelled()
                    await self._flush_one(self._batches.popleft())
        finally:
            for batch in self._batches:
                batch.line.fail_all(partial(BrokenResourceError, "closed before it was flushed"))
            self._batches.clear()
            finished.set()

    def _next(self) -> float:
        # when the first batch is to be flushed
        if not self._batches:
            return inf
        if self._batches[0].full or not self._open:
            return -inf
        return self._batches[0].due

    async def _flush_one(self, batch: _Batch[K, V]) -> None:
        self._flushing = batch
        within = Reentrancy(self)
        outcome: Outcome[None] | None = None
        waiters = list(batch.line)
        try:
            if values := self._merged(waiters):
                await apart(self._flush)(values)
                self._flushed += 1
            outcome = Returned(None)
        except anyio.get_cancelled_exc_class():
            self._failed += (
                1  # by the end of the block, which the job meets again, or by something of its own
            )
        except Exception as error:  # noqa: BLE001 - the puts of the batch raise it
            self._failed += 1
            outcome = Failed(error)
        finally:
            within.over = True
            self._flushing = None
            batch.land(waiters, outcome)
            # from Python 3.12 on, the traceback of an error keeps this frame with its variables
            del outcome, waiters

    def _merged(self, waiters: list[Waiter[tuple[K, V], Outcome[None]]]) -> dict[K, V]:
        values: dict[K, V] = {}
        for waiter in waiters:
            key, value = waiter.want
            values[key] = self._merge(values[key], value) if self._merge and key in values else value
        return values
