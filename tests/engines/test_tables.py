"""The tables of the two engines that share rules return the same rows, whatever was saved and removed before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf

from hypothesis import given, strategies as st

from tenure.engines.memory._tables import MemoryTable
from tenure.engines.rules import Layout, Order
from tenure.engines.sqlite._tables import SqliteTable, schema_of


@dataclass(slots=True)
class Row:
    pool: str
    name: str
    state: str
    rank: int
    until: float
    waits: bool
    note: str | None
    made: int = 0


LAYOUT = Layout(
    "thing",
    Row,
    ("pool", "name"),
    name=Order(("pool",), ("name",)),
    until=Order((), ("until", "pool", "name")),
    free=Order(("pool",), ("rank", "name"), when=("state", "free")),
    line=Order(("pool", "waits"), ("rank", "name")),
    waiting=Order((), ("rank", "pool", "name"), when=("waits", True)),
    grown=Order(("pool",), ("made",), when=("waits", True), grows=True),
)
MOVED = ["state", "rank", "until", "waits"]
POOLS = st.sampled_from(["a", "b", "\U0001f600"])
ROWS = st.builds(
    Row,
    POOLS,
    st.sampled_from(["x", "y", "\uffff"]),
    st.sampled_from(["free", "taken"]),
    st.integers(-2, 2) | st.just(2**62),
    st.sampled_from([-1.0, 0.1 + 0.2, inf]),
    st.booleans(),
    st.none() | st.just(""),
)


def seen(table):
    rows = []
    for name, order in LAYOUT.orders.items():
        for pool in ("a", "b", "\U0001f600") if "pool" in order.of else (None,):
            for waits in (False, True) if "waits" in order.of else (None,):
                of = [value for value in (pool, waits) if value is not None]
                listed = list(table.each(name, *of))
                assert listed == table.some(name, *of, limit=100)
                assert table.first(name, *of) == (listed[0] if listed else None)
                assert table.last(name, *of) == (listed[-1] if listed else None)
                for i, row in enumerate(listed):
                    after = tuple(getattr(row, field) for field in order.by)
                    assert table.some(name, *of, limit=2, after=after) == listed[i + 1 : i + 3]
                rows.append((name, of, [replace(row) for row in listed]))
    return rows


@given(st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from(MOVED), min_size=1), ROWS), max_size=25))
def test_both_return_the_same_rows(steps):
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for statement in schema_of(LAYOUT):
            db.execute(statement)
        tables = MemoryTable(LAYOUT), SqliteTable(db, LAYOUT)
        for made, (remove, moved, row) in enumerate(steps):
            for table in tables:
                known = table.get(row.pool, row.name)
                if remove:
                    if known is not None:
                        table.remove(known)
                    continue
                if known is None:
                    table.save(replace(row, made=made))
                    assert table.get(row.pool, row.name) == replace(row, made=made)
                else:
                    known.note = row.note
                    table.save(known)
                    table.move(known, made=made, **{name: getattr(row, name) for name in moved})
                    assert table.get(row.pool, row.name) == known
            assert seen(tables[0]) == seen(tables[1])
