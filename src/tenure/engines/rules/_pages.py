"""Pages: rows with their places in an index, and the beginning of the next page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import tenure.engine as e
from tenure.errors import EngineError

P = TypeVar("P", bound=e.Page[Any])

Position = tuple[Any, ...]
"""The key by which an index is sorted."""


def page_of(scan: e.Scan[P], placed: Sequence[tuple[Position, Any]], **others: Any) -> P:
    """The page of the rows, each with its place, in order: as many as fit.

    One row more than fit tells that another page follows. A row that is None is passed over. `others` are the other
    fields of the page.
    """
    rows = tuple([row for _, row in placed[: scan.limit] if row is not None])
    more = len(placed) > scan.limit
    return scan.index.page(rows, _text_of(placed[scan.limit - 1][0]) if more else "", **others)


def place_in(scan: e.Scan[Any], *pattern: str | int) -> Position:
    """The place after which the page begins, none for the first page. Raises `EngineError` unless its parts fit
    `pattern`.
    """
    if not scan.after:
        return ()
    try:
        place: Any = json.loads(f"[{scan.after}]")
    except (ValueError, RecursionError):
        place = ()
    kinds = [str if isinstance(part, str) else int | float for part in pattern]
    if len(place) != len(kinds) or not all(map(isinstance, place, kinds)):
        raise EngineError(f"no page of {scan.index.name} ended at {scan.after[:100]!r}")
    return tuple(cast("list[Any]", place))


def _text_of(place: Position) -> str:
    # without escapes: the escapes of two surrogates would come back as one character
    return json.dumps(place, ensure_ascii=False)[1:-1]
