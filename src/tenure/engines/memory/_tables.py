"""Tables of rows in memory: a dictionary by key, and a sorted list for each order and each value of its prefix."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from tenure.engines.rules import Layout, Order

Values = tuple[Any, ...]


class MemoryTable:
    """The rows of one layout. `get` returns the row itself: a change counts for the orders once the row is saved."""

    def __init__(self, layout: Layout) -> None:
        self._key = _values(layout.key)
        self._orders = {name: _SortedKeys(order) for name, order in layout.orders.items()}
        self.rows: dict[Values, Any] = {}

    def get(self, *key: Any) -> Any:
        return self.rows.get(key)

    def save(self, row: Any) -> None:
        key = self._key(row)
        self.rows[key] = row
        for order in self._orders.values():
            order.put(key, row)

    def remove(self, row: Any) -> None:
        key = self._key(row)
        del self.rows[key]
        for order in self._orders.values():
            order.remove(key)

    def first(self, order: str, *of: Any) -> Any:
        entries = self._orders[order].entries.get(of)
        return self.rows[entries[0][1]] if entries else None

    def last(self, order: str, *of: Any) -> Any:
        entries = self._orders[order].entries.get(of)
        return self.rows[entries[-1][1]] if entries else None

    def each(self, order: str, *of: Any) -> Iterator[Any]:
        return (self.rows[key] for _, key in self._orders[order].entries.get(of, ()))

    def some(self, order: str, *of: Any, limit: int, after: Values = ()) -> list[Any]:
        entries = self._orders[order].entries.get(of, [])
        start = bisect_right(entries, after, key=_by) if after else 0
        return [self.rows[key] for _, key in entries[start : start + limit]]


class _SortedKeys:
    """The keys of the rows of one order. To add or remove a key moves the keys behind it, which memory does fast."""

    def __init__(self, order: Order) -> None:
        self._of = _values(order.of)
        self._by = _values(order.by)
        self._when = order.when
        self._places: dict[Values, tuple[Values, Values]] = {}
        self.entries: dict[Values, list[tuple[Values, Values]]] = {}

    def put(self, key: Values, row: Any) -> None:
        if self._when is not None and getattr(row, self._when[0]) != self._when[1]:
            self.remove(key)
            return
        place = of, by = self._of(row), self._by(row)
        if self._places.get(key) != place:
            self.remove(key)
            self._places[key] = place
            entries = self.entries.setdefault(of, [])
            if not entries or entries[-1][0] < by:
                entries.append((by, key))
            else:
                entries.insert(bisect_left(entries, (by,)), (by, key))

    def remove(self, key: Values) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            of, by = place
            entries = self.entries[of]
            del entries[bisect_left(entries, (by,))]
            if not entries:
                del self.entries[of]


def _by(entry: tuple[Values, Values]) -> Values:
    return entry[0]


def _values(fields: tuple[str, ...]) -> Callable[[Any], Values]:
    """Reads these fields of a row, as a tuple also if there is one or none."""
    if len(fields) > 1:
        return attrgetter(*fields)
    if not fields:
        return lambda _: ()
    read = attrgetter(*fields)
    return lambda row: (read(row),)
