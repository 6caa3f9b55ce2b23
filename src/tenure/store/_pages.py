from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import tenure.engine as e
from tenure.upkeep import unwrapped_task_group

from ._handle import StoreHandle

P = TypeVar("P", bound=e.Page[Any])


async def read_pages(
    store: StoreHandle, scan: e.Scan[P], most: int | None = None, *, patient: bool = False
) -> P:
    """All rows of an index as one page, or the first `most`; up to `CAP` rows are of one moment.

    The other fields, `next` included, are as on the last page that was read. Raises as `StoreHandle.call` does.
    """
    rows: list[Any] = []
    while True:
        limit = e.CAP if most is None else min(e.CAP, most - len(rows))
        page = await store.call(replace(scan, limit=limit), patient=patient)
        if isinstance(page, e.Reply):
            return scan.index.page(tuple(rows))
        rows += page.rows
        if not page.next or len(rows) == most:
            return replace(page, rows=tuple(rows))
        scan = replace(scan, after=page.next)


async def read_counts(
    store: StoreHandle, key: str, *, patient: bool = False, recount: bool = False
) -> e.QueueCounts:
    counts = await store.call(e.Count(key, recount=recount), patient=patient)
    assert isinstance(counts, e.QueueCounts)
    return counts


async def names(store: StoreHandle, kind: str, limit: int = 1_000_000) -> list[str]:
    prefix = "" if kind == "sessions" else f"{store.namespace}:"
    collected: dict[str, None] = {}
    after = ""
    while len(collected) < limit:
        scan = e.Scan(e.NAMES[kind], "", after, only=prefix)
        page = await read_pages(store, scan, limit - len(collected))
        collected |= dict.fromkeys(page.rows)
        if not (after := page.next):
            break
    return sorted(collected)


async def together(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    outcomes: list[Any] = [None] * len(calls)

    async def run(place: int, call: Callable[[], Awaitable[Any]]) -> None:
        outcomes[place] = await call()

    async with unwrapped_task_group() as group:
        for place, call in enumerate(calls):
            group.start_soon(run, place, call)
    return outcomes
