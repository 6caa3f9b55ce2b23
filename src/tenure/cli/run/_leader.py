"""The leader: the process that reads the input and writes the results, and holds the run's lock for that.

When it dies, the next in the line takes over where the store says that it stood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from tenure.cli._errors import Interrupted, UsageError
from tenure.cli._stop import Stop
from tenure.errors import CursorConflict, LeaseLost, OutcomeUnknown
from tenure.shared import Lease, WorkQueue
from tenure.upkeep import unwrapped_task_group

from ._crew import Workers
from ._plan import InputSource
from ._record import Record
from ._results import Results

T = TypeVar("T")
Args = TypeVarTuple("Args")

INPUT = "input"
"""The cursor of the input: how far it was read."""


class RunLeader:
    def __init__(
        self,
        record: Record,
        generation: int,
        source: InputSource,
        results: Results | None,
        workers: Workers,
        stop: Stop,
        say: Callable[[str], object],
    ) -> None:
        self.leads = self.finished = False
        self._record = record
        self._generation = generation
        self._queue: WorkQueue = record.queue(generation)
        self._source = source
        self._results = results
        self._workers = workers
        self._stop = stop
        self._say = say

    async def see_through(self) -> None:
        """Wait for the lead and lead, until the run is finished or a stop is requested.

        Raises `UsageError` for input that cannot be used, `Interrupted` if the run was started anew elsewhere or its
        results cannot be written, `OSError` for an input that cannot be read.
        Cancellation: the next process goes on from the records.
        """
        await self._name_the_leader()
        while not (self.finished or self._stop.asked):
            with self._stop.ends() as scope:
                try:
                    async with self._record.lock() as lease:
                        self._stop.spare(scope)
                        self.leads = True
                        await self._lead(lease)
                except* (LeaseLost, OutcomeUnknown, CursorConflict):
                    pass  # this process was out of touch for too long, and another may lead; it lines up again
                finally:
                    self.leads = False

    async def _name_the_leader(self) -> None:
        holders = (await self._record.lock().holders().page(limit=1)).records
        if holders:
            leader, ttl = holders[0].process, self._queue.store.ttl
            self._say(
                f"{leader} leads the run; this process works too, and leads when that one"
                f" ends or has been dead for {ttl:g} s"
            )

    async def _lead(self, lease: Lease) -> None:
        entry = await self._record.read()
        if entry is None or entry.generation != self._generation:
            raise Interrupted(f"run {self._record.name} was started anew by another process; this one stops")
        await self._record.purge_old(entry)
        over, complete = anyio.Event(), False
        async with unwrapped_task_group() as group:
            if self._results is not None:
                group.start_soon(self._results.follow, self._queue, lease, over)
            with self._stop.ends():
                await self._feed()
                await self._queue.join()
                complete = True
            await self._workers.drain()
            over.set()
        self.finished = complete

    async def _feed(self) -> None:
        """Put the input, portion by portion, each together with the position after it.

        Raises `CursorConflict` if another process has put from the same position: a lock that is lost without being
        noticed puts nothing twice.
        """
        position = (await self._queue.cursors()).get(INPUT)
        if position is not None and not self._source.has_more(position):
            return
        try:
            await self._in_thread(self._source.open, position)
            while True:
                portion = await self._in_thread(self._source.read)
                after = (INPUT, portion.position)
                try:
                    await self._queue.put_many(portion.items, cursor=after, expected=position)
                except ValueError as problem:
                    raise UsageError(
                        f"an input cannot be stored ({problem}); correct it and use --fresh"
                    ) from problem
                position = portion.position
                if position["end"]:
                    return
        finally:
            self._source.close()

    async def _in_thread(self, function: Callable[[*Args], T], *args: *Args) -> T:
        return await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=self._source.may_wait)
