"""Imports at first use, so that nothing is loaded or installed without need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ("exports", "extra", "names")


def exports(room: str, homes: Mapping[str, Mapping[str, str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a room, and its `__dir__`: for each home, its modules with the names of each, with blanks.

    Users know what they import as `home.name`, in tracebacks and pickles too. Type checkers read the same imports in
    the room's `if TYPE_CHECKING` block.
    """
    places = {
        name: (home, module)
        for home, modules in homes.items()
        for module, names in modules.items()
        for name in names.split()
    }

    def __getattr__(name: str) -> Any:  # noqa: N807 it becomes the room's
        if name not in places:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        home, module = places[name]
        value = getattr(import_module(module if module.startswith("tenure.") else f"{room}.{module}"), name)
        value.__module__ = home
        setattr(sys.modules[room], name, value)
        return value

    sys.modules[room].__dict__["__dir__"] = lambda: sys.modules[room].__all__
    return __getattr__


def names(homes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The names that a room exports, in order."""
    return sorted(name for modules in homes.values() for text in modules.values() for name in text.split())


def extra(module: str, name: str) -> Any:
    """Import a module of an extra. Raises `ModuleNotFoundError` that names the extra if it is missing."""
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise ModuleNotFoundError(
            f"{library} is missing: pip install 'tenure[{name}]'", name=library
        ) from None
