"""The monitor: an iterator that yields the metrics of a processor at intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import anyio

from ._metrics import Metrics


class Monitor:
    """The metrics of a processor every `every` seconds: `async for metrics in processor.monitor(every=10)`.

    Ends with the processor.
    """

    __slots__ = ("_closed", "_every", "_next", "_read")

    def __init__(self, read: Callable[[], Metrics], closed: anyio.Event, every: float) -> None:
        self._read = read
        self._closed = closed
        self._every = every
        self._next: float | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Metrics:
        """Wait until they are due, and return the metrics. Cancellation: has no effect; the next call waits on."""
        due = anyio.current_time() + self._every if self._next is None else self._next
        self._next = due
        with anyio.CancelScope(deadline=due):
            await self._closed.wait()
        if self._closed.is_set():
            raise StopAsyncIteration
        # a slow consumer does not get what it has missed at once
        self._next = max(due, anyio.current_time()) + self._every
        return self._read()
