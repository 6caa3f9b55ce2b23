"""Tasks as rows: the interface that the rules of queues need of an engine, in sets: a batch costs a few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import tenure.engine as e

from ._groups import Turn
from ._pages import Position
from ._queues import DELAYED, ENDING, LEASED, SUSPENDED
from ._state import Moment


@dataclass(slots=True)
class Task:
    """An unfinished task; it has a session while it is leased, and with `kin` it has a family.

    `stop` is the rank of the request to cancel it, 0 if it is superseded: it then does not go back. The fields up to
    the group are what settling needs. `expires` is when the task is looked at: when it expires, if it has not begun
    then, or when its `deadline` passes.
    """

    id: int
    token: int
    attempts: int
    deliveries: int
    ready_at: Moment
    stop: int | None = None
    stop_ttl: float | None = None
    kin: bool = False
    group: str = ""
    place: int = LEASED
    session: Any = None
    max_deliveries: int = 0
    dead_ttl: float | None = None
    expires: Moment | None = None
    first_put: Moment = 0
    deadline: Moment | None = None

    def is_late(self, now: Moment) -> bool:
        """True if the deadline has passed."""
        return self.deadline is not None and self.deadline <= now


_SHOWN = {LEASED: "leased", SUSPENDED: "suspended", ENDING: "ending"}


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


class TaskRows(Protocol):
    """The tasks of all queues. Changes count at once, but for the orders of tasks: those count after `write`."""

    def write(self) -> None:
        """Store what was changed."""
        ...

    # settings

    def settings(self, queue: Any, /) -> dict[str, tuple[str, Moment, str]]:
        """The record of a queue: of each field its value as text, since when it has had it, and who set it."""
        ...

    def set_settings(self, queue: Any, changes: Mapping[str, tuple[str, Moment, str]], /) -> None:
        """Store fields of the record."""
        ...

    # new tasks

    def expect_tasks(self, queue: Any, requests: Sequence[e.PutRequest], /) -> None:
        """Tasks of these requests will be put."""
        ...

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
    ) -> None:
        """A new task is at this place."""
        ...

    def cursor(self, queue: Any, name: str, /) -> bytes:
        """A position that a producer stored, or nothing."""
        ...

    def set_cursor(self, queue: Any, name: str, value: bytes, /) -> None:
        """Store a position."""
        ...

    # keys

    def owner(self, queue: Any, key: str, /) -> Owner | None:
        """The task that has a key."""
        ...

    def keep_key(self, queue: Any, key: str, task: int, until: Moment, /) -> None:
        """The task has the key until that moment at least, if it had it before, and else until then."""
        ...

    def drop_key(self, queue: Any, key: str, /) -> None:
        """The key lasts only while its task is unfinished."""
        ...

    def supersede(self, queue: Any, task: int, /) -> None:
        """A task has its key no more, and does not go back."""
        ...

    def replaceable(self, queue: Any, task: int, /) -> Task:
        """A task that is not leased."""
        ...

    def replace(
        self,
        queue: Any,
        task: int,
        new: e.NewTask,
        place: int,
        ready_at: Moment,
        expires: Moment | None,
        deadline: Moment | None,
        first_put: Moment,
        /,
    ) -> None:
        """The task becomes the new one, and is at this place."""
        ...

    # orders

    def next_due(self, queue: Any, /) -> Moment | None:
        """The time at which the next delayed task is due."""
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

    # leases

    def leased(self, queue: Any, session: Any, settles: Sequence[e.Settle], /) -> dict[int, Any]:
        """The tasks to be settled that the session has, by their ids."""
        ...

    def expect_settled(
        self, queue: Any, accepted: list[tuple[Any, e.Settle]], /
    ) -> Iterable[tuple[Task, e.Settle]]:
        """These leases will be settled; the same with the groups of which something will be left."""
        ...

    def expect_end(self, queue: Any, task: int, /) -> None:
        """This task may end."""
        ...

    def set_kin(self, queue: Any, tasks: Sequence[int], /) -> None:
        """Tasks have families from now on, and do not expire before their deadlines."""
        ...

    def stop(self, queue: Any, task: Any, rank: int, ttl: float | None, /) -> str:
        """The cancellation of a leased task was requested; the process that has the task."""
        ...

    def delete(self, queue: Any, task: Any, /) -> None:
        """A task has gone without a record. Hint those that wait for its end."""
        ...

    def set_alone(self, lease: Any, /) -> None:
        """A leased task runs alone: it is dead if its session ends now."""
        ...

    def forget_failures(self, lease: Any, /) -> None:
        """The attempts of a leased task are none, and its deliveries so many fewer."""
        ...

    def process(self, lease: Any, /) -> str:
        """The process that has a task."""
        ...

    def set_failure(self, lease: Any, failure: bytes, /) -> None:
        """A settlement says something of the failed tries."""
        ...

    def release(
        self, queue: Any, task: Any, place: int, ready_at: Moment, attempts: int, deliveries: int, /
    ) -> None:
        """A task is at this place, and leased no more. Hint those that follow it."""
        ...

    def change(self, queue: Any, task: Any, op: e.Move, /) -> None:
        """A task that is not leased has another payload, priority or group. Hint those that follow it."""
        ...

    def record(
        self, queue: Any, task: Any, state: str, attempts: int, result: bytes, expires: Moment | None, /
    ) -> None:
        """Keep a record of a task that has ended instead of the task. Hint those that wait for its end."""
        ...

    def first_of_session(self, session: Any, /) -> tuple[str, int] | None:
        """The queue and the id of the task that the session took first."""
        ...

    def stops(self, queue: Any, session: Any, /) -> tuple[int, ...]:
        """The tokens of the session's tasks whose cancellation was requested, in the order of the requests."""
        ...

    # single tasks

    def task(self, queue: Any, task: int, /) -> Task | None:
        """An unfinished task."""
        ...

    def set_progress(self, queue: Any, task: int, data: bytes, /) -> None:
        """The holder of a task reports something. Hint those that follow the task."""
        ...

    def outcome(self, queue: Any, task: int, /) -> e.Outcome | None:
        """The result of a task that has ended."""
        ...

    def unfinished_record(self, queue: Any, task: Any, state: str, /) -> e.Record:
        """An unfinished task, to be shown in that state."""
        ...

    def ended_record(self, queue: Any, task: int, /) -> e.Record | None:
        """The record of a task that has ended."""
        ...

    # many tasks

    def listed(
        self, queue: Any, state: str, after: Position, limit: int, /
    ) -> Sequence[tuple[Position, e.Record | None]]:
        """The first tasks in a state behind a place, with their places; None for a record to be passed over."""
        ...

    def held_by(self, session: Any, token: int, limit: int, /) -> Sequence[tuple[int, e.SessionItem]]:
        """The first tasks that a session has, behind a token, with their tokens."""
        ...

    # time

    def expired(self) -> Sequence[tuple[str, Task]]:
        """Tasks that are to be looked at since they expire or are late: a few, with their queues' names, in order."""
        ...

    def set_expiry(self, queue: Any, task: Any, expires: Moment | None, /) -> None:
        """Look at a task at that moment, or no more."""
        ...
