"""Holds, as calls of scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    Resize,
    SetValue,
)

from ._calls import WORDS, Call, Calls, no_words, seconds, text


def _standing(raw: Any) -> HoldAnswer:
    if isinstance(raw, bytes):
        return Granted(int(raw[8:])) if raw.startswith(b"granted") else WORDS[raw]
    match raw:
        case [b"granted", token]:
            return Granted(token)
        case [b"queued", place, ask_again_in]:
            return Queued(place, seconds(ask_again_in))
        case [b"mismatch", stored]:
            return Mismatch(stored)
        case _:
            raise AssertionError(f"not an answer: {raw!r}")


def _holders(raw: Sequence[Any]) -> tuple[Holder, ...]:
    return tuple(
        Holder(text(process), text(holder), token, weight, value, seconds(age))
        for process, holder, token, weight, value, age in raw
    )


HOLDS: Calls = {
    Acquire: Call(
        "acquire",
        lambda op: (
            op.session,
            op.key,
            op.holder,
            op.capacity,
            op.weight,
            op.value,
            int(op.wait),
        ),
        _standing,
    ),
    Ask: Call(
        "holds",
        lambda op: ("ask", op.key, op.session, *op.holders),
        lambda raw: Asked(tuple(map(_standing, raw[1:]))),
    ),
    Release: Call("release", lambda op: (op.key, op.holder), no_words),
    SetValue: Call("holds", lambda op: ("set_value", op.key, op.holder, op.token, op.value), no_words),
    Resize: Call("holds", lambda op: ("resize", op.key, op.capacity), no_words),
    Holders: Call(
        "holds",
        lambda op: ("holders", op.key, op.limit, op.watch),
        lambda raw: Holdings(raw[1], raw[2], _holders(raw[3]), _holders(raw[4])),
    ),
}
