from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypedDict, Unpack

from tenure.arguments import Seconds, shows_options

from ._keys import Key
from ._payload import P_co
from ._retry import Retry


class TickOptions(TypedDict, total=False):
    """The options of each put of a schedule, which has times of its own."""

    priority: int
    """The order of tasks: higher first. 0 by default."""
    delay: Seconds
    """Duration from the put on before the task may be taken. 0 by default."""
    key: str | Key | None
    """Only one unfinished task of the queue has this key. `Key` says what happens to a second put."""
    group: str | None
    """The group with which the task takes turns: a tenant, an account. None: the tasks without a group."""
    expires: Seconds | None
    """Duration after which the task is dropped if no worker has taken it. None: never."""
    deadline: Seconds | None
    """Duration after which the task ends as expired, also while a worker has it. None: never."""
    timeout: Seconds | None
    """Duration that a try of the task may take. None: the worker's."""
    retry: Retry | None
    """The rule for further tries of the task. None: the worker's."""
    meta: Mapping[str, str] | None
    """A few short texts that travel with the task, at most 1 KiB as JSON."""


class PutOptions(TickOptions, total=False):
    """The options of `WorkQueue.put`, for functions that put: `**options: Unpack[PutOptions]`."""

    at: datetime | None
    """The time, with a time zone, before which no worker takes the task, in place of `delay`. None: at once."""


@dataclass(init=False)
class Item(Generic[P_co]):
    """A task for `put_many`: the payload and the options of `put` as a value; generic in its payload.

    `name` is for `Children.put_many` alone: the child's name in its block.
    """

    payload: P_co
    name: str | None
    options: PutOptions

    @shows_options(PutOptions, priority=0, delay=0.0)
    def __init__(self, payload: P_co, *, name: str | None = None, **options: Unpack[PutOptions]) -> None:
        self.payload: P_co = payload
        self.name: str | None = name
        self.options: PutOptions = check_options(options)


def check_options(options: Any, known: Any = PutOptions, of: str = "a put") -> PutOptions:
    for name in options:
        if name not in known.__annotations__:
            names = ", ".join(known.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}; the options of {of} are {names}")
    return options
