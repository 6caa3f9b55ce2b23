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
    Release,
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
    """A hold, for as long as the block lasts."""

    @property
    def key(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def lost(self) -> str | None: ...
    def sql_guard(self, table: str = "tenure_fences", *, name: str | None = None) -> SqlGuard:
        """The guard that refuses this holder's writes to PostgreSQL or SQLite once a later holder has written."""

    def lua_guard(self, key: str | None = None) -> LuaGuard:
        """The guard that refuses this holder's Lua scripts on Redis once a later holder has run one."""

    def remaining(self) -> float:
        """The seconds for which the lease would last without a further renewal; 0 once it is over."""

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost, its time has passed, or the block was left ("released")."""

class Task(Generic[P_co]):
    """A task in the hands of a handler; generic in its payload."""

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
        """The guard that refuses this holder's writes to PostgreSQL or SQLite once a later holder has written."""

    def lua_guard(self, key: str | None = None) -> LuaGuard:
        """The guard that refuses this holder's Lua scripts on Redis once a later holder has run one."""

    @property
    def payload(self) -> P_co:
        """The payload that was put; by default the `thing` of a release. Raises `ValueError` for bad data."""

    @property
    def thing(self) -> str | None:
        """The name of what a release undoes: the `thing` that its owner was given. None of any other task."""

    @property
    def release(self) -> str | None:
        """Of a release, the name that its owner gave it; None of any other task."""

    @property
    def last_progress(self) -> Any:
        """The last report of an earlier delivery, or None. Raises `ValueError` if the codec refuses it."""

    @property
    def meta(self) -> dict[str, str]:
        """The texts that the producer sent along with the payload."""

    def set_result(self, value: Any) -> None:
        """Set the value that `queue.result(task_id)` returns once the task is done; the last call counts."""

    def progress(self, value: Any) -> None:
        """Report how far the task is: for anybody who looks, and for a next delivery."""

    @overload
    def step(
        self, name: str, function: Callable[[], Awaitable[R]], *, find: Callable[[], Any] | None = None
    ) -> R:
        """Call a function once on record: a later delivery of the task gets the stored value."""

    @overload
    def step(self, name: str, function: Callable[[], R], *, find: Callable[[], Any] | None = None) -> R: ...
    def at_end(
        self,
        name: str,
        queue_or_job: WorkQueue[Any] | Job[..., Any] | None = None,
        payload: Any = ...,
        *,
        unless_done: bool = False,
        together: bool = False,
        **options: Unpack[PutOptions],
    ) -> Release:
        """Name a release: a task that is put when this task would end, however it ends, and before it has ended."""

    def keep(self, name: str) -> bool:
        """Never begin a release: what it would undo is somebody else's now. Returns False if it has begun."""

    def check(self) -> None:
        """Raise `LeaseLost` if the task is lost, its time has passed, or the block was left ("released")."""

    def complete_in_sync(self, connection: object) -> None:
        """Like `complete_in`, with a connection that blocks; in any thread."""

class Lock:
    """Mutual exclusion over all processes that use the store: one holder at a time, first come, first served."""

    def __init__(self, store: Store, name: str, *, ttl: Seconds | None = None) -> None: ...
    @property
    def store(self) -> Store: ...
    @property
    def name(self) -> str: ...
    def __enter__(self) -> Lease:
        """Hold the lock, however long it takes. Interruption: nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back. Raises `LeaseLost` if it was lost and the body raised nothing of its own."""

    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""

    def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators."""

    def hold(self, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Hold the lock for a block, `with lock.hold() as lease`."""

    def locked(self) -> bool:
        """True if any process holds the lock at present. Raises `StoreClosed`, `EngineError`."""

class RWLock:
    """Many readers or one writer, over all processes that use the store, first come, first served."""

    def __init__(self, store: Store, name: str, *, ttl: Seconds | None = None) -> None: ...
    @property
    def store(self) -> Store: ...
    @property
    def name(self) -> str: ...
    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""

    def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators."""

    def read(self, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Share the lock with other readers for a block, `with lock.read() as lease`."""

    def write(self, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Have the lock alone for a block, `with lock.write() as lease`; otherwise as `read`."""

class Semaphore:
    """A number of permits over all processes that use the store, taken in weights, first come, first served."""

    def __init__(self, store: Store, name: str, permits: int, *, ttl: Seconds | None = None) -> None: ...
    @property
    def store(self) -> Store: ...
    @property
    def name(self) -> str: ...
    @property
    def permits(self) -> int: ...
    def __enter__(self) -> Lease:
        """Hold one permit. Interruption: nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the permit back. Raises `LeaseLost` if it was lost and the body raised nothing of its own."""

    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""

    def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators."""

    def hold(self, permits: int = 1, timeout: Seconds | None = None) -> AbstractContextManager[Lease, None]:
        """Hold `permits` for a block, all or none, `with semaphore.hold(2) as lease`."""

    def resize(self, permits: int) -> None:
        """Change the number of permits for all processes, for good."""

class RateLimiter:
    """Limits a rate over all processes that use the store, with bursts."""

    def __init__(self, store: Store, name: str, *limits: Limit) -> None: ...
    @property
    def store(self) -> Store: ...
    @property
    def name(self) -> str: ...
    def __enter__(self) -> None:
        """Spend 1, as `acquire` does. Interruption: as with that."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: a spent cost is not given back. No checkpoint."""

    def acquire(self, cost: Cost = 1, fail_fast: bool = False, *, timeout: float | None = None) -> None:
        """Spend `cost` as soon as the rate allows it."""

    def spend(
        self, cost: Cost = 1, fail_fast: bool = False, *, timeout: float | None = None
    ) -> AbstractContextManager[Spending]:
        """Spend `cost` for a block, `with limiter.spend({"tokens": 800}) as spending`."""

    def try_acquire(self, cost: Cost = 1) -> bool:
        """Spend `cost` if the rate allows it at once; returns whether it did. Raises as `acquire` does."""

    def hold_off(self, seconds: Seconds) -> None:
        """Stop all callers in all processes for `seconds`, as after an answer 429 with Retry-After."""

    def state(self) -> LimiterState:
        """Return the amounts that may be spent at once, and when some may, after the callers that wait here."""

class Barrier:
    """A meeting point for `parties` calls of `wait` over all processes of the store: when all have come, all return."""

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
    def store(self) -> Store: ...
    @property
    def name(self) -> str: ...
    @property
    def parties(self) -> int: ...
    @property
    def on_departure(self) -> Literal["break", "drop"]: ...
    def wait(self, *, timeout: float | None = None) -> Arrival:
        """Arrive, and wait until all parties have arrived."""

    def abort(self) -> None:
        """Break the barrier: calls of `wait`, present and later ones, get `BarrierBroken` until `reset`."""

    def reset(self) -> None:
        """Begin a new generation, broken or not: present calls of `wait` get `BarrierBroken`, later calls do not."""

    def statistics(self) -> BarrierStatistics:
        """The state of the barrier. Raises `EngineError`, `StoreClosed`."""

class WorkQueue(Generic[P]):
    """A queue of tasks, each delivered at least once, and completed once on record."""

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
    def store(self) -> Store: ...
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
        """Put a task and return its id; waits in line while the queue is full."""

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
        """Put many tasks, payloads or `Item`s, and return for each its id or the `DuplicateTask` in its way."""

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
        """Like `put_in`, with a connection that blocks; in any thread."""

    def take(self, timeout: Seconds | None = None) -> AbstractContextManager[Task[P], bool]:
        """Take a task for a block, `with queue.take() as task`."""

    def result(self, task_id: int, *, timeout: float | None = None) -> Any:
        """Wait until the task has ended and return its result."""

    def get(self, task_id: int = 0, *, key: str | None = None) -> TaskRecord[P] | None:
        """The record of a task, by its id, or of the task that has that `key`; None if it is not known."""

    def children(self, task_id: int) -> Listing[ChildRecord]:
        """The children of a task, by name; none of an unknown task."""

    def signal(self, task_id: int = 0, name: str = "", value: Any = None, *, key: str | None = None) -> bool:
        """Send a signal to an unfinished task, named by its id or `key`. Its handler waits with `Task.wait_for`."""

    def reschedule(self, task_id: int, delay: Seconds = 0.0) -> bool:
        """Make a task that is waiting or delayed ready after `delay` seconds, behind the tasks that are ready then."""

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
        """Change a task that is waiting or delayed, named by its id or `key`, in one step, and return its id."""

    @overload
    def cancel(self, task_id: int) -> bool:
        """Cancel a task, or tasks in a state: at once if no worker has taken them, else their blocks are cancelled."""

    @overload
    def cancel(
        self, *, state: str, where: Selection | None = None, limit: int | None = None, dry_run: bool = False
    ) -> int: ...
    def join(self, *, timeout: float | None = None) -> None:
        """Wait until no task is unfinished. Raises `StoreClosed`."""

    def statistics(self) -> QueueStatistics:
        """The queue at this moment."""

    def workers(self) -> Listing[QueueWorker]:
        """The live processes that have tasks of the queue or wait for tasks, and since when they have each task."""

    def groups(self) -> Listing[GroupStatistics]:
        """The groups that have an unfinished task: those with the most first, then by name."""

    def settings(self) -> QueueSettings:
        """The settings that hold in all processes, and who has set each. Raises `StoreClosed`, `EngineError`."""

    def configure(self, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Change the settings that are named, for all processes at once, and return all settings."""

    def hold_off(self, seconds: Seconds, *, group: str | None = None) -> None:
        """Start no task of a group, or of the queue, for `seconds`, as after an answer 429 with Retry-After."""

    def cursors(self) -> dict[str, Any]:
        """The cursors stored by `put_many`, by name."""

    def verify(self) -> Audit:
        """Count everything anew and compare: the states with the number of tasks put, the groups with their counter."""

    def tasks(
        self, state: str | None = None, *, where: Selection | None = None, limit: int | None = None
    ) -> Listing[TaskRecord[P]]:
        """The tasks in a state, or all tasks; with a `Selection`, those that match."""

    def requeue(
        self,
        task_ids: Iterable[int] | None = None,
        *,
        where: Selection | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Make dead tasks ready again (None: all, or all that are selected), and return how many."""

    def purge(
        self, *states: str, where: Selection | None = None, limit: int | None = None, dry_run: bool = False
    ) -> int:
        """Delete tasks in the given states, or forget ended ones, and return how many."""

    def pause(self) -> None:
        """Deliver no more tasks, in any process, until `resume`. Interruption: it may or may not be applied."""

    def resume(self) -> None:
        """Deliver tasks again, and end a hold of the queue; the hold of a group goes on."""

class Job(Generic[Params, R]):
    """A function that is called in another process: `put` takes its arguments, and `Worker(job)` calls it with them."""

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
    def queue(self) -> WorkQueue[dict[str, Any]]: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    def options(self, **options: Unpack[PutOptions]) -> Self:
        """The same job, whose tasks are put with these options of `WorkQueue.put`."""

    def put(self, *args: Params.args, **kwargs: Params.kwargs) -> int:
        """Put a task that calls the function with these arguments, and return its id; waits while the queue is full."""

    def try_put(self, *args: Params.args, **kwargs: Params.kwargs) -> int:
        """Like `put`, but raises `QueueFull` instead of waiting. Interruption: it may be put."""

    def item(self, *args: Params.args, **kwargs: Params.kwargs) -> Item[dict[str, Any]]:
        """The item that `put` puts, for `WorkQueue.put_many`. Raises `TypeError` as `put` does."""

    def result(self, task_id: int, *, timeout: float | None = None) -> R:
        """Wait until the task has ended and return the function's result, of the annotated type."""
