from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, cast

from tenure.arguments import Seconds, check_count, check_name, check_timeout
from tenure.local import CircuitBreaker
from tenure.shared import Claim, ResourcePool, Task

_WORKERS = 10

Around = Callable[[Task], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Claims:
    """The claim of each task: of `pool`, a resource that matches `where`, within `timeout` seconds (None: for ever).

    `where` is a mapping, or a function that returns a mapping for a task. Raises `TypeError`, `ValueError`.
    """

    pool: ResourcePool
    where: Mapping[str, Any] | Callable[[Task], Mapping[str, Any]] | None = None
    timeout: Seconds | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pool, ResourcePool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"pool must be a ResourcePool, not {self.pool!r}")
        where = cast("object", self.where)
        if not (where is None or callable(where) or isinstance(where, Mapping)):
            raise TypeError(
                f"where must be a mapping, or a function that returns one for a task, not {where!r}"
            )
        object.__setattr__(self, "timeout", check_timeout("timeout", self.timeout))

    def claim(self, task: Task) -> AbstractAsyncContextManager[Claim, None]:
        """The block that has the claim of the task."""
        return self.pool.claim(self.timeout, self.where(task) if callable(self.where) else self.where)


def check_maker(name: str, make: object) -> None:
    # a breaker can be called too, but guards what it is given
    if make is not None and (not callable(make) or isinstance(make, CircuitBreaker)):
        raise TypeError(f"{name} must be a function that makes one, not {make!r}")


def shares(workers: int | None, kinds: object) -> dict[str | None, int]:
    """The number of workers of each kind; the rest is for tasks of no kind. None: as many as the kinds have, or 10."""
    if not isinstance(kinds, Mapping):
        raise TypeError(f"kinds must be a mapping of names to numbers of workers, not {kinds!r}")
    shares: dict[str | None, int] = {}
    for kind, share in cast("Mapping[object, object]", kinds).items():
        shares[check_name("kinds: a name", kind)] = check_count(f"kinds: {kind}", share)
    taken = sum(shares.values())
    left = (taken or _WORKERS) - taken if workers is None else check_count("workers", workers) - taken
    if left < 0:
        raise ValueError(f"kinds must not have more than the {workers} workers together, not {taken}")
    if left:
        shares[None] = left
    return shares


def check_type(name: str, value: object, *kinds: type) -> None:
    if value is not None and not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {names}, not {value!r}")
