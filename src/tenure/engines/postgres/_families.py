"""The codecs of the children and the entries of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.engine import (
    CAP,
    ENTRY_BYTES,
    Accepted,
    Entries,
    Entry,
    EntryPage,
    PutChildren,
    Reply,
    SetEntry,
    TooMany,
)

from ._codec import Codec, Codecs, Row, answer_of
from ._tasks import new_tasks
from ._values import Argument, Blobs, name, text


def _put_children(op: PutChildren) -> tuple[Argument, ...]:
    return (
        name(op.key),
        op.id,
        op.token,
        name(op.to),
        Blobs(map(name, op.names)),
        new_tasks(op.tasks),
        op.most,
    )


def _entry(row: Row) -> Entry:
    (child, swept), (called, kind, state, value, queue) = row.n, row.b
    kinds = {b"value": "value", b"signal": "signal", b"child": "child"}
    return Entry(text(called), kinds[kind], text(state), value, text(queue), child, bool(swept))  # pyright: ignore[reportArgumentType]


def _answer(rows: Sequence[Row]) -> Accepted | Entry | TooMany | Reply:
    (row,) = rows
    if row.word == "accepted":
        return Accepted(tuple(row.n))
    if row.word == "toomany":
        return TooMany(row.n[0])
    return _entry(row) if row.word == "entry" else answer_of(row)


def _page(rows: Sequence[Row]) -> EntryPage:
    first, *entries = rows
    return EntryPage(tuple(map(_entry, entries)), text(first.b[0]))


FAMILIES: Codecs = {
    PutChildren: Codec("put_children", _put_children, _answer),
    SetEntry: Codec("set_entry", answer=_answer),
    Entries: Codec(
        "entries",
        lambda op: (name(op.key), op.id, name(op.after), min(op.limit, CAP), ENTRY_BYTES),
        _page,
    ),
}
