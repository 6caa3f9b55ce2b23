"""From `module:function` to something that can be called for each task."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_origin

from tenure.handlers import is_async
from tenure.shared import Task
from tenure.store import Store

from ._errors import UsageError

_LISTS = (list, Sequence, "list", "List", "Sequence")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of one input; `is_async` says how to call it, `wants_task` that it takes the task itself.

    `wants_tasks` says that it takes a list of tasks, `wants_store` that it is no handler of tasks, but a program that
    takes the store.
    """

    function: Callable[[Any], Any]
    is_async: bool
    wants_task: bool
    wants_tasks: bool
    wants_store: bool


def load_handler(spec: str) -> Handler:
    """Import a handler, with the working directory first on the path. Raises `UsageError`."""
    module, colon, name = spec.partition(":")
    if not (colon and module and name):
        raise UsageError(f"{spec!r} names no handler: write module:function, such as tenure.examples:digest")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    function = _attribute(_module(module), name)
    if not callable(function):
        raise UsageError(f"{spec} is not a function but {_kind(function)}: name a function of one input")
    parameter = _parameter(spec, function)
    return Handler(
        function,
        is_async(function),
        wants_task=_wants(parameter, Task),
        wants_tasks=_wants_tasks(parameter),
        wants_store=_wants(parameter, Store),
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise UsageError(
                f"there is no module {problem.name!r}, neither in {Path.cwd()} nor installed"
            ) from problem
        raise UsageError(f"module {name} cannot be imported: {problem}; install what it needs") from problem
    except (Exception, SystemExit) as problem:
        text = f"{type(problem).__name__}: {problem}"
        raise UsageError(
            f"module {name} cannot be imported: {text}; see python -c 'import {name}'"
        ) from problem


def _attribute(module: Any, name: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError as problem:
        own = [name for name, _ in inspect.getmembers(module, inspect.isfunction) if not name.startswith("_")]
        there = f"; its functions are {', '.join(own[:8])}" if own else ""
        raise UsageError(f"module {module.__name__} has no {name!r}{there}") from problem


def _parameter(spec: str, function: Callable[..., Any]) -> inspect.Parameter | None:
    """The parameter that gets the argument, if the function says so."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some that are written in C have none
        return None
    try:
        bound = signature.bind(None)
    except TypeError:
        raise UsageError(f"{spec}{signature} cannot be called with one argument, the input") from None
    parameter = signature.parameters[next(iter(bound.arguments))]
    return None if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) else parameter


def _wants(parameter: inspect.Parameter | None, kind: type[Task | Store]) -> bool:
    """Whether a parameter is for one of these: by its annotation, or by its name."""
    if parameter is None:
        return False
    return parameter.name == kind.__name__.lower() or _parts(parameter.annotation)[0] in (kind, kind.__name__)


def _wants_tasks(parameter: inspect.Parameter | None) -> bool:
    """Whether a parameter is for a list of tasks: by its annotation, or by its name."""
    if parameter is None:
        return False
    kind, *of = _parts(parameter.annotation)
    return parameter.name == "tasks" or (kind in _LISTS and of[:1] in ([Task], [Task.__name__]))


def _parts(annotation: object) -> list[object]:
    """What an annotation consists of: list and Task for `list[tenure.Task]`; their names if it is a string."""
    if isinstance(annotation, str):
        return re.findall(r"(\w+)(?![\w.])", annotation) or [""]
    return [get_origin(part) or part for part in (annotation, *get_args(annotation))]


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
