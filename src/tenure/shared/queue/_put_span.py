"""The span of a call that puts, when the store's observer traces."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Self

from tenure.observe import Reporter


class PutSpan:
    """A `Putting` of the observer, of which nothing that goes wrong reaches the caller. As a block, it ends with it."""

    def __init__(self, reporter: Reporter, key: str, batch: int | None = None) -> None:
        self._reporter = reporter
        tracing = reporter.tracing
        self._putting = None if tracing is None else reporter.attempt(tracing.putting, key, batch)
        self.meta: Mapping[str, str] = {} if self._putting is None else self._putting.meta
        """The meta that each task shall carry."""
        self.task_id: int | None = None

    def end(self, outcome: int | BaseException | None) -> None:
        """The call has ended, with the task's id or an exception; None: with a batch."""
        if self._putting is not None:
            self._reporter.attempt(self._putting.end, outcome)

    async def end_with(self, put: Awaitable[int]) -> int:
        """Await the task's id, and end."""
        with self:
            self.task_id = await put
            return self.task_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(self.task_id if error is None else error)
