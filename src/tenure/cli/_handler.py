"""The way from `module:function` to a callable for each task."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from tenure.handlers import adapted, is_async, parameters_of
from tenure.store import JsonCodec

from ._errors import UsageError


@dataclass(frozen=True, slots=True)
class Handler:
    """A function; `is_async` says how to call it, `wants_store` that it is a program and no handler of tasks."""

    function: Callable[..., Any]
    is_async: bool
    wants_store: bool

    def of_tasks(self, *, batch: bool = False) -> Callable[[Any], Any]:
        try:
            return adapted(self.function, batch=batch)
        except TypeError as problem:
            raise UsageError(str(problem)) from None


class HandlerCodec:
    """JSON, as by default, but errors do not hint at `open_store`, which the command calls."""

    def __init__(self) -> None:
        codec = JsonCodec()
        self.encode = codec.encode
        self.decode = codec.decode


def load_handler(spec: str) -> Handler:
    """Import a handler, with the working directory first on the path. Raises `UsageError`."""
    module, colon, name = spec.partition(":")
    if not (colon and module and name):
        raise UsageError(f"{spec!r} names no handler: write module:function, such as tenure.examples:digest")
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        raise UsageError(f"{spec} cannot be imported: the working directory was deleted") from None
    if here not in sys.path:
        sys.path.insert(0, here)
    function = _attribute(_module(module), name)
    if not callable(function):
        raise UsageError(f"{spec} is not a function but {_kind(function)}: name a function")
    wants_store = any(
        offered == "Store" or (parameter.name == "store" and parameter.annotation is parameter.empty)
        for parameter, offered, _ in islice(parameters_of(function), 1)
    )
    return Handler(function, is_async(function), wants_store)


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


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
