"""Checks of the settings of a processor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from tenure.arguments import check_count, check_flag, check_name
from tenure.handlers import is_async, name_of
from tenure.local import CircuitBreaker
from tenure.shared import ResourcePool

from ._adaptive import Adaptive
from ._context import Context
from ._presets import Preset


class _WithContextByName(Protocol):
    def __call__(self, work: Any, /, *, context: Context) -> Awaitable[Any]: ...


Handler = (
    Callable[[Any], Awaitable[Any]]
    | Callable[[Any, Context], Awaitable[Any]]
    | Callable[[Context, Any], Awaitable[Any]]
    | _WithContextByName
)


def check_functions(handler: Callable[..., object], makers: Mapping[str, object]) -> None:
    """Refuse a handler that would block the loop, and functions that cannot be called. Raises `TypeError`."""
    if not is_async(handler):
        raise TypeError(
            f"handler must be an async function, and {name_of(handler)} is none: have an async function call it with "
            "tenure.local.Threads"
        )
    for name, make in makers.items():
        # a breaker can be called too, but guards what it is given
        if make is not None and (not callable(make) or isinstance(make, CircuitBreaker)):
            raise TypeError(f"{name} must be a function that makes one, not {make!r}")


def check_claims(claims: object, where: object) -> None:
    """Refuse a value that is not a pool, and a `where` without a pool. Raises `TypeError`, `ValueError`."""
    check_type("claims", claims, ResourcePool)
    if where is None:
        return
    if claims is None:
        raise ValueError(f"where needs claims=, not only {where!r}")
    if not (callable(where) or isinstance(where, Mapping)):
        raise TypeError(f"where must be a mapping, or a function that returns one for a task, not {where!r}")


def shares(workers: int, kinds: object) -> dict[str | None, int]:
    """The number of workers of each kind; the workers that are left are for tasks of no kind.

    Raises `TypeError`, `ValueError`.
    """
    if not isinstance(kinds, Mapping):
        raise TypeError(f"kinds must be a mapping of names to numbers of workers, not {kinds!r}")
    shares: dict[str | None, int] = {}
    for kind, share in cast("Mapping[object, object]", kinds).items():
        shares[check_name("kinds: a name", kind)] = check_count(f"kinds: {kind}", share)
    left = workers - sum(shares.values())
    if left < 0:
        raise ValueError(
            f"kinds must not have more than the {workers} workers together, not {workers - left}"
        )
    if left:
        shares[None] = left
    return shares


def check_lend(value: object, kinds: object) -> bool:
    """Refuse lending without kinds that could lend. Raises `TypeError`, `ValueError`."""
    lend = check_flag("lend", value)
    if lend and not kinds:
        raise ValueError("lend needs kinds=: without them there is no kind to lend to")
    return lend


def check_adaptive(value: object) -> Adaptive | None:
    """Return the settings that `adaptive` stands for, or None. Raises `TypeError`."""
    if not isinstance(value, bool | Adaptive):
        raise TypeError(f"adaptive must be True, False or an Adaptive, not {value!r}")
    return Adaptive() if value is True else value or None


def check_type(name: str, value: object, kind: type) -> None:
    """Refuse a value that is neither None nor of that type. Raises `TypeError`."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def check_connections(preset: Preset, limit: float | None, timeout: float | None) -> None:
    """Refuse settings that would fail under full load although nothing is wrong. Raises `ValueError`."""
    workers, connections = preset.workers, preset.connections
    rounds = -(-workers // connections) - 1
    if limit is None or not rounds:
        return
    if timeout is None:
        raise ValueError(
            f"connections: {workers} workers share {connections}, and without timeout= nothing bounds how long one is "
            f"kept, so the rest may wait for more than the connection_timeout of {limit:g} s"
        )
    if rounds * timeout > limit:
        raise ValueError(
            f"connections: {workers} workers share {connections}, so one may wait {rounds} times the timeout of "
            f"{timeout:g} s, which is more than the connection_timeout of {limit:g} s; have at least "
            f"{-(-workers // (int(limit / timeout) + 1))} connections, or wait for longer"
        )
