# pyright: reportPrivateUsage=false
from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice, takewhile
from math import inf, nextafter
from typing import Any, Generic, Literal, NamedTuple, Protocol, Unpack, cast, overload

import anyio

import tenure.engine as e
from tenure.arguments import LONGEST, LONGEST_NAME, Seconds, check_seconds, check_text, shows_options
from tenure.errors import CursorConflict, OutcomeUnknown, StoreClosed
from tenure.store import Codec, Session, decoded, handle_of, read_counts
from tenure.waiting import Line

from ._as_json import bytes_of, readable
from ._children import Target, TargetQueue
from ._keys import Key
from ._new_task import new_task
from ._options import Item, PutOptions, TickOptions, check_options
from ._payload import P
from ._portions import StoredCursor
from ._ticks import Ticks, ticks

CURSOR = "schedule/"
"""The prefix of a schedule's cursor in the queue, before its name."""

_NEAR = 5.0
"""Seconds before a tick at which the engine's clock is read again."""
_PERIOD = 300.0
"""Seconds between two readings at most: the clock may be set, and this machine suspended."""
_SPREAD = 0.02
"""Seconds: processes wake one after the other, so that most see that the tick was put, and do not write too."""

_PAUSED = 5.0
"""Seconds between two looks at a schedule that is paused."""

LARGEST_PAYLOAD = 4096
"""Bytes: a larger payload is not stored with the schedule, since all cursors are read whenever a queue is counted."""

_LATE = 60.0
"""Seconds: a tick that is put later than this was missed."""

Missed = Literal["one", "all", "skip"]


class ScheduleOptions(TickOptions, total=False):
    """The options of a schedule, and of the puts of its tasks."""

    tz: str
    """The time zone of `cron`, `start` and `end`. "UTC" by default."""
    missed: Missed
    """The effect of missed ticks. "one" by default."""
    start: datetime | None
    """There are no ticks before."""
    end: datetime | None
    """There are no ticks after."""
    jitter: Seconds
    """Seconds by which the task of each tick is delayed at most, at random. 0 by default."""


class ScheduledQueue(TargetQueue, Protocol[P]):
    name: str
    codec: Codec[P]

    @property
    def put(self) -> Callable[..., Awaitable[int]]: ...

    @property
    def put_many(self) -> Callable[..., Awaitable[Any]]: ...


class ScheduleState(NamedTuple):
    cursor: StoredCursor | None
    tick: float | None
    paused: bool
    now: float


class Alarm:
    def __init__(self) -> None:
        self._line: Line[None, None] = Line(owner="a run of a schedule or of figures")

    async def sleep(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._line.wait(self._line.join(None))

    def on_hint(self, hint: e.Hint) -> None:
        pass

    def on_found(self, session: Session, item: e.SessionItem) -> None:
        pass

    def ring(self) -> None:
        for waiter in self._line:
            self._line.grant(waiter, None)

    def close(self) -> None:
        self._line.fail_all(lambda: StoreClosed("the store was closed"))


class Schedule(Generic[P]):
    """A task at each tick, put once on record by whichever process is first.

        nightly = Schedule(queue, "nightly", cron="30 2 * * *", tz="Europe/Berlin", key="nightly")
        await nightly.run()  # in every process

    - `every`: seconds; ticks are the multiples since 1970, in UTC.
    - `cron`: five fields, six with the seconds first, or a name such as "@daily", in `tz`; needs `tenure[cron]`.
    - `missed`, for ticks that could not be put when they came: "one" puts the latest, "all" each, "skip" none that
      is more than a minute late.
    - `start`, `end`: there are no ticks before and after.
    - `jitter` delays each task by up to so many seconds, at random.
    - `payload` and others are as of `put`. With a `key`, a tick puts nothing while the task of an earlier tick is
      unfinished, unless its `Key` says else.

    The `meta` of a task has `scheduled_for`, `schedule` and `late`. Raises `TypeError`, `ValueError`,
    `PayloadTooLarge`, and the errors of the codec.

    Source: one row for each tick, unique, as in procrastinate and Oban.
    """

    queue: ScheduledQueue[P]
    name: str
    every: float | None
    cron: str | None
    tz: str
    missed: Missed
    start: datetime | None
    end: datetime | None
    jitter: float
    payload: P | None
    options: Mapping[str, Any]
    tick: float | None
    now: float
    paused: bool
    kept_in_store: bool
    _scope: anyio.CancelScope | None = None
    _drained: bool = False
    _encoded: bytes

    @overload
    def __init__(
        self,
        queue: ScheduledQueue[P],
        name: str,
        *,
        every: Seconds,
        payload: P | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        queue: ScheduledQueue[P],
        name: str,
        *,
        cron: str,
        payload: P | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None: ...
    @shows_options(ScheduleOptions, priority=0, delay=0.0, tz="UTC", missed="one", jitter=0.0)
    def __init__(
        self,
        queue: ScheduledQueue[P],
        name: str,
        *,
        every: Seconds | None = None,
        cron: str | None = None,
        payload: P | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        if not isinstance(queue, Target) or queue._place is not queue:
            raise TypeError(f"queue must be a WorkQueue, not {type(queue).__name__}")
        name = check_text("name", name, most=LONGEST_NAME - len(CURSOR))
        missed = options.get("missed", "one")
        if missed not in ("one", "all", "skip"):
            raise ValueError(f"missed must be 'one', 'all' or 'skip', not {missed!r}")
        due = ticks(every, cron, options.get("tz", "UTC"))
        said: dict[str, Any] = {**due.described(), "tz": str(due.zone), "missed": missed}
        for limit in ("start", "end"):
            if (time := options.get(limit)) is not None:
                said[limit] = _moment(limit, time, due)
        if said.get("end", inf) < said.get("start", -inf):
            raise ValueError(
                f"end must not be before start, {options.get('start')}, and is {options.get('end')}"
            )
        said["jitter"] = check_seconds("jitter", options.get("jitter", 0.0))
        check_options(options, ScheduleOptions, "a schedule")
        put = {option: value for option, value in options.items() if option in TickOptions.__annotations__}
        self._set(queue, name, said, 0.0)
        self.payload, self.options = payload, put
        self._encoded = self._check()

    def _set(self, queue: ScheduledQueue[P], name: str, said: Mapping[str, Any], now: float) -> None:
        self.queue, self.name = queue, name
        self.every, self.cron, self.tz = said.get("every"), said.get("cron"), said["tz"]
        self.missed, self.jitter = said.get("missed", "one"), said.get("jitter", 0.0)
        self.start, self.end = (
            None if (time := said.get(limit)) is None else datetime.fromtimestamp(time, UTC)
            for limit in ("start", "end")
        )
        self.payload, self.options = None, dict(said.get("options", {}))
        if isinstance(key := self.options.get("key"), Mapping):
            self.options["key"] = Key(**cast("dict[str, Any]", key))
        self.tick, self.now = said.get("tick"), now
        self.paused, self.kept_in_store = bool(said.get("paused")), bool(said.get("kept"))

    @classmethod
    def _on_record(
        cls, queue: ScheduledQueue[P], name: str, cursor: object, now: float, payloads: Codec[P]
    ) -> Schedule[P] | None:
        match cursor:
            case {"tick": float() | int(), "tz": str(), "every": float() | int()}:
                pass
            case {"tick": float() | int(), "tz": str(), "cron": str()}:
                pass
            case _:
                return None  # encoded by another codec
        said, schedule = cast("dict[str, Any]", cursor), cls.__new__(cls)
        schedule._set(queue, name, said, now)
        schedule._encoded = bytes_of("payload", said)
        schedule.payload = _read(payloads, name, schedule._encoded) if schedule._encoded else None
        return schedule

    def __repr__(self) -> str:
        ticks = f"every={self.every!r}" if self.cron is None else f"cron={self.cron!r}"
        state = "drained" if self._drained else "idle" if self._scope is None else "running"
        return f"<Schedule {self.name!r} of {self.queue.name!r} {ticks} tz={self.tz!r} {state}>"

    @property
    def unready(self) -> str | None:
        """The reason why the schedule cannot put tasks, as of its store, in words; None if it can."""
        return self.queue.store.unready

    async def run(self) -> None:
        """Put a task at each tick, until cancelled or drained; waits in line while the queue is full.

        Raises `StoreClosed`, `EngineError`; `RuntimeError` if it runs already, or was drained.
        Cancellation: the task of a tick may or may not be put; if not, another process puts it, or the next run.
        """
        if self._scope is not None:
            raise RuntimeError(f"{self!r}: runs already")
        store = handle_of(self.queue.store)
        alarm = store.listen(store.key("schedule", f"{self.queue.name}/{self.name}"), Alarm)
        try:
            with anyio.CancelScope() as self._scope:
                while not self._drained:
                    # another process was first, or perhaps this one: the cursor says so
                    with suppress(CursorConflict, OutcomeUnknown):
                        if (seconds := await self._step()) > 0:
                            await alarm.sleep(seconds)
        finally:
            self._scope = None

    async def drain(self) -> None:
        """End `run` at once: it leaves nothing half done. Cancellation: it ends all the same."""
        if self._scope is not None:
            handle_of(self.queue.store).home.check()
        self._drained = True
        if self._scope is not None:
            self._scope.cancel("drained")

    async def next(self) -> datetime | None:
        """The time of the next tick, in the schedule's time zone, by the engine's clock; None after its `end`.

        It is the same while the schedule is paused. Raises `StoreClosed`, `EngineError`.
        """
        state = await self._look(patient=False)
        after = state.now if state.tick is None else max(state.now, state.tick)
        return self._time(next(self._after(after), None))

    async def run_now(self) -> int:
        """Put a task at once, beside the tasks of the ticks, and return its id. Raises what `put` raises.

        Cancellation: as with `WorkQueue.put`.
        """
        now = (await self._look(patient=False)).now
        return await self.queue.put(cast("P", self.payload), **self._options_of(now, 0.0))

    # as it is on record

    def last(self) -> datetime | None:
        """The last tick; None if it has just begun. Raises `ModuleNotFoundError` without `tenure[cron]`."""
        has_ticked = self.tick is not None and self._ticks.last(self.tick) == self.tick
        return self._time(self.tick) if has_ticked else None

    def coming(self, count: int = 1) -> list[datetime]:
        """The next ticks, in the time zone of the schedule, fewer before its `end`. Raises as `last` does."""
        times = islice(self._after(max(self.tick or 0.0, self.now)), count)
        return [datetime.fromtimestamp(time, self._ticks.zone) for time in times]

    def late(self) -> float:
        """Seconds since the oldest tick that was not put was due; 0 if there is none. Raises as `last` does."""
        tick = next(self._after(self.tick or 0.0), inf)
        return 0.0 if self.paused else max(0.0, self.now - tick)

    # for the schedules

    def _check(self) -> bytes:
        return new_task(self.queue, cast("P", self.payload), **self._options_of(0.5, LONGEST)).payload

    async def _step(self, state: ScheduleState | None = None) -> float:
        state = state or await self._look()
        if state.tick is None:
            await self._put(None, state.now, state)
            return 0.0
        if state.paused:
            return _PAUSED
        coming = next(self._after(state.tick), None)
        if coming is None:
            if self.kept_in_store:  # it says nothing any longer
                await self.queue.put_many([], cursor=(CURSOR + self.name, NOTHING), expected=state.cursor)
            return _PERIOD
        wait = coming - state.now
        if wait > 0:
            return wait + _SPREAD * random.random() if wait <= _NEAR else min(wait - _NEAR, _PERIOD)
        tick = coming
        if self.missed != "all":
            end = inf if self.end is None else self.end.timestamp()
            tick = max(coming, self._ticks.last(min(state.now, end)))
        late = state.now - tick
        skipped = self.missed == "skip" and late > _LATE
        item = None if skipped else Item(cast("P", self.payload), **self._options_of(tick, late))
        await self._put(item, tick, state)
        return 0.0

    def _document(self, tick: float, *, paused: bool) -> dict[str, Any]:
        said: dict[str, Any] = {"tick": tick, **self._ticks.described(), "tz": self.tz}
        if self.missed != "one":
            said["missed"] = self.missed
        limits = {"start": self.start, "end": self.end}
        said |= {name: time.timestamp() for name, time in limits.items() if time is not None}
        if self.jitter:
            said["jitter"] = self.jitter
        if self.payload is not None and len(self._encoded) <= LARGEST_PAYLOAD:
            said |= readable("payload", self._encoded)
        options = {name: kept for name, value in self.options.items() if (kept := plain(value)) is not None}
        flags = {"options": options, "kept": self.kept_in_store, "paused": paused}
        return {**said, **{name: value for name, value in flags.items() if value}}

    # inside

    @cached_property
    def _ticks(self) -> Ticks:
        return ticks(self.every, self.cron, self.tz)

    def _time(self, tick: float | None) -> datetime | None:
        return None if tick is None else datetime.fromtimestamp(tick, self._ticks.zone)

    def _after(self, moment: float) -> Iterator[float]:
        # a tick at the start counts
        start = -inf if self.start is None else nextafter(self.start.timestamp(), -inf)
        end = inf if self.end is None else self.end.timestamp()
        return takewhile(lambda time: time <= end, self._ticks.after(max(moment, start)))

    async def _look(self, *, patient: bool = True) -> ScheduleState:
        counts = await read_counts(handle_of(self.queue.store), self.queue.key, patient=patient)
        stored = dict(counts.cursors).get(CURSOR + self.name)
        if stored is None:
            return ScheduleState(None, None, False, counts.now)
        cursor = decoded(self.queue.store.codec, f"{self.queue.key}: {CURSOR + self.name}", stored)
        return ScheduleState(StoredCursor(stored), cursor["tick"], bool(cursor.get("paused")), counts.now)

    async def _put(self, item: Item[P] | None, tick: float, state: ScheduleState) -> None:
        await self.queue.put_many(
            [] if item is None else [item],
            cursor=(CURSOR + self.name, self._document(tick, paused=state.paused)),
            expected=state.cursor,
        )

    def _options_of(self, tick: float, late: float) -> PutOptions:
        when = datetime.fromtimestamp(tick, self._ticks.zone).isoformat()
        meta: dict[str, str] = {
            **(self.options.get("meta") or {}),
            "scheduled_for": when,
            "schedule": self.name,
            "late": f"{late:.3f}",
        }
        options = cast("PutOptions", {**self.options, "meta": meta})
        if self.jitter:
            delay = check_seconds("delay", options.get("delay", 0.0))
            options["delay"] = delay + self.jitter * random.random()
        return options


NOTHING = StoredCursor()


def schedules_in(
    counts: e.QueueCounts,
    codec: Codec[Any],
    payloads: Codec[Any] | None = None,
    queue: ScheduledQueue[Any] | None = None,
) -> list[Schedule[Any]]:
    records = (
        Schedule._on_record(cast("Any", queue), name[len(CURSOR) :], cursor, counts.now, payloads or codec)
        for name, stored in counts.cursors
        if name.startswith(CURSOR) and (cursor := _read(codec, name, stored)) is not None
    )
    return [record for record in records if record is not None]


def plain(option: object) -> Any:
    if isinstance(option, timedelta):
        return option.total_seconds()
    if isinstance(option, Key):
        return {name: value for name, value in asdict(option).items() if value is not None}
    if isinstance(option, Mapping):
        texts = cast("Mapping[object, object]", option)
        return texts if all(isinstance(text, str) for pair in texts.items() for text in pair) else None
    return option if isinstance(option, (str, int, float)) else None


def _moment(name: str, time: object, due: Ticks) -> float:
    if not isinstance(time, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(time).__name__}")
    return (time if time.tzinfo else time.replace(tzinfo=due.zone)).timestamp()


def _read(codec: Codec[Any], name: str, data: bytes) -> Any:
    try:
        return decoded(codec, name, data)
    except ValueError:
        return None
