"""The options of a put: named here once, for every function that puts, and as the value `Item`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypedDict

from tenure.engine import OnDuplicate

from ._payload import P_co
from ._retry import Retry


class MoreOptions(TypedDict, total=False):
    """The options of `WorkQueue.put` that are given by name alone."""

    meta: Mapping[str, str] | None
    """A few short texts that travel with the task, at most 1 KiB as JSON."""
    group: str | None
    """The group with which the task takes turns: a tenant, an account. None: the tasks without a group."""
    on_duplicate: OnDuplicate | None
    """The answer when another task has the key: "refuse", "keep" or "replace". None: "refuse"."""
    key_ttl: float | None
    """Seconds from the put on for which the key lasts at least. None: the queue's."""
    max_wait: float | None
    """With "replace", the most seconds that the task waits from its first put on. None: no limit."""
    deadline: float | None
    """Seconds after which the task ends as expired, also while a worker has it. None: never."""
    timeout: float | None
    """Seconds that a try of the task may take. None: the worker's."""
    retry: Retry | None
    """The rule for further tries of the task. None: the worker's."""


class PutOptions(MoreOptions, total=False):
    """All options of `WorkQueue.put`, for functions that put: `**options: Unpack[PutOptions]`."""

    priority: int
    """The order of tasks: higher first. 0 by default."""
    delay: float
    """Seconds before the task may be taken. 0 by default."""
    key: str | None
    """Only one unfinished task of the queue has this key."""
    expires: float | None
    """Seconds after which the task is dropped if no worker has taken it. None: never."""


@dataclass(frozen=True)
class Item(Generic[P_co]):
    """A task for `put_many`: the payload and the options of `put` as a value; generic in its payload.

    An `on_duplicate` of None means the argument of `put_many`. The class has no slots: with slots, Python 3.12 cannot
    make a frozen `Item[Mail](mail)`.
    """

    payload: P_co
    priority: int = 0
    delay: float = 0.0
    key: str | None = None
    expires: float | None = None
    meta: Mapping[str, str] | None = None
    group: str | None = None
    on_duplicate: OnDuplicate | None = None
    key_ttl: float | None = None
    max_wait: float | None = None
    deadline: float | None = None
    timeout: float | None = None
    retry: Retry | None = None
