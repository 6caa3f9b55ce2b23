"""How operations become calls of functions, and what functions return becomes answers."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from math import inf
from typing import Any, Generic, NamedTuple, cast

from tenure.engine import A, Broken, Claimed, Granted, Hint, Metadata, Notice, Operation, Reply, Tripped

from ._binary import Blobs, Value, blobs, numbers


class Row(NamedTuple):
    """What a function returns, once or several times."""

    word: str
    n: list[int]
    b: list[Any]


@dataclass(frozen=True, slots=True)
class Call(Generic[A]):
    """How operations of one type are executed: the function, and what it is given behind the time and the cap."""

    function: str
    arguments: Callable[[Any], Iterable[Value]]
    answer: Callable[[Sequence[Row]], A]
    """Makes an answer of rows; a lone word is a `Reply`."""


Calls = dict[type[Operation[Any]], Call[Any]]

_WORDS = {reply.value for reply in Reply}


def no_words(rows: Sequence[Row]) -> Any:
    """For operations that are answered by a lone word only."""
    raise AssertionError(f"not an answer: {rows!r}")


def row_of(fields: Sequence[Any]) -> Row:
    """One row of a result."""
    word, n, b = fields
    return Row(cast("bytes", word).decode(), numbers(n), blobs(b))


def answered(call: Call[A], rows: Sequence[Row]) -> A | Reply:
    """The answer that a function gave."""
    return Reply(rows[0].word) if rows[0].word in _WORDS else call.answer(rows)


def name(text: str) -> bytes:
    """A name, as it is stored: PostgreSQL's texts have no NUL."""
    return text.encode("utf-8", "surrogatepass")


def text(raw: bytes) -> str:
    """A name again."""
    return raw.decode("utf-8", "surrogatepass")


def seconds(micros: int) -> float:
    """A duration in microseconds, as a function tells it; below zero it is infinite."""
    return inf if micros < 0 else micros / 1e6


def microseconds(duration: float) -> int:
    """A duration in seconds, as a function takes it; one that never ends lasts as long as can be."""
    return min(round(min(duration, 1e12) * 1e6), 2**61) if duration else 0


def fields(metadata: Metadata) -> Blobs:
    """Each field as one string of bytes: the length of the name in four bytes, the name, the value."""
    return Blobs(len(name(field)).to_bytes(4, "big") + name(field) + value for field, value in metadata)


def metadata(raw: Iterable[bytes]) -> Metadata:
    """The fields again."""
    return tuple(
        (text(field[4:end]), field[end:]) for field in raw for end in [4 + int.from_bytes(field[:4], "big")]
    )


# hints


def channel(schema: str, process: str) -> str:
    """Where the hints for a process are told."""
    return f"{schema}.{md5(name(process), usedforsecurity=False).hexdigest()}"


def hint(process: str, payload: str) -> Hint:
    """A hint, as it was told: words and numbers as they are, names and bytes in base64, a number that is not used."""
    word, key, about, *rest, _ = payload.split(" ")
    news = _NEWS[word](*rest) if word in _NEWS else Notice(word)
    return Hint(process, text(b64decode(key)), text(b64decode(about)), news)


def _granted(token: str) -> Granted:
    return Granted(int(token))


def _claimed(token: str, resource: str, *about: str) -> Claimed:
    return Claimed(text(b64decode(resource)), metadata(map(b64decode, about)), int(token))


def _tripped(generation: str, place: str) -> Tripped:
    return Tripped(int(generation), int(place))


def _broken(generation: str) -> Broken:
    return Broken(int(generation))


_NEWS: dict[str, Callable[..., Granted | Claimed | Tripped | Broken]] = {
    "granted": _granted,
    "claimed": _claimed,
    "tripped": _tripped,
    "broken": _broken,
}
