"""Tables of rows in the file, with the statements that follow from their layouts."""

# ruff: noqa: S608 the names in the statements come from layouts

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import lru_cache
from operator import attrgetter
from typing import Any, get_type_hints

import tenure.engine as e
from tenure.engines.rules import Layout

_TYPES: dict[Any, str] = {
    int: "INTEGER NOT NULL",
    bool: "INTEGER NOT NULL",
    float: "REAL NOT NULL",
    str: "TEXT NOT NULL",
    bytes: "BLOB NOT NULL",
    int | None: "INTEGER",
    float | None: "REAL",
    str | None: "TEXT",
    e.Metadata: "TEXT NOT NULL",
    e.Limiter: "TEXT NOT NULL",
}
_hints = lru_cache(get_type_hints)


def schema_of(layout: Layout) -> Iterator[str]:
    hints = _hints(layout.row)
    columns = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in hints.items())
    yield f"CREATE TABLE {layout.name} ({columns}, PRIMARY KEY ({', '.join(layout.key)})) WITHOUT ROWID"
    for name, (of, by, when, _) in layout.orders.items():
        if when is None and of + by == layout.key:  # the table itself has this order
            continue
        part = "" if when is None else f" WHERE {_is(when)}"
        yield f"CREATE INDEX {layout.name}_{name} ON {layout.name} ({', '.join((*of, *by))}){part}"


class SqliteTable:
    """The rows of one layout. A row is read anew each time, and written when it is saved or moved."""

    def __init__(self, db: sqlite3.Connection, layout: Layout) -> None:
        hints = _hints(layout.row)
        self._name, key = layout.name, layout.key
        columns = ", ".join(hints)
        select = f"SELECT {columns} FROM {self._name}"
        self._execute = db.execute
        self._row: Callable[..., Any] = layout.row
        self._values = _values(tuple(hints))
        self._key = _values(key)
        self._encode = {name: _CODECS[kind][0] for name, kind in hints.items() if kind in _CODECS}
        self._codecs = [(place, *_CODECS[k]) for place, k in enumerate(hints.values()) if k in _CODECS]
        self._is_row = _all_equal(key)
        self._get = f"{select} WHERE {self._is_row}"
        self._remove = f"DELETE FROM {self._name} WHERE {self._is_row}"
        fixed = {*key}.union(*(order.fields for order in layout.orders.values()))
        changes = ", ".join(f"{name} = excluded.{name}" for name in hints if name not in fixed)
        self._save = (
            f"INSERT INTO {self._name} ({columns}) VALUES ({', '.join('?' * len(hints))})"
            f" ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
        )
        self._move: dict[tuple[str, ...], str] = {}
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._some: dict[str, str] = {}
        self._after: dict[str, str] = {}
        for name, order in layout.orders.items():
            where = _all_equal(order.of) + ("" if order.when is None else f" AND {_is(order.when)}")
            by, down = ", ".join(order.by), ", ".join(f"{field} DESC" for field in order.by)
            behind = f"({by}) > ({', '.join('?' * len(order.by))})"
            self._first[name] = f"{select} WHERE {where} ORDER BY {by} LIMIT 1"
            self._last[name] = f"{select} WHERE {where} ORDER BY {down} LIMIT 1"
            self._some[name] = f"{select} WHERE {where} ORDER BY {by} LIMIT ?"
            self._after[name] = f"{select} WHERE {where} AND {behind} ORDER BY {by} LIMIT ?"

    def get(self, *key: Any) -> Any:
        return self._one(self._get, key)

    def save(self, row: Any) -> None:
        values = self._values(row)
        if self._codecs:
            values = list(values)
            for place, encode_value, _ in self._codecs:
                values[place] = encode_value(values[place])
        self._execute(self._save, values)

    def move(self, row: Any, **fields: Any) -> None:
        names = tuple(fields)
        if names not in self._move:
            changes = ", ".join(f"{name} = ?" for name in names)
            self._move[names] = f"UPDATE {self._name} SET {changes} WHERE {self._is_row}"
        for name, value in fields.items():
            setattr(row, name, value)
            if name in self._encode:
                fields[name] = self._encode[name](value)
        self._execute(self._move[names], (*fields.values(), *self._key(row)))

    def remove(self, row: Any) -> None:
        self._execute(self._remove, self._key(row))

    def first(self, order: str, *of: Any) -> Any:
        return self._one(self._first[order], of)

    def last(self, order: str, *of: Any) -> Any:
        return self._one(self._last[order], of)

    def each(self, order: str, *of: Any) -> Iterator[Any]:
        return map(self._made, self._execute(self._some[order], (*of, -1)))

    def some(self, order: str, *of: Any, limit: int, after: tuple[Any, ...] = ()) -> list[Any]:
        statement = (self._after if after else self._some)[order]
        return [self._made(values) for values in self._execute(statement, (*of, *after, limit)).fetchall()]

    def _one(self, statement: str, values: tuple[Any, ...]) -> Any:
        found = self._execute(statement, values).fetchone()
        return None if found is None else self._made(found)

    def _made(self, values: Any) -> Any:
        if self._codecs:
            values = list(values)
            for place, _, decode_value in self._codecs:
                values[place] = decode_value(values[place])
        return self._row(*values)


def _values(fields: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(fields) > 1:
        return attrgetter(*fields)
    read = attrgetter(*fields)
    return lambda row: (read(row),)


def _all_equal(fields: tuple[str, ...]) -> str:
    return " AND ".join(f"{field} = ?" for field in fields) or "1"


def _is(when: tuple[str, Any]) -> str:
    field, value = when
    return f"{field} = {value!r}" if isinstance(value, str) else f"{field} = {int(value)}"


@lru_cache
def encode(metadata: e.Metadata) -> str:
    """Metadata as JSON text; a byte becomes the character of the same number."""
    return json.dumps([(name, value.decode("latin-1")) for name, value in metadata])


@lru_cache
def decode(text: str) -> e.Metadata:
    return tuple((name, value.encode("latin-1")) for name, value in json.loads(text))


def _encode_limiter(limiter: e.Limiter) -> str:
    booked = {
        name: astuple(booked) if booked.session or booked.moved else (booked.end, booked.rate)
        for name, booked in limiter.booked.items()
    }
    return json.dumps([limiter.held_until, limiter.held, limiter.last_due, booked])


def _decode_limiter(text: str) -> e.Limiter:
    held_until, held, last_due, booked = json.loads(text)
    return e.Limiter(held_until, held, last_due, {name: e.Booked(*values) for name, values in booked.items()})


_CODECS: dict[Any, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    e.Metadata: (encode, decode),
    e.Limiter: (_encode_limiter, _decode_limiter),
}
