"""Readings of uses, holds and waits, from the `statistics()` of objects."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable

# The fields that rise when something is taken or waited for and fall when that ends. Others count, or are limits.
GAUGES = (
    *(
        "borrowed",
        "borrowed_tokens",
        "busy",
        "abandoned",
        "held",
        "holders",
        "in_use",
        "leased",
        "lent",
        "locked",
    ),
    *("readers", "writers", "flights", "probes", "pending", "tasks_waiting", "waiting"),
    # of memory streams
    *("current_buffer_used", "open_send_streams", "open_receive_streams"),
    *("tasks_waiting_send", "tasks_waiting_receive"),
    # of queues
    *("tasks_waiting_put", "tasks_waiting_get"),
)


def checked(things: Iterable[Any]) -> None:
    """Raise `TypeError` unless each of `things` can be asked for its statistics here and now."""
    for thing in things:
        if not callable(getattr(thing, "statistics", None)):
            raise TypeError(f"things: each has to have statistics(), and {thing!r} has not")
        if inspect.iscoroutinefunction(thing.statistics):
            raise TypeError(f"things: the statistics() of {thing!r} is awaited; compare its result yourself")


def gauges(thing: Any) -> dict[str, float]:
    """Each gauge of `thing` by its name, with the sizes of collections. `TypeError` if it has none."""
    values = _fields(thing.statistics())
    if isinstance(thing, anyio.Semaphore):
        # Its statistics count only those that wait.
        values["value"] = thing.value
    if not values:
        raise TypeError(f"things: the statistics() of {thing!r} has nothing that could be left in use")
    return values


def risen(before: dict[str, float], now: dict[str, float]) -> list[str]:
    return [
        f"{name} was {before[name]}, is {value}"
        for name, value in now.items()
        if (value < before[name] if name == "value" else value > before[name])
    ]


def _fields(statistics: Any) -> dict[str, float]:
    values = {name: getattr(statistics, name) for name in GAUGES if hasattr(statistics, name)}
    if hasattr(statistics, "lock_statistics"):
        of_lock = _fields(statistics.lock_statistics)
        values |= {f"lock_statistics.{name}": value for name, value in of_lock.items()}
    return {name: len(value) if hasattr(value, "__len__") else value for name, value in values.items()}
