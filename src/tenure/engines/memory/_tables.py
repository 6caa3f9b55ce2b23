"""Tables of rows in memory: dictionaries by key, and in each order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from tenure.engines.rules import Layout, Order

Values = tuple[Any, ...]


class MemoryTable:
    """The rows of one layout. `get` returns the row itself: to save it changes nothing."""

    def __init__(self, layout: Layout) -> None:
        self.rows: dict[Any, Any] = {}
        get = self.rows.get
        self.get: Callable[..., Any] = get if len(layout.key) == 1 else lambda *key: get(key)
        self._key = _values(layout.key)
        self._orders = {name: _ordered(order) for name, order in layout.orders.items()}
        self._layout = layout
        self._all = tuple(self._orders.values())
        self._placing: dict[Values, tuple[_Ordered, ...]] = {}
        """The orders that read these fields."""

    def save(self, row: Any) -> None:
        key = self._key(row)
        known = self.rows.get(key)
        if known is not row:
            if known is not None:
                _leave(known, self._all)
            self.rows[key] = row
            if self._all:
                _enter(row, self._all)

    def move(self, row: Any, **fields: Any) -> None:
        names = tuple(fields)
        orders = self._placing.get(names)
        if orders is None:
            orders = self._placing[names] = tuple(
                self._orders[name] for name in self._layout.orders_with(*names)
            )
        _leave(row, orders)
        for name, value in fields.items():
            setattr(row, name, value)
        _enter(row, orders)

    def remove(self, row: Any) -> None:
        del self.rows[self._key(row)]
        if self._all:
            _leave(row, self._all)

    def first(self, order: str, *of: Any) -> Any:
        group = self._orders[order].groups.get(of[0] if len(of) == 1 else of)
        return next(iter(group.values())) if group else None

    def last(self, order: str, *of: Any) -> Any:
        group = self._orders[order].groups.get(of[0] if len(of) == 1 else of)
        return group[next(reversed(group))] if group else None

    def each(self, order: str, *of: Any) -> Iterator[Any]:
        group = self._orders[order].groups.get(of[0] if len(of) == 1 else of)
        return iter(group.values() if group else ())

    def some(self, order: str, *of: Any, limit: int, after: Values = ()) -> list[Any]:
        group = self._orders[order].groups.get(of[0] if len(of) == 1 else of, {})
        if after:
            keys = group.keys_in_order if isinstance(group, _Sorted) else list(group)
            behind = bisect_right(keys, after[0] if len(after) == 1 else after)
            return [group[key] for key in keys[behind : behind + limit]]
        return list(islice(group.values(), limit))


class _Ordered(NamedTuple):
    of: Callable[[Any], Any]
    by: Callable[[Any], Any]
    when: Callable[[Any], Any] | None
    value: Any
    new: Callable[[], dict[Any, Any]]
    groups: dict[Any, dict[Any, Any]]


def _ordered(order: Order) -> _Ordered:
    when, value = (None, None) if order.when is None else (attrgetter(order.when[0]), order.when[1])
    return _Ordered(_values(order.of), _values(order.by), when, value, dict if order.grows else _Sorted, {})


def _enter(row: Any, orders: tuple[_Ordered, ...]) -> None:
    for of_row, by_row, when, value, new, groups in orders:
        if when is None or when(row) == value:
            of = of_row(row)
            if (group := groups.get(of)) is None:
                group = groups[of] = new()
            group[by_row(row)] = row


def _leave(row: Any, orders: tuple[_Ordered, ...]) -> None:
    for of_row, by_row, when, value, _, groups in orders:
        if when is None or when(row) == value:
            group = groups[of := of_row(row)]
            del group[by_row(row)]
            if not group:
                del groups[of]


_set, _delete = dict[Any, Any].__setitem__, dict[Any, Any].__delitem__


class _Sorted(dict[Any, Any]):
    """A dictionary in the order of its keys. A new key moves the keys behind it, which memory does fast."""

    def __init__(self) -> None:
        self.keys_in_order: list[Any] = []

    def __setitem__(self, key: Any, row: Any) -> None:
        insort(self.keys_in_order, key)
        _set(self, key, row)

    def __delitem__(self, key: Any) -> None:
        del self.keys_in_order[bisect_left(self.keys_in_order, key)]
        _delete(self, key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys_in_order)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self.keys_in_order)

    def values(self) -> Any:
        return map(self.__getitem__, self.keys_in_order)


def _values(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*fields) if fields else lambda _: ()
