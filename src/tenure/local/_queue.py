from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from typing import Generic, Self, TypeVar
from warnings import warn

from anyio import ClosedResourceError, EndOfStream, WouldBlock

from tenure.arguments import AsyncBlock, NotAwaited, Seconds, seconds_of
from tenure.local._backlog import BacklogEntry, Fifo, Ranked
from tenure.waiting import Home, Line, Waiter, checkpoint

T = TypeVar("T")


class _Unsaid(int):
    """The priority of a put without a `priority`: a zero that differs from a zero that was passed."""


_UNSAID = _Unsaid(0)


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The state of a queue at one moment."""

    size: int
    """The number of items in the queue."""
    max_size: float
    """The number of items that the queue has room for."""
    unfinished: int
    """The number of items that were put and are not reported as done."""
    tasks_waiting_put: int
    """The number of tasks that wait for room."""
    tasks_waiting_get: int
    """The number of tasks that wait for an item."""
    closed: bool
    """True once the queue takes no more items."""


class _Queue(Generic[T]):
    """The entry of a putter that was let in from the line has its place on the backlog, but is not `ready` before
    the putter has run: asyncio's own `task.cancel()` may still reach it, and a put that raises leaves nothing
    behind.
    """

    def __init__(self, max_size: float, backlog: Fifo[T] | Ranked[T]) -> None:
        if isinstance(max_size, bool) or not (isinstance(max_size, int) or max_size == inf):
            raise TypeError(f"max_size must be an int or math.inf, not {max_size!r}")
        if max_size < 1:
            raise ValueError(f"max_size must be at least 1, not {max_size!r}")
        self._max_size = max_size
        self._backlog = backlog
        self._seq = 0
        self._unfinished = 0
        self._closed = False
        home = Home(self)
        self._getters: Line[None, BacklogEntry[T]] = Line(self._getter_left, home)
        self._putters: Line[BacklogEntry[T], None] = Line(self._putter_left, home)
        self._enlisting: Line[None, None] = Line(owner=home)

    # putting

    def _put_now(self, item: T, priority: int) -> bool:
        if self._closed:
            raise ClosedResourceError
        backlog = self._backlog
        if backlog.size >= self._max_size or (self._putters.first and self._next_putter()):
            return False
        self._seq += 1
        entry = BacklogEntry(item, priority, self._seq)
        self._unfinished += 1
        if self._getters.first is None:
            backlog.add(entry)
        elif not backlog.size and (getter := self._getters.head()) is not None:
            self._getters.grant(getter, entry)
        else:
            backlog.add(entry)
            self._serve()
        return True

    async def _wait_for_room(self, item: T, priority: int) -> None:
        self._seq += 1
        entry = BacklogEntry(item, priority, self._seq)
        entry.ready = False
        putter = self._putters.join(entry)
        self._block(putter)
        await self._putters.wait(putter)
        if not putter.want.there:
            raise ClosedResourceError  # aborted in this turn
        putter.want.ready = True
        self._unfinished += 1
        self._serve()

    def _let_in(self) -> None:
        while self._backlog.size < self._max_size and (putter := self._next_putter()) is not None:
            self._unblock(putter)
            self._backlog.add(putter.want)
            self._putters.grant(putter, None)

    def _putter_left(self, putter: Waiter[BacklogEntry[T], None]) -> None:
        if not putter.granted:
            self._unblock(putter)
        elif putter.want.there:
            self._backlog.remove(putter.want)
            self._serve()
        self._let_in()

    # the order in which putters wait for room: the order of their arrival

    def _next_putter(self) -> Waiter[BacklogEntry[T], None] | None:
        return self._putters.head()

    def _block(self, putter: Waiter[BacklogEntry[T], None]) -> None:
        pass

    def _unblock(self, putter: Waiter[BacklogEntry[T], None]) -> None:
        pass

    # getting

    def get_nowait(self) -> T:
        """Take the next item, or raise `anyio.WouldBlock`; `anyio.EndOfStream` if no more items will come."""
        entry = self._next()
        if entry is None:
            raise WouldBlock
        self._remove(entry)
        return entry.item

    async def get(self) -> T:
        """Take the next item; waits, first come first served, while there is none.

        Raises `anyio.EndOfStream` when the queue is closed and empty. Always a checkpoint.

        Cancellation: nothing is taken; an item that was handed over goes to the next getter, or back to its place.
        """
        await checkpoint()
        entry = self._next()
        if entry is None:
            entry = await self._getters.wait(self._getters.join(None))
        else:
            self._remove(entry)
        return entry.item

    def _next(self) -> BacklogEntry[T] | None:
        if self._backlog.size:
            entry = self._backlog.first()
            if entry.ready:
                return entry
        elif self._closed:
            raise EndOfStream
        return None

    def _remove(self, entry: BacklogEntry[T]) -> None:
        self._backlog.remove(entry)
        if self._putters.first is not None:
            self._let_in()

    def _serve(self) -> None:
        while self._backlog.size and (entry := self._backlog.first()).ready:
            getter = self._getters.head()
            if getter is None:
                return
            self._getters.grant(getter, entry)
            self._remove(entry)
        if self._closed and not self._backlog.size:
            self._getters.fail_all(EndOfStream)

    def _getter_left(self, getter: Waiter[None, BacklogEntry[T]]) -> None:
        if getter.granted:
            self._backlog.add(getter.value.again())
            self._serve()

    def take(self) -> AbstractAsyncContextManager[T, None]:
        """A block with the next item, which ends with `task_done`: ``async with queue.take() as item:``.

        The item counts as done however the block ends; put it again to try it again. Raises as `get` does.

        Cancellation: while waiting, nothing is taken; in the block, the item counts as done.
        """
        return _Take(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.get()
        except EndOfStream:
            raise StopAsyncIteration from None

    # being done

    def task_done(self) -> None:
        """Report one of the items that were taken as done. Raises `ValueError` for more than were put."""
        if not self._unfinished:
            raise ValueError("task_done: called more often than items were put")
        self._done(1)

    async def join(self) -> None:
        """Wait until every item that was put is reported as done. Always a checkpoint.

        Cancellation: nothing changes.
        """
        if self._unfinished:
            await self._enlisting.wait(self._enlisting.join(None))
        else:
            await checkpoint()

    def _done(self, count: int) -> None:
        self._unfinished -= count
        if not self._unfinished:
            for waiter in self._enlisting:
                self._enlisting.grant(waiter, None)

    # closing

    def close(self) -> None:
        """Take no more items: later and waiting puts raise `anyio.ClosedResourceError`.

        Items in the queue can still be taken; after that, takers get `anyio.EndOfStream`.
        """
        self._closed = True
        self._refuse_putters()
        self._serve()

    def abort(self) -> list[T]:
        """Close the queue, and return its items in order; they count as done."""
        self._closed = True
        self._refuse_putters()
        dropped: list[T] = []
        while self._backlog.size:
            entry = self._backlog.first()
            self._backlog.remove(entry)
            if entry.ready:
                dropped.append(entry.item)
        self._serve()
        self._done(len(dropped))
        return dropped

    def _refuse_putters(self) -> None:
        for putter in self._putters:
            self._unblock(putter)
            self._putters.fail(putter, ClosedResourceError())

    # looking

    @property
    def maxsize(self) -> float:
        """The number of items that the queue has room for: an int, or `math.inf`."""
        return self._max_size

    def qsize(self) -> int:
        """The number of items in the queue."""
        return self._backlog.size

    def empty(self) -> bool:
        """True if the queue has no items."""
        return not self._backlog.size

    def full(self) -> bool:
        """True if the queue has no room for another item."""
        return self._backlog.size >= self._max_size

    def __len__(self) -> int:
        return self._backlog.size

    def __bool__(self) -> bool:
        return True

    def statistics(self) -> QueueStatistics:
        """The current state."""
        return QueueStatistics(
            size=self._backlog.size,
            max_size=self._max_size,
            unfinished=self._unfinished,
            tasks_waiting_put=len(self._putters),
            tasks_waiting_get=len(self._getters),
            closed=self._closed,
        )

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return (
            f"<{type(self).__name__}{state} {self._backlog.size}/{self._max_size}, {self._unfinished} unfinished,"
            f" {len(self._putters)} putting, {len(self._getters)} getting>"
        )


class _Take(AsyncBlock, NotAwaited, AbstractAsyncContextManager[T, None]):
    __slots__ = ("_queue",)

    def __init__(self, queue: _Queue[T]) -> None:
        self._queue = queue

    async def __aenter__(self) -> T:
        return await self._queue.get()

    async def __aexit__(self, *_: object) -> None:
        self._queue.task_done()


class Queue(_Queue[T]):
    """A queue of at most `max_size` items (an int, or `math.inf`): first in, first out, in both lines too.

    Putting waits while it is full, taking while it is empty. `close` lets getters drain it, `abort` empties it. `join`
    waits until `task_done` has reported all items; `take` is the block that reports its item.

    Cancellation: a call that raises has put or taken nothing.
    """

    def __init__(self, max_size: float) -> None:
        super().__init__(max_size, Fifo())

    def put_nowait(self, item: T) -> None:
        """Put an item, or raise `anyio.WouldBlock` if there is no room; `anyio.ClosedResourceError` if closed."""
        if not self._put_now(item, 0):
            raise WouldBlock

    async def put(self, item: T) -> None:
        """Put an item; waits, first come first served, while the queue is full. Always a checkpoint.

        Raises `anyio.ClosedResourceError` when the queue is closed, also meanwhile.

        Cancellation: the item is not in the queue.
        """
        # first the checkpoint: an item in the queue may be taken at once, and can no longer be withdrawn
        await checkpoint()
        if not self._put_now(item, 0):
            await self._wait_for_room(item, 0)


class PriorityQueue(_Queue[T]):
    """A queue of at most `max_size` items of which the item with the highest priority is taken first.

    Among equal priorities it is first in, first out; items are never compared. Putters that wait for room are
    admitted in the same order. With `aging`, an item that was put (or waits to be put) more than that many seconds ago
    goes before all others, the oldest first. Unlike in asyncio, the priority is not part of the item:
    `put((priority, item))` is a `UserWarning`. The rest is as in `Queue`.

    Source: a binary heap (Williams 1964) with lazy deletion.
    """

    def __init__(self, max_size: float, *, aging: Seconds | None = None) -> None:
        aging = seconds_of(aging)
        if aging is not None:
            _check_aging(aging)
        super().__init__(max_size, Ranked(aging))
        self._blocked: Ranked[T] = Ranked(aging)
        self._blocked_putters: dict[BacklogEntry[T], Waiter[BacklogEntry[T], None]] = {}

    def put_nowait(self, item: T, priority: int = _UNSAID) -> None:
        """Put an item, or raise `anyio.WouldBlock` if there is no room; `anyio.ClosedResourceError` if closed."""
        if priority is _UNSAID:
            priority = 0
            _warn_of_asyncio(item)
        elif type(priority) is not int:
            _check_priority(priority)
        if not self._put_now(item, priority):
            raise WouldBlock

    async def put(self, item: T, priority: int = _UNSAID) -> None:
        """Put an item; waits while the queue is full, behind items of higher or equal priority; otherwise as `Queue`.

        Cancellation: the item is not in the queue.
        """
        if priority is _UNSAID:
            priority = 0
            _warn_of_asyncio(item)
        elif type(priority) is not int:
            _check_priority(priority)
        await checkpoint()
        if not self._put_now(item, priority):
            await self._wait_for_room(item, priority)

    def _next_putter(self) -> Waiter[BacklogEntry[T], None] | None:
        while self._blocked.size:
            putter = self._blocked_putters[self._blocked.first()]
            if putter.waiting:
                return putter
            self._unblock(putter)
        return None

    def _block(self, putter: Waiter[BacklogEntry[T], None]) -> None:
        self._blocked.add(putter.want)
        self._blocked_putters[putter.want] = putter

    def _unblock(self, putter: Waiter[BacklogEntry[T], None]) -> None:
        if self._blocked_putters.pop(putter.want, None) is not None:
            self._blocked.remove(putter.want)
            ready, putter.want = putter.want.ready, putter.want.again()
            putter.want.ready = ready


def _check_aging(aging: object) -> None:
    if not isinstance(aging, int | float):
        raise TypeError(f"aging must be None or seconds, not {aging!r}")
    if not aging >= 0:
        raise ValueError(f"aging must be None or seconds, zero or more, not {aging!r}")


def _check_priority(priority: object) -> None:
    if not isinstance(priority, int):
        raise TypeError(f"priority must be an int, not {priority!r}")


def _warn_of_asyncio(item: object) -> None:
    if type(item) is tuple and item and isinstance(item[0], int | float):
        warn(
            f"{item!r} is put with priority 0: write put(item, priority), where higher goes first, "
            "or say priority=0 if that is meant",
            stacklevel=3,
        )
