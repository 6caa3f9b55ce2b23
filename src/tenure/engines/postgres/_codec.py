"""Operations become calls of functions, and rows that functions return become answers.

The fields of an operation are the arguments of its function, behind the time and the cap. An answer's numbers come from
the array `n` of a row, its names and bytes from `b`, and its metadata is the rest of `b`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args, get_type_hints

import tenure.engine as e

from ._values import (
    Argument,
    Blobs,
    Ints,
    blobs,
    fields,
    metadata,
    microseconds,
    name,
    numbers,
    seconds,
    text,
)

T = TypeVar("T")


class Row(NamedTuple):
    word: str
    n: list[int]
    b: list[Any]


def answer_of(row: Row) -> Any:
    answer = _ANSWERS.get(row.word)
    return e.Reply(row.word) if answer is None else decoded(answer, row)


def _answer_of_the_first(rows: Sequence[Row]) -> Any:
    return answer_of(rows[0])


@dataclasses.dataclass(frozen=True, slots=True)
class PostgresCodec(Generic[e.A]):
    function: str
    arguments: Callable[[Any], Iterable[Argument]] | None = None
    """None: the fields of the operation."""
    answer: Callable[[Sequence[Row]], e.A] = _answer_of_the_first
    """Called unless the first row is a lone word, a `Reply`."""


Codecs = dict[type[e.Operation[Any]], PostgresCodec[Any]]


def arguments(codec: PostgresCodec[Any], operation: e.Operation[Any]) -> Iterable[Argument]:
    if (check := e.CHECKS.get(type(operation))) is not None:
        operation = check(operation)
    if codec.arguments is not None:
        return codec.arguments(operation)
    return [
        value if (value := getattr(operation, field)) is None or convert is None else convert(value)
        for field, convert in _fields_to_send(type(operation))
    ]


def answered(codec: PostgresCodec[e.A], result: Iterable[Sequence[Any]]) -> e.A | e.Reply:
    rows = [Row(cast("bytes", word).decode(), numbers(n), blobs(b)) for word, n, b in result]
    return e.Reply(rows[0].word) if rows[0].word in _WORDS else codec.answer(rows)


_MISSING = object()


def decoded(answer: type[T], row: Row, **others: Any) -> T:
    n: Iterator[Any] = iter(row.n)
    b: Iterator[Any] = iter(row.b)
    for field, is_number, convert in _fields_received(answer):
        value = next(n if is_number else b, _MISSING)
        if value is _MISSING:
            break
        others[field] = value if value is None or convert is None else convert(value)
    if "metadata" in answer.__annotations__:
        others["metadata"] = metadata(b)
    return answer(**others)


def numbers_in(word: str) -> int:
    return sum(is_number for _, is_number, _ in _fields_received(_ANSWERS[word]))


_Convert = Callable[[Any], Any] | None


def _rate(raw: bytes) -> e.Rate:
    return e.Rate(*map(float, raw.split()))


_TO_SEND: dict[Any, _Convert] = {
    str: name,
    float: microseconds,
    e.Metadata: fields,
    tuple[str, ...]: lambda names: Blobs(map(name, names)),
    tuple[int, ...]: Ints,
    bytes: None,
    int: None,
    bool: None,
}
_RECEIVED: dict[Any, _Convert] = {
    str: text,
    bytes: None,
    float: seconds,
    float | None: lambda micros: None if micros < 0 else seconds(micros),
    bool: bool,
    int: None,
    e.Rate: _rate,
}
_WORDS = {reply.value for reply in e.Reply}
_ANSWERS: dict[str, Any] = {
    "granted": e.Granted,
    "queued": e.Queued,
    "mismatch": e.Mismatch,
    "claimed": e.Claimed,
    "outcome": e.Outcome,
    "unfinished": e.Unfinished,
    "changed": e.MovedCount,
    "resting": e.Resting,
}


@cache
def _fields_to_send(operation: type) -> list[tuple[str, _Convert]]:
    types = get_type_hints(operation)
    return [
        (field.name, _TO_SEND[_required(types[field.name])])
        for field in dataclasses.fields(operation)
        if field.init
    ]


@cache
def _fields_received(answer: type) -> list[tuple[str, bool, _Convert]]:
    hints = get_type_hints(answer, localns={"R": Any})
    types = {field: kind for field, kind in hints.items() if field not in ("rows", "next")}
    return [
        (field, _required(kind) in (int, float, bool), _RECEIVED.get(kind) or _RECEIVED[_required(kind)])
        for field, kind in types.items()
        if kind != e.Metadata
    ]


def _required(kind: Any) -> Any:
    kinds = [member for member in get_args(kind) if member is not NoneType]
    return kinds[0] if NoneType in get_args(kind) else kind
