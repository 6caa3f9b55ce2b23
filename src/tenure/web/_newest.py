"""The endings of a queue, the newest first; the contract lists them the oldest first."""

from __future__ import annotations

from collections.abc import Sequence

import tenure.engine as e
from tenure.store import StoreHandle, read_counts, read_pages


class Newest:
    """Reads the tasks of a queue that are "dead", or "ended" in any way, from the newest on.

    Ranks have gaps, where tasks ended in another way or were deleted. So each request reads a window of ranks, which
    grows while it finds little, and shrinks when it holds more tasks than a page.
    """

    def __init__(self, store: StoreHandle, key: str, state: str) -> None:
        self._store, self._key, self._state = store, key, state
        self._width = 0

    async def page(self, after: str, limit: int) -> tuple[Sequence[e.Record], str]:
        """At most `limit` tasks, and the `after` of the next page, "" after the last one; the first has "".

        Raises `ValueError` for an `after` that is no rank, `EngineError`.
        """
        if after and not (after.isascii() and after.isdecimal() and len(after) <= 18):
            raise ValueError(f"after: no page ended at {after!r}")
        rank = int(after) if after else await self._end(limit)
        while rank > 1:
            self._width = max(limit, self._width)
            low = max(0, rank - 1 - self._width)
            records = await self._between(low, rank, limit + 1)
            if len(records) > limit:
                self._width //= 2
                continue
            if len(records) <= limit // 2:
                self._width *= 2
            rank = low + 1
            if records:
                return records[::-1], str(rank) if low else ""
        return (), ""

    async def _between(self, low: int, high: int, limit: int) -> list[e.Record]:
        records: list[e.Record] = []
        while low < high - 1 and len(records) < limit:
            page = await self._browse(low, limit - len(records))
            records += [record for record in page.rows if record.seq < high]
            low = int(page.next or high)
        return records

    async def _end(self, limit: int) -> int:
        counts = await read_counts(self._store, self._key)
        # a task that was requeued has had more ranks than endings are counted
        low, step = counts.done + counts.dead + counts.cancelled + counts.expired + counts.discarded, limit
        while await self._any_above(low + step):
            low, step = low + step, step * 2
        high = low + step
        while high - low > limit:
            middle = (low + high) // 2
            low, high = (middle, high) if await self._any_above(middle) else (low, middle)
        return high + 1

    async def _any_above(self, rank: int) -> bool:
        page = await self._browse(rank, 1)
        return bool(page.rows or page.next)

    async def _browse(self, rank: int, limit: int) -> e.Page[e.Record]:
        return await read_pages(self._store, e.Scan(e.TASKS[self._state], self._key, str(rank)), limit)
