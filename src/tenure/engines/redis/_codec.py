"""Operations become arguments of scripts, and return values of scripts become answers.

Both follow from the fields of the engine's dataclasses. A script gets the fields of an operation in their order, but
`key` first and the field without a fixed length last. It returns a lone word for a `Reply`, or a list of a word and the
fields of the answer that `_ANSWERS` has for it. A duration is an integer of microseconds in both directions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Generic, Literal, Union, cast, get_args, get_origin, get_type_hints

import tenure.engine as e
from tenure.arguments import LONGEST
from tenure.errors import EngineError, StoreUnavailable

from ._handshake import UNEXPECTED, shown

Argument = bytes | str | int | float
Convert = Callable[[Any], Any]
Read = Callable[[Any], tuple[Any, ...]]

_AMOUNTS = frozenset({e.LimiterStatus, e.Debt, e.Rate})
"""Classes whose floats travel as they are, and not in microseconds."""

_ANSWERS: dict[str, type] = {
    "accepted": e.Accepted,
    "asked": e.HoldStatuses,
    "changed": e.MovedCount,
    "claimed": e.Claimed,
    "counts": e.QueueCounts,
    "entry": e.Entry,
    "granted": e.Granted,
    "mismatch": e.Mismatch,
    "named": e.Named,
    "outcome": e.Outcome,
    "queued": e.Queued,
    "resting": e.Resting,
    "toomany": e.TooMany,
    "unfinished": e.Unfinished,
}


@dataclass(frozen=True, slots=True)
class RedisCodec(Generic[e.A]):
    """Executes operations of one type: the name of the script, its arguments, and its answer.

    `arguments` raises for a duration that is not a number. A reply that begins with none of `words` belongs to another
    command.
    """

    script: str
    words: frozenset[bytes]
    arguments: Callable[[Any], Iterable[Argument]]
    decode: Callable[[Any], e.A | e.Reply]


Codecs = dict[type[e.Operation[Any]], RedisCodec[Any]]


def codec(
    script: str,
    replies: str,
    operation: type[e.Operation[Any]],
    *,
    arguments: Callable[[Any], Iterable[Argument]] | None = None,
    answer: Convert | None = None,
) -> RedisCodec[Any]:
    """The codec of an operation; `script` is the name of a script, or that and the name of one of its operations.

    `replies` are the words with which its replies begin, apart from "more".
    """
    name, *words = script.split()
    encode = arguments or partial(_encode, operation, tuple(words))
    check = e.CHECKS.get(operation)
    return RedisCodec(
        name,
        frozenset([b"more", *replies.encode().split()]),
        encode if check is None else lambda it: encode(check(it)),
        answer or _answer,
    )


def answered(its: RedisCodec[e.A], raw: Any) -> e.A | e.Reply | EngineError | StoreUnavailable:
    """The answer that a script returned; an `EngineError` if it is none.

    It is `StoreUnavailable` if the reply belongs to another command: all replies behind it then do, too.
    """
    try:
        word = raw if isinstance(raw, bytes) else raw[0]
        fits = word.partition(b" ")[0] in its.words
    except UNEXPECTED:
        fits = False
    if not fits:
        return StoreUnavailable(f"this is no reply to {its.script}: {shown(raw)}")
    try:
        return (_WORDS.get(raw) or _reply(raw)) if isinstance(raw, bytes) else its.decode(raw)
    except Exception:  # noqa: BLE001 whatever it is, it concerns this operation alone
        return EngineError(f"not an answer to {its.script}: {repr(raw)[:100]}")


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def seconds(raw: Any) -> float:
    """A duration in microseconds, as a script returns it; below zero it is infinite."""
    return inf if float(raw) < 0 else float(raw) / 1e6


def microseconds(duration: float) -> int:
    """A duration in seconds, as a script takes it: at most `LONGEST`. Raises `ValueError` for NaN."""
    return round(max(min(duration, LONGEST), -LONGEST) * 1e6)


def hint(process: str, raw: bytes) -> e.Hint:
    """A hint, as a script published it: JSON in which every byte of a text is a character."""
    key, name, word, *rest = json.loads(raw.decode("latin-1"))
    key, name = (text(part.encode("latin-1")) for part in (key, name))
    news = _answer(_in_bytes([word, *rest])) if rest else e.Notice(word)
    return e.Hint(process, key, name, news)


def _in_bytes(news: Any) -> Any:
    # an empty list of Lua becomes an empty object
    if isinstance(news, str):
        return news.encode("latin-1")
    return (
        [_in_bytes(item) for item in cast("Iterable[Any]", news)] if isinstance(news, list | dict) else news
    )


# arguments


def _encode(operation: type, words: tuple[str, ...], it: Any) -> Iterable[Argument]:
    read, converted, flatten = _plan(operation)
    values = read(it)
    if not (converted or flatten):
        return (*words, *values)
    values = list(values)
    rest = () if flatten is None else flatten(values.pop())
    for i, convert in converted:
        values[i] = convert(values[i])
    return (*words, *values, *rest)


@cache
def _plan(operation: type) -> tuple[Read, list[tuple[int, Convert]], Convert | None]:
    hints = get_type_hints(operation, localns={"Literal": Literal})
    fixed = sorted(
        (name for name in hints if _item_type(hints[name]) is None), key=lambda name: name != "key"
    )
    long = [name for name in hints if name not in fixed]
    names = [*fixed, *long]
    # one name alone makes no tuple
    read: Read = attrgetter(*names) if len(names) > 1 else partial(_fields_of, names)
    converted = [
        (i, _argument(hints[name])) for i, name in enumerate(fixed) if hints[name] not in {str, bytes, int}
    ]
    return read, converted, _argument(hints[long[0]]) if long else None


def _fields_of(names: list[str], it: Any) -> tuple[Any, ...]:
    return tuple([getattr(it, name) for name in names])


def _argument(hint: Any) -> Convert:
    if (known := _without_none(hint)) is not hint:
        convert, item = _argument(known), _item_type(known)
        if item is not None:
            return lambda value: ("",) if value is None else ("=", *convert(value))
        if known in {str, bytes}:
            return lambda value: "" if value is None else "=" + value
        return lambda value: "" if value is None else convert(value)
    if (item := _item_type(hint)) is not None:
        if not (parts := get_args(item)):
            return tuple
        converts = list(map(_argument, parts))
        return lambda value: [
            convert(field) for item in value for convert, field in zip(converts, item, strict=True)
        ]
    if hint is float:
        return microseconds
    return int if hint is bool else _same


def _same(value: Any) -> Any:
    return value


# answers

_WORDS = {reply.value.encode(): reply for reply in e.Reply}


def _reply(raw: bytes) -> Any:
    return e.Granted(int(raw[8:])) if raw.startswith(b"granted ") else _WORDS[raw]


def _answer(raw: Any) -> Any:
    return _reply(raw) if isinstance(raw, bytes) else _fields(_ANSWERS[raw[0].decode()])(raw[1:])


@cache
def _fields(made: type) -> Convert:
    # the classes say that they are of the package, which does not import this
    hints = get_type_hints(made, localns={"Literal": Literal})
    decoders = [decoder(hint, made) for hint in hints.values()]
    return lambda raw: made(
        *[decode(field) for decode, field in zip(decoders[: len(raw)] or decoders, raw, strict=True)]
    )


def decoder(hint: Any, owner: type) -> Convert:
    if (known := _without_none(hint)) is not hint:
        decode = decoder(known, owner)
        return lambda raw: None if raw is None else decode(raw)
    if get_origin(hint) in {Union, UnionType}:
        return lambda raw: raw if isinstance(raw, int) else _answer(raw)
    if get_origin(hint) is Literal:
        return text
    if (item := _item_type(hint)) is not None:
        if get_origin(item) is tuple:
            return _pairs
        decode = decoder(item, owner)
        return lambda raw: tuple(map(decode, raw))
    if hint is float and owner not in _AMOUNTS:
        return seconds
    return _SCALARS[hint] if hint in _SCALARS else _fields(hint)


_SCALARS: dict[type, Convert] = {str: text, bytes: _same, int: int, bool: bool, float: float}


def _pairs(raw: Sequence[bytes]) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((text(name), value) for name, value in zip(raw[::2], raw[1::2], strict=True)))


# types


def _without_none(hint: Any) -> Any:
    some = [part for part in get_args(hint) if part is not NoneType]
    return some[0] if len(some) == 1 and len(get_args(hint)) == 2 and get_origin(hint) is not tuple else hint


def _item_type(hint: Any) -> Any:
    arguments = get_args(_without_none(hint))
    return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None
