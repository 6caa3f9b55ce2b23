"""When a schedule is due: at multiples of some seconds, or as a cron expression says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, tzinfo
from itertools import takewhile
from math import floor
from typing import Protocol
from zoneinfo import ZoneInfo

from tenure.arguments import check_seconds, check_text

_LONGEST_EXPRESSION = 256
_LONGEST_PAUSE = 100 * 366 * 86400.0
"""Seconds: no expression that comes true within fifty years pauses for longer."""


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
        """The arguments that define them."""
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
        if (fields := len(self.expression.split())) != 5:  # cronsim would take seconds as well
            raise ValueError(f"cron must be an expression with five fields, not {fields}: {expression!r}")
        try:
            next(self.after(0.0))
        except cronsim.CronSimError as problem:
            raise ValueError(f"cron must be a cron expression: {problem}: {expression!r}") from None
        except StopIteration:
            raise ValueError(f"cron must be an expression that comes true: {expression!r}") from None

    def after(self, moment: float) -> Iterator[float]:
        last = moment
        # whole seconds, rounded down: a float just below one would be rounded up, and leave that one out
        for tick in self._cronsim.CronSim(self.expression, datetime.fromtimestamp(floor(moment), self.zone)):
            # a time that is left out in spring may come with the next one, and one that comes twice be an earlier one
            if (time := tick.timestamp()) > last:
                yield (last := time)

    def last(self, moment: float) -> float:
        # forwards from further and further back: cronsim leaves out ticks on its way back, where an hour comes twice
        back = 60.0
        while back < _LONGEST_PAUSE:
            ticks = takewhile(lambda tick: tick <= moment, self.after(moment - back))
            if found := deque(ticks, maxlen=1):
                return found[0]
            back *= 4
        raise AssertionError(f"{self.expression!r} never came true")

    def described(self) -> dict[str, float | str]:
        return {"cron": self.expression}


def ticks(every: object, cron: object, tz: object) -> Ticks:
    """The moments that were asked for. Raises `TypeError` or `ValueError` for a wrong argument."""
    if (every is None) is (cron is None):
        raise TypeError("Schedule takes every or cron, one of them")
    try:
        zone = ZoneInfo(check_text("tz", tz, most=_LONGEST_EXPRESSION))
    except (KeyError, ValueError, OSError) as problem:
        raise ValueError(f"tz must be the name of a time zone, like 'Europe/Berlin': {problem}") from None
    return Every(every, zone) if cron is None else Cron(cron, zone)
