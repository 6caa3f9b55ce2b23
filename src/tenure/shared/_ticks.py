"""When a schedule is due: at multiples of some seconds, or as a cron expression says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from itertools import takewhile
from math import floor
from typing import Protocol
from zoneinfo import ZoneInfo

from tenure.arguments import check_seconds, check_text

_LONGEST_EXPRESSION = 256


class Ticks(Protocol):
    """Moments, as seconds since 1970 in UTC."""

    zone: tzinfo

    def after(self, moment: float) -> Iterator[float]:
        """All later ones, in order."""
        ...

    def last(self, moment: float) -> float:
        """The latest that is not later."""
        ...

    def described(self) -> dict[str, float | str]:
        """How it was said, for people."""
        ...


class Every:
    """The multiples of `seconds` since 1970, in UTC."""

    def __init__(self, seconds: object, zone: tzinfo) -> None:
        self.seconds = check_seconds("every", seconds, least=0.01)
        self.zone = zone

    def after(self, moment: float) -> Iterator[float]:
        number = floor(moment / self.seconds)
        while True:
            if (tick := number * self.seconds) > moment:
                yield tick
            number += 1

    def last(self, moment: float) -> float:
        number = floor(moment / self.seconds) + 1
        while number * self.seconds > moment:
            number -= 1
        return number * self.seconds

    def described(self) -> dict[str, float | str]:
        return {"every": self.seconds}


class Cron:
    """The moments of a cron expression in a time zone, as Debian's cron has them; `cronsim` reads it."""

    def __init__(self, expression: object, zone: tzinfo) -> None:
        try:
            import cronsim
        except ModuleNotFoundError as problem:
            raise ModuleNotFoundError(
                "cron needs cronsim: pip install 'tenure[cron]'", name=problem.name
            ) from problem
        self.expression = check_text("cron", expression, most=_LONGEST_EXPRESSION)
        self.zone = zone
        self._cronsim = cronsim
        try:
            next(self.after(0.0))
        except cronsim.CronSimError as problem:
            raise ValueError(
                f"cron must be an expression with five fields: {problem}: {expression!r}"
            ) from None
        except StopIteration:
            raise ValueError(f"cron must be an expression that comes true: {expression!r}") from None

    def after(self, moment: float) -> Iterator[float]:
        start = datetime.fromtimestamp(moment, self.zone)
        for tick in self._cronsim.CronSim(self.expression, start):
            if (time := tick.timestamp()) > moment:
                yield time

    def last(self, moment: float) -> float:
        # it looks for earlier ones only, in whole minutes
        start = datetime.fromtimestamp(floor(moment) + 1, self.zone)
        for tick in self._cronsim.CronSim(self.expression, start, reverse=True):
            if (time := tick.timestamp()) <= moment:
                break
        else:
            raise AssertionError(f"{self.expression!r} never came true")
        # where an hour comes twice, cronsim leaves out ticks on its way back
        for later in takewhile(lambda tick: tick <= moment, self.after(time)):
            time = later
        return time

    def described(self) -> dict[str, float | str]:
        return {"cron": self.expression, "tz": str(self.zone)}


def ticks(every: object, cron: object, tz: object) -> Ticks:
    """The moments that were asked for. Raises `TypeError` or `ValueError` for a wrong argument."""
    if (every is None) is (cron is None):
        raise TypeError("Schedule takes every or cron, one of them")
    try:
        zone = ZoneInfo(check_text("tz", tz, most=_LONGEST_EXPRESSION))
    except (KeyError, ValueError, OSError) as problem:
        raise ValueError(f"tz must be the name of a time zone, like 'Europe/Berlin': {problem}") from None
    return Every(every, zone) if cron is None else Cron(cron, zone)
