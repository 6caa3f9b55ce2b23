from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Generic, Literal, Self, Unpack, cast, overload
from weakref import ref

import tenure.engine as e
from tenure.arguments import (
    LARGEST,
    Seconds,
    check_count,
    check_name,
    check_seconds,
    check_task_id,
    shows_options,
)
from tenure.dbapi import run_enlisted, run_enlisted_sync
from tenure.errors import DuplicateTask, QueueFull, TaskCancelled, TaskFailed
from tenure.shared._listing import Listing, Page, listing, listing_of
from tenure.store import Codec, Store, check_codec, decoded, handle_of, read_counts, read_pages
from tenure.waiting import checkpoint

from ._at_work import QueueWorker, read_workers
from ._child_records import NO_KIN, ChildRecord, Kin, read_children, read_kin
from ._children import Target
from ._client import QueueClient
from ._completing import completing
from ._editing import UNCHANGED, edit_task
from ._family import SIGNAL
from ._following import TaskChanges
from ._groups import GroupStatistics, check_group, group_of_children, group_statistics
from ._keys import Key, check_on_duplicate
from ._new_task import new_task, task_of
from ._options import Item, PutOptions
from ._payload import P, encode
from ._portions import ANYTHING, decoded_cursor, put_portions
from ._put_span import PutSpan
from ._records import Audit, QueueStatistics, TaskRecord, audit_of, record_of, statistics_of
from ._retry import Retry, check_retry
from ._schedules import Schedules
from ._selecting import Selection, check_where, move_selected, read_indexes
from ._settings import QueueOptions, QueueSettings, changes_of, shown
from ._takes import Takers
from ._task import TakeBlock, Task

MEBIBYTE = 2**20
_SHORTEST_HOLD = 1e-6
"""Seconds: the clock of an engine has no finer steps."""
_UNFINISHED = ("waiting", "delayed", "leased", "suspended", "ending")
_INDEXES = (*_UNFINISHED, "ended")
PURGEABLE = frozenset({"waiting", "delayed", *e.ENDED})


def check_queue(queue: object) -> None:
    if not isinstance(queue, WorkQueue):
        raise TypeError(f"queue must be a WorkQueue, not {type(queue).__name__}")


def queue_of(store: Store, name: str) -> WorkQueue[Any]:
    """The queue as this process describes it; a new description if there is none."""
    handle = handle_of(store)
    client = handle.listen(key := handle.key("queue", name), lambda: QueueClient(handle, key))
    user = client.takers.user()
    return cast("WorkQueue[Any]", user) if isinstance(user, WorkQueue) else WorkQueue(store, name)


class WorkQueue(Target[P], Generic[P]):
    """A queue of tasks, each delivered at least once, and completed once on record.

        queue = WorkQueue[str](store, "mail", max_size=1_000)
        task_id = await queue.put("hello", priority=10)
        print(await queue.result(task_id))

    - `codec`: encodes payloads, and determines their type; the store's by default.
    - `retry`: when a failed task is tried again; `Retry()`.
    - `max_payload`: bytes of a payload or result; 1 MiB.
    - `max_size`: unfinished tasks, before further producers wait; 10,000.
    - `aging`: seconds after which a ready task goes first; None.
    - `max_deliveries`: deliveries to takers that died; 5.
    - `rate`: a `Limit` of starts; None.
    - `keep`: how long records and keys are kept; `Keep()`.
    - `groups`: limits and turns of groups; `Groups()`.

    `max_size` and the options below it are settings, kept with the queue: the last value that a process or `configure`
    sent holds in all processes.

    Source: leases fenced by token as in BullMQ and Temporal; one exchange that settles and takes, as in BullMQ;
    self-clocked fair queueing (Golestani, 1994).
    """

    @shows_options(QueueOptions)
    def __init__(
        self,
        store: Store,
        name: str,
        *,
        codec: Codec[P] | None = None,
        retry: Retry | None = None,
        max_payload: int = MEBIBYTE,
        **settings: Unpack[QueueOptions],
    ) -> None:
        self.name = name
        self.store = store
        self._store = handle = handle_of(store)
        self.key: str = handle.key("queue", name)
        self.codec: Codec[P] = check_codec(codec) or store.codec
        self.retry: Retry = check_retry(retry) or Retry()
        self.max_payload: int = check_count("max_payload", max_payload)
        changes = changes_of(settings)
        self._client = client = handle.listen(self.key, lambda: QueueClient(handle, self.key))
        self._takers: Takers = client.takers
        client.takers.user = ref(self)
        client.record.name(changes)

    def __repr__(self) -> str:
        return f"<WorkQueue {self.name!r} taking={len(self._takers)}>"

    # putting

    async def put(
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
    ) -> int:
        """Put a task and return its id; waits in line while the queue is full.

        - `priority`: higher first.
        - `delay` in seconds before it may be taken, or `at` a `datetime` with a time zone, by the clock of this host.
        - `key`: only one unfinished task of the queue has it. A text raises `DuplicateTask`; a `Key` may keep or
          replace the other task.
        - `group`: the tasks with which it takes turns.
        - `expires`: seconds after which it is dropped if no worker has it; `deadline`: a worker's handler is
          cancelled, too.
        - `timeout` of each try and `retry` take the place of the worker's. A block of `take` has no time limit, only
          `Task.timeout`. The exceptions in `on` and `never` of `retry` travel by their names.
        - `meta`: a few short texts that travel with it, at most 1 KiB.

        Raises `DuplicateTask`, `PayloadTooLarge`, `OutcomeUnknown`, `StoreClosed`, `EngineError`, `ValueError`,
        `TypeError`, and the errors of the codec.
        Cancellation: while waiting, nothing is put and no place is kept; when it is under way, it may be put.
        """
        options = priority, delay, at, key, group, expires, deadline, timeout, retry, meta
        return await self._put_one(payload, options, {}, wait=True)

    @shows_options(PutOptions, priority=0, delay=0.0)
    async def try_put(self, payload: P, **options: Unpack[PutOptions]) -> int:
        """Like `put`, but raises `QueueFull` instead of waiting. Cancellation: it may be put."""
        return await self._put_one(payload, (), options, wait=False)

    @overload
    async def put_many(
        self,
        items: Iterable[P | Item[P]],
        *,
        on_duplicate: Literal["keep", "replace"],
        cursor: tuple[str, Any] | None = None,
        expected: Any = ANYTHING,
    ) -> list[int]: ...
    @overload
    async def put_many(
        self,
        items: Iterable[P | Item[P]],
        *,
        on_duplicate: Literal["refuse"] = "refuse",
        cursor: tuple[str, Any] | None = None,
        expected: Any = ANYTHING,
    ) -> list[int | DuplicateTask]: ...
    async def put_many(
        self,
        items: Iterable[P | Item[P]],
        *,
        on_duplicate: e.OnDuplicate = "refuse",
        cursor: tuple[str, Any] | None = None,
        expected: Any = ANYTHING,
    ) -> list[int] | list[int | DuplicateTask]:
        """Put many tasks, payloads or `Item`s, and return for each its id or the `DuplicateTask` in its way.

        `on_duplicate` is for items whose key is a text. With "keep" or "replace" there are only ids, and a `Key` that
        says "refuse" is a `ValueError`.

        The tasks are put in order, in atomic portions of at most 256 (and of `max_size`, and in one group of
        `groups.max_size`), each of which waits in line for room. The last portion stores `cursor`, a (name, value), in
        the same step. With `expected`, nothing is put and `CursorConflict` is raised if the cursor has another value
        at that moment; None stands for no value. All tasks must then fit in one portion (`ValueError`), and in their
        groups (`QueueFull`). Values are compared as they are encoded. Raises as `put` does; a wrong item raises before
        anything is put.
        Cancellation: portions that were put stay.
        """
        on_duplicate = check_on_duplicate(on_duplicate)
        kind = type(cast("object", items))
        if issubclass(kind, (str, bytes, Mapping)) or not issubclass(kind, Iterable):
            raise TypeError(f"items must be an iterable of payloads, such as a list, not {kind.__name__}")
        entries = list(items)
        keys = [item.options.get("key") for item in entries if isinstance(item, Item)]
        if on_duplicate != "refuse" and any(
            isinstance(key, Key) and key.on_duplicate == "refuse" for key in keys
        ):
            raise ValueError(f"no key may say 'refuse' with on_duplicate={on_duplicate!r}")
        with PutSpan(self._store.reporter, self.key, len(entries)) as span:
            tasks = [task_of(self, item, on_duplicate, span.meta) for item in entries]
            outcomes = await put_portions(
                self._store, self.key, self._client.producers, tasks, cursor, expected
            )
            return [self._outcome(task, outcome) for task, outcome in zip(tasks, outcomes, strict=True)]

    @shows_options(PutOptions, priority=0, delay=0.0)
    async def put_in(self, connection: object, payload: P, **options: Unpack[PutOptions]) -> int:
        """Put a task in a transaction of yours, on a connection to the store's own database, and return its id.

        It does not wait for room. Until the transaction has ended, call nothing else of the store, which may wait for
        it. Connections are as for `SqlGuard.enforce`.

        Raises as `try_put` does, but no `OutcomeUnknown`; `RuntimeError` outside of a transaction, `ValueError` and
        `TypeError` for a connection to elsewhere, `EngineError` on an engine that cannot do it, and the errors of the
        driver.
        Cancellation: roll back; it may have been put in the transaction.
        """
        with PutSpan(self._store.reporter, self.key) as span:
            joining = self._put_joining(new_task(self, payload, span.meta, **options))
            span.task_id = await run_enlisted(connection, *joining)
            return span.task_id

    @shows_options(PutOptions, priority=0, delay=0.0)
    def put_in_sync(self, connection: object, payload: P, **options: Unpack[PutOptions]) -> int:
        """Like `put_in`, with a connection that blocks; in any thread."""
        with PutSpan(self._store.reporter, self.key) as span:
            joining = self._put_joining(new_task(self, payload, span.meta, **options))
            span.task_id = run_enlisted_sync(connection, *joining)
            return span.task_id

    def _put_joining(
        self, task: e.NewTask
    ) -> tuple[e.Enlistment[int | e.Duplicate | e.Reply], Callable[[int | e.Duplicate | e.Reply], int]]:
        def judge(answer: int | e.Duplicate | e.Reply) -> int:
            if isinstance(answer, e.Reply):
                raise QueueFull(self.key, self._client.record.current.max_size, task.group or None)
            return self._id(task, answer)

        return self._store.enlist(e.PutOne(self.key, task)), judge

    async def complete_in(self, connection: object, tasks: Iterable[Task[P]]) -> list[Task[P]]:
        """Complete up to 256 tasks in a transaction of yours, as `Task.complete_in` does one, and return these tasks.

        Left out are tasks that are lost, cancelled, marked with `Task.fail` or settled: write for the others only.
        Raises as `Task.complete_in` does, but no `LeaseLost`; `ValueError` for tasks of another queue or too many.
        Cancellation: roll back; it may have been applied in the transaction.
        """
        if (joining := completing(self._store, self.key, tasks)) is not None:
            return await run_enlisted(connection, *joining)
        await checkpoint()
        return []

    def complete_in_sync(self, connection: object, tasks: Iterable[Task[P]]) -> list[Task[P]]:
        """Like `complete_in`, with a connection that blocks; in any thread."""
        joining = completing(self._store, self.key, tasks)
        return [] if joining is None else run_enlisted_sync(connection, *joining)

    async def _put_one(
        self, payload: P, in_order: tuple[Any, ...], by_name: Any, span: PutSpan | None = None, *, wait: bool
    ) -> int:
        if span is None and self._store.reporter.tracing is not None:
            with PutSpan(self._store.reporter, self.key) as own:
                own.task_id = await self._put_one(payload, in_order, by_name, own, wait=wait)
                return own.task_id
        task = new_task(self, payload, span and span.meta, *in_order, **by_name)
        accepted = await self._client.producers.put((task,), wait=wait)
        assert isinstance(accepted, e.Accepted)
        return self._id(task, accepted.ids[0])

    def _outcome(self, task: e.NewTask, answer: int | e.Duplicate) -> int | DuplicateTask:
        if isinstance(answer, e.Duplicate):
            return DuplicateTask(self.key, task.key or "", answer.id)
        return answer

    def _id(self, task: e.NewTask, answer: int | e.Duplicate) -> int:
        if isinstance(answer, e.Duplicate):
            raise DuplicateTask(self.key, task.key or "", answer.id)
        return answer

    # taking

    def take(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[Task[P], bool]:
        """Take a task for a block, `async with queue.take() as task`.

        Leaving the block completes the task, or raises `LeaseLost`. An exception fails the try: the task is tried again
        later or becomes a dead letter, and the exception goes on (`RetryLater`, `Discard` and `Dead` decide otherwise
        and end here). A cancellation from outside, or an exception from the handler of a signal, gives the task back
        without counting an attempt. If the lease is lost, or somebody cancels the task, asynchronous code in the block
        is cancelled, and the block raises `LeaseLost` or `TaskCancelled`.

        `timeout` in seconds limits the wait for a task (None: for ever; 0: one try, for at most the store's
        `settle_timeout`). Entering raises `AcquireTimeout`, `StoreClosed`, `EngineError`.
        Cancellation: while waiting, nothing is taken.
        """
        return TakeBlock[P](self, timeout)

    # looking and managing

    async def result(self, task_id: int) -> Any:
        """Wait until the task has ended and return its result.

        Raises `TaskFailed`, `TaskCancelled`, `ResultUnavailable`, `StoreClosed`, `EngineError`, and `ValueError` for a
        result that the codec refuses.
        """
        task_id = check_task_id("task_id", task_id)
        outcome = await self._client.watchers.outcome(task_id)
        if outcome.state == "done":
            return decoded(self._store.codec, f"{self.key}: the result of task {task_id}", outcome.result)
        if outcome.state == "cancelled":
            raise TaskCancelled(self.key, task_id)
        raise TaskFailed(self.key, task_id, outcome.state, outcome.result.decode())

    async def get(self, task_id: int = 0, *, key: str | None = None) -> TaskRecord[P] | None:
        """The record of a task, by its id, or of the task that has that `key`; None if it is not known.

        Raises `StoreClosed`, `EngineError`.
        """
        if (key is None) is (task_id == 0):
            raise TypeError("get takes a task_id or a key")
        page = await read_pages(self._store, self._scan_of(task_id, key))
        if not page.rows:
            return None
        (record,) = page.rows
        return self._read(record, await read_kin(self._store, self.key, record))

    def children(self, task_id: int) -> Listing[ChildRecord]:
        """The children of a task, by name; none of an unknown task.

        Children are listed while their parent is unfinished, or a dead letter; failed children, until the end of its
        try.
        """
        self._store.check_families()
        task_id = check_task_id("task_id", task_id)
        return Listing(partial(read_children, self._store, self.key, task_id))

    def follow(self, task_id: int) -> TaskChanges[P]:
        """The task as it is, and then at each change of its state and each report, until it has ended.

        `async with queue.follow(task_id) as changes: async for record in changes: ...`, each a `TaskRecord`. A slow
        reader misses what lay between, but never the last report and the end. Iterating raises `ResultUnavailable` if
        the task is not known, or no longer, `StoreClosed`, `EngineError`.
        """
        task_id = check_task_id("task_id", task_id)
        return TaskChanges(partial(self._client.feed, task_id), self._read)

    async def signal(
        self, task_id: int = 0, name: str = "", value: Any = None, *, key: str | None = None
    ) -> bool:
        """Send a signal to an unfinished task, named by its id or `key`. Its handler waits with `Task.wait_for`.

        The first signal of a name counts, also before the wait. Its value is kept until the task has ended. Returns
        False if the task is unknown or has ended, if it has that signal with another value, and if the wait's timeout
        has passed.
        Raises `PayloadTooLarge`, `RuntimeError` for a task that has 10,000 entries, `EngineError`, `StoreClosed`, and
        the errors of the codec. Cancellation: the signal may or may not be sent.
        """
        if (key is None) is (task_id == 0):
            raise TypeError("signal takes a task_id or a key")
        name = check_name("name", name)
        data = encode(self._store.codec, self.key, "signal", value, self.max_payload)
        self._store.check_families()
        if key is None:
            task_id = check_task_id("task_id", task_id)
        elif (record := await self.get(key=key)) is None:
            return False
        else:
            task_id = record.id
        answer = await self._store.call(e.SetEntry(self.key, task_id, 0, SIGNAL + name, data))
        if isinstance(answer, e.TooMany):
            problem = f"{self.key} task {task_id} has {answer.most} entries, which is the most"
            raise RuntimeError(problem)  # noqa: TRY004 no argument
        if isinstance(answer, e.Entry):
            return answer.state == "done" and answer.value == data
        return answer is e.Reply.OK

    async def reschedule(self, task_id: int, delay: Seconds = 0.0) -> bool:
        """Make a task that is waiting or delayed ready after `delay` seconds, behind the tasks that are ready then.

        Returns False if there is no such task or it is in another state. Cancellation: it may or may not be applied.
        """
        task_id, delay = check_task_id("task_id", task_id), check_seconds("delay", delay)
        return (await self._move(e.Move(self.key, (task_id,), "delayed", delay=delay))).count > 0

    async def edit(
        self,
        task_id: int = 0,
        *,
        key: str | None = None,
        payload: P = UNCHANGED,
        priority: int | None = None,
        delay: Seconds | None = None,
        group: str | None = UNCHANGED,
    ) -> int:
        """Change a task that is waiting or delayed, named by its id or `key`, in one step, and return its id.

        It then stands where it would stand if it had been put like this. With a `delay`, it is ready so many seconds
        from now, behind the tasks that are ready then. A `group` of None is the tasks without a group. No limit of the
        queue or the group delays a change.

        Raises `TaskNotWaiting`, which has the task's state, if the task is leased, has ended or is not known;
        `PayloadTooLarge`, `StoreClosed`, `EngineError`, and the errors of the codec.
        Cancellation: the change may or may not be applied.
        """
        if (key is None) is (task_id == 0):
            raise TypeError("edit takes a task_id or a key")
        if payload is UNCHANGED and group is UNCHANGED and priority is delay is None:
            raise TypeError("edit takes at least one of payload, priority, delay and group")
        move = e.Move(
            *(self.key, (), "delayed"),
            delay=None if delay is None else check_seconds("delay", delay),
            priority=None if priority is None else check_count("priority", priority, least=-LARGEST),
        )
        if payload is not UNCHANGED:
            data = encode(self.codec, self.key, "payload", payload, self.max_payload)
            move = replace(move, payload=data)
        if group is not UNCHANGED:
            move = replace(move, group="" if group is None else check_group("group", group))
        return await edit_task(self._store, self._scan_of(task_id, key), move)

    @overload
    async def cancel(self, task_id: int) -> bool: ...
    @overload
    async def cancel(
        self,
        *,
        state: str,
        where: Selection | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int: ...
    async def cancel(
        self,
        task_id: int = 0,
        *,
        state: str | None = None,
        where: Selection | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Cancel a task, or tasks in a state: at once if no worker has taken them, else their blocks are cancelled.

        Returns False if there is no task with that id, or it has ended. For a `state` ("waiting", "delayed", "leased",
        "suspended" or "ending"), returns how many tasks it has cancelled. `where`, `limit` and `dry_run` are as for
        `purge`. Cancellation: it may or may not be applied; of many, to some.
        """
        if state is None:
            if where is not None or dry_run is not False or limit is not None:
                raise TypeError("cancel takes a task_id alone, or a state")
            task_id = check_task_id("task_id", task_id)
            ttl = (await self._client.record.read()).results
            return (await self._move(e.Move(self.key, (task_id,), "cancelled", ttl=ttl))).count > 0
        if task_id != 0:
            raise TypeError("cancel takes a task_id or a state, not both")
        if state not in _UNFINISHED:
            raise ValueError(f"state must be one of {', '.join(_UNFINISHED)}, not {state!r}")
        return await self._move_selected((state,), "cancelled", where, limit, dry_run)

    @cached_property
    def schedules(self) -> Schedules[P]:
        """The schedules of the queue: any process may `set`, `list`, `pause`, `resume` and `remove` them."""
        return Schedules(self)

    async def join(self) -> None:
        """Wait until no task is unfinished. Raises `StoreClosed`."""
        await self._client.watchers.drained()

    async def statistics(self) -> QueueStatistics:
        """The queue at this moment."""
        return statistics_of(await self._counts())

    def workers(self) -> Listing[QueueWorker]:
        """The live processes that have tasks of the queue or wait for tasks, and since when they have each task.

        A process that has died is listed until its session ends.
        """
        return listing_of(partial(read_workers, self._store, self.key), attrgetter("process"))

    def groups(self) -> Listing[GroupStatistics]:
        """The groups that have an unfinished task: those with the most first, then by name."""
        return listing(self._store, e.Scan(e.GROUPS, self.key), group_statistics)

    async def settings(self) -> QueueSettings:
        """The settings that hold in all processes, and who has set each. Raises `StoreClosed`, `EngineError`."""
        return shown(await self._client.record.configure({}))

    @shows_options(QueueOptions)
    async def configure(self, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Change the settings that are named, for all processes at once, and return all settings.

        The default, or None, lifts a limit. Raises `StoreClosed`, `EngineError`, `ValueError`, `TypeError`.
        Cancellation: it may or may not be applied.
        """
        return shown(await self._client.record.configure(changes_of(settings)))

    async def hold_off(self, seconds: Seconds, *, group: str | None = None) -> None:
        """Start no task of a group, or of the queue, for `seconds`, as after an answer 429 with Retry-After.

        The later end of several holds counts; 0 seconds end a hold at once. The queue and its groups are held off
        separately. Then tasks start at the rate, without a burst. Raises `StoreClosed`, `EngineError`.
        Cancellation: it may or may not be applied.
        """
        seconds = check_seconds("seconds", seconds)
        seconds = max(seconds, _SHORTEST_HOLD) if seconds else 0.0
        named = "" if group is None else check_group("group", group)
        for name in (named, group_of_children(named))[: 1 + bool(named)]:
            await self._store.call(e.SetPaused(self.key, paused=True, seconds=seconds, group=name))

    async def cursors(self) -> dict[str, Any]:
        """The cursors stored by `put_many`, by name."""
        counts = await self._counts()
        return {name: decoded_cursor(self._store, self.key, name, value) for name, value in counts.cursors}

    async def verify(self) -> Audit:
        """Count everything anew and compare: the states with the number of tasks put, the groups with their counter.

        The queue may be in use, since only numbers of the same step of the engine are compared.
        """
        counted = statistics_of(await self._counts())
        return audit_of(counted, await self._counts(recount=True))

    def tasks(
        self, state: str | None = None, *, where: Selection | None = None, limit: int | None = None
    ) -> Listing[TaskRecord[P]]:
        """The tasks in a state, or all tasks; with a `Selection`, those that match.

        `state` is "waiting", "delayed", "leased", "suspended", "ending", "dead", "done", "discarded", "cancelled",
        "expired", or "ended" (in any way). Waiting tasks come by group, and in each in the order of taking; delayed
        tasks as they become due, leased tasks as they were taken, suspended and ending tasks by id, ended tasks as
        they ended. Payloads of ended tasks are None unless the queue keeps them. This process selects, from pages of
        256 tasks.
        """
        if state not in (None, *e.TASKS):
            raise ValueError(f"state must be one of {', '.join(e.TASKS)}, not {state!r}")
        indexes, matches = _INDEXES if state is None else (state,), check_where(where)

        async def read(after: str, most: int) -> Page[TaskRecord[P]]:
            page = await read_indexes(self._store, self.key, indexes, matches, after, most)
            return Page([self._read(record) for record in page.rows], page.next or None)

        return Listing(read, limit)

    async def requeue(
        self,
        task_ids: Iterable[int] | None = None,
        *,
        where: Selection | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Make dead tasks ready again (None: all, or all that are selected), and return how many.

        Their attempts start anew. A task whose `key` another task has stays dead. `where`, `limit` and `dry_run` are
        as for `purge`. Cancellation: some may have been requeued.
        """
        if task_ids is None:
            return await self._move_selected(("dead",), "waiting", where, limit, dry_run)
        if where is not None or limit is not None or dry_run is not False:
            raise TypeError("requeue takes task_ids alone, or a selection of dead tasks")
        ids = tuple(check_task_id("task_ids", task_id) for task_id in task_ids)
        portions = (ids[start : start + e.CAP] for start in range(0, len(ids), e.CAP))
        return sum([(await self._move(e.Move(self.key, portion, "waiting"))).count for portion in portions])

    async def purge(
        self,
        *states: str,
        where: Selection | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete tasks in the given states, or forget ended ones, and return how many.

        The states are "waiting", "delayed" and "dead", of ended tasks "done", "discarded", "cancelled" and "expired".
        `where` selects tasks, which this process reads; a task that has left its state since then stays. `limit` is
        the most tasks to purge. With `dry_run`, nothing is purged, and the number is how many would be.
        Cancellation: some may have been purged.
        """
        if not states or not PURGEABLE.issuperset(states):
            raise ValueError(f"states must be some of {', '.join(sorted(PURGEABLE))}, not {states!r}")
        return await self._move_selected(states, "purged", where, limit, dry_run)

    async def pause(self) -> None:
        """Deliver no more tasks, in any process, until `resume`. Cancellation: it may or may not be applied."""
        await self._store.call(e.SetPaused(self.key, paused=True))

    async def resume(self) -> None:
        """Deliver tasks again, and end a hold of the queue; the hold of a group goes on.

        Cancellation: it may or may not be applied.
        """
        await self._store.call(e.SetPaused(self.key, paused=False))

    # for the children of tasks

    @property
    def _place(self) -> Self:
        return self

    def _call(self, item: Item[Any]) -> Item[Any]:
        return item

    # inside

    def _scan_of(self, task_id: int, key: str | None) -> e.Scan[Any]:
        if key is None:
            return e.Scan(e.TASK, self.key, only=str(check_task_id("task_id", task_id)))
        return e.Scan(e.KEYED_TASK, self.key, only=check_name("key", key))

    def _read(self, record: e.Record, kin: Kin = NO_KIN) -> TaskRecord[P]:
        return record_of(record, self.codec, self._store.codec, self._store, kin)

    async def _move_selected(
        self,
        states: Iterable[str],
        to: Literal["cancelled", "waiting", "purged"],
        where: Selection | None,
        limit: int | None,
        dry_run: bool,
    ) -> int:
        ttl = (await self._client.record.read()).results
        return await move_selected(
            *(self._store, self.key, states, to, where), ttl=ttl, most=limit, dry_run=dry_run
        )

    async def _move(self, operation: e.Move) -> e.MovedCount:
        self._client.record.announce()
        moved = await self._store.call(operation)
        assert isinstance(moved, e.MovedCount)
        return moved

    async def _counts(self, *, recount: bool = False) -> e.QueueCounts:
        self._client.record.announce()
        return await read_counts(self._store, self.key, recount=recount)
