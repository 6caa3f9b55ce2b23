from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Generic, Self, TypeVar

from anyio import AsyncContextManagerMixin, ClosedResourceError

from tenure.arguments import AsyncBlock, check_count
from tenure.local._queue import Queue
from tenure.local._reentrancy import Reentrancy, is_reentrant
from tenure.upkeep import Upkeep, in_one_task, unwrapped_task_group
from tenure.waiting import Line, apart

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RouterKindStatistics:
    """The state of one kind at one moment, in numbers of items."""

    workers: int
    """The number of items that may be handled at once."""
    busy: int
    """The number of items that are being handled."""
    unfinished: int
    """The number of items that were put and are not handled to the end, items whose put waits for room included."""
    handled: int
    """The number of items handled to the end since the router was entered."""


@dataclass(frozen=True, slots=True)
class RouterStatistics(Generic[K]):
    """The state of a `Router` at one moment."""

    max_size: int
    """The largest number of items that wait in the queue of each kind."""
    kinds: Mapping[K, RouterKindStatistics]
    """The state of each kind."""


class _KindWorkers(Generic[T]):
    __slots__ = ("busy", "handled", "queue", "size", "unfinished")

    def __init__(self, size: int, max_size: int) -> None:
        self.queue: Queue[T] = Queue(max_size)
        self.size = size
        self.busy = self.unfinished = self.handled = 0


class Router(AsyncBlock, AsyncContextManagerMixin, Generic[K, T]):
    """Handles items of several kinds: ``await handle(item)``, in workers that each kind has for itself.

    ``Router({"mail": 2, "thumbnail": 8}, handler, max_size=100)``: for each kind so many workers, and a queue in which
    at most `max_size` items wait, first come first served. A full queue holds up putters of its kind, and no others.

    Leaving the block refuses new items (`ClosedResourceError`), except the puts of handlers, and waits until all are
    handled. An exception of a handler cancels the block and the other workers, and leaves by the block; items that
    were not handled are dropped, and waiting puts raise `ClosedResourceError`.

    Cancellation: a block that is cancelled cancels its workers, and drops what was not handled. For items that
    must outlive that, there is `tenure.WorkQueue`.
    """

    def __init__(
        self, kinds: Mapping[K, int], handler: Callable[[K, T], Awaitable[object]], *, max_size: int
    ) -> None:
        if not kinds:
            raise ValueError(f"kinds must name at least one kind, not {kinds!r}")
        for kind, workers in kinds.items():
            check_count(f"kinds[{kind!r}]", workers)
        check_count("max_size", max_size)
        if not callable(handler):
            raise TypeError(f"handler must be an async function, not {handler!r}")
        self._kinds = dict(kinds)
        self._handler = handler
        self._max_size = max_size
        self._workers: dict[K, _KindWorkers[T]] = self._new_workers()
        self._open = False
        self._enlisting: Line[None, None] = Line(owner=self)

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        async with in_one_task("router"), unwrapped_task_group() as group:
            self._workers = self._new_workers()
            self._enlisting.home.bind()
            upkeep = Upkeep(group)
            for kind, workers in self._workers.items():
                for _ in range(workers.size):
                    upkeep.start(f"router {kind}", self._work, kind, workers)
            self._open = True
            try:
                yield self
                self._open = False
                await self.join()
            finally:
                self._open = False
                upkeep.cancel()
                for workers in self._workers.values():
                    for _ in workers.queue.abort():
                        self._finished(workers)

    async def put(self, kind: K, item: T) -> None:
        """Put an item into the queue of its kind, and wait until it is in the queue.

        Raises `ClosedResourceError` outside of the block, and `ValueError` for an unknown kind. A handler that puts
        into a full queue of its own kind may wait for itself: use `put_nowait` there.

        Cancellation: the item was not put. Always a checkpoint.
        """
        workers = self._workers_for(kind)
        workers.unfinished += 1
        try:
            await workers.queue.put(item)
        except BaseException:
            self._finished(workers)
            raise

    def put_nowait(self, kind: K, item: T) -> None:
        """Put an item now or raise `anyio.WouldBlock`; other errors as `put`."""
        workers = self._workers_for(kind)
        workers.queue.put_nowait(item)
        workers.unfinished += 1

    async def join(self) -> None:
        """Wait until all items are handled, those included that are put meanwhile.

        Cancellation: nothing happens to the items. Always a checkpoint.
        """
        waiter = self._enlisting.join(None)
        self._let_join()
        await self._enlisting.wait(waiter)

    def statistics(self) -> RouterStatistics[K]:
        """The current state."""
        kinds = {
            kind: RouterKindStatistics(workers.size, workers.busy, workers.unfinished, workers.handled)
            for kind, workers in self._workers.items()
        }
        return RouterStatistics(max_size=self._max_size, kinds=MappingProxyType(kinds))

    def __repr__(self) -> str:
        doing = "open" if self._open else "closed"
        kinds = (
            f"{kind!r}: {workers.busy}/{workers.size} busy, {workers.unfinished} unfinished"
            for kind, workers in self._workers.items()
        )
        return f"<Router {doing}, {'; '.join(kinds)}>"

    def _new_workers(self) -> dict[K, _KindWorkers[T]]:
        return {kind: _KindWorkers(size, self._max_size) for kind, size in self._kinds.items()}

    def _workers_for(self, kind: K) -> _KindWorkers[T]:
        if (workers := self._workers.get(kind)) is None:
            raise ValueError(f"kind must be one of {list(self._kinds)!r}, not {kind!r}")
        if not self._open and not is_reentrant(self._workers):
            raise ClosedResourceError
        return workers

    async def _work(self, kind: K, workers: _KindWorkers[T]) -> None:
        Reentrancy(self._workers)
        handle = apart(partial(self._handler, kind))
        async for item in workers.queue:
            workers.busy += 1
            try:
                await handle(item)
                workers.handled += 1
            finally:
                workers.busy -= 1
                self._finished(workers)

    def _finished(self, workers: _KindWorkers[T]) -> None:
        workers.unfinished -= 1
        self._let_join()

    def _let_join(self) -> None:
        if not any(workers.unfinished for workers in self._workers.values()):
            for waiter in self._enlisting:
                self._enlisting.grant(waiter, None)
