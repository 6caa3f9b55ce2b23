"""Scans: the arguments of the function `scan`, and the pages of the rows that it returns.

A row ends with its place in the index: some numbers, and in some indexes a name. The next page begins there; in the
index of entries, this is the plain name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tenure.engine as e
from tenure.errors import EngineError

from ._codec import Row, decoded
from ._families import entry
from ._health import health
from ._values import Ints, Value, name, text

_PLACES: dict[str, tuple[int, int]] = {
    **dict.fromkeys((*e.NAMES, "resources", "entries", "unfinished_children"), (0, 1)),
    **dict.fromkeys(("session", "holders", "delayed"), (2, 0)),
    **dict.fromkeys(("leased", "suspended", "ending", "ended", *e.ENDED), (1, 0)),
    "groups": (1, 1),
    "waiting": (3, 1),
}
"""The numbers and names of which a place consists; none where an index has one row."""


def scan(op: e.Scan[Any]) -> tuple[Value, ...]:
    after = f":{name(op.after).hex()}" if op.after and op.index.row is e.Entry else op.after
    numbers, _, behind = after.partition(":")
    try:
        place, raw = list(map(int, numbers.split())), bytes.fromhex(behind)
    except ValueError:
        place, raw = [], b""
    if after and (len(place), after.count(":")) != _PLACES.get(op.index.name):
        raise EngineError(f"no page of {op.index.name} ended at {op.after[:100]!r}")
    index, watch = op.index, name(op.watch)
    return index.name, index.of, name(op.key), Ints(place), raw, op.limit, name(op.only), watch


def page(rows: Sequence[Row]) -> e.Page[Any]:
    (_, (limit,), (of,)), others, *listed = rows
    index = e.INDEXES[text(of)]
    numbers, names = _PLACES.get(index.name, (0, 0))
    row_of: Callable[[Row], Any] = _ROWS.get(index.row) or partial(decoded, index.row)

    def without_place(row: Row) -> Row:
        return row._replace(n=row.n[: len(row.n) - numbers], b=row.b[: len(row.b) - names])

    shown = tuple([row_of(without_place(row)) for row in listed[:limit] if row.word == "row"])
    return decoded(index.page, others, rows=shown, next=_end(index, listed, limit))


def _end(index: e.Index[Any], listed: Sequence[Row], limit: int) -> str:
    if len(listed) <= limit:
        return ""
    row, (numbers, names) = listed[limit - 1], _PLACES[index.name]
    if index.row is e.Entry:
        return text(row.b[-1])
    place = " ".join(map(str, row.n[len(row.n) - numbers :]))
    return place + "".join(f":{raw.hex()}" for raw in row.b[len(row.b) - names :])


def _limiter(row: Row) -> e.LimiterStatus:
    held_off, held, waits, *debts = row.b
    pairs = zip(map(text, debts[::2]), map(float, debts[1::2]), strict=True)
    debts_by_name = tuple(e.Debt(*pair) for pair in sorted(pairs))
    return e.LimiterStatus(float(held_off), float(held), debts_by_name, float(waits))


_ROWS: dict[type[Any], Callable[[Row], Any]] = {
    str: lambda row: text(row.b[0]),
    e.Entry: entry,
    e.Health: health,
    e.LimiterStatus: _limiter,
}
