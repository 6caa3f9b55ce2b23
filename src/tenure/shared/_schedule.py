"""The schedule: a task at each tick, put once on record, by whichever process is first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, Generic, Literal, NamedTuple, cast

import anyio

from tenure.arguments import check_name
from tenure.engine import CAP, Count, QueueCounts
from tenure.errors import CursorConflict, OutcomeUnknown, StoreUnavailable

from ._payload import P
from ._queue import WorkQueue
from ._records import Item
from ._ticks import ticks

CURSOR = "schedule/"
"""Before the name of a schedule: its cursor in the queue."""

_NEAR = 5.0
"""Seconds: the engine's clock is read again so long before a tick."""
_PAUSE = 1.0

Missed = Literal["one", "all", "skip"]


class _State(NamedTuple):
    """What the engine has: the cursor, whose `tick` was put last, None if there is none; and its time."""

    cursor: dict[str, Any] | None
    now: float


class Schedule(Generic[P]):
    """A task at each tick, `every` so many seconds or at the times of a `cron` expression in the time zone `tz`.

    `await schedule.run()` in every process: whichever is first at a tick puts the task, and it is put once on record.
    The queue has the latest tick as a cursor that is compared and set with each put, so that no process leads. Time is
    the engine's. Ticks of `every` are the multiples since 1970, in UTC; at a change of summer time those of `cron` are
    as in Debian's cron: a fixed time that is left out comes right after the gap, one that comes twice counts once.
    Needs `tenure[cron]` for `cron`.

    `missed` says what becomes of ticks at whose time no process ran: "one" puts a task for the latest of them, "all"
    one for each, "skip" none. A schedule begins when it is run for the first time. Its task has the `payload`; its
    `meta` has `scheduled_for`, the time of the tick in ISO 8601 (in `tz`), and `schedule`, the name. With a `key`, no
    task is put at a tick while the one of an earlier tick is unfinished; `priority` and `group` are those of `put`.

    To change the ticks, run the same name with others: they count from the last tick on. Two processes that run one
    name with different ticks both put theirs. Raises `TypeError` and `ValueError` for a wrong argument.

    Thread safety: none; belongs to the event loop of its store. Source: one row for each tick, unique, as in
    procrastinate and Oban; the cursor is that row.
    """

    def __init__(
        self,
        queue: WorkQueue[P],
        name: str,
        *,
        every: float | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        missed: Missed = "one",
        payload: P | None = None,
        key: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> None:
        if missed not in ("one", "all", "skip"):
            raise ValueError(f"missed must be 'one', 'all' or 'skip', not {missed!r}")
        self.name = check_name("name", name)
        self.queue = queue
        self.missed: Missed = missed
        self._ticks = ticks(every, cron, tz)
        self._item = Item(cast("P", payload), priority, key=key, group=group)
        self._cursor = CURSOR + name
        self._running = False
        self._stop = anyio.Event()

    def __repr__(self) -> str:
        said = " ".join(f"{name}={value!r}" for name, value in self._ticks.described().items())
        return f"<Schedule {self.name!r} of {self.queue.name!r} {said}>"

    @property
    def ready(self) -> bool:
        """Whether its store can be reached and has not lost its session, as far as this process knows."""
        return self.queue.store.ready

    async def run(self) -> None:
        """Put a task at each tick, until cancelled or drained.

        Raises `StoreClosed`, `EngineError`, and what `put` raises for the payload; `RuntimeError` if it runs already.
        Cancellation: the task of a tick may or may not be put; if not, another process puts it, or the next run.
        """
        if self._running:
            raise RuntimeError(f"{self!r}: runs already")
        self._running = True
        try:
            began: float | None = None
            while not self._stop.is_set():
                try:
                    state = await self._look()
                    began = state.now if began is None else began
                    await self._go_on(state, began)
                except CursorConflict:
                    pass  # another process was first
                except (OutcomeUnknown, StoreUnavailable):
                    await self._sleep(_PAUSE)
        finally:
            self._running = False

    async def drain(self) -> None:
        """End `run`. Cancellation: it ends all the same."""
        self._stop.set()

    async def next(self) -> datetime:
        """When the next tick is, in the schedule's time zone, by the engine's clock.

        Raises `StoreClosed`, `EngineError`.
        """
        cursor, now = await self._look()
        after = now if cursor is None else max(now, cursor["tick"])
        return datetime.fromtimestamp(next(self._ticks.after(after)), self._ticks.zone)

    async def run_now(self) -> int:
        """Put a task at once, beside those of the ticks, and return its id. Raises what `put` raises.

        Cancellation: as with `WorkQueue.put`.
        """
        item = self._item_of((await self._look()).now)
        return await self.queue.put(
            item.payload, item.priority, key=item.key, meta=item.meta, group=item.group
        )

    # inside

    async def _look(self) -> _State:
        counts = await self.queue.store.call(Count(self.queue.key))
        assert isinstance(counts, QueueCounts)
        stored = dict(counts.cursors).get(self._cursor)
        return _State(None if stored is None else self.queue.store.codec.decode(stored), counts.now)

    async def _go_on(self, state: _State, began: float) -> None:
        """Wait for the next tick, and put what is due."""
        if state.cursor is None:
            await self._put([], state.now, None)
            return
        last: float = state.cursor["tick"]
        coming = next(self._ticks.after(last))
        wait = coming - state.now
        if wait > _NEAR:
            await self._sleep(wait - _NEAR)
            return
        if wait > 0 and await self._sleep(wait):
            return
        now = max(state.now, coming)
        newest = self._ticks.last(now)
        if self.missed == "all":
            due = islice(takewhile(lambda tick: tick <= now, self._ticks.after(last)), CAP)
        else:
            due = iter([] if self.missed == "skip" and newest <= began else [newest])
        await self._put(list(due), newest, state.cursor)

    async def _put(self, due: Sequence[float], newest: float, before: dict[str, Any] | None) -> None:
        tick = due[-1] if due else newest
        cursor = {"tick": tick, **self._ticks.described()}
        await self.queue.put_many(
            [self._item_of(one) for one in due], cursor=(self._cursor, cursor), expected=before
        )

    def _item_of(self, tick: float) -> Item[P]:
        when = datetime.fromtimestamp(tick, self._ticks.zone).isoformat()
        item, meta = self._item, {"scheduled_for": when, "schedule": self.name}
        return Item(item.payload, item.priority, key=item.key, meta=meta, group=item.group)

    async def _sleep(self, seconds: float) -> bool:
        """Sleep, unless it is drained; returns whether it is."""
        with anyio.move_on_after(seconds):
            await self._stop.wait()
        return self._stop.is_set()
