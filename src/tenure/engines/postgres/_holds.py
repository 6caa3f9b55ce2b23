"""Holds, as calls of functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure.engine import (
    Acquire,
    Ask,
    Asked,
    Granted,
    HoldAnswer,
    Holder,
    Holders,
    Holdings,
    Mismatch,
    Queued,
    Release,
    Reply,
    Resize,
    SetValue,
)

from ._binary import Blobs
from ._calls import Call, Calls, Row, name, no_words, seconds, text


def _standing(row: Row) -> HoldAnswer:
    match row.word, row.n:
        case "granted", [token]:
            return Granted(token)
        case "queued", [place, ask_again_in]:
            return Queued(place, seconds(ask_again_in))
        case "mismatch", [stored]:
            return Mismatch(stored)
        case word, _:
            return Reply(word)


def _holders(rows: Iterable[Row]) -> tuple[Holder, ...]:
    return tuple(
        Holder(text(process), text(holder), token, weight, value, seconds(age))
        for _, (token, weight, age), (process, holder, value) in rows
    )


def _holdings(rows: Sequence[Row]) -> Holdings:
    (_, (capacity, used), _), *others = rows
    return Holdings(
        capacity,
        used,
        _holders(row for row in others if row.word == "holds"),
        _holders(row for row in others if row.word == "waits"),
    )


HOLDS: Calls = {
    Acquire: Call(
        "acquire",
        lambda op: (
            name(op.session),
            name(op.key),
            name(op.holder),
            op.capacity,
            op.weight,
            op.value,
            op.wait,
        ),
        lambda rows: _standing(rows[0]),
    ),
    Ask: Call(
        "ask",
        lambda op: (name(op.session), name(op.key), Blobs(map(name, op.holders))),
        lambda rows: Asked(tuple(map(_standing, rows[1:]))),
    ),
    Release: Call("release", lambda op: (name(op.key), name(op.holder)), no_words),
    SetValue: Call("set_value", lambda op: (name(op.key), name(op.holder), op.token, op.value), no_words),
    Resize: Call("resize", lambda op: (name(op.key), op.capacity), no_words),
    Holders: Call("holders", lambda op: (name(op.key), op.limit, name(op.watch)), _holdings),
}
