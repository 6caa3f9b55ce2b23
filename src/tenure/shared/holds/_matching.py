"""A waiting claimer learns that no resource of the pool has the fields that it asks for: a field may be misspelt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tenure.engine as e
from tenure.store import StoreHandle
from tenure.waiting import now

_AFTER = 1.0
_MOST_PAGES = 4


class MatchCheck:
    __slots__ = (
        "_key",
        "_on_unmatched",
        "_pages",
        "_started",
        "_store",
        "_timeout",
        "_where",
        "ended",
        "unmatched",
    )

    def __init__(
        self,
        store: StoreHandle,
        key: str,
        where: e.Metadata,
        timeout: float | None,
        on_unmatched: Callable[[], object],
    ) -> None:
        self._store = store
        self._key = key
        self._where = frozenset(where)
        self._timeout = timeout
        self._on_unmatched = on_unmatched
        self._pages = 0
        self._started = False
        self.unmatched: bool = False
        self.ended: bool = False

    def begin(self) -> None:
        if not self._started:
            self._started = True
            after = _AFTER if self._timeout is None else min(_AFTER, self._timeout / 2)
            self._store.call_at(now() + after, partial(self._read, ""))

    def _read(self, after: str) -> None:
        if not self.ended:
            self._pages += 1
            self._store.send(e.Scan(e.RESOURCES, self._key, after), self._on_page)

    def _on_page(self, page: object) -> None:
        if not isinstance(page, e.ResourcePage) or any(self._where <= set(r.metadata) for r in page.rows):
            return
        if not page.next:
            self.unmatched = True
            if not self.ended:
                self._on_unmatched()
        elif self._pages < _MOST_PAGES:
            self._read(page.next)
