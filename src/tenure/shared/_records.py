"""Tasks and queues as their user sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure.engine import QueueCounts, Record
from tenure.store import Codec

from ._failures import read
from ._meta import decode_meta
from ._reports import report_in


@dataclass(frozen=True, slots=True)
class Item:
    """A task for `put_many`: what `put` takes, as a value."""

    payload: Any
    priority: int = 0
    delay: float = 0.0
    key: str | None = None
    expires: float | None = None
    meta: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A queue at one moment.

    put = waiting + delayed + leased + done + dead + cancelled + expired + discarded + purged. `reserved` slots belong
    to producers whose turn has come, `producers` wait for one; `oldest` is for how many seconds the longest waiting
    task has been ready.
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

    @property
    def unfinished(self) -> int:
        """How many tasks are waiting, delayed or leased."""
        return self.waiting + self.delayed + self.leased


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether the books of a queue balance; true if they do. `problems` says what does not."""

    statistics: QueueStatistics
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task as the engine has it.

    `state` is "waiting", "delayed", "leased", "done", "dead", "discarded", "cancelled" or "expired". `attempts` tries
    have failed, `deliveries` times the task was handed out. `age` is since it became ready, or ended, in seconds.
    `result` is that of a done task. `error` says how the last try failed, or why the task has ended otherwise; it is
    empty once the task is done. `traceback` is that of the last failed try, its last 8 KiB; `earlier_errors` has a line
    for each of up to ten tries before. `progress` is the last report, `meta` what the producer sent along. `rank`
    orders what has ended by when it did; it is 0 for an unfinished task. The payload of an ended task is None, unless
    it is dead or the queue keeps payloads.
    """

    id: int
    state: str
    payload: Any
    priority: int
    key: str | None
    attempts: int
    deliveries: int
    age: float
    result: Any = None
    error: str = ""
    rank: int = field(default=0, repr=False)
    progress: Any = None
    traceback: str = field(default="", repr=False)
    earlier_errors: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ended(self) -> bool:
        """Whether it is done, dead, discarded, cancelled or expired."""
        return self.rank > 0


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Part of a listing; `next` is the `after` of the next part, empty after the last one."""

    tasks: list[TaskRecord]
    next: str


def statistics_of(counts: QueueCounts) -> QueueStatistics:
    """What the engine has counted, for the user."""
    return QueueStatistics(**{name: getattr(counts, name) for name in QueueStatistics.__dataclass_fields__})


def ended_of(s: QueueStatistics) -> int:
    """How many tasks have ended, in any way."""
    return s.done + s.dead + s.cancelled + s.expired + s.discarded + s.purged


def record_of(record: Record, codec: Codec) -> TaskRecord:
    """What the engine has of a task, for the user. Raises what the codec raises."""
    decode = codec.decode
    failures, done = read(record.failure), record.state == "done"
    report = report_in(record.progress)
    return TaskRecord(
        id=record.id,
        state=record.state,
        payload=decode(record.payload) if record.payload else None,
        priority=record.priority,
        key=record.key,
        attempts=record.attempts,
        deliveries=record.deliveries,
        age=record.age,
        result=decode(record.result) if done and record.result else None,
        error="" if done else record.result.decode() or failures.error,
        rank=record.seq,
        progress=decode(report) if report else None,
        traceback=failures.traceback,
        earlier_errors=failures.earlier,
        meta=decode_meta(record.meta),
    )
