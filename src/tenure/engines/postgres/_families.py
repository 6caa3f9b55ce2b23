"""The codecs of children and entries."""

from __future__ import annotations

from collections.abc import Sequence

import tenure.engine as e

from ._codec import Codecs, PostgresCodec, Row, answer_of
from ._tasks import new_tasks
from ._values import Argument, Blobs, name, text


def _put_children(op: e.PutChildren) -> tuple[Argument, ...]:
    return (
        name(op.key),
        op.id,
        op.token,
        name(op.to),
        Blobs(map(name, op.names)),
        new_tasks(op.tasks),
        op.most,
        op.held,
        op.together,
    )


def _set_entry(op: e.SetEntry) -> tuple[Argument, ...]:
    return name(op.key), op.id, op.token, name(op.name), op.value, op.change


def entry(row: Row) -> e.Entry:
    (child, swept, ended), (called, kind, state, value, queue) = row.n, row.b
    return e.Entry(text(called), text(kind), text(state), value, text(queue), child, bool(swept), ended)  # pyright: ignore[reportArgumentType]


def _answer(rows: Sequence[Row]) -> e.Accepted | e.Named | e.Entry | e.TooMany | e.Reply:
    (row,) = rows
    if row.word == "named":
        return e.Named(tuple(row.n), tuple(map(text, row.b)))
    if row.word == "accepted":
        return e.Accepted(tuple(row.n))
    if row.word == "toomany":
        return e.TooMany(row.n[0])
    return entry(row) if row.word == "entry" else answer_of(row)


FAMILIES: Codecs = {
    e.PutChildren: PostgresCodec("put_children", _put_children, _answer),
    e.SetEntry: PostgresCodec("set_entry", _set_entry, _answer),
}
