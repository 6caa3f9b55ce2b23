"""Families: the children of a task, and the named entries of its record. A task ends after its children.

An *entry* belongs to an unfinished task, or to a dead letter. It is a value that a delivery of the task stored, a
signal that somebody sent, or a child. The first write of a name wins, as long as the entry exists. A *try* is
what a verdict of DONE, RETRY or DEAD ends. The laws:

1. A task ends only when none of its children is unfinished. A verdict that would end it earlier is stored, and the task
   is "ending": unfinished, without a lease, in no order. Its children are cancelled, and the end of the last one
   applies the stored verdict in the same step. This holds for expiry, a purge and a lost session, too.
2. A try ends only when no child is unfinished: RETRY is stored in the same way, and the task is then ready at the later
   of the end of its pause and the end of its last child. GIVE_BACK, POSTPONE, waits and a lost session interrupt a try,
   and leave the children alone.
3. A child and a value carry the token of a lease. They are refused under another token than the lease in force has, or
   if the cancellation of the task was requested.
4. The end of a child, of any kind, tells its parent: its entry then has the child's state and result, which last as
   long as the entry. A child that is purged tells "purged".
5. A child has failed if it ended in another way than "done". At the end of a try, and when a dead letter is made ready
   again, the entries of failed children are removed; all other entries stay.
6. Cancelling goes down by visits: a sweep visits the unfinished children whose names begin with a prefix, by name. A
   leased child is asked to stop, and its own children are swept; any other child ends as cancelled, with a record for
   `EXPIRED_TTL` seconds, or is "ending" if it has unfinished children. A child that is ending for a retry then ends as
   cancelled. Sweeps go on in the order of queues and ids. The operation that begins a sweep makes up to `SWEEP_STEPS`
   visits behind its own work. A later operation makes as many before its own work, if `SWEEP_PAUSE` has passed since
   the last visit. A child may still begin before its visit.
7. A task that waits ("suspended") has no lease and is in no order, so it holds nothing. It is ready in the step in
   which the last thing comes that it waits for; one taker is hinted READY. The ends of a task's children have rising
   numbers, so that each delivery can pass them in the order of the ends.
8. A wait counts no attempt. It begins the count of deliveries without a verdict anew, keeps `ready_at`, and gives no
   turn of the group back.
9. A child never waits for what an ancestor may hold. No full queue or group refuses a child. The name of a child's
   group begins with `OF_CHILDREN`, so the group is another than the group of roots. It takes turns with all other
   groups, and has leased tasks of its own up to `group_limit`; no child holds it while it is suspended, ending
   or pausing before a retry. A task has at most `PutChildren.most` children and `MOST_ENTRIES`
   entries, ended ones included; a child is at most `DEEPEST` levels below its root.
10. Only a root has a key or an expiry, and only a root is made ready again after its death. With its first entry a task
    no longer expires. "replace" treats a root that is suspended, ending, or has an unfinished child as leased, and
    cancels it at once; any other root that is replaced loses its entries. A suspended or ending root holds its group
    where the group keeps its order.
11. The deadline of a child is the earlier of its own and its parent's. A leased task past its deadline has its children
    cancelled.
12. Settlements of tasks with a family take effect behind the others of their operation.
13. A value is progress: it removes the failure of the task from the record, but not its number of deliveries without a
    verdict.

14. A *release* is a child that is named before there is anything to release. It is "held": in no order, without a clock
    of its own, and its owner does not wait for it. It begins when its owner would end, in the step in which the verdict
    is stored, or the last child has ended: the last named first, each after the end of the former. Those named
    `together` that follow one another are unfinished together, at most `SWEEP_STEPS`. The end of the last one applies
    the verdict. No interruption and no end of a try begins a release; "begin" does, and waits for the children.
15. A release that ends in another way than "done" is a dead letter. It changes nothing of its owner, and its entry
    outlives a try. Sweeps, the deadline of its owner and a purge pass it by; `Move` by its id does not. Made ready
    again, the letter tells nobody.
16. A release `unless_done` is "dropped", and leaves no record, if its owner is done by a verdict of the delivery that
    has named it last. A release that is "kept" earlier leaves its entry.
17. A dead task of which a release has begun is made ready in another life: entries that were written since the first
    naming are gone, but for signals. "replace" takes a task with held releases for a leased one.

A task without a family pays for one flag alone.
"""

from __future__ import annotations

from typing import Literal

from ._answers import CAP, Operation, Reply
from ._scan import Index, Page
from ._tasks import OF_CHILDREN, Accepted, Named, NewTask
from ._value import value

MOST_ENTRIES = 10_000
"""The most entries of a task."""

SWEEP_STEPS = 8
"""The most children that an operation cancels beside its own work."""

SWEEP_PAUSE = 0.01
"""Seconds between two operations that go on with sweeps, longer than the visits of an operation take."""

DEEPEST = 32
"""The most levels that a child may be below its root."""

ENTRY_BYTES = 4 * 2**20
"""The bytes of values after which a page of entries ends."""


@value
class Entry:
    """An entry of a task, by `name`.

    A value has the state "done"; a signal "done", or "expired" if it did not come in time. A child is "unfinished" or
    has the state in which it ended; `value` is then its result, error or reason. A child has a `queue` and an `id`. A
    release is such a child, and also "held", "kept" or "dropped"; it ends as "done" or "dead". `swept`: the
    cancellation of the child came from its parent's family. `ended` numbers the ends of the task's children; 0 before
    the end.
    """

    name: str
    kind: Literal["value", "signal", "child", "release"]
    state: str
    value: bytes = b""
    queue: str = ""
    id: int = 0
    swept: bool = False
    ended: int = 0


ENTRIES = Index("entries", "queue", Entry, Page[Entry])
"""The entries of the task with the id `only`."""

UNFINISHED_CHILDREN = Index("unfinished_children", "queue", Entry, Page[Entry])
"""The unfinished children of the task with the id `only`."""


@value
class TooMany:
    """Not stored: a task has at most `most` of them."""

    most: int


@value
class PutChildren(Operation[Accepted | Named | Entry | TooMany | Reply]):
    """Put tasks into the queue `to` as children of the leased task `id` of the queue `key`; all, or none.

    -> Accepted (the ids), Named (of `held` tasks), Entry (the first of these names that is of no child), TooMany,
    REFUSED (stale token), REQUESTED (put nothing: cancel the task), MORE

    `names` are the names of the entries. A task whose name exists is not put, and the answer has the id of the first
    task. `held` tasks are releases, which begin when their owner ends ("end"), or when it does not end as done. The
    answer is then Named, or the Entry of a release with another target, or another payload as long as that is on
    record. Their `deadline` counts from their beginning.

    Raises `ValueError` for more than `CAP` tasks, for names that are not one for each task, for tasks with a key or an
    expiry, for releases with a delay, and for a group whose name does not begin with `OF_CHILDREN`. The answer is an
    `EngineError` if the task is `DEEPEST` levels below its root, and if `to` is in another shard than `key`.
    """

    key: str
    id: int
    token: int
    to: str
    names: tuple[str, ...]
    tasks: tuple[NewTask, ...]
    most: int = 1_000
    held: Literal["", "end", "unless_done"] = ""
    together: bool = False

    def __post_init__(self) -> None:
        if len(self.tasks) > CAP:
            raise ValueError(f"tasks must be at most {CAP}, not {len(self.tasks)}")
        if len(set(self.names)) != len(self.tasks):
            raise ValueError("names must be one for each task, and each another one")
        if any(task.key is not None or task.expires is not None for task in self.tasks):
            raise ValueError("tasks must have no key and no expiry as children")
        if any(task.group and not task.group.startswith(OF_CHILDREN) for task in self.tasks):
            raise ValueError(f"tasks must have groups that begin with {OF_CHILDREN!r} as children")
        if self.held and any(task.delay for task in self.tasks):
            raise ValueError("tasks must have no delay as releases")


@value
class SetEntry(Operation[Entry | TooMany | Reply]):
    """Store a value of a leased task, or with the token 0 a signal for an unfinished task; or `change` a release.

    A release that is held begins now ("begin"), or never ("keep"), also if its owner is to stop.

    -> OK, Entry (the entry that is there), TooMany, REFUSED (stale token), REQUESTED (stored nothing: cancel the task),
    UNKNOWN (a signal for a task that is not there, a change of no release), CHILDREN (unfinished: nothing begins), MORE
    """

    key: str
    id: int
    token: int
    name: str
    value: bytes = b""
    change: Literal["", "begin", "keep"] = ""
