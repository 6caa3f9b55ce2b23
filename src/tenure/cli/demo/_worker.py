"""A worker of `tenure demo`: a process that delivers letters, writes the ledger in its turn, and may be postmaster."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import anyio
import anyio.to_thread

from tenure.cli._parent import parent_ended
from tenure.engines import open_store
from tenure.errors import CursorConflict, LeaseLost
from tenure.shared import Election, Lease, Lock, Task, Term, Worker, WorkQueue
from tenure.store import Store
from tenure.upkeep import unwrapped_task_group

from ._books import DemoLog

TTL = 2.0
"""Seconds after which what a killed worker had goes to others."""

LETTERS, LEDGER, POSTMASTER = "letters", "ledger", "postmaster"
SENT, CLOSED = "sent", "closed"
"""Cursor of the queue: the number of the last letter, or that and this word when there will be no more."""

_FILE = "demo.db"
_LEDGER_LINES = 6
_LONGEST_DELIVERY = 0.8
_WAITING = 20
"""As many letters as there are while the postmaster keeps up."""


class Post(NamedTuple):
    """The places of a demo: a store in a folder of its own, its queue, and the records of its workers."""

    store: Store
    queue: WorkQueue[int]
    log: DemoLog


def open_post(folder: Path) -> Store:
    """The store of a demo, to be entered."""
    return open_store(f"sqlite:///{(folder / _FILE).absolute()}", ttl=TTL)


def post_in(store: Store, folder: Path) -> Post:
    """The objects of a demo in an open store."""
    return Post(store, WorkQueue[int](store, LETTERS), DemoLog(folder / _FILE))


async def work(folder: Path, name: str, parent: int) -> None:
    """Work until the process that has started this one has ended. Cancellation: as that end."""
    async with open_post(folder) as store, unwrapped_task_group() as group:
        worker = _DemoWorker(post_in(store, folder), name)
        for job in (worker.deliver_letters, worker.keep_ledger, worker.be_postmaster):
            group.start_soon(job)
        await parent_ended(parent)
        group.cancel_scope.cancel()


class _DemoWorker:
    def __init__(self, post: Post, name: str) -> None:
        self._post = post
        self._name = name

    async def deliver_letters(self) -> None:
        """Handle two letters at a time."""
        await Worker(self._post.queue, self._deliver, concurrency=2).run()

    def _deliver(self, task: Task[int]) -> None:
        time.sleep(random.uniform(0.1, _LONGEST_DELIVERY))
        self._post.log.deliver(task, self._name)

    async def keep_ledger(self) -> None:
        """Write some lines whenever it is this worker's turn."""
        lock = Lock(self._post.store, LEDGER)
        while True:
            with suppress(LeaseLost):
                async with lock as lease:
                    await anyio.to_thread.run_sync(self._write_lines, lease)
            await anyio.sleep(random.random())

    def _write_lines(self, lease: Lease) -> None:
        # it does not ask whether the lease is lost: a late write is refused
        for _ in range(_LEDGER_LINES):
            time.sleep(0.2)
            if not self._post.log.write_line(lease, self._name):
                return

    async def be_postmaster(self) -> None:
        """Put letters, while this worker leads."""
        await Election(self._post.store, POSTMASTER, node=self._name).lead(self._put_letters)

    async def _put_letters(self, term: Term) -> None:
        queue = self._post.queue
        while True:
            sent: Any = (await queue.cursors()).get(SENT)
            first = 1 if sent is None else sent + 1 if isinstance(sent, int) else None
            room = _WAITING - (await queue.statistics()).waiting
            if first is not None and room > 0:
                term.check()
                letters = range(first, first + room)
                # the letters and the number of the last one are stored together, or not at all
                with suppress(CursorConflict):
                    await queue.put_many(letters, cursor=(SENT, letters[-1]), expected=sent)
            await anyio.sleep(0.3)


async def close_counter(queue: WorkQueue[int]) -> int:
    """Let no worker put another letter; returns how many were put. Cancellation: they may or may not go on."""
    while True:
        sent: Any = (await queue.cursors()).get(SENT)
        if isinstance(sent, list):
            return int(cast("list[Any]", sent)[0])
        with suppress(CursorConflict):
            await queue.put_many([], cursor=(SENT, [sent or 0, CLOSED]), expected=sent)
