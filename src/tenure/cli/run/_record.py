"""The record of a run beside its tasks: its plan, and the queue that its tasks are in.

A run that is started anew gets a queue of its own, of the next generation, so that nothing late can spoil it. The
record stands among the cursors of the first generation's queue, and only the holder of the run's lock changes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from tenure.cli._arguments import Options
from tenure.cli._errors import UsageError
from tenure.errors import AcquireTimeout
from tenure.shared import Keep, Lock, Retry, WorkQueue
from tenure.store import Store

from ._plan import Plan, same_work

_CURSOR = "run"
_ALL = ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class RunEntry:
    plan: Plan
    generation: int = 1
    purged: int = 1


class Record:
    def __init__(self, store: Store, name: str, options: Options) -> None:
        self.name = name
        self._store = store
        self._options = options
        self._first = self.queue(1)

    def queue(self, generation: int) -> WorkQueue:
        options = self._options
        return WorkQueue(
            self._store,
            f"run:{self.name}" if generation == 1 else f"run:{self.name}:{generation}",
            max_size=options.queue_size,
            retry=Retry(attempts=options.retries),
            max_deliveries=options.max_deliveries,
            keep=Keep(results=None, payloads=True),
        )

    def lock(self) -> Lock:
        return Lock(self._store, f"run:{self.name}")

    async def read(self) -> RunEntry | None:
        value: dict[str, Any] | None = (await self._first.cursors()).get(_CURSOR)
        return None if value is None else RunEntry(**value)

    async def begin(self, plan: Plan, *, fresh: bool, timeout: float) -> RunEntry:
        """Make the entry of a run that is new, or shall be `fresh`; if another process just did, return its entry.

        Raises `UsageError` if that has other work, or if a run to be fresh is under way for longer than `timeout`
        seconds.
        """
        entry = RunEntry(plan)
        try:
            async with self.lock().hold(timeout=timeout if fresh else None):
                entry = await self._begin(plan, fresh=fresh)
        except AcquireTimeout:
            raise UsageError(
                f"run {self.name} is under way elsewhere ({await self._holder()}); stop it before --fresh"
            ) from None
        check_same(self.name, entry.plan, plan)
        return entry

    async def purge_old(self, entry: RunEntry) -> None:
        """Delete the tasks of former generations. Cancellation: some are left, and purged the next time."""
        for generation in range(entry.purged, entry.generation):
            await self.queue(generation).purge(*_ALL)
            entry = replace(entry, purged=generation + 1)
            await self._write(entry)

    async def _begin(self, plan: Plan, *, fresh: bool) -> RunEntry:
        entry = await self.read()
        if entry is None:
            entry = RunEntry(plan)
        elif fresh:
            entry = RunEntry(plan, entry.generation + 1, entry.purged)
        else:  # another process was faster
            return entry
        await self._write(entry)
        return entry

    async def _write(self, entry: RunEntry) -> None:
        await self._first.put_many([], cursor=(_CURSOR, asdict(entry)))

    async def _holder(self) -> str:
        holders = (await self.lock().holders().page(limit=1)).records
        return holders[0].process if holders else "until a moment ago"


def check_same(name: str, recorded: Plan, plan: Plan) -> None:
    if not same_work(recorded, plan):
        raise UsageError(
            f"run {name} has another handler or other inputs ({_spoken(recorded)});"
            " use another --run, or --fresh to start it anew"
        )


def _spoken(plan: Plan) -> str:
    inputs: list[str] = plan.get("inputs") or plan["from"]
    return f"{plan['handler']} over {', '.join(inputs[:3])}{', ...' if len(inputs) > 3 else ''}"
