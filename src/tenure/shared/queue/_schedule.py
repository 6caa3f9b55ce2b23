"""The schedule: a task at each tick, put once on record, by whichever process is first."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, tzinfo
from math import inf, nextafter
from typing import Any, Generic, Literal, NamedTuple, Unpack, cast

import anyio

from tenure.arguments import LONGEST, LONGEST_NAME, check_seconds, check_text, shows_options
from tenure.engine import Hint, SessionItem
from tenure.errors import CursorConflict, OutcomeUnknown, StoreClosed
from tenure.store import Session, decoded, read_counts
from tenure.waiting import Line

from ._as_json import readable
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

_PAUSED = 5.0
"""Seconds: a schedule that is paused is looked at so often."""

LARGEST_PAYLOAD = 4096
"""Bytes: a larger payload is not stored with the schedule, since all cursors are read whenever a queue is counted."""

_LATE = 60.0
"""Seconds: a tick that is put later than this was missed."""

Missed = Literal["one", "all", "skip"]


class State(NamedTuple):
    """The state of a schedule on the engine: the cursor, the last `tick` in it (None without one), whether it is
    paused, and the engine's time.
    """

    cursor: StoredCursor | None
    tick: float | None
    paused: bool
    now: float


class Alarm:
    """Sleeps until a moment comes or the store closes, whichever is first; it listens for that alone."""

    def __init__(self) -> None:
        self._line: Line[None, None] = Line(lambda _: None)

    async def sleep(self, seconds: float) -> None:
        """Raises `StoreClosed`."""
        with anyio.move_on_after(seconds):
            await self._line.wait(self._line.join(None))

    def on_hint(self, hint: Hint) -> None:
        pass

    def on_found(self, session: Session, item: SessionItem) -> None:
        pass

    def ring(self) -> None:
        """End the sleep. Synchronous."""
        for waiter in self._line:
            self._line.grant(waiter, None)

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

    There are no ticks before `start` and after `end`, which are times (in `tz`, if they have no zone). `jitter` delays
    the task of each tick by up to so many seconds, at random. The `meta` says, as `late`, how many seconds after its
    tick the task was put.

    The queue's cursor describes the schedule for `Schedules`, which lists, pauses, resumes and removes it from any
    process; a schedule that is kept there, and in no program, is put by `Schedules.run`.

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
        start: datetime | None = None,
        end: datetime | None = None,
        jitter: float = 0.0,
        **options: Unpack[PutOptions],
    ) -> None:
        check_queue(queue)
        if missed not in ("one", "all", "skip"):
            raise ValueError(f"missed must be 'one', 'all' or 'skip', not {missed!r}")
        self.name: str = check_text("name", name, most=LONGEST_NAME - len(CURSOR))
        self.queue = queue
        self.missed: Missed = missed
        self._ticks = ticks(every, cron, tz)
        zone = self._ticks.zone
        self._start, self._end = _moment("start", start, zone, -inf), _moment("end", end, zone, inf)
        if self._end < self._start:
            raise ValueError(f"end must not be before start, {start}, and is {end}")
        self._jitter = check_seconds("jitter", jitter)
        self.kept_in_store: bool = False
        """True if it is one of the schedules of `Schedules.run`. For the schedules alone."""
        check_options(options)
        self._payload = cast("P", payload)
        self._options = options
        self._cursor = CURSOR + self.name
        store = queue.store
        self._alarm = store.listen(store.key("schedule", f"{queue.name}/{name}"), Alarm)
        self._scope: anyio.CancelScope | None = None
        self._drained = False
        # what would fail at each tick fails here
        encoded = new_task(queue, self._payload, **self._options_of(0.5, LONGEST)).payload
        self._description = self._described(encoded)

    def __repr__(self) -> str:
        ticks = {**self._ticks.described(), "tz": str(self._ticks.zone)}
        said = " ".join(f"{name}={value!r}" for name, value in ticks.items())
        state = "drained" if self._drained else "idle" if self._scope is None else "running"
        return f"<Schedule {self.name!r} of {self.queue.name!r} {said} {state}>"

    @property
    def unready(self) -> str | None:
        """The reason why the schedule cannot put tasks, as of its store, in words; None if it can."""
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
                        if (seconds := await self.step()) > 0:
                            await self._alarm.sleep(seconds)
        finally:
            self._scope = None

    async def drain(self) -> None:
        """End `run` at once: it leaves nothing half done. Cancellation: it ends all the same."""
        self._drained = True
        if self._scope is not None:
            self._scope.cancel("drained")

    async def next(self) -> datetime | None:
        """The time of the next tick, in the schedule's time zone, by the engine's clock; None after its `end`.

        It is the same while the schedule is paused. Raises `StoreClosed`, `EngineError`.
        """
        state = await self._look(patient=False)
        after = state.now if state.tick is None else max(state.now, state.tick)
        tick = self._coming(after)
        return None if tick is None else datetime.fromtimestamp(tick, self._ticks.zone)

    async def run_now(self) -> int:
        """Put a task at once, beside the tasks of the ticks, and return its id. Raises what `put` raises.

        Cancellation: as with `WorkQueue.put`.
        """
        return await self.queue.put(
            self._payload, **self._options_of((await self._look(patient=False)).now, 0.0)
        )

    # for the schedules

    async def step(self, state: State | None = None) -> float:
        """Put a tick that is due; return the seconds after which to look again. For the schedules alone.

        Without a state, it is read anew. Raises `CursorConflict`, `OutcomeUnknown` and what `run` raises.
        """
        state = state or await self._look()
        if state.tick is None:
            await self._put(None, state.now, state)
            return 0.0
        if state.paused:
            return _PAUSED
        coming = self._coming(state.tick)
        if coming is None:
            if self.kept_in_store:  # it says nothing any longer
                await self.queue.put_many([], cursor=(self._cursor, NOTHING), expected=state.cursor)
            return _PERIOD
        wait = coming - state.now
        if wait > 0:
            return wait + _SPREAD * random.random() if wait <= _NEAR else min(wait - _NEAR, _PERIOD)
        tick = coming
        if self.missed != "all":
            tick = max(coming, self._ticks.last(min(state.now, self._end)))
        late = state.now - tick
        skipped = self.missed == "skip" and late > _LATE
        item = None if skipped else Item(self._payload, **self._options_of(tick, late))
        await self._put(item, tick, state)
        return 0.0

    def document(self, tick: float, *, paused: bool) -> dict[str, Any]:
        """The value of the cursor. For the schedules alone."""
        kept: dict[str, Any] = {"kept": True} if self.kept_in_store else {}
        return {"tick": tick, **self._description, **kept, **({"paused": True} if paused else {})}

    # inside

    async def _look(self, *, patient: bool = True) -> State:
        counts = await read_counts(self.queue.store, self.queue.key, patient=patient)
        stored = dict(counts.cursors).get(self._cursor)
        if stored is None:
            return State(None, None, False, counts.now)
        cursor = decoded(self.queue.store.codec, f"{self.queue.key}: the cursor {self._cursor!r}", stored)
        return State(StoredCursor(stored), cursor["tick"], bool(cursor.get("paused")), counts.now)

    def _coming(self, moment: float) -> float | None:
        """The first tick after a moment, or None if it has none."""
        # a tick at the start counts
        tick = next(self._ticks.after(max(moment, nextafter(self._start, -inf))))
        return tick if tick <= self._end else None

    async def _put(self, item: Item[P] | None, tick: float, state: State) -> None:
        await self.queue.put_many(
            [] if item is None else [item],
            cursor=(self._cursor, self.document(tick, paused=state.paused)),
            expected=state.cursor,
        )

    def _described(self, payload: bytes) -> dict[str, Any]:
        """The description of the schedule in the cursor, beside its state; defaults are left out."""
        said: dict[str, Any] = {**self._ticks.described(), "tz": str(self._ticks.zone)}
        if self.missed != "one":
            said["missed"] = self.missed
        limits = {"start": self._start, "end": self._end}
        said |= {name: moment for name, moment in limits.items() if abs(moment) != inf}
        if self._jitter:
            said["jitter"] = self._jitter
        if self._payload is not None and len(payload) <= LARGEST_PAYLOAD:
            said |= readable("payload", payload)
        options = {name: value for name, value in self._options.items() if is_plain(value)}
        return {**said, **({"options": options} if options else {})}

    def _options_of(self, tick: float, late: float) -> PutOptions:
        when = datetime.fromtimestamp(tick, self._ticks.zone).isoformat()
        meta = {
            **(self._options.get("meta") or {}),
            "scheduled_for": when,
            "schedule": self.name,
            "late": f"{late:.3f}",
        }
        if not self._jitter:
            return {**self._options, "meta": meta}
        delay = self._options.get("delay", 0.0) + self._jitter * random.random()
        return {**self._options, "meta": meta, "delay": delay}


NOTHING = StoredCursor()
"""The value that removes a cursor."""


def is_plain(option: object) -> bool:
    """True if an option of a put can be kept in a cursor as it is: a number, a text, or a mapping of texts."""
    if isinstance(option, Mapping):
        texts = cast("Mapping[object, object]", option)
        return all(isinstance(text, str) for pair in texts.items() for text in pair)
    return option is not None and isinstance(option, (str, int, float))


def _moment(name: str, time: object, zone: tzinfo, without: float) -> float:
    if time is None:
        return without
    if not isinstance(time, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(time).__name__}")
    return (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
