from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tenure.observe import Reporter


class PutSpan:
    """A `Putting` of the observer, whose errors do not reach the caller; it ends with its block."""

    __slots__ = ("_putting", "_reporter", "meta", "task_id")

    def __init__(self, reporter: Reporter, key: str, batch: int | None = None) -> None:
        self._reporter = reporter
        tracing = reporter.tracing
        self._putting = None if tracing is None else reporter.attempt(tracing.putting, key, batch)
        self.meta: Mapping[str, str] = {} if self._putting is None else self._putting.meta
        self.task_id: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._putting is not None:
            self._reporter.attempt(self._putting.end, self.task_id if error is None else error)
