"""The schedules of a queue as their cursors describe them, for programs that do not run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from math import inf, nextafter
from typing import Any, cast

from tenure.engine import QueueCounts
from tenure.store import Codec, decoded

from ._as_json import bytes_of
from ._keys import Key
from ._options import PutOptions
from ._queue import WorkQueue
from ._schedule import CURSOR, Missed, Schedule
from ._ticks import Ticks, ticks


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule as the engine has it: its ticks are those with which it last ran, or was set.

    It comes `every` so many seconds or as `cron` says, in the time zone `tz`, between `start` and `end`. `tick` is its
    last tick, or when it began; `now` the engine's time. These four times are in seconds since 1970. `missed`,
    `jitter`, `payload` and `options` are what `Schedule` takes; a payload of more than 4 KiB is None. `paused`: its
    ticks put nothing. `kept_in_store`: it was set by `Schedules.set`; else the code of a program keeps it.
    """

    name: str
    every: float | None
    cron: str | None
    tz: str
    tick: float
    now: float
    missed: Missed = "one"
    start: float | None = None
    end: float | None = None
    jitter: float = 0.0
    payload: Any = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paused: bool = False
    kept_in_store: bool = False

    def last(self) -> datetime | None:
        """The last tick; None if it has just begun. Raises `ModuleNotFoundError` without `tenure[cron]`."""
        of = self._ticks()
        return datetime.fromtimestamp(self.tick, of.zone) if of.last(self.tick) == self.tick else None

    def coming(self, count: int = 1) -> list[datetime]:
        """The next ticks, fewer if it ends before. Raises as `last` does."""
        of = self._ticks()
        return [
            datetime.fromtimestamp(time, of.zone)
            for time in islice(self._after(of, max(self.tick, self.now)), count)
        ]

    def late(self) -> float:
        """Seconds since the oldest tick that was not put was due; 0 if there is none. Raises as `last` does."""
        tick = next(self._after(self._ticks(), self.tick), inf)
        return 0.0 if self.paused else max(0.0, self.now - tick)

    def schedule(self, queue: WorkQueue[Any], payload: Any = None) -> Schedule[Any]:
        """The schedule that it describes, with its payload unless another is given. Raises as `Schedule` does."""
        of = self._ticks()
        start, end = (
            None if time is None else datetime.fromtimestamp(time, of.zone) for time in (self.start, self.end)
        )
        options = dict(self.options)
        if isinstance(key := options.get("key"), Mapping):
            options["key"] = Key(**cast("dict[str, Any]", key))
        made = Schedule(
            *(queue, self.name),
            every=self.every,
            cron=self.cron,
            tz=self.tz,
            missed=self.missed,
            payload=self.payload if payload is None else payload,
            start=start,
            end=end,
            jitter=self.jitter,
            **cast("PutOptions", options),
        )
        made.kept_in_store = self.kept_in_store
        return made

    def _ticks(self) -> Ticks:
        return ticks(self.every, self.cron, self.tz)

    def _after(self, of: Ticks, moment: float) -> Any:
        start = -inf if self.start is None else nextafter(self.start, -inf)
        end = inf if self.end is None else self.end
        return takewhile(lambda time: time <= end, of.after(max(moment, start)))


def schedules_in(
    counts: QueueCounts, codec: Codec[Any], payloads: Codec[Any] | None = None
) -> list[ScheduleRecord]:
    """The schedules whose cursors the codec can read, by name; `payloads` is the queue's codec, `codec` by default."""
    records: list[ScheduleRecord] = []
    for name, stored in counts.cursors:
        if name.startswith(CURSOR) and (cursor := _read(codec, name, stored)) is not None:
            record = record_in(name[len(CURSOR) :], cursor, counts.now, payloads or codec)
            if record is not None:
                records.append(record)
    return records


def record_in(name: str, cursor: object, now: float, payloads: Codec[Any]) -> ScheduleRecord | None:
    """The schedule that a cursor describes; None for a cursor of anything else."""
    match cursor:
        case {"tick": float() | int() as tick, "tz": str(tz), "every": float() | int() as every}:
            cron = None
        case {"tick": float() | int() as tick, "tz": str(tz), "cron": str(cron)}:
            every = None
        case _:
            return None  # encoded by another codec
    said = cast("dict[str, Any]", cursor)
    return ScheduleRecord(
        *(name, every, cron, tz, tick, now),
        missed=said.get("missed", "one"),
        start=said.get("start"),
        end=said.get("end"),
        jitter=said.get("jitter", 0.0),
        payload=_read(payloads, name, data) if (data := bytes_of("payload", said)) else None,
        options=said.get("options", {}),
        paused=bool(said.get("paused")),
        kept_in_store=bool(said.get("kept")),
    )


def _read(codec: Codec[Any], name: str, data: bytes) -> Any:
    try:
        return decoded(codec, name, data)
    except ValueError:
        return None
