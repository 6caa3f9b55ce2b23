from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Generic, Self

import anyio.lowlevel

import tenure.engine as e
from tenure.arguments import AsyncBlock, NotAwaited
from tenure.errors import EngineError, ResultUnavailable, StoreClosed
from tenure.shared._watch import Watch, new_line, wake
from tenure.store import StoreHandle
from tenure.upkeep import BackgroundTask

from ._child_records import NO_KIN, Kin, read_kin
from ._payload import P_co
from ._records import TaskRecord
from ._reports import is_older

_POLL_EVERY = 2.0
"""Seconds between two readings of a task that waits for its children: the end of a child sends no hint."""


class Feed:
    """The news of one task that followers in this process share. `version` counts the records that differed."""

    def __init__(self, store: StoreHandle, key: str, task_id: int, on_last: Callable[[Feed], object]) -> None:
        self.task_id: int = task_id
        self.record: e.Record | None = None
        self.kin = NO_KIN
        self.version = 0
        self.over = False
        self.error: Callable[[], Exception] | None = None
        self.followers = new_line(f"task {task_id} of {key}")
        self._store = store
        self._key = key
        self._on_last = on_last
        self._hints = new_line(f"task {task_id} of {key}")
        self._users = 0
        self._job: BackgroundTask | None = None

    def join(self) -> None:
        self._users += 1
        if self._job is None:
            self._job = self._store.start_job("follow", self._run)

    def leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._on_last(self)
            if self._job is not None:
                self._job.cancel()

    def wake(self) -> None:
        wake(self._hints)

    def fail(self, error: Callable[[], Exception]) -> None:
        self.over, self.error = True, self.error or error
        wake(self.followers)

    async def _run(self) -> None:
        try:
            while not self.over:
                session = await self._store.session(self._store.ttl, self._key)
                watched = e.Scan(e.TASK, self._key, only=str(self.task_id), watch=session.id)
                with Watch(self._hints, session, lambda: None) as watch:
                    answer = await self._store.call(watched, patient=True)
                    if isinstance(answer, e.Reply):
                        session.lose("gone")
                    elif not answer.rows:
                        self.fail(partial(ResultUnavailable, self._key, self.task_id))
                    else:
                        (record,) = answer.rows
                        kin = await read_kin(self._store, self._key, record)
                        self._publish(record, kin)
                        if not self.over:
                            again = answer.ask_again_in
                            await watch.changed(again if kin.child is None else min(again, _POLL_EVERY))
        except (EngineError, StoreClosed) as problem:
            self.fail(partial(type(problem), *problem.args))

    def _publish(self, record: e.Record, kin: Kin) -> None:
        former = self.record
        if former is not None and is_older(record.progress, former.progress):
            # the engine has lost a report that was seen here
            record = replace(record, progress=former.progress)
        self.over = record.seq > 0
        is_new = former is None or replace(record, age=former.age) != former or kin != self.kin
        self.record, self.kin = record, kin
        if is_new:
            self.version += 1
            wake(self.followers)


class TaskChanges(AsyncBlock, NotAwaited, Generic[P_co]):
    """A task as it is, and then at each change, until it has ended; see `WorkQueue.follow`.

    No record comes twice in a row.
    """

    __slots__ = ("_feed", "_feeds", "_read", "_seen")

    def __init__(self, feed: Callable[[], Feed], read: Callable[[e.Record, Kin], TaskRecord[P_co]]) -> None:
        self._feeds = feed
        self._read = read
        self._feed: Feed | None = None
        self._seen = 0

    async def __aenter__(self) -> Self:
        if self._feed is not None:
            raise RuntimeError("this block is entered already; call follow again for another reader")
        await anyio.lowlevel.checkpoint()
        self._feed, self._seen = self._feeds(), 0
        self._feed.join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TaskRecord[P_co]:
        """Wait for another record than the last one returned.

        Raises `ResultUnavailable` if the task is not known, or no longer, `StoreClosed`, `EngineError`.
        Cancellation: nothing is missed; the record comes next time.
        """
        feed = self._feed
        if feed is None:
            raise RuntimeError("write `async with queue.follow(...) as changes:`, and read inside that block")
        await anyio.lowlevel.checkpoint()
        while True:
            if feed.version != self._seen and feed.record is not None:
                self._seen = feed.version
                return self._read(feed.record, feed.kin)
            if feed.error is not None:
                raise feed.error()
            if feed.over:
                raise StopAsyncIteration
            await feed.followers.wait(feed.followers.join(None))
