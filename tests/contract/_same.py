"""The comparison of an engine's answer with the reference, apart from what each engine may choose for itself."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from dataclasses import fields, is_dataclass, replace
from itertools import repeat
from math import inf
from typing import Any, TypeVar, cast

from tenure.engine import (
    ENTRIES,
    TASK,
    UNFINISHED_CHILDREN,
    Exchanged,
    Hint,
    Notice,
    QueueCounts,
    Queued,
    SessionItem,
)

V = TypeVar("V")

_KINDS = {
    "token": "token",
    "meeting": "token",
    "refused": "token",
    "stop": "token",
    "id": "id",
    "ids": "id",
    "seq": "seq",
    "after": "seq",
    "revision": "token",
    "parent": "id",
    "end": "booking",
}
"""The fields with numbers that an engine makes, and which of them are of one kind."""

_NAMES = {Notice.FINISHED: "id", Notice.CHANGED: "id", Notice.STOP: "token"}
"""The kinds of the names in notices other than those of holders."""

_RISING = ("token", "id")
"""The kinds whose numbers rise: an engine's are in the same order as those of the reference."""

_NOBODYS = 2**40
"""The offset of a number that the engine has not given out, so that the engine does not know the number either."""


class Numbers:
    """The numbers that an engine gave out, beside those of the reference for the same things.

    `margin` is by how many seconds times may differ. With `same_tokens` tokens and ids are equal, and not only in the
    same order.
    """

    def __init__(self, margin: float, *, same_tokens: bool) -> None:
        self.margin = margin
        self._same_tokens = same_tokens
        self._own: dict[str, dict[float, float]] = defaultdict(dict)
        self._order: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))

    def translated(self, value: V, kind: str | None = None) -> V:
        """The same operation, or part of one, with the engine's own numbers."""
        raw = cast("Any", value)
        if getattr(raw, "index", None) in (ENTRIES, UNFINISHED_CHILDREN, TASK):
            return cast("V", replace(raw, only=str(self.translated(int(raw.only), "id"))))
        if is_dataclass(raw) and not isinstance(raw, type):
            changed = {
                f.name: self.translated(getattr(raw, f.name), _kind(f.name)) for f in fields(raw) if f.init
            }
            return cast("V", replace(raw, **changed))
        if isinstance(raw, tuple):
            parts = cast("tuple[Any, ...]", raw)
            return cast("V", tuple([self.translated(part, kind) for part in parts]))
        if kind is None or not raw or not isinstance(raw, int | float):
            return value
        return cast("V", self._own[kind].get(raw, raw + _NOBODYS))

    def same(self, own: Any, wanted: Any, kind: str | None = None) -> bool:
        """True if the engine's answer equals the reference's. Types count: 1 is neither True nor 1.0."""
        if type(own) is not type(wanted):
            return False
        if not self._same_tokens and hasattr(own, "ask_again_in"):
            # a task that an earlier walk has left may wait for less time
            own = replace(own, ask_again_in=max(own.ask_again_in, wanted.ask_again_in))
        if isinstance(own, Queued):
            # a place is an upper bound, and an engine may know better
            own = replace(own, place=max(own.place, wanted.place))
        if isinstance(own, QueueCounts):  # the host's clock, where an engine has none
            own, wanted = replace(own, now=0.0), replace(wanted, now=0.0)
        if isinstance(own, Exchanged):  # in any order
            refused = sorted(wanted.refused, key=lambda token: self.translated(token, "token"))
            own = replace(own, refused=tuple(sorted(own.refused)))
            wanted = replace(wanted, refused=tuple(refused))
        if hasattr(own, "rows"):
            # what says where a page ends is the engine's own, and a full page may be the last one
            own, wanted = replace(own, next=""), replace(wanted, next="")
        if isinstance(own, SessionItem) and own.family == wanted.family == "tasks":
            names = (tuple(map(int, item.name.split())) for item in (own, wanted))
            if not all(map(self.same, *names, ("id", "token"))):
                return False
            own, wanted = replace(own, name=""), replace(wanted, name="")
        if is_dataclass(own):
            parts = [(getattr(own, f.name), getattr(wanted, f.name), _kind(f.name)) for f in fields(own)]
            return all(self.same(*part) for part in parts)
        if isinstance(own, tuple):
            owns, wanteds = cast("tuple[Any, ...]", own), cast("tuple[Any, ...]", wanted)
            return len(owns) == len(wanteds) and all(map(self.same, owns, wanteds, repeat(kind)))
        if kind is not None and isinstance(own, int | float):
            return self._same_number(kind, own, wanted)
        if isinstance(own, float):
            return own == wanted or abs(own - wanted) <= self.margin
        return own == wanted

    def same_hint(self, own: Hint, wanted: Hint) -> bool:
        """True if a hint to the same process about the same object says the same."""
        kind = _NAMES.get(cast("Notice", wanted.news)) if wanted.name else None
        if kind and own.news is wanted.news:
            return self.same(int(own.name), int(wanted.name), kind)
        return own.name == wanted.name and self.same(own.news, wanted.news)

    def _same_number(self, kind: str, own: float, wanted: float) -> bool:
        numbers = self._own[kind]
        if wanted in numbers or not own or not wanted:
            return numbers.get(wanted, wanted) == own
        numbers[wanted] = own
        if kind not in _RISING:
            return True
        if self._same_tokens:
            return own == wanted
        wanteds, owns = self._order[kind]
        rank = bisect(wanteds, wanted)
        before, behind = [-inf, *owns[:rank]][-1], [*owns[rank:], inf][0]
        wanteds.insert(rank, wanted)
        owns.insert(rank, own)
        return before < own < behind


def _kind(name: str) -> str | None:
    return _KINDS.get(name)
