"""Tasks as rows: the interface that the rules of queues need of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import tenure.engine as e

from ._groups import Turn
from ._pages import Position
from ._queues import DELAYED, ENDING, HELD, LEASED, SUSPENDED
from ._state import Moment


@dataclass(slots=True)
class Task:
    """An unfinished task; it has a session (a number) while it is leased, and a family if `kin`.

    `stop` is the rank of the request to cancel it, or 0 if it is superseded. The fields up to the group suffice for
    settling. At `expires` the engine looks at the task: its expiry or its deadline may have passed.
    """

    id: int
    token: int
    attempts: int
    deliveries: int
    ready_at: Moment
    stop: int | None = None
    stop_ttl: float | None = None
    kin: bool = False
    deadline: Moment | None = None
    group: str = ""
    place: int = LEASED
    session: Any = None
    max_deliveries: int = 0
    dead_ttl: float | None = None
    expires: Moment | None = None
    first_put: Moment = 0

    def is_late(self, now: Moment) -> bool:
        return self.deadline is not None and self.deadline <= now


_SHOWN = {LEASED: "leased", SUSPENDED: "suspended", ENDING: "ending", HELD: "held"}


def shown_state(task: Task, now: Moment) -> str:
    return _SHOWN.get(task.place) or (
        "delayed" if task.place == DELAYED and task.ready_at > now else "waiting"
    )


def earlier(one: Moment | None, other: Moment | None) -> Moment | None:
    """The earlier of two moments; None is never."""
    return other if one is None else one if other is None else min(one, other)


class Owner(NamedTuple):
    """The task that has a key; without a place, it has ended."""

    id: int
    place: int | None
    kin: bool = False


SHOWN = {"place", "payload", "priority", "group", "progress"}
"""The fields whose changes are hinted to sessions that follow a task."""


class TaskRows(Protocol):
    """The tasks of all queues. Each change counts at once, and is hinted to those that follow the task.

    A task that was read may be a copy. An engine that delays its writes writes them before it reads.
    """

    # what is there

    def task(self, queue: Any, task: int, /) -> Task | None: ...

    def leased(self, queue: Any, session: Any, tasks: Sequence[int], /) -> dict[int, Any]:
        """The session's tasks among these, by their ids, with the fields that settling needs."""
        ...

    def owners(self, queue: Any, keys: AbstractSet[str], /) -> dict[str, Owner]: ...

    def next_due(self, queue: Any, /) -> Moment | None: ...

    def expired(self) -> Sequence[tuple[str, Task]]: ...

    def first_of_session(self, session: Any, /) -> tuple[str, int] | None: ...

    def stops(self, queue: Any, session: Any, /) -> tuple[int, ...]: ...

    # what is shown

    def unfinished_record(self, queue: Any, task: Any, state: str, /) -> e.Record: ...

    def ended_record(self, queue: Any, task: int, /) -> e.Record | None: ...

    def listed(
        self, queue: Any, state: str, after: Position, limit: int, /
    ) -> Sequence[tuple[Position, e.Record | None]]:
        """The first tasks in a state behind a place, with their places; None for a record to be passed over."""
        ...

    def held_by(self, session: Any, token: int, limit: int, /) -> Sequence[tuple[int, e.SessionItem]]: ...

    # changes

    def add(
        self,
        queue: Any,
        task: int,
        new: e.NewTask,
        place: int,
        ready_at: Moment,
        expires: Moment | None,
        deadline: Moment | None,
        /,
        *,
        kin: bool = False,
    ) -> None: ...

    def update(self, queue: Any, task: Any, /, **fields: Any) -> None:
        """Change fields of a task: fields of `Task` or `e.NewTask`, progress, failure or keep."""
        ...

    def end(self, queue: Any, task: Any, ends: e.Ends, expires: Moment | None, /) -> None:
        """End a task, with a record until `expires` unless it is "purged", and hint its watchers."""
        ...

    def revive(self, queue: Any, task: int, /) -> None: ...

    def forget_record(self, queue: Any, task: int, /) -> None:
        """Remove the record of a task; the queue counts a lasting record less if it was for good."""
        ...

    def keep_key(self, queue: Any, key: str, task: int, until: Moment | None, /) -> None:
        """Keep the key for the task, if it had it before at least until that moment, else until then.

        None: the key lasts only while its task is unfinished.
        """
        ...

    def promote(self, queue: Any, count: int, /) -> tuple[int, Iterable[tuple[int, str]]]:
        """Have the due tasks wait: how many; where groups are named, also their ids and groups."""
        ...

    def take(self, queue: Any, session: Any, want: int, /) -> Sequence[e.Taken]: ...

    def take_turns(self, queue: Any, session: Any, turns: Sequence[Turn], /) -> Sequence[e.Taken]: ...
