"""Sources of inputs: read in portions, each with the position that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Position = dict[str, Any]
"""The position up to which a source was read, as JSON.

`end` means that all was read; `share` is the share that was read (None: unknown).
"""

PORTION = 256
"""The largest number of inputs in a portion; the engines take as many in one step."""


@dataclass(frozen=True, slots=True)
class Portion:
    items: list[Any]
    position: Position


class InputSource(Protocol):
    """A sequence of inputs that can be read again from any position.

    Its methods block, and raise `UsageError` when the input is not what it was, or cannot be read.
    Thread safety: one call at a time, on any thread.
    """

    skipped: list[str]
    """The inputs that could not be read, a line each."""

    may_wait: bool
    """True if reading may wait for a writer; a thread that does so may be abandoned, and the source closed."""

    def check(self, position: Position) -> None: ...

    def has_more(self, position: Position) -> bool: ...

    def open(self, position: Position | None) -> None: ...

    def read(self) -> Portion: ...

    def close(self) -> None: ...
