from __future__ import annotations

from collections.abc import Callable
from typing import Self

import anyio

from tenure.arguments import Seconds, check_seconds

from ._metrics import Metrics


class Monitor:
    """The metrics of a processor every `every` seconds; ends with it. See `Processor.monitor`."""

    def __init__(self, read: Callable[[], Metrics], ended: anyio.Event, every: Seconds) -> None:
        self._read = read
        self._ended = ended
        self._every = check_seconds("every", every, least=None)
        self._due = anyio.current_time() + self._every

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Metrics:
        """Wait until they are due, and return the metrics. Cancellation: has no effect; the next call waits on."""
        with anyio.CancelScope(deadline=self._due):
            await self._ended.wait()
        if self._ended.is_set():
            raise StopAsyncIteration
        # a slow consumer does not get what it has missed at once
        self._due = max(self._due, anyio.current_time()) + self._every
        return self._read()
