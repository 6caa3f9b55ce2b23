"""Every error of tenure, each carrying the state that explains it."""

from __future__ import annotations

__all__ = (
    "AcquireTimeout",
    "BarrierBroken",
    "BulkheadFull",
    "CapacityMismatch",
    "CircuitOpen",
    "DuplicateTask",
    "EngineError",
    "LeaseLost",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "PoolClosed",
    "PoolTimeout",
    "QueueFull",
    "ReleaseFailed",
    "ResultUnavailable",
    "StoreClosed",
    "StoreUnavailable",
    "TaskCancelled",
    "TaskFailed",
    "TaskNotWaiting",
    "TenureError",
    "TooManyChildren",
    "WouldExceedDeadline",
)


class TenureError(Exception):
    """The root of all errors that tenure raises on its own account.

    Wrong arguments raise `ValueError` or `TypeError` and misuse of scopes `RuntimeError`, as everywhere in Python.
    """


class AcquireTimeout(TenureError, TimeoutError):
    """The time limit of an acquiring context manager ran out before its turn came. Nothing is held.

    `key` names the lock, pool or queue, `seconds` the limit. `position` is an upper bound of how many waiters were
    earlier in the line when the limit ran out (None: unknown). `reason` is "held", another obstacle (the store has been
    away for 3 s, no resource of a pool matched), or "".
    """

    def __init__(self, key: str, seconds: float, *, position: int | None = None, reason: str = "") -> None:
        why = reason if position is None or reason not in ("", "held") else _place(position)
        super().__init__(f"{key}: not acquired within {seconds:g} s{why and '; '}{why}")
        self.key = key
        self.seconds = seconds
        self.position = position
        self.reason = reason


def _place(position: int) -> str:
    if position == 0:
        return "it was first in line"
    return f"at most {position} {'waiter was' if position == 1 else 'waiters were'} before it"


class LeaseLost(TenureError):
    """The hold was lost, or the engine refused what a stale holder sent. The `reason` is:

    - "expired": the session could not be renewed in time.
    - "gone": the engine no longer knew the session.
    - "refused": the token was stale.
    - "broken": taken away by `break_holder`.
    - "unacknowledged": the outcome of completing a task is unknown.
    - "suspended": the machine slept through the lease.
    - "closed": the store was closed meanwhile.
    - "released": the block was left.
    - "uncommitted": the transaction in which the task was completed was not committed.
    """

    def __init__(self, key: str, reason: str) -> None:
        left = reason == "released"
        super().__init__(
            f"{key}: {'its block was left, so it is not held any more' if left else 'lost'} ({reason})"
        )
        self.key = key
        self.reason = reason


class OutcomeUnknown(TenureError):
    """An operation was sent, its answer was lost and its session has ended: it may or may not have been applied."""

    def __init__(self, key: str, action: str) -> None:
        super().__init__(f"{key}: {action} may or may not have been applied")
        self.key = key
        self.action = action


class StoreClosed(TenureError):
    """The store was closed, or is closing, and takes no new calls."""


class StoreUnavailable(TenureError):
    """The engine could not be reached, or has not answered in time a call that waits for nothing else.

    The text says whether the operation was not applied, or may have been.
    """


class EngineError(TenureError):
    """The engine was reached but cannot do its work: wrong server, version, schema, settings, or a full disk."""


class CapacityMismatch(TenureError):
    """The name is in use with another capacity: `stored` is in force, `asked` was asked for."""

    def __init__(self, key: str, *, asked: int, stored: int) -> None:
        super().__init__(f"{key}: asked for a capacity of {asked}, but {stored} is in force")
        self.key = key
        self.asked = asked
        self.stored = stored


class BarrierBroken(TenureError):
    """A party of this generation left, died, or the barrier was reset."""


class QueueFull(TenureError):
    """The queue has no room: `max_size` tasks wait, are delayed or are being worked on; or a group of it has none."""

    def __init__(self, key: str, max_size: int, group: str | None = None) -> None:
        of = "" if group is None else f"; or the group {group!r} is full, see groups.max_size"
        super().__init__(f"{key}: full, max_size is {max_size}{of}")
        self.key = key
        self.max_size = max_size
        self.group = group


class CursorConflict(TenureError):
    """The cursor of a queue has another value than the expected one. Nothing was put or stored."""

    def __init__(self, key: str, name: str, value: object) -> None:
        super().__init__(f"{key}: the cursor {name!r} has the value {value!r}, which is not the expected one")
        self.key = key
        self.name = name
        self.value = value


class PayloadTooLarge(TenureError, ValueError):
    """A payload, result or progress value is larger than the queue allows. Nothing was sent. Sizes are in bytes."""

    def __init__(self, key: str, what: str, size: int, limit: int) -> None:
        super().__init__(f"{key}: the {what} has {size} bytes, max_payload is {limit}")
        self.key = key
        self.size = size
        self.limit = limit


class DuplicateTask(TenureError):
    """Another task has the key; `task_id` is that task's. It is unfinished, or was put less than its `ttl` ago."""

    def __init__(self, queue: str, key: str, task_id: int) -> None:
        super().__init__(f"{queue}: task {task_id} has the key {key!r}")
        self.queue = queue
        self.key = key
        self.task_id = task_id


class ResultUnavailable(TenureError):
    """The task has no result: it was never put, was purged or its result has expired.

    Or it was put into another store: each `open_store("memory:")` is one of its own.
    """

    def __init__(self, queue: str, task_id: int, hint: str = "") -> None:
        super().__init__(
            f"{queue}: no result of task {task_id}: unknown, purged or expired{hint and '; '}{hint}"
        )
        self.queue = queue
        self.task_id = task_id


class TaskFailed(TenureError):
    """The task ended without success: `state` is "dead", "discarded" or "expired", `error` says why."""

    def __init__(self, queue: str, task_id: int, state: str, error: str) -> None:
        super().__init__(
            f"{queue}: task {task_id} is {state}: {error}" if error else f"{queue}: task {task_id} is {state}"
        )
        self.queue = queue
        self.task_id = task_id
        self.state = state
        self.error = error


class TaskCancelled(TenureError):
    """The task was cancelled with `queue.cancel()` before it was done, or is held past its deadline."""

    def __init__(self, queue: str, task_id: int) -> None:
        super().__init__(f"{queue}: task {task_id} was cancelled")
        self.queue = queue
        self.task_id = task_id


class TaskNotWaiting(TenureError):
    """The task cannot be changed, since it is not waiting or delayed. Nothing was changed.

    `state` is its present state, "unknown" if there is no such task; `task_id` is None if it was named by a key that no
    task has.
    """

    def __init__(self, queue: str, named: str, state: str = "unknown", task_id: int | None = None) -> None:
        super().__init__(
            f"{queue}: {named} is {state}; only a task that is waiting or delayed can be changed"
        )
        self.queue = queue
        self.named = named
        self.state = state
        self.task_id = task_id


class TooManyChildren(TenureError, RuntimeError):
    """The task has as many children as its block allows (`max_children`), those that have ended included."""

    def __init__(self, queue: str, task_id: int, most: int) -> None:
        super().__init__(
            f"{queue}: task {task_id} has at most {most:,} children: see max_children of task.children; "
            "a handler that puts children under new names each time it runs meets this limit, too"
        )
        self.queue = queue
        self.task_id = task_id
        self.most = most


class ReleaseFailed(TenureError):
    """The release `name` is a dead letter, as the task `task_id` of `queue`: its thing is not undone.

    `error` says why.
    """

    def __init__(self, queue: str, task_id: int, name: str, error: str) -> None:
        super().__init__(f"{queue}: task {task_id}, the release {name!r}, is dead: {error}")
        self.queue = queue
        self.task_id = task_id
        self.name = name
        self.error = error


class BulkheadFull(TenureError):
    """As many as may wait (`waiting`) are waiting already behind the `limit` that run."""

    def __init__(self, message: str, *, limit: int, waiting: int) -> None:
        super().__init__(message)
        self.limit = limit
        self.waiting = waiting


class CircuitOpen(TenureError):
    """The circuit breaker is open; trying again makes sense after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PoolClosed(TenureError):
    """The pool was closed and lends nothing more."""


class PoolTimeout(TenureError, TimeoutError):
    """No resource of the pool became free within the time limit."""


class WouldExceedDeadline(TenureError):
    """The call was refused at once, since a wait of `delay` seconds would outlast its deadline. Nothing was booked."""

    def __init__(self, key: str, delay: float) -> None:
        super().__init__(f"{key}: a wait of {delay:.3g} s would outlast the deadline")
        self.key = key
        self.delay = delay

    @property
    def retry_after(self) -> float:
        """Seconds after which it makes sense to try again; `delay` by another name."""
        return self.delay


# Users know them as `tenure.LeaseLost`, but for those that are rarely caught, which only this room has.
for _error in {TenureError, *TenureError.__subclasses__()} - {
    CursorConflict,
    PayloadTooLarge,
    ReleaseFailed,
    TaskNotWaiting,
    TooManyChildren,
}:
    _error.__module__ = "tenure"
