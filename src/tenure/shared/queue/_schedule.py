"""The schedule: a task at each tick, put once on record, by whichever process is first."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Unpack, cast

import anyio

from tenure.arguments import LONGEST_NAME, check_text, shows_options
from tenure.engine import Count, Hint, QueueCounts, SessionItem
from tenure.errors import CursorConflict, OutcomeUnknown, StoreClosed
from tenure.store import Session, decoded
from tenure.waiting import Line

from ._new_task import check_options, new_task
from ._options import Item, PutOptions
from ._payload import P
from ._portions import StoredCursor
from ._queue import WorkQueue, check_queue
from ._ticks import ticks

CURSOR = "schedule/"
"""The prefix of a schedule's cursor in the queue, before its name."""

_NEAR = 5.0
"""Seconds: the engine's clock is read again so long before a tick."""
_PERIOD = 300.0
"""Seconds: it is read so often at least, since it may be set, and this machine may be suspended."""
_SPREAD = 0.02
"""Seconds: processes wake one after the other, so that most see that the tick was put, and do not write too."""

_LATE = 60.0
"""Seconds: a tick that is put later than this was missed."""

Missed = Literal["one", "all", "skip"]


class _State(NamedTuple):
    """The state of a schedule on the engine: the cursor, the last `tick` in it (None without one), and the
    engine's time.
    """

    cursor: StoredCursor | None
    tick: float | None
    now: float


class _Alarm:
    """Sleeps until a moment comes or the store closes, whichever is first; it listens for that alone."""

    def __init__(self) -> None:
        self._line: Line[None, None] = Line(_nothing)

    async def sleep(self, seconds: float) -> None:
        """Raises `StoreClosed`."""
        with anyio.move_on_after(seconds):
            await self._line.wait(self._line.join(None))

    def on_hint(self, hint: Hint) -> None:
        pass

    def on_found(self, session: Session, item: SessionItem) -> None:
        pass

    def close(self) -> None:
        self._line.fail_all(lambda: StoreClosed("the store was closed"))


class Schedule(Generic[P]):
    """A task at each tick, `every` so many seconds or at the times of a `cron` expression in the time zone `tz`.

    `await schedule.run()` in every process: whichever is first at a tick puts the task, and it is put once on record.
    The queue has the latest tick as a cursor that is compared and set with each put, so that no process leads. Time is
    the engine's. Ticks of `every` are the multiples since 1970, in UTC. `cron` has five fields, or six with the seconds
    first, or is a name such as "@daily"; it needs `tenure[cron]`. Where the clocks of the zone change, it follows
    Debian's cron: a fixed time that is left out comes right after the gap, and a time that comes twice counts once.

    `missed` says what becomes of ticks that could not be put when they came, since no process ran or the engine was
    away: "one" puts a task for the latest of them, "all" one for each, "skip" none that is more than a minute late. A
    schedule begins when it is run for the first time. Its task has the `payload`; its `meta` has `scheduled_for`, the
    time of the tick in ISO 8601 (in `tz`), and `schedule`, the name. The other options are as of `put`. With a
    `key`, no task is put at a tick while the task of an earlier tick is unfinished, unless `on_duplicate` says else.

    To change the ticks, run the same name with others: they count from the last tick on. Two processes that run one
    name with different ticks both put theirs. Raises `TypeError` and `ValueError` for a wrong argument,
    `PayloadTooLarge`, and what the codec raises.

    Thread safety: none; belongs to the event loop of its store. Source: one row for each tick, unique, as in
    procrastinate and Oban; the cursor is that row.
    """

    @shows_options(PutOptions, priority=0, delay=0.0)
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
        **options: Unpack[PutOptions],
    ) -> None:
        check_queue(queue)
        if missed not in ("one", "all", "skip"):
            raise ValueError(f"missed must be 'one', 'all' or 'skip', not {missed!r}")
        self.name: str = check_text("name", name, most=LONGEST_NAME - len(CURSOR))
        self.queue = queue
        self.missed: Missed = missed
        self._ticks = ticks(every, cron, tz)
        check_options(options)
        self._payload = cast("P", payload)
        self._options = options
        self._cursor = CURSOR + self.name
        store = queue.store
        self._alarm = store.listen(store.key("schedule", f"{queue.name}/{name}"), _Alarm)
        self._scope: anyio.CancelScope | None = None
        self._drained = False
        # what would fail at each tick fails here
        new_task(queue, self._payload, **self._options_of(0.5))

    def __repr__(self) -> str:
        said = " ".join(f"{name}={value!r}" for name, value in self._described().items())
        state = "drained" if self._drained else "idle" if self._scope is None else "running"
        return f"<Schedule {self.name!r} of {self.queue.name!r} {said} {state}>"

    @property
    def ready(self) -> bool:
        """True if the store can be reached and has not lost its session, as far as this process knows."""
        return self.queue.store.ready

    @property
    def unready(self) -> str | None:
        """The reason why the schedule is not `ready`, in words; None if it is."""
        return self.queue.store.unready

    async def run(self) -> None:
        """Put a task at each tick, until cancelled or drained; waits in line while the queue is full.

        Raises `StoreClosed`, `EngineError`; `RuntimeError` if it runs already. A schedule that was drained does not run
        again.
        Cancellation: the task of a tick may or may not be put; if not, another process puts it, or the next run.
        """
        if self._scope is not None:
            raise RuntimeError(f"{self!r}: runs already")
        try:
            with anyio.CancelScope() as self._scope:
                while not self._drained:
                    # another process was first, or perhaps this one: the cursor says so
                    with suppress(CursorConflict, OutcomeUnknown):
                        await self._step()
        finally:
            self._scope = None

    async def drain(self) -> None:
        """End `run` at once: it leaves nothing half done. Cancellation: it ends all the same."""
        self._drained = True
        if self._scope is not None:
            self._scope.cancel("drained")

    async def next(self) -> datetime:
        """The time of the next tick, in the schedule's time zone, by the engine's clock.

        Raises `StoreClosed`, `EngineError`.
        """
        state = await self._look()
        after = state.now if state.tick is None else max(state.now, state.tick)
        return datetime.fromtimestamp(next(self._ticks.after(after)), self._ticks.zone)

    async def run_now(self) -> int:
        """Put a task at once, beside the tasks of the ticks, and return its id. Raises what `put` raises.

        Cancellation: as with `WorkQueue.put`.
        """
        return await self.queue.put(self._payload, **self._options_of((await self._look()).now))

    # inside

    async def _look(self) -> _State:
        counts = await self.queue.store.call(Count(self.queue.key))
        assert isinstance(counts, QueueCounts)
        stored = dict(counts.cursors).get(self._cursor)
        if stored is None:
            return _State(None, None, counts.now)
        cursor = decoded(self.queue.store.codec, f"{self.queue.key}: the cursor {self._cursor!r}", stored)
        return _State(StoredCursor(stored), cursor["tick"], counts.now)

    async def _step(self) -> None:
        """Put the ticks that are due, or wait for the next and return; time is read anew before anything is
        put.
        """
        state = await self._look()
        if state.tick is None:
            await self._put(None, state.now, None)
            return
        coming = next(self._ticks.after(state.tick))
        wait = coming - state.now
        if wait > 0:
            near = wait <= _NEAR
            await self._alarm.sleep(wait + _SPREAD * random.random() if near else min(wait - _NEAR, _PERIOD))
            return
        tick = coming if self.missed == "all" else max(coming, self._ticks.last(state.now))
        skipped = self.missed == "skip" and state.now - tick > _LATE
        item = None if skipped else Item(self._payload, **self._options_of(tick))
        await self._put(item, tick, state.cursor)

    async def _put(self, item: Item[P] | None, tick: float, before: StoredCursor | None) -> None:
        await self.queue.put_many(
            [] if item is None else [item],
            cursor=(self._cursor, {"tick": tick, **self._described()}),
            expected=before,
        )

    def _described(self) -> dict[str, Any]:
        return {**self._ticks.described(), "tz": str(self._ticks.zone)}

    def _options_of(self, tick: float) -> PutOptions:
        when = datetime.fromtimestamp(tick, self._ticks.zone).isoformat()
        meta = {**(self._options.get("meta") or {}), "scheduled_for": when, "schedule": self.name}
        return {**self._options, "meta": meta}


def _nothing(_: object) -> None:
    pass
