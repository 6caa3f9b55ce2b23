"""Tables: rows found by a key, and by orders. The rules read and write them; an engine stores them.

A row is a dataclass with fields of the types int, float, str, bytes, bool, and int or None. A rule changes fields of a
row that it has read and saves the row; a field that places the row in an order changes by `move` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

R = TypeVar("R")


class Order(NamedTuple):
    """Rows with equal values of the fields `of`, in the order of the fields `by`, which tell them apart.

    `when` is a field and a value: the order has only the rows with that value. With `grows`, a row that enters the
    order comes behind all others.
    """

    of: tuple[str, ...]
    by: tuple[str, ...]
    when: tuple[str, Any] | None = None
    grows: bool = False

    @property
    def fields(self) -> set[str]:
        return {*self.of, *self.by, *(self.when or ())[:1]}


OF_SESSION = Order(("session",), ("rank",), grows=True)
"""The rows of a session, in the order in which they were made."""


class Layout:
    __slots__ = ("key", "name", "orders", "row")

    def __init__(self, name: str, row: type[Any], key: tuple[str, ...], /, **orders: Order) -> None:
        self.name: str = name
        self.row: type[Any] = row
        self.key: tuple[str, ...] = key
        self.orders: dict[str, Order] = orders

    def orders_with(self, *fields: str) -> list[str]:
        return [name for name, order in self.orders.items() if not order.fields.isdisjoint(fields)]


class Table(Protocol[R]):
    """A table of one layout. The cost of an operation depends on the number of rows that it returns."""

    def get(self, *key: Any) -> R | None: ...

    def save(self, row: R, /) -> None:
        """Keep a new row, or the changed fields of a row that no order reads."""
        ...

    def move(self, row: R, /, **fields: Any) -> None:
        """Change fields of a row, which orders may read, but not its key."""
        ...

    def remove(self, row: R, /) -> None: ...

    def first(self, order: str, *of: Any) -> R | None: ...

    def last(self, order: str, *of: Any) -> R | None: ...

    def each(self, order: str, *of: Any) -> Iterator[R]:
        """The rows in that order, while none of them is saved or removed."""
        ...

    def some(self, order: str, *of: Any, limit: int, after: tuple[Any, ...] = ()) -> list[R]: ...
