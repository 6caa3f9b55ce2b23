"""The part of an engine that belongs to no family of operations, as the rules see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import tenure.engine as e

from ._tables import Layout, Table

News = e.Granted | e.Claimed | e.Notice
Moment: TypeAlias = Any
"""A time of a task in the unit of the engine: a float or an integer."""


class Session(Protocol):
    """An open session; numbers are never used again."""

    @property
    def number(self) -> int: ...

    @property
    def process(self) -> str: ...

    @property
    def ttl(self) -> float: ...


@dataclass(slots=True)
class Counters:
    token: int = 0
    ending: int = 0
    rank: int = 0


class State(Protocol):
    @property
    def last(self) -> Counters: ...

    @property
    def now(self) -> float: ...

    def table(self, layout: Layout, /) -> Table[Any]: ...

    def session(self, name: str, /) -> Session | None: ...

    def process(self, session: int, /) -> str: ...

    def token(self) -> int:
        """A new fencing token or id, above all before it, also after a loss of data."""
        ...

    def rank(self) -> int: ...

    def hint(self, process: str, key: str, name: str, news: News, /) -> None: ...

    @property
    def cap(self) -> int: ...

    def step(self) -> bool: ...

    def wake_at(self, kind: str, when: float | None, /) -> None:
        """Clear up this kind of thing at `when`, or at an earlier time set before; None clears that time."""
        ...

    @property
    def moment(self) -> Moment: ...

    def after(self, seconds: float, /) -> Moment: ...

    def seconds_since(self, moment: Moment, /) -> float: ...

    def clock_time(self, moment: Moment | None, /) -> float | None: ...

    def ask_again_in(self, due: float | None = None, /) -> float: ...

    def cached_reply(self, session: str, n: int, name: str, /) -> Any:
        """The answer to the same numbered operation, GONE, or None for a new operation."""
        ...

    def cache_reply(self, session: str, n: int, name: str, answer: object, /) -> None: ...

    def subscribe_once(self, kind: str, key: str, session: str, /) -> None:
        """Hint the open session of that name once, when the object has changed; `watch_task`: when the task has."""
        ...

    def watch_task(self, kind: str, key: str, task: int, session: str, /) -> None: ...

    def notify_watchers(self, kind: str, key: str, notice: e.Notice, /) -> None: ...
