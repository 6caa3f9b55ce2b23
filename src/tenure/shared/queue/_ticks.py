from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from math import floor
from typing import Protocol
from zoneinfo import ZoneInfo

from tenure.arguments import check_seconds, check_text
from tenure.lazy import extra

_LONGEST_EXPRESSION = 256
_DAY = 86400
_LONGEST_PAUSE = 100 * 366 * _DAY
"""Seconds: an expression that does not come true within them never does."""
_RULES_OF_TODAY = 2_000_000_000
"""A moment (2033) after the changes of clocks that are listed one by one, when the zones' present rules hold."""

_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW, a day that its months have,",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT, such as MON-FRI, MON#2 or 5L,",
}

_FOREIGN = {
    "?": "must have * in place of ?, and days of the week from 0 for Sunday, where Quartz has 1",
    "TZ=": "must have no time zone; give it as tz",
    "cron(": "must have five fields without cron( ) around them",
}
"""Texts that other programs know, and the form that is known here."""


class Ticks(Protocol):
    """Moments, as seconds since 1970 in UTC."""

    zone: tzinfo

    def after(self, moment: float) -> Iterator[float]: ...

    def last(self, moment: float) -> float:
        """The latest moment that is not later."""
        ...

    def described(self) -> dict[str, float | str]: ...


class Every:
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
    """The moments of a cron expression in a time zone, with the rules of Debian's cron where the clocks change.

    cronsim finds the times on a clock without a time zone, and this class the moments at which the zone's clock shows
    them.
    """

    def __init__(self, expression: object, zone: tzinfo) -> None:
        extra("cronsim", "cron")
        import cronsim

        self.expression = check_text("cron", expression, most=_LONGEST_EXPRESSION)
        for text, instead in _FOREIGN.items():
            if text in self.expression:
                raise ValueError(f"cron {instead}: {expression!r}")
        self.zone = zone
        self._cronsim = cronsim
        self._fields = _NAMES.get(self.expression.strip().lower(), self.expression)
        fields = self._fields.split()
        if len(fields) not in (5, 6):
            raise ValueError(
                "cron must have five fields (minute, hour, day, month, day of the week), or six with the seconds first,"
                f" or be one of {', '.join(_NAMES)}: {expression!r}"
            )
        self._once = not any(field.startswith("*") for field in fields[-5:-3])
        try:
            self._next(_RULES_OF_TODAY)
        except cronsim.CronSimError as problem:
            field = str(problem).removeprefix("Bad ")
            raise ValueError(f"cron must have {_FIELDS[field]} as its {field}: {expression!r}") from None

    def after(self, moment: float) -> Iterator[float]:
        while True:
            yield (moment := float(self._next(floor(moment))))

    def last(self, moment: float) -> float:
        high, back = floor(moment), 60
        while (low := self._next(high - back)) > high:
            back *= 2
        # there is a tick at `low`, and none after `high`
        while low < high:
            middle = (low + high) // 2
            if (tick := self._next(middle)) <= moment:
                low = tick
            else:
                high = middle
        return float(low)

    def described(self) -> dict[str, float | str]:
        return {"cron": self.expression}

    def _next(self, moment: int) -> int:
        return self._next_once(moment) if self._once else self._next_shown(moment)

    def _next_once(self, moment: int) -> int:
        """The next moment at which the clock shows a time of the expression, or has passed it, for the first time."""
        here = datetime.fromtimestamp(moment, self.zone)
        wall = self._wall(moment)
        if here.fold:  # the clock shows times that it has shown: on to the first that it has not
            wall = self._wall(self._change(int(here.replace(fold=0).timestamp()), moment) - 1)
        time = datetime.fromtimestamp(self._match(wall), UTC).replace(tzinfo=self.zone)
        tick, other = int(time.timestamp()), int(time.replace(fold=1).timestamp())
        return self._change(other, tick) if other < tick else tick  # the clock never shows a time in a gap

    def _next_shown(self, moment: int) -> int:
        begin = moment + 1
        while begin < moment + _LONGEST_PAUSE:
            offset, end = self._wall(begin) - begin, begin + _DAY
            changes = self._wall(end) - end != offset
            if changes:
                end = self._change(begin, end)
            tick = self._match(begin + offset - 1) - offset
            if tick < end:
                return tick
            # No clock goes back by more than a day. So after a day without a tick and without a change, the clock does
            # not show the times before `tick` again, and it shows the time of `tick` at most a day earlier.
            begin = end if changes else max(end, tick - 2 * _DAY)
        raise self._never()

    def _match(self, wall: int) -> int:
        time = next(self._cronsim.CronSim(self._fields, datetime.fromtimestamp(wall, UTC)), None)
        if time is None:
            raise self._never()
        return int(time.timestamp())

    def _wall(self, moment: int) -> int:
        return int(datetime.fromtimestamp(moment, self.zone).replace(tzinfo=UTC).timestamp())

    def _change(self, before: int, after: int) -> int:
        offset = self._wall(after) - after
        moments = range(before + 1, after)
        return (
            before + 1 + bisect_left(moments, True, key=lambda moment: self._wall(moment) - moment == offset)
        )

    def _never(self) -> ValueError:
        return ValueError(f"cron must be an expression that comes true: {self.expression!r} in {self.zone}")


def ticks(every: object, cron: object, tz: object) -> Ticks:
    if (every is None) is (cron is None):
        raise TypeError("Schedule takes every or cron, one of them")
    try:
        zone = ZoneInfo(check_text("tz", tz, most=_LONGEST_EXPRESSION))
    except (KeyError, ValueError, OSError) as problem:
        raise ValueError(f"tz must be the name of a time zone, like 'Europe/Berlin': {problem}") from None
    return Every(every, zone) if cron is None else Cron(cron, zone)
