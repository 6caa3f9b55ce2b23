"""How operations become calls of scripts, and what scripts return becomes answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Generic

from tenure.engine import A, Broken, Claimed, Granted, Hint, Notice, Operation, Reply, Tripped
from tenure.errors import EngineError

Argument = bytes | str | int | float


@dataclass(frozen=True, slots=True)
class Call(Generic[A]):
    """How operations of one type are executed: `script` is the name of its script, `arguments` what it is given."""

    script: str
    arguments: Callable[[Any], Iterable[Argument]]
    answer: Callable[[Sequence[Any]], A]
    """Makes an answer of an array that the script returned; a lone word is a `Reply`."""


WORDS = {reply.value.encode(): reply for reply in Reply}
"""The answers that are lone words, as scripts give them."""

Calls = dict[type[Operation[Any]], Call[Any]]


def no_words(answer: Sequence[Any]) -> Any:
    """For operations that are answered by a lone word only."""
    raise AssertionError(f"not an answer: {answer!r}")


def answered(call: Call[A], raw: Any) -> A | Reply | EngineError:
    """The answer that a script gave; an error if it is none."""
    word = WORDS.get(raw) if isinstance(raw, bytes) else None
    try:
        return call.answer(raw) if word is None else word
    except Exception:  # noqa: BLE001 whatever it is, it concerns this operation alone
        return EngineError(f"not an answer to {call.script}: {repr(raw)[:100]}")


def text(raw: bytes) -> str:
    """A name."""
    return raw.decode("utf-8", "surrogateescape")


def seconds(raw: Any) -> float:
    """A duration in microseconds, as a script returns it; below zero it is infinite."""
    return inf if float(raw) < 0 else float(raw) / 1e6


def microseconds(duration: float) -> int:
    """A duration in seconds, as a script takes it."""
    return round(duration * 1e6)


def hint(process: str, raw: bytes) -> Hint:
    """A hint, as a script published it: JSON in which every byte of a text is a character."""
    key, name, word, *rest = json.loads(raw.decode("latin-1"))
    key, name = (text(part.encode("latin-1")) for part in (key, name))
    return Hint(process, key, name, _NEWS[word](*rest) if word in _NEWS else Notice(word))


def _granted(token: str) -> Granted:
    return Granted(int(token))


def _claimed(token: str, resource: str, *metadata: str) -> Claimed:
    raw = [part.encode("latin-1") for part in metadata]
    fields = tuple((text(name), value) for name, value in zip(raw[::2], raw[1::2], strict=True))
    return Claimed(text(resource.encode("latin-1")), fields, int(token))


_NEWS: dict[str, Callable[..., Granted | Claimed | Tripped | Broken]] = {
    "granted": _granted,
    "claimed": _claimed,
    "tripped": Tripped,
    "broken": Broken,
}
