"""The part of an engine that belongs to no family of operations, as the rules see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import tenure.engine as e

from ._tables import Layout, Table

News = e.Granted | e.Claimed | e.Notice
"""The subject of a hint."""

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
    """The last number given of each kind."""

    token: int = 0
    ending: int = 0
    rank: int = 0


class State(Protocol):
    """Tables, time, numbers, sessions, hints and the step budget of the operation that is being applied."""

    @property
    def last(self) -> Counters: ...

    @property
    def now(self) -> float:
        """The time of the engine, in seconds."""
        ...

    def table(self, layout: Layout, /) -> Table[Any]:
        """The table of a layout, made if need be."""
        ...

    def session(self, name: str, /) -> Session | None:
        """The open session of that name."""
        ...

    def process(self, session: int, /) -> str:
        """The process of the session with that number."""
        ...

    def token(self) -> int:
        """A new number above all before it, which does not go back when data is lost: a fencing token, or an id."""
        ...

    def rank(self) -> int:
        """A number above all ranks before it."""
        ...

    def hint(self, process: str, key: str, name: str, news: News, /) -> None:
        """Hint a process."""
        ...

    @property
    def cap(self) -> int:
        """The steps of an operation."""
        ...

    def step(self) -> bool:
        """Take a step of the budget; False if none is left: the operation is unfinished."""
        ...

    def wake_at(self, kind: str, when: float | None, /) -> None:
        """Clear up this kind of thing at that time, or sooner if that was said before; None: forget what was said."""
        ...

    @property
    def moment(self) -> Moment:
        """The time of the tasks, in the unit of the engine."""
        ...

    def after(self, seconds: float, /) -> Moment:
        """The moment so many seconds from now."""
        ...

    def seconds_since(self, moment: Moment, /) -> float:
        """The seconds since a moment."""
        ...

    def clock_time(self, moment: Moment | None, /) -> float | None:
        """A moment as seconds on the clock of `now`."""
        ...

    def ask_again_in(self, due: float | None = None, /) -> float:
        """Seconds until the next session ends, or until `due` if that is earlier."""
        ...

    def cached_reply(self, session: str, n: int, name: str, /) -> Any:
        """The answer to the same numbered operation when it came before, GONE, or None for a new operation."""
        ...

    def cache_reply(self, session: str, n: int, name: str, answer: object, /) -> None:
        """Keep the answer to a numbered operation until the next one of that name."""
        ...

    def subscribe_once(self, kind: str, key: str, session: str, /) -> None:
        """Hint the open session of that name once, when the object has changed."""
        ...

    def watch_task(self, kind: str, key: str, task: int, session: str, /) -> None:
        """Hint the open session of that name once, when the task of a queue has ended or changed."""
        ...

    def notify_watchers(self, kind: str, key: str, notice: e.Notice, /) -> None:
        """Hint the sessions that have subscribed to the object."""
        ...
