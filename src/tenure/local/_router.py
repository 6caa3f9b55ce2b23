"""A queue and workers of its own for each kind of task, so that slow kinds do not hold up quick ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, Self, TypeVar

from anyio import AsyncContextManagerMixin, ClosedResourceError

from tenure.local._line import Line
from tenure.local._queue import Queue
from tenure.local._within import Within, is_within
from tenure.upkeep import Upkeep, unwrapped_task_group

__all__ = ("Router", "RouterLane", "RouterStatistics")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RouterLane:
    """The state of one kind at one moment, in numbers of items."""

    workers: int
    """How many may be handled at once."""
    busy: int
    """How many are being handled."""
    unfinished: int
    """How many were put and are not handled to the end; those whose put still waits for room are among them."""
    handled: int
    """How many were handled to the end since the router was entered."""


@dataclass(frozen=True, slots=True)
class RouterStatistics(Generic[K]):
    """The state of a `Router` at one moment."""

    max_size: int
    """How many items wait at most in the queue of each kind."""
    lanes: Mapping[K, RouterLane]
    """The state of each kind."""


class _Lane(Generic[T]):
    __slots__ = ("busy", "handled", "queue", "unfinished", "workers")

    def __init__(self, workers: int, max_size: int) -> None:
        self.queue: Queue[T] = Queue(max_size)
        self.workers = workers
        self.busy = self.unfinished = self.handled = 0


class Router(AsyncContextManagerMixin, Generic[K, T]):
    """Handles items of several kinds: ``await handler(kind, item)``, in workers that each kind has for itself.

    ``Router({"mail": 2, "thumbnail": 8}, handler, max_size=100)``: for each kind so many workers, and a queue in
    which at most `max_size` items wait. A kind whose queue is full holds up those who put that kind, and nobody
    else. Items of a kind are taken first come first served; with one worker they are handled strictly in order.

    Leaving the block refuses new items (`ClosedResourceError`), but those that handlers put, and waits until all
    are handled. An exception of a handler ends the router: it cancels the block and the other workers, and
    leaves by the block; what was not handled is dropped, and those who wait to put get `ClosedResourceError`.
    Where one bad item shall not stop the others, the handler catches.

    Cancellation: a block that is cancelled cancels its workers, and drops what was not handled. For items that
    must outlive that, there is `tenure.WorkQueue`.

    Thread safety: none; all on the thread of one loop.
    """

    def __init__(
        self, kinds: Mapping[K, int], handler: Callable[[K, T], Awaitable[object]], *, max_size: int
    ) -> None:
        """Make a router that takes nothing before it is entered; outside a running loop too."""
        if not kinds:
            raise ValueError(f"kinds must name at least one kind, not {kinds!r}")
        for kind, workers in kinds.items():
            _check_count(f"kinds[{kind!r}]", workers)
        _check_count("max_size", max_size)
        if not callable(handler):
            raise TypeError(f"handler must be an async function, not {handler!r}")
        self._kinds = dict(kinds)
        self._handler = handler
        self._max_size = max_size
        self._lanes: dict[K, _Lane[T]] = self._new_lanes()
        self._open = False
        self._joining: Line[None, None] = Line(lambda _: None)

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        """Start the workers; see the class for what leaving does."""
        async with unwrapped_task_group() as group:
            self._lanes = self._new_lanes()
            upkeep = Upkeep(group)
            for kind, lane in self._lanes.items():
                for _ in range(lane.workers):
                    upkeep.start(f"router {kind}", self._work, kind, lane)
            self._open = True
            try:
                yield self
                self._open = False
                await self.join()
            finally:
                self._open = False
                upkeep.cancel()
                for lane in self._lanes.values():
                    for _ in lane.queue.abort():
                        self._finished(lane)

    async def put(self, kind: K, item: T) -> None:
        """Put an item into the queue of its kind, and wait while that is full.

        It returns when the item is in the queue, not when it is handled. ClosedResourceError outside of the
        block; ValueError for a kind that the router does not have. A handler that puts into a full queue of its
        own kind may wait for itself: there `put_nowait` is right.

        Cancellation: the item was not put. Always a checkpoint.
        """
        lane = self._lane(kind)
        lane.unfinished += 1
        try:
            await lane.queue.put(item)
        except BaseException:
            self._finished(lane)
            raise

    def put_nowait(self, kind: K, item: T) -> None:
        """Put an item now or raise `anyio.WouldBlock`; other errors as `put`.

        Cancellation: not a checkpoint.
        """
        lane = self._lane(kind)
        lane.queue.put_nowait(item)
        lane.unfinished += 1

    async def join(self) -> None:
        """Wait until everything that was put is handled; what is put meanwhile counts too.

        Cancellation: nothing happens to the items. Always a checkpoint.
        """
        waiter = self._joining.join(None)
        self._let_join()
        await self._joining.wait(waiter)

    def statistics(self) -> RouterStatistics[K]:
        """Give the state of this moment.

        Cancellation: not a checkpoint.
        """
        lanes = {
            kind: RouterLane(lane.workers, lane.busy, lane.unfinished, lane.handled)
            for kind, lane in self._lanes.items()
        }
        return RouterStatistics(max_size=self._max_size, lanes=MappingProxyType(lanes))

    def __repr__(self) -> str:
        doing = "open" if self._open else "closed"
        lanes = (
            f"{kind!r}: {lane.busy}/{lane.workers} busy, {lane.unfinished} unfinished"
            for kind, lane in self._lanes.items()
        )
        return f"<Router {doing}, {'; '.join(lanes)}>"

    def _new_lanes(self) -> dict[K, _Lane[T]]:
        return {kind: _Lane(workers, self._max_size) for kind, workers in self._kinds.items()}

    def _lane(self, kind: K) -> _Lane[T]:
        if (lane := self._lanes.get(kind)) is None:
            raise ValueError(f"kind must be one of {list(self._kinds)!r}, not {kind!r}")
        if not self._open and not is_within(self._lanes):
            raise ClosedResourceError
        return lane

    async def _work(self, kind: K, lane: _Lane[T]) -> None:
        Within(self._lanes)
        async for item in lane.queue:
            lane.busy += 1
            try:
                await self._handler(kind, item)
                lane.handled += 1
            finally:
                lane.busy -= 1
                self._finished(lane)

    def _finished(self, lane: _Lane[T]) -> None:
        lane.unfinished -= 1
        self._let_join()

    def _let_join(self) -> None:
        if not any(lane.unfinished for lane in self._lanes.values()):
            for waiter in self._joining:
                self._joining.grant(waiter, None)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value!r}")
