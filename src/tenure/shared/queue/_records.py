from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

import tenure.engine as e
from tenure.store import Codec, JsonCodec, StoreHandle, decoded

from ._child_records import NO_KIN, ChildRecord, Kin, queue_in
from ._failures import read
from ._groups import shown_group
from ._own_options import parted, thing_of
from ._payload import P, P_co
from ._reports import report_in
from ._retry import Retry

_META = JsonCodec()

# The generic class has no slots: with slots, Python 3.12 cannot make a frozen `TaskRecord[Mail](...)`.


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A queue at one moment.

    `put` is the sum of the states and of `purged`. `reserved` slots belong to producers whose turn has come, and
    `producers` wait for a slot. `oldest` is how many seconds the longest waiting task has been ready. `groups` is the
    number of groups with an unfinished task. `starts_in` is for how many seconds no task of the queue may start,
    because of its rate or a hold; `held_off` is the same if the queue is held off, else 0. `rate` and `group_rate` are
    the rates of the queue and of each group, in tasks a second (0: none). `held` releases have not begun.
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
    groups: int = 0
    max_size: int = 0
    suspended: int = 0
    ending: int = 0
    starts_in: float = 0.0
    rate: float = 0.0
    group_rate: float = 0.0
    held_off: float = 0.0
    held: int = 0

    @property
    def unfinished(self) -> int:
        """The number of tasks that are waiting, delayed, leased, suspended or ending."""
        return self.waiting + self.delayed + self.leased + self.suspended + self.ending


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit: true if the counts of a queue agree with its tasks, else with `problems`."""

    statistics: QueueStatistics
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class TaskRecord(Generic[P_co]):
    """A task as the engine has it; generic in its payload.

        record = await queue.get(task_id)
        if record is not None and record.state == "dead":
            print(record.error, record.traceback)

    - `state`: "waiting", "delayed", "leased", "suspended", "ending", "done", "dead", "discarded", "cancelled" or
      "expired".
    - `age`: seconds since the task became ready, or ended; `deadline`: seconds left.
    - `ran`: seconds of its lease, until now or its end; None without a lease.
    - `result` of a done task; `error`, `traceback` of the last failed try; `failed_tries`, a line for each of the last
      eleven: its start (not over memory), duration and error.
    - `payload`: None of an ended task, unless it is dead or the queue keeps payloads.
    - `undecoded`: the bytes of fields that cannot be decoded, by name.
    - `timeout`, `retry`: as put; None: the worker's count.
    - `rank`: orders ended tasks; 0 for others.
    - `parent`, `parent_queue`: of an unfinished or dead child or release; `release`: a release's name.
    - `children`: the number of unfinished children.
    - `unfinished_child` (the first by name) and `releases` (the first 256; "dead": not undone) of an unfinished or dead
      task, from `get` or `follow`.
    """

    id: int
    state: str
    payload: P_co | None
    priority: int
    key: str | None
    attempts: int
    deliveries: int
    age: float
    result: Any = None
    error: str | None = None
    rank: int = field(default=0, repr=False)
    progress: Any = None
    traceback: str = field(default="", repr=False)
    failed_tries: tuple[str, ...] = ()
    ran: float | None = None
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    undecoded: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    group: str | None = None
    parent: int | None = None
    parent_queue: str | None = None
    children: int = 0
    unfinished_child: ChildRecord | None = None
    release: str | None = None
    releases: tuple[ChildRecord, ...] = ()
    deadline: float | None = None
    timeout: float | None = None
    retry: Retry | None = None

    @property
    def ended(self) -> bool:
        """True if the task is done, dead, discarded, cancelled or expired."""
        return self.rank > 0


def statistics_of(counts: e.QueueCounts) -> QueueStatistics:
    fields: dict[str, Any] = {name: getattr(counts, name) for name in QueueStatistics.__dataclass_fields__}
    for rate in ("rate", "group_rate"):
        fields[rate] = _per_second(fields[rate])
    return QueueStatistics(**fields)


def _per_second(rate: e.Rate | None) -> float:
    return 0.0 if rate is None else 1 / rate.every


def audit_of(counted: QueueStatistics, rows: e.QueueCounts) -> Audit:
    recounted = statistics_of(rows)
    problems: list[str] = []
    for which, s in (("states", counted), ("records", recounted)):
        if s.put != s.unfinished + s.done + s.dead + s.cancelled + s.expired + s.discarded + s.purged:
            problems.append(f"the {which} do not add up to put")
    if rows.group_counter != rows.groups:
        problems.append(f"{rows.group_counter} groups were counted, and {rows.groups} have tasks")
    return Audit(recounted, tuple(problems))


def record_of(
    record: e.Record, payloads: Codec[P], codec: Codec, store: StoreHandle, kin: Kin = NO_KIN
) -> TaskRecord[P]:
    failures, done = read(record.failure), record.state == "done"
    undecoded: dict[str, bytes] = {}

    def value(name: str, of: Codec, data: bytes) -> Any:
        try:
            return decoded(of, name, data) if data else None
        except ValueError:  # a wrong value must not hide the task, nor the other tasks of a page
            undecoded[name] = data
            return None

    meta, own = parted(value("meta", _META, record.meta) or {})
    payload: Any = value("payload", payloads, record.payload)
    if own.thing is not None and not record.payload and record.state != "done":
        payload = thing_of(own.thing, record.id)
    return TaskRecord(
        id=record.id,
        state=record.state,
        payload=payload,
        priority=record.priority,
        key=record.key,
        attempts=record.attempts,
        deliveries=record.deliveries,
        age=record.age,
        result=value("result", codec, record.result) if done else None,
        error=None if done else record.result.decode() or failures.error or None,
        rank=record.seq,
        progress=value("progress", codec, report_in(record.progress)),
        traceback=failures.traceback,
        failed_tries=failures.lines,
        ran=record.ran,
        meta=meta,
        undecoded=undecoded,
        group=shown_group(record.group) or None,
        parent=record.parent or None,
        parent_queue=queue_in(store, record.parent_key) or None,
        children=record.children,
        unfinished_child=kin.child,
        release=own.release,
        releases=kin.releases,
        deadline=record.deadline,
        timeout=own.timeout,
        retry=own.retry,
    )
