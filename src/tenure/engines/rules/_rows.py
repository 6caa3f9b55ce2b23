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
    """An unfinished task; it has a session while it is leased, and with `kin` it has a family.

    `stop` is the rank of the request to cancel it, 0 if it is superseded: it then does not go back. The fields up to
    the group are what settling needs. `session` is the number of a session. `expires` is when the task is looked at:
    when it expires, if it has not begun then, or when its `deadline` passes.
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
        """True if the deadline has passed."""
        return self.deadline is not None and self.deadline <= now


_SHOWN = {LEASED: "leased", SUSPENDED: "suspended", ENDING: "ending", HELD: "held"}


def shown_state(task: Task, now: Moment) -> str:
    """The state that is shown of an unfinished task."""
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
"""The fields that sessions follow which follow a task."""


class TaskRows(Protocol):
    """The tasks of all queues. Each change counts at once, and is hinted to those that follow the task.

    A task that was read may be a copy, which stays as it was when the task is changed. An engine that writes many
    changes together writes what is left before it reads.
    """

    # what is there

    def task(self, queue: Any, task: int, /) -> Task | None:
        """An unfinished task."""
        ...

    def leased(self, queue: Any, session: Any, tasks: Sequence[int], /) -> dict[int, Any]:
        """The tasks among these that the session has, by their ids, with what settling needs."""
        ...

    def owners(self, queue: Any, keys: AbstractSet[str], /) -> dict[str, Owner]:
        """The tasks that have these keys, by their keys."""
        ...

    def next_due(self, queue: Any, /) -> Moment | None:
        """The time at which the next delayed task is due."""
        ...

    def expired(self) -> Sequence[tuple[str, Task]]:
        """Tasks that are to be looked at since they expire or are late: a few, with their queues' names, in order."""
        ...

    def first_of_session(self, session: Any, /) -> tuple[str, int] | None:
        """The queue and the id of the task that the session took first."""
        ...

    def stops(self, queue: Any, session: Any, /) -> tuple[int, ...]:
        """The tokens of the session's tasks whose cancellation was requested, in the order of the requests."""
        ...

    # what is shown

    def unfinished_record(self, queue: Any, task: Any, state: str, /) -> e.Record:
        """An unfinished task, to be shown in that state."""
        ...

    def ended_record(self, queue: Any, task: int, /) -> e.Record | None:
        """The record of a task that has ended."""
        ...

    def listed(
        self, queue: Any, state: str, after: Position, limit: int, /
    ) -> Sequence[tuple[Position, e.Record | None]]:
        """The first tasks in a state behind a place, with their places; None for a record to be passed over."""
        ...

    def held_by(self, session: Any, token: int, limit: int, /) -> Sequence[tuple[int, e.SessionItem]]:
        """The first tasks that a session has, behind a token, with their tokens."""
        ...

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
    ) -> None:
        """A new task is at this place, and has its key."""
        ...

    def update(self, queue: Any, task: Any, /, **fields: Any) -> None:
        """These fields of a task are so from now on: fields of `Task` or `e.NewTask`, progress, failure or keep."""
        ...

    def end(self, queue: Any, task: Any, ends: e.Ends, expires: Moment | None, /) -> None:
        """A task has ended, and leaves a record until then unless it is "purged". Hint those that wait for its end."""
        ...

    def revive(self, queue: Any, task: int, /) -> None:
        """A dead task waits now, and has no record."""
        ...

    def forget_record(self, queue: Any, task: int, /) -> None:
        """A record of a task goes; the queue counts a lasting record less if the record was for good."""
        ...

    def keep_key(self, queue: Any, key: str, task: int, until: Moment | None, /) -> None:
        """The task has the key until that moment at least if it had it before, and else until then.

        None: the key lasts only while its task is unfinished.
        """
        ...

    def promote(self, queue: Any, count: int, /) -> tuple[int, Iterable[tuple[int, str]]]:
        """Delayed tasks that are due are waiting now: how many; where groups are named, also their ids and groups."""
        ...

    def take(self, queue: Any, session: Any, want: int, /) -> Sequence[e.Taken]:
        """Lease the next tasks without a group, at most so many."""
        ...

    def take_turns(self, queue: Any, session: Any, turns: Sequence[Turn], /) -> Sequence[e.Taken]:
        """Lease a task for each of these turns of groups."""
        ...
