"""Sources of inputs: read in portions, each with the position that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
