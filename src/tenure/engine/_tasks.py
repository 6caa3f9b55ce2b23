"""Tasks: put, taken under a lease, settled by token."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from ._answers import CAP, Operation, Queued, Reply
from ._scan import Index, Page
from ._settings import Rate
from ._value import value

ENDED = ("done", "dead", "discarded", "cancelled", "expired")
"""The states of tasks that have ended."""

OF_CHILDREN = "\0"
"""The character with which the name of a group of children begins."""

OnDuplicate = Literal["refuse", "keep", "replace"]
"""The fate of a new task whose key another task has."""


@value
class NewTask:
    """A task to be put: `delay`, `expires` and `deadline` are seconds from now.

    `meta` is kept for as long as anything of the task is. Tasks with the same `group` take turns with other groups; ""
    is the group of the tasks without one (see `Settings`).

    At most one task of a queue has a `key`: while it is unfinished, and at least for `key_ttl` seconds from its put. If
    another task has the key of a new one, `on_duplicate` says what follows:

    - "refuse": the new task is not put; its answer is `Duplicate`.
    - "keep": the new task is not put; its answer is the id of the existing task.
    - "replace", and the existing task is waiting or delayed: it becomes the new task and keeps only its id, its watches
      and its first put. Orders and groups change as if the new task were put and the old one then removed. Watchers are
      hinted CHANGED. No limit refuses it. It is not a put: `QueueCounts.put` stays. The key lasts until the later of
      the two times.
    - "replace", and the existing task is leased: the new task is put, and has the key. The leased task is superseded:
      where it would go back, it ends as cancelled, with a record for `EXPIRED_TTL` seconds.
    - "replace", and the existing task has ended: the new task is put, and has the key.

    `max_wait`: the most seconds from its first put until the task is ready. A task that replaces another one without
    attempts and deliveries inherits its first put. Without a `key`, `on_duplicate`, `key_ttl` and `max_wait` mean
    nothing.

    After its `deadline` a task ends as expired, with each of its descendants: at once without a taker, or else with its
    holder's verdict, unless that is DONE. A task that is ending for a retry ends as expired instead. An expiry
    (`expires`) does nothing to a task that has begun. A dead task that is made ready again has neither expiry nor
    deadline.
    """

    payload: bytes
    priority: int = 0
    delay: float = 0.0
    key: str | None = None
    expires: float | None = None
    meta: bytes = b""
    group: str = ""
    on_duplicate: OnDuplicate = "refuse"
    key_ttl: float | None = None
    max_wait: float | None = None
    deadline: float | None = None


@value
class Duplicate:
    """Not put: the task `id` has the same key."""

    id: int


@value
class PutRequest:
    """The tasks of one producer's call: all fit, or none is put.

    `cursor` is a (name, value) that the queue stores in the same atomic step (how far an input was read); the value b""
    removes the cursor. With `expected`, nothing is put or stored if the cursor now has another value; b"" stands for
    none.
    """

    producer: str
    tasks: tuple[NewTask, ...]
    wait: bool = True
    cursor: tuple[str, bytes] | None = None
    expected: bytes | None = None


@value
class Conflict:
    """Not put: the cursor has this `value`, and not the expected one."""

    value: bytes


@value
class Accepted:
    """The result for each task: its id, the id of the task that is kept or replaced, or the `Duplicate`."""

    ids: tuple[int | Duplicate, ...]


@value
class Named(Accepted):
    """The result for each release: its id and its state, "held" if it is new."""

    states: tuple[str, ...] = ()


@value
class Put(Operation["PutAnswer | Reply"]):
    """Put tasks, several callers' at once, in the order given. -> PutAnswer, GONE, MORE

    A request that finds no room (`Settings.max_size`), or others waiting, joins the queue of producers (Queued) or is
    REFUSED. A request that puts no new task, since others have all its keys, needs no room and passes all that wait.
    When the turn of a request comes its slots are reserved and it is hinted ROOM; the same request, sent again, is then
    accepted. A request for a full group first stands in the line of the group, and others pass it (see `Settings`). If
    a limit falls below the size of a waiting request, its turn comes when the queue, or the group, is empty.
    """

    session: str
    n: int
    key: str
    requests: tuple[PutRequest, ...]


@value
class PutAnswer:
    """The answer for each request: Accepted, Conflict, Queued, or REFUSED. `revision` is as in `Configured`."""

    answers: tuple[Accepted | Conflict | Queued | Reply, ...]
    revision: int = 0


@value
class Leave(Operation[Reply]):
    """Give up a producer's place or its reserved slots. -> LEFT, RELEASED, UNKNOWN, MORE; needs no live session."""

    key: str
    producer: str


ANEW = b"anew"
NOT_BEGUN = b"not begun"


class Verdict(Enum):
    """The way in which a delivery of a task ended; NOTE and ALONE end none."""

    DONE = "done"  # with a result
    RETRY = "retry"  # the try failed; ready again after `delay`
    DEAD = (
        "dead"  # the try failed and was the last: kept as a dead letter for `ttl`, with the error as result
    )
    DISCARD = "discarded"  # not worth another try: ended with a reason as result
    GIVE_BACK = "give back"  # as if it had not been taken; keeps its place in the order
    POSTPONE = "postpone"  # no try; ready again after `delay`, behind all tasks ready then
    CANCEL = "cancelled"  # the requested cancellation was carried out
    WAIT = "wait"  # go on when no child is unfinished; a failed one cancels those that `result` names
    WAIT_FOR = "wait for"  # go on when the entry that `result` names is there, or after `delay`
    WAIT_FOR_END = "wait for end"  # go on when no more than `result` children are unfinished
    NOTE = "note"  # still leased; a `failure` is stored
    ALONE = "alone"  # still leased, and run with nothing beside it: dead if its session ends before a verdict


@value
class Settle:
    """The verdict on a taken task, fenced by its token; `ttl` is how long the result is kept (None: for good).

    RETRY, a wait, and POSTPONE of a task that had begun start the count of deliveries without a verdict anew. The
    `result` of POSTPONE is b"" for such a task, `ANEW` to begin the count of failures anew too, and else `NOT_BEGUN`.

    `failure` describes the failed tries; unless empty, it replaces the earlier one.

    The laws of families (`tenure.engine._families`) say when a verdict has to wait for children. The waits:

    - WAIT: `result` is the beginning of names in UTF-8. As soon as a child of such a name has failed in this try, the
      other children of such names are swept; b"" sweeps none. DONE with an unfinished child counts as such a WAIT.
    - WAIT_FOR: `result` is the name of an entry. Without it after `delay` seconds (0: never), an entry of that name is
      "expired".
    - WAIT_FOR_END: `result` is a number in decimal digits. One less than the delivery knows of unfinished children is
      the next end.

    A wait ends as CANCEL, with the ttl of that request, if the cancellation of the task was requested.

    Past its deadline a task ends as expired, with a record for `EXPIRED_TTL` seconds and no result, unless it is DONE
    and has no unfinished child. Such settlements take effect behind the others of their operation.
    """

    id: int
    token: int
    verdict: Verdict
    result: bytes = b""
    delay: float = 0.0
    ttl: float | None = None
    failure: bytes = b""


@value
class Taken:
    """A task that is now leased to the session. `attempts` failed so far; `deliveries` counts this one too.

    `waited` is for how many seconds it has been ready; `progress` and `failure` are as in `Record`. It has at most
    `entries` entries. In `deadline` seconds its deadline passes.
    """

    id: int
    token: int
    payload: bytes
    priority: int
    attempts: int
    deliveries: int
    waited: float
    progress: bytes
    failure: bytes
    meta: bytes
    group: str
    entries: int = 0
    deadline: float | None = None


@value
class Exchange(Operation["Exchanged | Reply"]):
    """Settle what was taken and take up to `want` tasks, in one step. -> Exchanged, GONE, MORE

    Order: groups take turns (see `Settings`); within a group higher priority, then ready_at, then id. With
    `Settings.aging`, tasks of the group that have been ready for longer than that come first, the oldest of all. Up to
    `CAP` delayed tasks become ready at each exchange.

    With `wait`, a taker that got fewer than it wanted is idle: it is hinted READY once when there is something to take.
    Idle takers are hinted in the order in which they came, as many as the newly available tasks need. Raises
    `ValueError` for more than `CAP` settlements.
    """

    session: str
    n: int
    key: str
    settle: tuple[Settle, ...] = ()
    want: int = 0
    wait: bool = True

    def __post_init__(self) -> None:
        if len(self.settle) > CAP:
            raise ValueError(f"settle must hold at most {CAP} settlements, not {len(self.settle)}")


@value
class Exchanged:
    """The tasks taken; `refused`: tokens of settlements that came too late, in any order.

    `stop`: tokens of tasks held that shall be cancelled. `revision` is as in `Configured`.
    """

    tasks: tuple[Taken, ...]
    refused: tuple[int, ...]
    stop: tuple[int, ...]
    paused: bool
    ask_again_in: float
    revision: int = 0


@value
class Progress(Operation[Reply]):
    """Store what the holder of the task reports. -> OK, REFUSED (stale token), REQUESTED (stored, and: cancel it)"""

    key: str
    id: int
    token: int
    data: bytes


@value
class GetResult(Operation["Outcome | Unfinished | Reply"]):
    """Returns the outcome of a task. -> Outcome, Unfinished, UNKNOWN, GONE, MORE

    With `watch`, that session's process is hinted FINISHED once when an unfinished task ends.
    """

    key: str
    id: int
    watch: str = ""


@value
class Outcome:
    """The task ended: `state` is one of `ENDED`; `result` the result, error or reason."""

    state: str
    result: bytes
    attempts: int


@value
class Unfinished:
    """The task is waiting, delayed, leased, suspended or ending."""

    state: str
    ask_again_in: float


@value
class Move(Operation["MovedCount | Reply"]):
    """Cancel tasks, postpone or change them, make dead ones ready again, or delete them. -> MovedCount, MORE

    `ids` are at most `CAP`, and are moved in this order; with a `state`, only the tasks that are in this state. Tasks
    in other states than these stay:

    - to "cancelled": a task without a taker is cancelled, and its record kept for `ttl` seconds (None: for good). The
      holder of a leased task is hinted STOP once, and its children are swept; the task counts as moved. A task that is
      ending for a retry ends as cancelled.
    - to "delayed": tasks that are waiting or delayed become ready after `delay` seconds, behind what is ready then;
      with None, at the same time as before. Each of `payload`, `priority` and `group` that is not None replaces the
      task's own. The task then stands in orders and groups as if it had been put like this in the first place, its
      group may start anew, and no limit holds it up. A new payload alone moves nothing.
    - to "waiting": dead tasks become ready, with no attempts and deliveries on record, whatever `max_size`. A dead task
      whose key another one has stays dead, and so does a child, but for a release.
    - to "purged": tasks that are waiting, delayed or dead are deleted, releases only if they are dead; tasks that are
      done, discarded, cancelled or expired are forgotten.

    Raises `ValueError` for more than `CAP` ids, and for a change of tasks that are not moved to "delayed".
    """

    key: str
    ids: tuple[int, ...]
    to: Literal["cancelled", "delayed", "waiting", "purged"]
    ttl: float | None = 3600.0
    delay: float | None = 0.0
    payload: bytes | None = None
    priority: int | None = None
    group: str | None = None
    state: str = ""

    def __post_init__(self) -> None:
        if len(self.ids) > CAP:
            raise ValueError(f"ids must be at most {CAP}, not {len(self.ids)}")
        changes = (self.payload, self.priority, self.group)
        if self.to != "delayed" and (self.delay is None or changes != (None, None, None)):
            raise ValueError(f'to must be "delayed" for a change, not {self.to!r}')

    @property
    def moves(self) -> bool:
        """False if nothing but the payload is to change."""
        return (self.delay, self.priority, self.group) != (None, None, None)


@value
class MovedCount:
    """The number of tasks that an operation has moved."""

    count: int


@value
class Record:
    """A task as it is shown: a row of each index of tasks. `seq` is the rank of its ending, 0 for an unfinished task.

    `progress` is the last report, `failure` what the last settlement said of the failed tries. An unfinished or dead
    child has a `parent`, in the queue `parent_key`; `children` is the number of the task's own unfinished children, and
    `releases` is true if a release was named in its present life. `deadline` is the seconds, at least 0, that an
    unfinished task has left; `ran` is the seconds from the delivery of a leased task until now, or until it ended.
    """

    seq: int
    id: int
    state: str
    payload: bytes
    priority: int
    key: str | None
    attempts: int
    deliveries: int
    result: bytes
    age: float
    ran: float | None
    progress: bytes
    failure: bytes
    meta: bytes
    group: str
    parent: int = 0
    parent_key: str = ""
    children: int = 0
    releases: bool = False
    deadline: float | None = None


@value
class TaskPage(Page[Record]):
    """The page of a task, with its record or without rows.

    `ask_again_in` covers the time when a delayed task is due, the expiry of a task that has not begun, and the
    deadline.
    """

    ask_again_in: float = 0.0


TASKS = {
    state: Index(state, "queue", Record, Page[Record])
    for state in ("waiting", "delayed", "leased", "suspended", "ending", "ended", *ENDED)
}
"""The tasks of a queue in a state; "ended" are those that have ended in any way."""

TASK = Index("task", "queue", Record, TaskPage, watchable=True)
"""The task with the id `only`."""

KEYED_TASK = Index("keyed_task", "queue", Record, TaskPage, watchable=True)
"""The task that has the key `only`."""


@value
class SetPaused(Operation[Reply]):
    """Pause or resume a queue; a paused one hands out no tasks. Resumed, it is held off no longer. -> OK, MORE

    With `seconds`, `paused` means nothing: the `group`, or the queue for "", is held off, and none of its tasks starts
    for that time. The later of two ends counts. Then tasks start one by one at the rate, without a burst. The queue and
    the pace of the group are remembered until then. 0 seconds end a hold-off at once.
    """

    key: str
    paused: bool
    seconds: float | None = None
    group: str = ""


@value
class GroupCounts:
    """The number of tasks of a group in each state; a due task counts as delayed until an exchange moves it.

    The next task of the group may start in `starts_in` seconds; `held_off` is the same during a hold-off, else 0.
    """

    group: str
    waiting: int
    delayed: int
    leased: int
    starts_in: float = 0.0
    held_off: float = 0.0
    weight: float = 1.0


GROUPS = Index("groups", "queue", GroupCounts, Page[GroupCounts])
"""The groups of a queue that have an unfinished task."""


@value
class Count(Operation["QueueCounts | Reply"]):
    """The state of a queue; `recount` counts the rows instead of trusting the counters. -> QueueCounts, GONE, MORE

    With `watch`, that session's process is hinted DRAINED once when the queue has no unfinished task left. A queue that
    has none now is not watched.
    """

    key: str
    watch: str = ""
    recount: bool = False


@value
class QueueCounts:
    """The counts of a queue, with the fields of `tenure.types.QueueStatistics`; `producers` are those of groups too.

    If `group_counter` differs from `groups`, this counter is wrong. `cursors` are the stored (name, value) pairs. `now`
    is the engine's time, in seconds since 1970 in UTC. `held` releases do not count as put.
    """

    put: int
    waiting: int
    delayed: int
    leased: int
    done: int
    dead: int
    cancelled: int
    expired: int
    discarded: int
    purged: int
    reserved: int
    producers: int
    groups: int
    paused: bool
    oldest: float
    cursors: tuple[tuple[str, bytes], ...]
    ask_again_in: float
    now: float
    max_size: int
    group_counter: int
    suspended: int = 0
    ending: int = 0
    starts_in: float = 0.0
    rate: Rate | None = None
    group_rate: Rate | None = None
    held_off: float = 0.0
    held: int = 0

    @property
    def known(self) -> bool:
        """False if an engine holds nothing of the queue: nobody creates a queue, so any name can be counted."""
        return bool(self.put or self.paused or self.cursors or self.starts_in or self.rate or self.group_rate)
