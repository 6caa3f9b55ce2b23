from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import tenure.engine as e
from tenure.arguments import LONGEST_NAME, check_count, check_text
from tenure.store import StoreHandle, read_pages

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Read = Callable[[str, int], Awaitable["Page[R]"]]
"""Reads up to a number of records behind a place, which is "" at the beginning."""


@dataclass(frozen=True)
class Page(Generic[R_co]):
    """Part of a listing; `next` is the `after` of the next part, or None after the last one."""

    records: list[R_co]
    next: str | None


class Listing(Generic[R]):
    """Records in an order: `async for record in queue.tasks("dead")`, or page by page.

    Iterating reads up to 256 records of one moment at a time, and ends after the `limit` of the listing. A record that
    exists from the first page to the last is listed; other records may be missed or come twice. Raises `StoreClosed`,
    `EngineError`. A listing is a description and can be read again.
    """

    def __init__(self, read: Read[R], limit: int | None = None) -> None:
        self.read: Read[R] = read
        self.limit: int = sys.maxsize if limit is None else check_count("limit", limit)

    def __aiter__(self) -> AsyncIterator[R]:
        return _Reading(self)

    async def page(self, after: str | None = None, limit: int = 100) -> Page[R]:
        """Read up to `limit` records; `after` is the `next` of the page before, or None for the first page.

        Raises `EngineError`, and `ValueError` for an `after` that no page has returned. Cancellation: no effect.
        """
        after = "" if after is None else check_text("after", after, most=2 * LONGEST_NAME + 1)
        return await self.read(after, check_count("limit", limit))


class _Reading(Generic[R]):
    def __init__(self, listing: Listing[R]) -> None:
        self._read, self._left = listing.read, listing.limit
        self._records: Iterator[R] = iter(())
        self._after: str | None = ""

    def __aiter__(self) -> AsyncIterator[R]:
        return self

    async def __anext__(self) -> R:
        while True:
            for record in self._records:
                return record
            if self._after is None or self._left <= 0:
                raise StopAsyncIteration
            page = await self._read(self._after, min(e.CAP, self._left))
            self._records, self._after = iter(page.records), page.next
            self._left -= len(page.records)


async def read_matching(
    store: StoreHandle, scan: e.Scan[Any], matches: Callable[[Any], bool] | None, most: int
) -> e.Page[Any]:
    if matches is None:
        return await read_pages(store, scan, most)
    rows: list[Any] = []
    limit = e.CAP
    while True:
        page = await read_pages(store, scan, limit)
        found = [place for place, row in enumerate(page.rows, 1) if matches(row)]
        left = most - len(rows)
        if len(found) > left:
            limit = found[left - 1]  # the page is read again up to the last row that is wanted
            continue
        rows += [page.rows[place - 1] for place in found]
        if not page.next or len(rows) == most:
            return e.Page(tuple(rows), page.next)
        scan, limit = replace(scan, after=page.next), e.CAP


def listing_of(read_all: Callable[[], Awaitable[list[R]]], name: Callable[[R], str]) -> Listing[R]:

    async def read(after: str, limit: int) -> Page[R]:
        rest = [record for record in await read_all() if name(record) > after]
        return Page(rest[:limit], name(rest[limit - 1]) if len(rest) > limit else None)

    return Listing(read)


def listing(store: StoreHandle, scan: e.Scan[Any], show: Callable[[Any], R]) -> Listing[R]:
    async def read(after: str, limit: int) -> Page[R]:
        rows = await read_pages(store, replace(scan, after=after), limit)
        return Page(list(map(show, rows.rows)), rows.next or None)

    return Listing(read)
