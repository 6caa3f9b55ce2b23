"""Reading all pages of an index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from tenure.engine import CAP, Page, Reply, Scan

from ._store import Store

P = TypeVar("P", bound=Page[Any])


async def read_pages(store: Store, scan: Scan[P], most: int | None = None) -> P:
    """All rows of an index as one page, or the first `most`; up to `CAP` rows are of one moment.

    The other fields are as on the last page that was read, `next` too. An object that is not there has no rows.
    Raises `EngineError`, `StoreClosed`. Cancellation: no effect.
    """
    rows: list[Any] = []
    while True:
        limit = CAP if most is None else min(CAP, most - len(rows))
        page = await store.call(replace(scan, limit=limit))
        if isinstance(page, Reply):
            return scan.index.page(tuple(rows))
        rows += page.rows
        if not page.next or len(rows) == most:
            return replace(page, rows=tuple(rows))
        scan = replace(scan, after=page.next)
