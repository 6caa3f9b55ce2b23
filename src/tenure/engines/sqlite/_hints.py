"""Hints for processes of other engines: a table that each process reads on from its last position."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from typing import Any

import tenure.engine as e

from ._sql import HINTS
from ._state import SqliteState
from ._tables import decode, encode

_KEPT_FOR = 60_000_000
"""Microseconds for which a hint is kept; a process that reads later asks the engine instead."""


def write_hints(state: SqliteState, hints: Sequence[e.Hint]) -> set[str]:
    for hint in hints:
        news = _encode(hint.news)
        state.run(HINTS.write, process=hint.process, at=state.moment, key=hint.key, name=hint.name, news=news)
    if hints:
        state.run(HINTS.forget, before=state.moment - _KEPT_FOR, count=e.how_many_to_forget(len(hints)))
    return {hint.process for hint in hints}


class Mailbox:
    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self._run = run
        self._seen: dict[str, int] = {}

    def add(self, process: str) -> None:
        self._seen[process] = self._run(HINTS.last)[0][0] or 0

    def read(self, processes: Container[str]) -> list[e.Hint]:
        hints: list[e.Hint] = []
        for process, seen in list(self._seen.items()):
            if process not in processes:
                del self._seen[process]
                continue
            for number, key, name, news in self._run(HINTS.read, process=process, seen=seen):
                hints.append(e.Hint(process, key, name, _decode(news)))
                self._seen[process] = number
        return hints


def _encode(news: e.Granted | e.Claimed | e.Notice) -> str:
    match news:
        case e.Notice():
            parts: tuple[Any, ...] = ("notice", news.value)
        case e.Granted(token):
            parts = ("granted", token)
        case e.Claimed(resource, metadata, token):
            parts = ("claimed", resource, encode(metadata), token)
    return json.dumps(parts)


def _decode(text: str) -> e.Granted | e.Claimed | e.Notice:
    match json.loads(text):
        case ["granted", token]:
            return e.Granted(token)
        case ["claimed", resource, metadata, token]:
            return e.Claimed(resource, decode(metadata), token)
        case [_, notice]:
            return e.Notice(notice)
        case _:
            return e.Notice.MISSED
