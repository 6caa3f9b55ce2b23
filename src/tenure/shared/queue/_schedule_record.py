"""The schedules of a queue as their cursors describe them, for programs that do not run them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from tenure.engine import QueueCounts
from tenure.store import Codec, decoded

from ._schedule import CURSOR
from ._ticks import ticks


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule as the engine has it: its ticks are those with which it last ran.

    It comes `every` so many seconds or as `cron` says, in the time zone `tz`. `tick` is its last tick, or when it
    began; `now` the engine's time. Both are in seconds since 1970.
    """

    name: str
    every: float | None
    cron: str | None
    tz: str
    tick: float
    now: float

    def last(self) -> datetime | None:
        """The last tick; None if it has just begun. Raises `ModuleNotFoundError` without `tenure[cron]`."""
        of = ticks(self.every, self.cron, self.tz)
        return datetime.fromtimestamp(self.tick, of.zone) if of.last(self.tick) == self.tick else None

    def coming(self, count: int = 1) -> list[datetime]:
        """The next ticks. Raises as `last` does."""
        of = ticks(self.every, self.cron, self.tz)
        return [
            datetime.fromtimestamp(time, of.zone)
            for time in islice(of.after(max(self.tick, self.now)), count)
        ]

    def late(self) -> float:
        """Seconds since the oldest tick that was not put was due; 0 if there is none. Raises as `last` does."""
        return max(0.0, self.now - next(ticks(self.every, self.cron, self.tz).after(self.tick)))


def schedules_in(counts: QueueCounts, codec: Codec[Any]) -> list[ScheduleRecord]:
    """The schedules whose cursors the codec can read, by name."""
    records: list[ScheduleRecord] = []
    for name, stored in counts.cursors:
        if name.startswith(CURSOR):
            try:
                cursor = decoded(codec, name, stored)
            except ValueError:
                continue
            match cursor:
                case {"tick": float() | int() as tick, "tz": str(tz), "every": float() | int() as every}:
                    records.append(ScheduleRecord(name[len(CURSOR) :], every, None, tz, tick, counts.now))
                case {"tick": float() | int() as tick, "tz": str(tz), "cron": str(cron)}:
                    records.append(ScheduleRecord(name[len(CURSOR) :], None, cron, tz, tick, counts.now))
                case _:
                    pass  # encoded by another codec
    return records
