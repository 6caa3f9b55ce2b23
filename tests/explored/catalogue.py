"""The scenarios, what each of them exercises, and what there is to exercise."""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import sys
import typing
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOMS = ("local", "shared", "store")
BUILT_ON = {
    "waiting._line": ["Line", "Waiter"],
    "local._slots": ["Slots"],
    "upkeep": ["BackgroundTask", "Upkeep", "in_one_task", "leaves", "unwrapped_task_group"],
}
"""What users do not see and all that waits is built on."""


PARTS_OF_PAGES = {"store.names", "store.together"}
"""The listings await these, and have scenarios."""


IN_TRANSACTIONS = {
    f"shared.{name}"
    for name in ("SqlGuard.enforce", "Task.complete_in", "WorkQueue.complete_in", "WorkQueue.put_in")
}
"""What waits for a connection of the user's, which no world has: `test_in_transaction.py` cancels it anywhere."""


@dataclass(frozen=True)
class Scenario:
    """A story of a few tasks that contend, and what must hold when it is over.

    `run` takes no argument; one with `engines` takes a `World`. `covers` are the coroutines that it is about.
    """

    run: Any
    covers: tuple[str, ...]
    engines: tuple[str, ...]
    name: str

    def __str__(self):
        return self.name


SCENARIOS: list[Scenario] = []


def scenario(*covers, engines=()):
    """Put a scenario, or a `Machine`, in the catalogue; `covers` names coroutines as `room.Class.method`."""

    def add(run):
        SCENARIOS.append(Scenario(getattr(run, "scenario", run), covers, engines, run.__name__))
        return run

    return add


on_every_engine = partial(scenario, engines=("memory", "wire", "faults", "sqlite"))
on_a_wire = partial(scenario, engines=("wire",))
"""For scenarios in which links go wrong, as they say."""


def scenarios():
    """All of them, of all the modules in `scenarios/`."""
    for path in sorted(Path(__file__).with_name("scenarios").glob("*.py")):
        importlib.import_module(f"explored.scenarios.{path.stem}")
    return SCENARIOS


def public_coroutines():
    """What users of the rooms can await, enter or iterate: functions by names like `room.Class.method`."""
    found = {}
    for module in (*ROOMS, *BUILT_ON):
        room = importlib.import_module(f"tenure.{module}")
        # users enter a Hold, though they never name it
        for name in BUILT_ON.get(module) or {*room.__all__, *(["Hold"] if module == "shared" else [])}:
            found |= waited_for_in(f"{module.partition('.')[0]}.{name}", getattr(room, name))
    return {
        name: function for name, function in found.items() if name not in IN_TRANSACTIONS | PARTS_OF_PAGES
    }


def waited_for_in(name, thing):
    """The functions of a class that are waited for, inherited ones too; or the function itself."""
    if not inspect.isclass(thing):
        return {name: thing} if is_waited_for(thing) else {}
    if getattr(thing, "_is_protocol", False):
        return {}
    return {
        f"{name}.{attribute}": function
        for attribute in dir(thing)
        if _is_public(attribute)
        and is_waited_for(function := _function(inspect.getattr_static(thing, attribute)))
    }


def _is_public(name):
    return not name.startswith("_") or name in (
        "__aenter__",
        "__aexit__",
        "__anext__",
        "__asynccontextmanager__",
        "__call__",
    )


def _function(attribute):
    return getattr(attribute, "__func__", attribute)  # of static and class methods


def is_waited_for(function):
    """Whether it is one of our coroutine functions, or gives something to await, to enter or to iterate."""
    if not inspect.isfunction(function) or not function.__module__.startswith("tenure"):
        return False
    inner = inspect.unwrap(function)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        return True
    given = _returned(inner)
    return inspect.isclass(given) and issubclass(
        given, (AbstractAsyncContextManager, AsyncIterator, Awaitable)
    )


def _returned(function):
    """The class that a function says it returns."""
    annotation = inspect.get_annotations(function).get("return") or "None"
    given = eval(annotation, _names() | function.__globals__)
    return typing.get_origin(given) or given


@cache
def _names():
    """What annotations may name: type checkers import more than their module does when it runs."""
    known = {**vars(typing), **vars(collections.abc)}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tenure":
            known |= vars(module)
    return known
