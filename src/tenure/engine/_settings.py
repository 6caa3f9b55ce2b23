"""The settings of a queue: one record of named fields, which the engine keeps with the queue and obeys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from tenure.arguments import LONGEST
from tenure.errors import EngineError

from ._answers import Operation
from ._value import value


@value
class Rate:
    """A task starts every `every` seconds, and after a pause up to `burst` at once."""

    every: float
    burst: float = 1.0


@value
class Settings:
    """The fields of the record; a field that nobody has named has its default.

    - `max_size`: the most unfinished tasks, with the slots that are reserved for producers.
    - `aging`: the seconds after which a ready task precedes those that have been ready for less (see `Exchange`).
    - `max_deliveries`: the deliveries without a verdict after which a task is dead when its session ends.
    - `dead`: the seconds for which such a dead letter is kept (None: for good).
    - `payloads`: the records of settled tasks have their payloads. For a leased task these three are as they were when
      it was taken.
    - `results`, `keys`, `tracebacks`: for the clients alone.

    Of the groups; no limit of groups applies to the tasks without one, which are the group "":

    - `group_limit`: the most tasks of a group that are leased at a time; 0 means no limit.
    - With a `group_limit` of 1 and `hold`, a group keeps its order through retries: a task that failed or was postponed
      is the next of its group, whatever the others' priority, and while it is delayed, no other task of the group is
      taken. Groups of children, whose names begin with `OF_CHILDREN`, do not.
    - `weights`: the others weigh 1. A weight is positive and finite.
    - `group_size`: the most unfinished tasks of a group, as `max_size` is of the queue; 0 means no limit. A request
      whose tasks are all of one group waits in the line of this group while it is full or others wait there; then its
      slots in the group are reserved and it joins the queue of producers. A request for several groups is REFUSED if
      one of them has no room.
    - `rate`: the rate at which tasks of the queue are taken (GCRA, ITU-T I.371: the arithmetic of `Spend` for a cost of
      1); `group_rate`: of each group. None means no limit. A task that was given back has had its start. While the next
      task may not start, a group cannot be taken from, and an exchange takes nothing from a queue. Each exchange opens
      up to `CAP` groups whose time has come. When the rate changes, the tasks that have started count for as many
      starts as before, at most for one interval of waiting (`Pace.at` in `rules/_paces.py`); without a rate, for none.
      A rate is positive and finite, a burst at least 1; the burst takes at most `LONGEST` at its rate.

    Turns: self-clocked fair queueing (Golestani, INFOCOM 1994). A group can be taken from while it has a ready task and
    its limit and rate allow it; it then has a tag, a float. The next task is of the group with the lowest tag, of those
    the first by name. The virtual time of the queue becomes that tag, and the tag of the group rises by 1 / weight. A
    group that can be taken from anew starts at the virtual time + 1 / weight. A task that was given back, postponed or
    lost by its session lowers the tag of its group, if it has one, by 1 / weight, at most to the virtual time. While a
    queue has no unfinished task with a group and no producer that waits for one, there are no tags and no virtual time;
    afterwards it starts at 0.
    """

    max_size: int = 10_000
    aging: float | None = None
    max_deliveries: int = 20
    dead: float | None = 180 * 86400.0
    payloads: bool = False
    results: float | None = 3600.0
    keys: float | None = None
    tracebacks: bool = True
    group_limit: int = 0
    hold: bool = True
    weights: tuple[tuple[str, float], ...] = ()
    group_size: int = 0
    rate: Rate | None = None
    group_rate: Rate | None = None


DEFAULTS = Settings()
RECORD_TTL = 86_400.0
"""The seconds for which a record lasts at least after the queue was last used; twice as many at most."""
FIELDS: tuple[str, ...] = tuple(Settings.__dataclass_fields__)


@value
class Configure(Operation["Configured"]):
    """Name fields of the record of a queue. -> Configured, MORE

    `changes` are names of fields with their values as `written` makes them; without any, the record is only read. The
    value that was sent last holds, for all sessions at once. With `missing`, fields that are in the record stay as they
    are. A record keeps its queue for `RECORD_TTL` at least after the last operation that changed the queue, as each
    `Put` and `Exchange` does.
    """

    key: str
    by: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    missing: bool = False


@value
class Setting:
    """A field of the record: its value as `written` makes it, for how many seconds it has had it, and who set it."""

    name: str
    value: str
    age: float
    by: str


@value
class Configured:
    """The record, by name: the fields whose value has ever differed from the default, since there is a record.

    `revision` is another number after each change, 0 before the first: `Exchanged` and `PutAnswer` have it too.
    """

    fields: tuple[Setting, ...]
    revision: int


def written(name: str, setting: object) -> str:
    """The value of a field as text. Raises `EngineError` for an unknown field or value."""
    try:
        return json.dumps(_WRITE[name](setting))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise EngineError(f"a queue has no setting {name!r} with the value {setting!r}") from error


def read(name: str, text: str) -> Any:
    """The value of a field that `written` has made a text. Raises `EngineError` for any other text."""
    try:
        raw = json.loads(text)
        if name in ("rate", "group_rate"):
            raw = None if raw is None else Rate(*raw)
        elif name == "weights":
            raw = tuple((group, weight) for group, weight in raw)
        same = written(name, raw) == text
    except (TypeError, ValueError) as error:
        raise EngineError(f"this is no value of the setting {name!r}: {text[:100]!r}") from error
    if not same:
        raise EngineError(f"this is no value of the setting {name!r}: {text[:100]!r}")
    return raw


def settings_of(fields: Iterable[tuple[str, str]]) -> Settings:
    """The settings with these fields, and the defaults of the others: `DEFAULTS` itself if nothing differs."""
    settings = Settings(**{name: read(name, text) for name, text in fields})
    return DEFAULTS if settings == DEFAULTS else settings


def _count(least: int) -> Callable[[Any], int]:
    def write(it: Any) -> int:
        if not (isinstance(it, int) and least <= it < 2**53) or isinstance(it, bool):
            raise ValueError
        return it

    return write


def _seconds(it: Any) -> float | None:
    if it is None:
        return None
    if not it >= 0:  # NaN too
        raise ValueError
    return float(min(it, LONGEST))


def _flag(it: Any) -> bool:
    if not isinstance(it, bool):
        raise TypeError
    return it


def _rate(it: Any) -> list[float] | None:
    if it is None:
        return None
    if not (0 < it.every < inf and 1 <= it.burst <= LONGEST / it.every):
        raise ValueError
    return [float(it.every), float(it.burst)]


def _weights(it: Any) -> list[tuple[str, float]]:
    weights = {str(group): float(weight) for group, weight in it}
    if not all(0 < weight < inf for weight in weights.values()):
        raise ValueError
    return sorted(weights.items())


_WRITE: dict[str, Callable[[Any], Any]] = {
    "max_size": _count(1),
    "aging": _seconds,
    "max_deliveries": _count(1),
    "dead": _seconds,
    "payloads": _flag,
    "results": _seconds,
    "keys": _seconds,
    "tracebacks": _flag,
    "group_limit": _count(0),
    "hold": _flag,
    "weights": _weights,
    "group_size": _count(0),
    "rate": _rate,
    "group_rate": _rate,
}
DEFAULT_TEXTS: dict[str, str] = {name: written(name, getattr(DEFAULTS, name)) for name in FIELDS}
