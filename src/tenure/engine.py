"""The engine contract: coarse operations, frozen values in and out, safe to send again.

An *engine* keeps state. It takes *operations*, each of them atomic and one round trip, and gives *answers*. An
operation is a value, so sending it again is sending the same value again. What every engine keeps to:

Resending. Holds, claims and arrivals are named by the client, before the first byte is sent; applying them twice is
applying them once. `Put`, `Exchange`, `Spend` and `Refund` carry `(session, n)`: n rises from batch to batch, per session and
object, one batch at a time; the engine keeps its last answer per session and object and repeats it when the same n
comes again.

Sessions. A session is a process's life sign. No operation creates one but `OpenSession`; an operation that carries an
unknown or ended session is answered `Reply.GONE` and has no effect. A session that is not renewed within its ttl ends:
all it holds is released and all its places are left, as if it had been closed.

Clearing up. Before anything else, every operation clears up what time has made due: it ends expired sessions (in the
order of expiry, then id; within one: holds, claims, arrivals, producers, tasks, idle takers, watches, each in the
order they were made), expires tasks and frees resources whose cool-down is over and that somebody waits for. Loops
are capped: after `CAP` steps the answer is `Reply.MORE`, and the caller sends the same operation again at once. The
operation itself may already have been applied by then; sending it again is safe and gives the final answer.

Lines. First come, first served, weights included: a head that does not fit blocks those behind it, nobody barges, and
an acquirer that does not want to wait is refused while others wait. Whatever gives something back grants it to the
head of the line in the same atomic step and hints the process of the one who got it. `place` is 1 for the head; it is
an upper bound, since those who left in between are counted.

Hints. A hint carries the very answer that asking would give, or a notice to look again. Hints may be lost; the stored
state is the truth. `ask_again_in` tells after how many seconds (the earliest expiry or due time that could help) asking
again makes sense without a hint.

Tokens. Each grant and each taking carries a token: `max(last + 1, engine time in microseconds)`. Tokens rise over the
whole engine, outlive what they were given for, and whatever a stale holder sends is refused by its token.

Time is the engine's. Only durations, in seconds, cross the wire. Payloads, results, progress, values and metadata are
bytes to an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from anyio.abc import TaskStatus

__all__ = (
    "CAP",
    "Accepted",
    "Acquire",
    "AddResource",
    "ArrivalAnswer",
    "Arrive",
    "Ask",
    "Asked",
    "Broken",
    "Browse",
    "CancelTask",
    "Changed",
    "Claim",
    "ClaimAnswer",
    "Claimed",
    "CloseSession",
    "Count",
    "Duplicate",
    "EditClaim",
    "Engine",
    "Exchange",
    "Exchanged",
    "GetResult",
    "GiveBack",
    "Granted",
    "Hint",
    "HoldAnswer",
    "Holder",
    "Holders",
    "Holdings",
    "Leave",
    "Metadata",
    "Mismatch",
    "NewTask",
    "Notice",
    "OpenSession",
    "Operation",
    "Outcome",
    "Page",
    "Ping",
    "Progress",
    "Purge",
    "Put",
    "PutAnswer",
    "PutRequest",
    "QueueCounts",
    "Queued",
    "Record",
    "Refund",
    "Release",
    "RemoveResource",
    "RenewSession",
    "Reply",
    "Requeue",
    "ResetBarrier",
    "Resize",
    "Resource",
    "ResourcePage",
    "Resources",
    "SetPaused",
    "SetValue",
    "Settle",
    "Spend",
    "SpendRequest",
    "Spending",
    "Spent",
    "Taken",
    "Tripped",
    "Unfinished",
    "Verdict",
    "Waiting",
    "Withdraw",
)

CAP = 256
"""How many steps a loop inside one operation may take before the answer is `Reply.MORE`."""

A = TypeVar("A")


class Operation(Generic[A]):
    """One atomic step on an engine; `A` is the type of its answer.

    Thread safety: any; operations never change.
    """

    __slots__ = ()


class Reply(Enum):
    """Answers that need no further words."""

    OK = "ok"
    GONE = "gone"  # the session is unknown or has ended; nothing was done
    MORE = "more"  # clearing up is unfinished: send the same operation again
    REFUSED = "refused"  # not now (would have to wait), or not with this token
    RELEASED = "released"  # what was held or reserved is given back
    LEFT = "left"  # the place in the line is given up
    UNKNOWN = "unknown"  # nothing of that name is known
    WITHDRAWN = "withdrawn"  # the arrival is undone
    CANCELLED = "cancelled"  # the task is cancelled
    REQUESTED = "requested"  # the task runs; its holder is told to cancel it


class Notice(Enum):
    """What a hint says when it does not carry an answer."""

    ASK = "ask"  # your place changed in a way that only asking tells
    READY = "ready"  # tasks may be there for an idle taker
    ROOM = "room"  # slots of a full queue are reserved for a producer
    STOP = "stop"  # the cancellation of a task that you hold was requested; `name` is its token
    FINISHED = "finished"  # a task that you watch has ended; `name` is its id
    DRAINED = "drained"  # a queue that you watch has no unfinished task
    CHANGED = "changed"  # the holder of a key that you watch, or its value, changed
    RESYNC = "resync"  # hints may have been lost: ask for everything again


# --------------------------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Granted:
    """It is yours, fenced by `token`."""

    token: int


@dataclass(frozen=True, slots=True)
class Queued:
    """You are in the line, at `place` at the latest; ask again after `ask_again_in` seconds without a hint."""

    place: int
    ask_again_in: float


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The capacity (or number of parties) in force is `stored`; nothing was done."""

    stored: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The resource is yours, fenced by `token`."""

    resource: str
    metadata: Metadata
    token: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """You have arrived at the barrier and wait for the rest of this generation."""

    generation: int
    ask_again_in: float


@dataclass(frozen=True, slots=True)
class Tripped:
    """All parties of the generation have arrived; you were number `place` (from 0)."""

    generation: int
    place: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The generation is broken for all of its parties."""

    generation: int


Metadata = tuple[tuple[str, bytes], ...]
"""Fields of a resource, sorted by name; a `where` matches when all its fields are there with equal bytes."""

HoldAnswer = Granted | Queued | Mismatch | Reply
ClaimAnswer = Claimed | Queued | Reply
ArrivalAnswer = Waiting | Tripped | Broken | Mismatch | Reply


@dataclass(frozen=True, slots=True)
class Hint:
    """A message from the engine to one process; `name` is the holder, producer, participant, task or token meant."""

    process: str
    key: str
    name: str
    news: Granted | Claimed | Tripped | Broken | Notice


# -------------------------------------------------------------------------------------------------- sessions


@dataclass(frozen=True, slots=True)
class Ping(Operation[Reply]):
    """Nothing but a round trip. -> OK"""


@dataclass(frozen=True, slots=True)
class OpenSession(Operation[Reply]):
    """Begin a session of `process`, which ends `ttl` seconds after its last renewal. -> OK; opening again renews."""

    session: str
    process: str
    ttl: float


@dataclass(frozen=True, slots=True)
class RenewSession(Operation[Reply]):
    """Push the end of the session to a ttl from now. -> OK, GONE. Never revives."""

    session: str


@dataclass(frozen=True, slots=True)
class CloseSession(Operation[Reply]):
    """End the session and release all that it has. -> OK, GONE (nothing was left), MORE"""

    session: str


# ----------------------------------------------------------------------------------------------------- holds


@dataclass(frozen=True, slots=True)
class Acquire(Operation[HoldAnswer]):
    """Take `weight` of the `capacity` of `key`, or a place in its line.

    -> Granted, Queued, REFUSED (not `wait` and not free at once), Mismatch, GONE, MORE. The first of a key sets its
    capacity; it is forgotten with the last, unless `Resize` has set it. Asking again answers where the holder stands.
    """

    session: str
    key: str
    holder: str
    capacity: int
    weight: int = 1
    value: bytes = b""
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Ask(Operation["Asked | Reply"]):
    """Where do these holders of one session stand? -> Asked, GONE, MORE"""

    session: str
    key: str
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """For each holder asked for: Granted, Queued, or UNKNOWN."""

    answers: tuple[HoldAnswer, ...]


@dataclass(frozen=True, slots=True)
class Release(Operation[Reply]):
    """Give back what the holder has, or leave its place. -> RELEASED, LEFT, UNKNOWN, MORE; needs no live session."""

    key: str
    holder: str


@dataclass(frozen=True, slots=True)
class SetValue(Operation[Reply]):
    """Change the value that others see beside the holder. -> OK, REFUSED (not the holder with this token)"""

    key: str
    holder: str
    token: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Resize(Operation[Reply]):
    """Set the capacity of `key` for good; more is granted at once, less by attrition. -> OK, MORE

    A waiter that asks for more than the new capacity is put out of the line and told to ask (it gets `Mismatch`).
    """

    key: str
    capacity: int


@dataclass(frozen=True, slots=True)
class Holders(Operation["Holdings"]):
    """Who holds `key` and who waits for it, at most `limit` of each. -> Holdings

    With `watch`, that session's process is hinted CHANGED once, at the next change of the holders or of a value.
    """

    key: str
    limit: int = 1000
    watch: str = ""


class Holder(NamedTuple):
    """One who holds (`token` above 0, `age` since the grant) or waits (`token` 0, `age` since it came)."""

    process: str
    holder: str
    token: int
    weight: int
    value: bytes
    age: float


@dataclass(frozen=True, slots=True)
class Holdings:
    """The state of a key; `capacity` 0 means that nobody uses it."""

    capacity: int
    used: int
    holders: tuple[Holder, ...]
    waiting: tuple[Holder, ...]


# ---------------------------------------------------------------------------------------------------- claims


@dataclass(frozen=True, slots=True)
class AddResource(Operation[Reply]):
    """Put a resource into the pool, or change its metadata and preference (also while it is claimed). -> OK, MORE"""

    pool: str
    resource: str
    metadata: Metadata
    preference: int = 0


@dataclass(frozen=True, slots=True)
class RemoveResource(Operation[Reply]):
    """Take a resource out of the pool; one that is claimed leaves when given back. -> OK, UNKNOWN, MORE"""

    pool: str
    resource: str


@dataclass(frozen=True, slots=True)
class Claim(Operation[ClaimAnswer]):
    """Take a free resource that matches `where`: higher preference first, then the least recently used.

    -> Claimed, Queued, REFUSED, GONE, MORE. Waiters are served first come, first served among those that match. What a
    dead claimer held rests for `quarantine` seconds before it can be claimed again.
    """

    session: str
    pool: str
    holder: str
    where: Metadata = ()
    quarantine: float = 0.0
    wait: bool = True


@dataclass(frozen=True, slots=True)
class GiveBack(Operation[Reply]):
    """Give the claimed resource back, or leave the line. -> RELEASED, LEFT, UNKNOWN, MORE; needs no live session."""

    pool: str
    holder: str


@dataclass(frozen=True, slots=True)
class EditClaim(Operation[Reply]):
    """Change the claimed resource, by its claimer. -> OK, REFUSED (not the claimer with this token), MORE

    `cool_down` seconds (from now) must pass before it can be claimed again; `retire` takes it out of the pool with a
    reason, once it is given back; `metadata` replaces what is stored. None leaves things as they are.
    """

    pool: str
    holder: str
    token: int
    metadata: Metadata | None = None
    cool_down: float | None = None
    retire: str | None = None


@dataclass(frozen=True, slots=True)
class Resources(Operation["ResourcePage"]):
    """All resources of the pool, in the order of their names, and how many wait for one. -> ResourcePage, MORE"""

    pool: str


class Resource(NamedTuple):
    """`state` is free, claimed, resting (cooling down or in quarantine, `rest` seconds left) or retired."""

    resource: str
    metadata: Metadata
    preference: int
    state: str
    process: str
    token: int
    rest: float
    reason: str


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """The state of a pool."""

    resources: tuple[Resource, ...]
    waiting: int


# ----------------------------------------------------------------------------------------------------- tasks


class NewTask(NamedTuple):
    """A task to be put: `delay` and `expires` are seconds from now, `key` refuses a duplicate while unfinished."""

    payload: bytes
    priority: int = 0
    delay: float = 0.0
    key: str | None = None
    expires: float | None = None


class Duplicate(NamedTuple):
    """Not put: the unfinished task `id` has the same key."""

    id: int


class PutRequest(NamedTuple):
    """The tasks of one producer's call: all fit, or none is put.

    `cursor` is a (name, value) that the queue stores in the same atomic step as the tasks (how far an input was read).
    """

    producer: str
    tasks: tuple[NewTask, ...]
    wait: bool = True
    cursor: tuple[str, bytes] | None = None


class Accepted(NamedTuple):
    """For each task of the request its id, or the duplicate that stands in its way."""

    ids: tuple[int | Duplicate, ...]


@dataclass(frozen=True, slots=True)
class Put(Operation["PutAnswer | Reply"]):
    """Put tasks, several callers' at once, in the order given. -> PutAnswer, GONE, MORE

    A request that finds no room (`max_size` tasks unfinished or reserved for others), or others waiting, gets a place
    in the producers' line (Queued) or REFUSED. When its turn comes its slots are reserved and it is hinted ROOM; the
    same request, sent again, is then accepted.
    """

    session: str
    n: int
    queue: str
    requests: tuple[PutRequest, ...]
    max_size: int


@dataclass(frozen=True, slots=True)
class PutAnswer:
    """One answer for each request: Accepted, Queued, or REFUSED."""

    answers: tuple[Accepted | Queued | Reply, ...]


@dataclass(frozen=True, slots=True)
class Leave(Operation[Reply]):
    """Give up a producer's place or its reserved slots. -> LEFT, RELEASED, UNKNOWN, MORE; needs no live session."""

    queue: str
    producer: str


class Verdict(Enum):
    """What became of a task that was taken."""

    DONE = "done"  # with a result
    RETRY = "retry"  # the try failed; ready again after `delay`
    DEAD = "dead"  # the try failed and was the last: kept as a dead letter, with the error as result
    DISCARD = "discarded"  # not worth another try: ended with a reason as result
    GIVE_BACK = "give back"  # as if it had not been taken; keeps its place in the order
    CANCEL = "cancelled"  # the requested cancellation was carried out


class Settle(NamedTuple):
    """The verdict on a taken task, fenced by its token; `ttl` is how long the result is kept (None: for good)."""

    id: int
    token: int
    verdict: Verdict
    result: bytes = b""
    delay: float = 0.0
    ttl: float | None = None


class Taken(NamedTuple):
    """A task that is now leased to the session. `attempts` failed so far; `deliveries` counts this one too.

    `waited` is how many seconds it has been ready; `progress` is what an earlier delivery last reported.
    """

    id: int
    token: int
    payload: bytes
    priority: int
    attempts: int
    deliveries: int
    waited: float
    progress: bytes


@dataclass(frozen=True, slots=True)
class Exchange(Operation["Exchanged | Reply"]):
    """Settle what was taken and take up to `want` tasks, in one step. -> Exchanged, GONE, MORE

    Order: higher priority, then ready_at, then id; with `aging`, tasks that have been ready for longer than that many
    seconds precede all that have not, the oldest first. Up to `CAP` delayed tasks become ready at each exchange. With
    `wait`, a taker that got fewer than it wanted is idle: it is hinted READY once when there is something to take (idle
    takers in the order in which they came, as many as are needed). A task delivered `max_deliveries` times without a
    verdict is dead when its session ends. With `keep` the payload stays in the record of a settled task.
    """

    session: str
    n: int
    queue: str
    settle: tuple[Settle, ...] = ()
    want: int = 0
    wait: bool = True
    aging: float | None = None
    max_deliveries: int = 20
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Exchanged:
    """`refused`: tokens of settlements that came too late; `stop`: tokens of tasks held that shall be cancelled."""

    tasks: tuple[Taken, ...]
    refused: tuple[int, ...]
    stop: tuple[int, ...]
    paused: bool
    ask_again_in: float


@dataclass(frozen=True, slots=True)
class Progress(Operation[Reply]):
    """Store what the holder of the task reports. -> OK, REFUSED (stale token), REQUESTED (stored, and: cancel it)"""

    queue: str
    id: int
    token: int
    data: bytes


@dataclass(frozen=True, slots=True)
class GetResult(Operation["Outcome | Unfinished | Reply"]):
    """What became of a task? -> Outcome, Unfinished, UNKNOWN, GONE, MORE

    With `watch`, that session's process is hinted FINISHED once when an unfinished task ends.
    """

    queue: str
    id: int
    watch: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The task ended: `state` is done, dead, discarded, cancelled or expired; `result` the result, error or reason."""

    state: str
    result: bytes
    attempts: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The task is waiting, delayed or leased."""

    state: str
    progress: bytes
    ask_again_in: float


@dataclass(frozen=True, slots=True)
class CancelTask(Operation[Reply]):
    """Cancel a task. -> CANCELLED (nobody had it), REQUESTED (its holder is told), UNKNOWN (no such, or ended)"""

    queue: str
    id: int
    ttl: float | None = 3600.0


@dataclass(frozen=True, slots=True)
class Requeue(Operation["Changed | Reply"]):
    """Dead tasks become ready again, with no attempts and deliveries on record. -> Changed, MORE

    `ids` None means all, `CAP` at a time, oldest first. `max_size` is not asked. A dead task whose key is in use again
    stays dead.
    """

    queue: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Purge(Operation["Changed | Reply"]):
    """Delete tasks in these states (waiting, delayed, dead) or forget ended ones (done, discarded, cancelled, expired).

    -> Changed, MORE; `CAP` at a time, oldest first, states in the order just given.
    """

    queue: str
    states: frozenset[str]


@dataclass(frozen=True, slots=True)
class Changed:
    """How many were changed; `more` when the cap was reached and the same operation should be sent again."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class Browse(Operation["Page"]):
    """Look at tasks. -> Page, MORE

    `state` waiting, delayed or leased: in the order of ids, those above `after`. `state` ended or dead: in the order in
    which they ended, those whose `seq` is above `after`.
    """

    queue: str
    state: str
    after: int = 0
    limit: int = 100


class Record(NamedTuple):
    """A task as `Browse` shows it; `seq` is the id of an unfinished task, or the rank in the order of endings."""

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


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing; ask on with `after=` the last seq."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class SetPaused(Operation[Reply]):
    """A paused queue gives out no tasks. -> OK, MORE"""

    queue: str
    paused: bool


@dataclass(frozen=True, slots=True)
class Count(Operation["QueueCounts | Reply"]):
    """The state of a queue; `recount` counts the rows instead of trusting the counters. -> QueueCounts, GONE, MORE

    With `watch`, that session's process is hinted DRAINED once when the queue next has no unfinished task.
    """

    queue: str
    watch: str = ""
    recount: bool = False


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """put = waiting + delayed + leased + done + dead + cancelled + expired + discarded + purged.

    `reserved` slots belong to producers whose turn has come, `producers` wait; `oldest` is for how many seconds the
    longest waiting task has been ready (0: none); `cursors` are the stored (name, value) pairs.
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
    paused: bool
    oldest: float
    cursors: tuple[tuple[str, bytes], ...]
    ask_again_in: float


# -------------------------------------------------------------------------------------------------- counters


class SpendRequest(NamedTuple):
    """One caller's wish to spend `cost`; it is refused when the delay would be above `max_wait` seconds."""

    cost: float
    max_wait: float | None = None


class Spending(NamedTuple):
    """Booked: act after `delay` seconds; `booking` is for `Refund`. Not booked: `delay` is what it would have been."""

    booked: bool
    delay: float
    booking: float


@dataclass(frozen=True, slots=True)
class Spend(Operation["Spent | Reply"]):
    """Book spendings at `rate` per second with bursts up to `burst` (GCRA), in the order given. -> Spent, GONE, MORE"""

    session: str
    n: int
    key: str
    requests: tuple[SpendRequest, ...]
    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Spent:
    """One answer for each request."""

    answers: tuple[Spending, ...]


@dataclass(frozen=True, slots=True)
class Refund(Operation[Reply]):
    """Give back of a booking what has not been overtaken by later bookings; numbered like `Spend`. -> OK, GONE, MORE"""

    session: str
    n: int
    key: str
    cost: float
    booking: float
    rate: float


@dataclass(frozen=True, slots=True)
class Arrive(Operation[ArrivalAnswer]):
    """Arrive at a barrier of `parties`. -> Waiting, Tripped, Broken, Mismatch, GONE, MORE

    The last to arrive trips the generation for all. `on_departure` is "break" (one that withdraws or dies breaks the
    generation for all its parties, and the barrier stays broken until it is reset) or "drop" (it is forgotten). A
    participant's outcome is kept until it withdraws, so that asking again tells it.
    """

    session: str
    key: str
    participant: str
    parties: int
    on_departure: str = "break"


@dataclass(frozen=True, slots=True)
class Withdraw(Operation[ArrivalAnswer]):
    """Undo an arrival, or fetch its outcome and forget it. -> WITHDRAWN, Tripped, Broken, UNKNOWN, MORE"""

    key: str
    participant: str


@dataclass(frozen=True, slots=True)
class ResetBarrier(Operation[Reply]):
    """Break the generation for those that wait and begin a fresh one. -> OK"""

    key: str


# -------------------------------------------------------------------------------------------------- the engine


class Engine(Protocol):
    """What a store asks of an engine.

    Thread safety: none; an engine belongs to one event loop.
    """

    @property
    def url(self) -> str:
        """Where the state is kept, for messages; without a password."""
        ...

    @property
    def immediate(self) -> bool:
        """Operations are plain function calls: `apply` may be used, there is nothing to batch."""
        ...

    def apply(self, operation: Operation[A], /) -> A:
        """Apply one operation at once; for immediate engines only. Raises `EngineError`."""
        ...

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations in order, each atomically, and give one answer for each, in the same order.

        An operation that fails alone is answered with an `EngineError` instance. Raises `StoreUnavailable` when the
        outcome of the whole batch is unknown; sending it again is then safe.
        Cancellation: the batch may or may not have been applied.
        """
        ...

    async def serve(
        self, process: str, deliver: Callable[[Hint], None], *, task_status: TaskStatus[None]
    ) -> None:
        """Open the link, report started, and deliver the hints for `process` until cancelled; then close the link.

        `deliver` is called on the event loop, never from within `apply` or `execute`'s own bookkeeping. Several stores
        of one program may serve on one engine object at the same time.
        Cancellation: this is how it ends; afterwards no thread, socket or file is left.
        """
        ...
