# Written by tests/blocking/write_stubs.py from the asynchronous classes.

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, Unpack, overload

from typing_extensions import TypeVar

from tenure.arguments import Seconds
from tenure.errors import DuplicateTask
from tenure.limits import Cost
from tenure.shared import (
    Arrival,
    Audit,
    BarrierStatistics,
    ChildRecord,
    GroupStatistics,
    HolderInfo,
    Item,
    Key,
    Limit,
    LimiterState,
    LuaGuard,
    PutOptions,
    QueueOptions,
    QueueSettings,
    QueueStatistics,
    QueueWorker,
    Retry,
    Selection,
    Spending,
    SqlGuard,
    TaskRecord,
)
from tenure.store import Codec

from ._pattern import Listing
from ._store import Store

P = TypeVar("P", default=Any)
P_co = TypeVar("P_co", covariant=True, default=Any)
Params = ParamSpec("Params")
R = TypeVar("R")

class Lease:
    """A hold, for as long as the block lasts.

    `token` is the fence: it is higher than the token of every earlier grant. Send it with each write, and let the
    receiver refuse lower ones. `lost` is None, or why the lease was lost.
    Thread safety: any."""

    @property
    def key(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def lost(self) -> str | None: ...
    def sql_guard(self, table: str = "tenure_fences", *, name: str | None = None) -> SqlGuard:
        """The guard that refuses this holder's writes to a PostgreSQL or SQLite database once a later holder has
        written.

        `table` keeps the newest tokens, `name` is the name of the fence: by default the name of the hold. Raises
        `RuntimeError` for what several may hold at the same time (a semaphore, a lock for reading): they would refuse
        one another."""

    def lua_guard(self, key: str | None = None) -> LuaGuard:
        """The guard that refuses this holder's Lua scripts on Redis once a later holder has run one.

        `key` keeps the newest token, by default "fence:" and the name of the hold. Raises as `sql_guard` does."""

    def remaining(self) -> float:
        """The seconds for which the lease would last if no further renewal came through; 0 once it is over."""

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost, its time has passed, or the block was left ("released").

        It sends nothing. Call it right before a side effect: after a loss, a process that was frozen may run one more
        step before its cancellation reaches it, and synchronous code is not cancelled at all."""

class Task(Generic[P_co]):
    """A task in the hands of a handler; generic in its payload.

    `id`, `priority`, `token` (the fence); `group` is the group that it was put into, or None; `attempt` is the number
    of this try (failures since the last stored step + 1), `deliveries` how often the task has been handed out, this
    time included; `waited` for how many seconds it had been ready; `deadline` the time on the loop's clock at which its
    deadline passes, or None; `timeout` the seconds for a try with which it was put, or None; `lost` why
    the lease was lost, or None; `cancelled` whether its cancellation was requested.
    Thread safety: any."""

    @property
    def id(self) -> int: ...
    @property
    def token(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def group(self) -> str | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def waited(self) -> float: ...
    @property
    def lost(self) -> str | None: ...
    @property
    def cancelled(self) -> bool: ...
    def sql_guard(self, table: str = "tenure_fences", *, name: str | None = None) -> SqlGuard:
        """The guard that refuses this holder's writes to a PostgreSQL or SQLite database once a later holder has
        written.

        `table` keeps the newest tokens, `name` is the name of the fence: by default the name of the hold. Raises
        `RuntimeError` for what several may hold at the same time (a semaphore, a lock for reading): they would refuse
        one another."""

    def lua_guard(self, key: str | None = None) -> LuaGuard:
        """The guard that refuses this holder's Lua scripts on Redis once a later holder has run one.

        `key` keeps the newest token, by default "fence:" and the name of the hold. Raises as `sql_guard` does."""

    @property
    def payload(self) -> P_co:
        """The payload that was put. Raises `ValueError` for data that the queue's codec refuses."""

    @property
    def last_progress(self) -> Any:
        """The last report of an earlier delivery; None without one. Raises `ValueError` for data that the codec
        refuses."""

    @property
    def meta(self) -> dict[str, str]:
        """The texts that the producer sent along with the payload."""

    def set_result(self, value: Any) -> None:
        """Set the value that `queue.result(task_id)` returns once the task is done; the last call counts.

        Raises `PayloadTooLarge`, and what the codec raises for a value that it cannot express. A task that fails with
        this exception is not tried again: its work is done."""

    def progress(self, value: Any) -> None:
        """Report how far the task is: for anybody who looks, and for a next delivery.

        Raises `LeaseLost` if the task is no longer this holder's, `PayloadTooLarge`, `EngineError`, `StoreClosed`, and
        what the codec raises. If the cancellation of the task was requested, `cancelled` is true, and asynchronous
        code in the block is cancelled.
        Interruption: the report may or may not be stored."""

    @overload
    def step(
        self, name: str, function: Callable[[], Awaitable[R]], *, find: Callable[[], Any] | None = None
    ) -> R:
        """Call a function once on record: a later delivery of the task gets what an earlier one has stored.

        A handler that is delivered again runs again from its start, so put into a step what is costly, or must not
        happen twice. The value is as `store.codec` decodes it, at once too: a tuple is a list. An exception is not
        stored. If the process dies before the value is stored, the function may be called again. With a stored value,
        earlier failures do not count. If the value cannot be kept, the task is dead at once, and a later delivery
        raises `RuntimeError` here.

        With `find`, the step is marked as begun before the first call. A later try asks `find()` first: a value is
        kept; None: call; `OutcomeUnknown`: the task is dead.

        Raises `LeaseLost`, `TaskCancelled` if the cancellation of the task was requested, `RuntimeError` for a name
        that an earlier step of this delivery has, and for more than 10,000 steps; `PayloadTooLarge`, `EngineError`,
        `StoreClosed`, what the codec raises, and what the function raises.
        Interruption: the value may or may not be stored."""

    @overload
    def step(self, name: str, function: Callable[[], R], *, find: Callable[[], Any] | None = None) -> R: ...
    def check(self) -> None:
        """Raise `LeaseLost` if the task is lost, its time has passed, or the block was left ("released").

        It sends nothing. Call it right before a side effect."""

    def complete_in_sync(self, connection: object) -> None:
        """Like `complete_in`, at once, with a connection that blocks; in any thread."""

class Lock:
    """Mutual exclusion over all processes that use the store: one holder at a time, first come, first served.

    `with Lock(store, "report") as lease` holds it for the block; `hold(timeout=5)` limits the wait. The hold is
    renewed while the block runs; if it is lost all the same, asynchronous code in the block is cancelled, and leaving
    the block raises `LeaseLost`. `ttl` is for how many seconds the lock outlives a holder that died (the store's by
    default). Locks with equal names are one lock.

    A lease can outlive its holder's belief in it (a frozen process); hand `lease.token` to what you write to, or call
    `lease.check()` right before side effects.

    Source: the fair lock with direct hand-over is the queue of MCS locks put on a server; fencing tokens come from
    Chubby (Burrows 2006, "sequencers")."""

    def __init__(self, store: Store, name: str, *, ttl: Seconds | None = None) -> None: ...
    @property
    def store(self) -> Store:
        """What it is over."""

    @property
    def name(self) -> str: ...
    def __enter__(self) -> Lease:
        """Hold the lock, however long it takes. Interruption: nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back. Raises `LeaseLost` if it was lost and the body did not raise something of its own.

        Interruption: giving back goes on by itself; only the wait for its acknowledgement ends."""

    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""

    def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators.

        The next waiter has the lock at once; the holder's block is cancelled and raises `LeaseLost` ("broken") when its
        process learns of it. What it writes elsewhere until then, only its token can fence. Returns False if the token
        holds nothing. Interruption: it may or may not be applied."""

    def hold(self, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Hold the lock for a block, `with lock.hold() as lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try, given up after a second or so if the engine
        does not answer). Entering raises `AcquireTimeout`, `RuntimeError` if the caller holds the lock already,
        `StoreClosed`, `EngineError`; leaving raises `LeaseLost`.
        Interruption: while waiting, no place is kept and nothing is held."""

    def locked(self) -> bool:
        """True if any process holds the lock at this time. Raises `StoreClosed`, `EngineError`."""

class RWLock:
    """Many readers or one writer, over all processes that use the store, first come, first served.

    A reader that comes after a waiting writer waits behind it, so that neither side starves; readers that stand
    together at the head are let in together. Each reader has a lease of its own; in `holders()`, it has a weight of 1.

    Source: the fair read-write lock of tokio, in which a writer takes all permits of a semaphore."""

    def __init__(self, store: Store, name: str, *, ttl: Seconds | None = None) -> None: ...
    @property
    def store(self) -> Store:
        """What it is over."""

    @property
    def name(self) -> str: ...
    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""

    def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators.

        The next waiter has the lock at once; the holder's block is cancelled and raises `LeaseLost` ("broken") when its
        process learns of it. What it writes elsewhere until then, only its token can fence. Returns False if the token
        holds nothing. Interruption: it may or may not be applied."""

    def read(self, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Share the lock with other readers for a block, `with lock.read() as lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try). Entering raises `AcquireTimeout`,
        `RuntimeError` if the caller holds the lock already, in any mode, `StoreClosed`, `EngineError`; leaving raises
        `LeaseLost`. Interruption: while waiting, no place is kept and nothing is held."""

    def write(self, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Have the lock alone for a block, `with lock.write() as lease`. Everything else as for `read`.

        Interruption: while waiting, no place is kept and nothing is held; readers behind go in."""

class Semaphore:
    """So many permits over all processes that use the store, taken in weights, first come, first served.

    A holder that wants many permits is not overtaken by later holders that want few. Everybody must agree on the number
    of permits (`CapacityMismatch`); `resize` changes it for all. Permits of a holder that died come back after its
    `ttl`.

    Source: the weighted queue of tokio's `batch_semaphore`, on a server."""

    def __init__(self, store: Store, name: str, permits: int, *, ttl: Seconds | None = None) -> None: ...
    @property
    def store(self) -> Store:
        """What it is over."""

    @property
    def name(self) -> str: ...
    @property
    def permits(self) -> int: ...
    def __enter__(self) -> Lease:
        """Hold one permit. Interruption: nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the permit back. Raises `LeaseLost` if it was lost and the body did not raise something of its own.

        Interruption: giving back goes on by itself; only the wait for its acknowledgement ends."""

    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""

    def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators.

        The next waiter has the lock at once; the holder's block is cancelled and raises `LeaseLost` ("broken") when its
        process learns of it. What it writes elsewhere until then, only its token can fence. Returns False if the token
        holds nothing. Interruption: it may or may not be applied."""

    def hold(self, permits: int = 1, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Hold so many permits for a block, all or none, `with semaphore.hold(2) as lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try). Entering raises `AcquireTimeout`,
        `CapacityMismatch`, `StoreClosed`, `EngineError`; leaving raises `LeaseLost`.
        Interruption: while waiting, no place is kept and nothing is held."""

    def resize(self, permits: int) -> None:
        """Change the number of permits for everybody, for good; this object knows it at once.

        More permits are granted at once; fewer take effect as holders leave. Waiters that ask for more than there are
        now get `CapacityMismatch`, as do objects that were made with another number.
        Interruption: it may or may not be applied."""

class RateLimiter:
    """Limits a rate over all processes that use the store, with bursts.

        limiter = RateLimiter(store, "llm", Limit(60, per=60), Limit(90_000, per=60, unit="tokens"))
        with limiter.spend({"tokens": 500}) as spending:
            spending.correct({"tokens": ask()})

    - `limits`: each lets `rate` per `per` seconds through on average, and up to `burst` at once after a pause. A
      cost is booked in all limits or in none.
    - A `cost` is a number of "requests" (or of the only unit), or a mapping of units to numbers, in which
      "requests" is 1 unless it is named, and other units 0.
    - `with limiter` spends 1 before the block, and gives nothing back after it.

    Callers stand in a line of their process, first come, first served. Another object of the same name may have
    other rates and bursts: they count for its own bookings.

    Raises `TypeError` without a `Limit`, `ValueError` for two limits of the same unit and `per`.

    Source: the generic cell rate algorithm (ITU-T I.371)."""

    def __init__(self, store: Store, name: str, *limits: Limit) -> None: ...
    @property
    def store(self) -> Store:
        """What it is over."""

    @property
    def name(self) -> str: ...
    def __enter__(self) -> None:
        """Spend 1, as `acquire` does. Interruption: as with that."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: a spent cost is not given back. No checkpoint."""

    def acquire(self, cost: Cost = 1, fail_fast: bool = False, *, timeout: float | None = None) -> None:
        """Spend `cost` as soon as the rate allows it.

        If the wait would outlast the caller's deadline, nothing is booked: by default the call sleeps until its scope
        ends, with `fail_fast` it raises `WouldExceedDeadline` as soon as that is known. Raises `ValueError` if the cost
        is above the burst or has a unit without a limit, `OutcomeUnknown`, `StoreClosed`, `EngineError`.
        Interruption: what was booked goes to the next in line, or back.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""

    def spend(
        self, cost: Cost = 1, fail_fast: bool = False, *, timeout: float | None = None
    ) -> AbstractContextManager[Spending]:
        """Spend `cost` for a block, `with limiter.spend({"tokens": 800}) as spending`.

        Entering waits as `acquire` does, and raises the same. In the block, `spending.correct({"tokens": 655})` sets
        what it really cost. When the block ends, the difference is booked at once, also above the burst, or given
        back as far as time has not brought it back already. Without a correction it stays as booked, also if the
        block raises. A correction that cannot be booked is reported as "limiter.correction_failed".
        Interruption: while waiting, as `acquire`; of the block, a correction is booked nevertheless.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""

    def try_acquire(self, cost: Cost = 1) -> bool:
        """Spend `cost` if the rate allows it at once; returns whether it did. Raises as `acquire` does.

        Interruption: what was spent is given back, unless others have booked behind it."""

    def hold_off(self, seconds: Seconds) -> None:
        """Stop all callers in all processes for so many seconds, as after an answer 429 with Retry-After.

        Callers that wait already go later by as much. If the limiter is held off already, the later end counts. 0
        seconds end a hold at once.
        Raises `StoreClosed`, `EngineError`.
        Interruption: the limiter may be held off or not."""

    def state(self) -> LimiterState:
        """Return the amounts that may be spent at once, and when some may, after those that wait here.

        Raises `StoreClosed`, `EngineError`."""

class Barrier:
    """A meeting point for so many calls of `wait` over all processes of the store: when all have come, all return.

    With `on_departure="break"`, a party that is cancelled, before its arrival or later, or dies while it waits (noticed
    when its `ttl` has passed), breaks the generation: all calls get `BarrierBroken`, those that wait and those that
    come, until `reset`. With "drop" it is forgotten, and the others wait on for another. A party that fails or dies
    before it calls `wait` is not noticed: call `abort` for it, or limit the wait. All parties must agree on `parties`
    (`CapacityMismatch`). The `on_departure` of a party counts for its own departure.

    Source: the broken state comes from Java's `CyclicBarrier`."""

    def __init__(
        self,
        store: Store,
        name: str,
        parties: int,
        *,
        ttl: Seconds | None = None,
        on_departure: Literal["break", "drop"] = "break",
    ) -> None: ...
    @property
    def store(self) -> Store:
        """What it is over."""

    @property
    def name(self) -> str: ...
    @property
    def parties(self) -> int: ...
    @property
    def on_departure(self) -> Literal["break", "drop"]: ...
    def wait(self, *, timeout: float | None = None) -> Arrival:
        """Arrive, and wait until all parties have.

        Raises `BarrierBroken` (a party was cancelled or died, or the barrier was aborted or reset), `CapacityMismatch`,
        `StoreClosed`, `EngineError`; `OutcomeUnknown` if this process lost its session meanwhile and the barrier has
        gone on, or was forgotten: the generation may have tripped first.
        Interruption: before all have come, also before this party has, it breaks the generation unless parties are
        dropped. If it has tripped, the call returns all the same, as it does for all parties, and the next checkpoint
        raises; only asyncio's native ``task.cancel()`` is raised even then. The engine's word on that is waited for,
        for at most `settle_timeout`.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""

    def abort(self) -> None:
        """Break the barrier: calls that wait, and those that come, get `BarrierBroken`, until `reset`.

        Raises `EngineError`, `StoreClosed`, `StoreUnavailable`.
        Interruption: no effect, the answer is waited for in a shield; asyncio's native one may prevent it."""

    def reset(self) -> None:
        """Begin a new generation, broken or not: calls that wait get `BarrierBroken`, those that come do not.

        Raises `EngineError`, `StoreClosed`. Interruption: it may or may not be applied, or the barrier stays broken."""

    def statistics(self) -> BarrierStatistics:
        """The state of the barrier. Raises `EngineError`, `StoreClosed`."""

class WorkQueue(Generic[P]):
    """A queue of tasks, each delivered at least once, and completed once on record.

        queue = WorkQueue[str](store, "mail", max_size=1_000)
        task_id = queue.put("hello", priority=10)
        print(queue.result(task_id))

    | option | default | meaning |
    |---|---|---|
    | `codec` | the store's | encodes payloads, and determines their type |
    | `retry` | `Retry()` | when a failed task is tried again |
    | `max_payload` | 1 MiB | bytes of a payload or result |
    | `max_size` | 10,000 | unfinished tasks; further producers wait |
    | `aging` | None | seconds after which a ready task goes first |
    | `max_deliveries` | 5 | deliveries to takers that died |
    | `rate` | None | a `Limit` of starts |
    | `keep` | `Keep()` | how long records and keys are kept |
    | `groups` | `Groups()` | limits and turns of groups |

    `max_size` and the rest are settings, kept with the queue: the value that was sent last, by a process or by
    `configure`, holds in all processes.

    Source: leases fenced by token as in BullMQ and Temporal; one exchange that settles and takes, as in BullMQ;
    self-clocked fair queueing (Golestani, 1994)."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        codec: Codec[P] | None = None,
        retry: Retry | None = None,
        max_payload: int = ...,
        **settings: Unpack[QueueOptions],
    ) -> None: ...
    @property
    def store(self) -> Store:
        """What it is over."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def codec(self) -> Codec[P]: ...
    @property
    def retry(self) -> Retry: ...
    @property
    def max_payload(self) -> int: ...
    def put(
        self,
        payload: P,
        *,
        priority: int = 0,
        delay: Seconds = 0.0,
        at: datetime | None = None,
        key: str | Key | None = None,
        group: str | None = None,
        expires: Seconds | None = None,
        deadline: Seconds | None = None,
        timeout: Seconds | None = None,
        retry: Retry | None = None,
        meta: Mapping[str, str] | None = None,
        put_timeout: float | None = None,
    ) -> int:
        """Put a task and return its id; waits in line while the queue is full.

        - `priority`: higher first.
        - `delay` before it may be taken, or `at` a `datetime` with a time zone: the clock of this host says how far
          away that is.
        - `key`: only one unfinished task of the queue has it. A text raises `DuplicateTask`; a `Key` may keep or
          replace the other task.
        - `group`: the tasks with which it takes turns.
        - `expires`: it is dropped if no worker has it by then; `deadline`: a worker's handler is cancelled, too.
        - `timeout` of each try and `retry` take the place of the worker's. A block of `take` has no time limit, only
          `Task.timeout`. The exceptions in `on` and `never` of `retry` travel by their names.
        - `meta`: a few short texts that travel with it, at most 1 KiB.

        Raises `DuplicateTask`, `PayloadTooLarge`, `OutcomeUnknown`, `StoreClosed`, `EngineError`, `ValueError` and
        `TypeError` for a wrong argument, and what the codec raises.
        Interruption: while waiting, nothing is put and no place is kept; when it is under way, it may be put.

        Raises `TimeoutError` after `put_timeout` seconds (None: never), with the effects of an interruption."""

    def try_put(self, payload: P, **options: Unpack[PutOptions]) -> int:
        """Like `put`, but raises `QueueFull` instead of waiting. Interruption: it may be put."""

    @overload
    def put_many(
        self,
        items: Iterable[P | Item[P]],
        *,
        on_duplicate: Literal["keep", "replace"],
        cursor: tuple[str, Any] | None = None,
        expected: Any = ...,
        timeout: float | None = None,
    ) -> list[int]:
        """Put many tasks, payloads or `Item`s, and return for each its id or the `DuplicateTask` in its way.

        `on_duplicate` is for the items whose key is a text. With "keep" or "replace" there are only ids: a `Key` that
        says "refuse" is a `ValueError` then.

        The tasks are put in order, in atomic portions of at most 256 (and of `max_size`, and in one group of
        `groups.max_size`), each of which waits in line while there is no room. `cursor` is a (name, value) that is
        stored in the same step as the last portion. With `expected`, nothing is put and `CursorConflict` is raised if
        the cursor has another value at that moment; None stands for no value. All must then fit in one portion
        (`ValueError`), and in their groups (`QueueFull`). Values are compared as they are encoded. Raises as `put`
        does, before anything is put if an item is wrong.
        Interruption: portions that were put stay.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""

    @overload
    def put_many(
        self,
        items: Iterable[P | Item[P]],
        *,
        on_duplicate: Literal["refuse"] = "refuse",
        cursor: tuple[str, Any] | None = None,
        expected: Any = ...,
        timeout: float | None = None,
    ) -> list[int | DuplicateTask]: ...
    def put_in_sync(self, connection: object, payload: P, **options: Unpack[PutOptions]) -> int:
        """Like `put_in`, at once, with a connection that blocks; in any thread."""

    def take(self, timeout: Seconds | None = None) -> AbstractContextManager[Task[P], bool]:
        """Take a task for a block, `with queue.take() as task`.

        Leaving the block completes the task, or raises `LeaseLost`. An exception fails the try: the task is tried again
        later or becomes a dead letter, and the exception goes on (`RetryLater`, `Discard` and `Dead` decide otherwise
        and end here). A cancellation from outside, or an exception from the handler of a signal, gives the task back
        without counting an attempt. If the lease is lost, or somebody cancels the task, asynchronous code in the block
        is cancelled, and the block raises `LeaseLost` or `TaskCancelled`. `timeout` in seconds limits the wait for a
        task (None: for ever; 0: one try, given up when the engine has not answered within the store's
        `settle_timeout`). Entering raises `AcquireTimeout`, `StoreClosed`, `EngineError`.
        Interruption: while waiting, nothing is taken."""

    def result(self, task_id: int, *, timeout: float | None = None) -> Any:
        """Wait until the task has ended and return its result.

        Raises `TaskFailed`, `TaskCancelled`, `ResultUnavailable`, `StoreClosed`, `EngineError`, and `ValueError` for a
        result that the codec refuses.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""

    def get(self, task_id: int = 0, *, key: str | None = None) -> TaskRecord[P] | None:
        """The record of a task, by its id, or of the task that has that `key`; None if it is not known.

        Raises `StoreClosed`, `EngineError`."""

    def children(self, task_id: int) -> Listing[ChildRecord]:
        """The children of a task, by name; there are none of a task that is not known.

        Children are listed for as long as their parent is unfinished, or a dead letter; failed children, until the end
        of its try."""

    def signal(self, task_id: int = 0, name: str = "", value: Any = None, *, key: str | None = None) -> bool:
        """Send an unfinished task a signal, for which its handler waits with `Task.wait_for`, now or later.

        The task is named by its id, or is the task that has that `key`. The first signal of a name counts, and its
        value is kept until the task has ended. Returns False if the task is unknown or has ended, if it has that signal
        with another value, and if it no longer waits, since its timeout has passed.
        Raises `PayloadTooLarge`, `RuntimeError` for a task that has 10,000 entries, `EngineError`, `StoreClosed`, and
        what the codec raises.
        Interruption: the signal may or may not be sent."""

    def reschedule(self, task_id: int, delay: Seconds = 0.0) -> bool:
        """Make a task that is waiting or delayed ready after `delay` seconds, behind the tasks that are ready then.

        Returns False if there is no such task or it is in another state. Interruption: it may or may not be applied."""

    def edit(
        self,
        task_id: int = 0,
        *,
        key: str | None = None,
        payload: P = ...,
        priority: int | None = None,
        delay: Seconds | None = None,
        group: str | None = ...,
    ) -> int:
        """Change a task that is waiting or delayed, in one step, and return its id; all else stays.

        The task is named by its id, or is the task that has that `key`. It then stands where it would stand if it had
        been put like this in the first place. With a `delay`, it is ready so many seconds from now, behind the tasks
        that are ready then. A `group` of None is the tasks without a group. No limit of the queue or the group holds
        a change up.

        Raises `TaskNotWaiting`, which has the task's state, if the task is leased, has ended or is not known;
        `PayloadTooLarge`, `StoreClosed`, `EngineError`, and what the codec raises.
        Interruption: the change may or may not be applied."""

    @overload
    def cancel(self, task_id: int) -> bool:
        """Cancel a task, or tasks in a state: at once if no worker has taken them, else their blocks are cancelled.

        Returns False if there is no task with that id, or it has ended; of tasks in a `state`, how many it has
        cancelled: "waiting", "delayed", "leased", "suspended" or "ending". `where`, `limit` and `dry_run` are as for
        `purge`. Interruption: it may or may not be applied; of many, to some."""

    @overload
    def cancel(
        self, *, state: str, where: Selection | None = None, limit: int | None = None, dry_run: bool = False
    ) -> int: ...
    def join(self, *, timeout: float | None = None) -> None:
        """Wait until no task is unfinished. Raises `StoreClosed`.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""

    def statistics(self) -> QueueStatistics:
        """The queue at this moment."""

    def workers(self) -> Listing[QueueWorker]:
        """The live processes that have tasks of the queue or wait for tasks, and since when they have each task.

        A process that has died is listed until its session ends."""

    def groups(self) -> Listing[GroupStatistics]:
        """The groups that have an unfinished task: those with the most first, then by name."""

    def settings(self) -> QueueSettings:
        """The settings that hold in all processes, and who has set each. Raises `StoreClosed`, `EngineError`."""

    def configure(self, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Change the settings that are named, for all processes at once, and return all; the others stay.

        Naming the default, or None, lifts a limit. Raises `StoreClosed`, `EngineError`, `ValueError`, `TypeError`.
        Interruption: it may or may not be applied."""

    def hold_off(self, seconds: Seconds, *, group: str | None = None) -> None:
        """Start no task of a group, or of the queue, for so many seconds, as after an answer 429 with Retry-After.

        If tasks are held off already, the later end counts. Then tasks start at the rate, without a burst. 0 seconds
        end a hold at once. The holds of the queue and of its groups end separately. Raises `StoreClosed`,
        `EngineError`.
        Interruption: it may or may not be applied."""

    def cursors(self) -> dict[str, Any]:
        """The cursors stored by `put_many`, by name."""

    def verify(self) -> Audit:
        """Count everything anew and compare: the states with the number of tasks put, the groups with their counter.

        The queue may be in use: only numbers that the engine read in one step are compared."""

    def tasks(
        self, state: str | None = None, *, where: Selection | None = None, limit: int | None = None
    ) -> Listing[TaskRecord[P]]:
        """The tasks in a state, or all tasks; with a `Selection`, those that match.

        `state` is "waiting", "delayed", "leased", "suspended", "ending", "dead", "done", "discarded", "cancelled",
        "expired", or "ended" (in any way). Waiting tasks come by group, and in each in the order of taking; delayed
        tasks as they become due, leased tasks as they were taken, suspended and ending tasks by id, ended tasks as
        they ended. Payloads of ended tasks are None unless the queue keeps them.

        This process selects, from pages of 256 tasks."""

    def requeue(
        self,
        task_ids: Iterable[int] | None = None,
        *,
        where: Selection | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Make dead tasks ready again (None: all, or all that are selected); their attempts start anew. Returns how
        many.

        One whose `key` another task has stays dead. `where`, `limit` and `dry_run` are as for `purge`.
        Interruption: some may have been requeued."""

    def purge(
        self, *states: str, where: Selection | None = None, limit: int | None = None, dry_run: bool = False
    ) -> int:
        """Delete the tasks in these states ("waiting", "delayed", "dead"), or forget ended ones ("done", "discarded",
        "cancelled", "expired"); returns how many.

        With `where`, only those that match, which this process reads; a task that has left its state since then
        stays. `limit` is the most tasks to purge. With `dry_run`, nothing is purged, and the number is how many would
        be. Interruption: some may have been purged."""

    def pause(self) -> None:
        """Deliver no more tasks, in any process, until `resume`. Interruption: it may or may not be applied."""

    def resume(self) -> None:
        """Deliver tasks again, and end a hold of the queue; the hold of a group goes on.

        Interruption: it may or may not be applied."""

class Job(Generic[Params, R]):
    """A function that is called in another process: `put` takes its arguments, and `Worker(job)` calls it with them.

        async def send_mail(task: Task[object], user: User, at: datetime) -> Receipt: ...
        task_id = Job(queue, send_mail).put(user, at)

    A parameter annotated `Task` gets the task from the worker, and `put` does not take it.

    The given arguments travel as a mapping of parameters to values; the process that works supplies the defaults.
    Arguments and result are written and read by their annotations, with pydantic or else msgspec: models,
    dataclasses, `datetime`, `tuple[int, str]`; types of JSON need neither. What has no annotation is as the codec
    makes it, and so are the arguments for a queue with a `PydanticCodec` or `MsgspecCodec`. Each function needs a
    queue of its own. A sync function runs in a thread.

    Raises `TypeError` if `function` cannot be called, has no signature or a parameter of a type that cannot be written,
    and `ModuleNotFoundError` if a type needs pydantic or msgspec."""

    @overload
    def __init__(
        self,
        queue: WorkQueue[dict[str, Any]],
        function: Callable[Concatenate[Task[Any], Params], Awaitable[R]],
    ) -> None: ...
    @overload
    def __init__(
        self, queue: WorkQueue[dict[str, Any]], function: Callable[Concatenate[Task[Any], Params], R]
    ) -> None: ...
    @overload
    def __init__(
        self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, Awaitable[R]]
    ) -> None: ...
    @overload
    def __init__(self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, R]) -> None: ...
    @property
    def queue(self) -> WorkQueue[dict[str, Any]]:
        """What it is over."""

    @property
    def function(self) -> Callable[..., Any]: ...
    def options(self, **options: Unpack[PutOptions]) -> Self:
        """The same job, whose tasks are put with these options of `WorkQueue.put`."""

    def put(self, *args: Params.args, **kwargs: Params.kwargs) -> int:
        """Put a task that calls the function with these arguments, and return its id; waits while the queue is full.

        Raises `TypeError` for arguments that the function does not take, and what `WorkQueue.put` raises.
        Interruption: as with `WorkQueue.put`."""

    def try_put(self, *args: Params.args, **kwargs: Params.kwargs) -> int:
        """Like `put`, but raises `QueueFull` instead of waiting. Interruption: it may be put."""

    def item(self, *args: Params.args, **kwargs: Params.kwargs) -> Item[dict[str, Any]]:
        """The item that `put` puts, for `WorkQueue.put_many`. Raises `TypeError` as `put` does."""

    def result(self, task_id: int, *, timeout: float | None = None) -> R:
        """Wait until the task has ended and return what the function has returned, of the annotated type.

        Raises `TaskFailed`, `TaskCancelled`, `ResultUnavailable`, `StoreClosed`, `EngineError`; `ValueError` for a
        result that does not fit the annotation.

        Raises `TimeoutError` after `timeout` seconds (None: never), with the effects of an interruption."""
