"""The pages of the API reference: one for each room, with every public name, described by its docstring."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

FOLDER = "reference/api"
INTERNAL = runpy.run_path(str(Path(__file__).parents[2] / "tests" / "internal.py"))

PAGES = {
    "tenure": ("tenure",),
    "errors": ("tenure.errors",),
    "processor": ("tenure.processor",),
    "blocking": ("tenure.blocking",),
    "local": ("tenure.local",),
    "sql": ("tenure.sql",),
    "observe": ("tenure.observe",),
    "testing": ("tenure.testing",),
    "web": ("tenure.web",),
    "engines": (
        "tenure.engines.memory",
        "tenure.engines.sqlite",
        "tenure.engines.redis",
        "tenure.engines.postgres",
    ),
    "engine": ("tenure.engine",),
    "examples": ("tenure.examples",),
}
"""The rooms of each page."""

NOT_SHOWN = {"CODECS", *INTERNAL["FOR_OTHER_ROOMS"]}
OF_A_ROOM = {"tenure.web": ("app",)}
"""What users import, of rooms whose other names are for other rooms."""
ALSO = {"tenure": ("tenure.store.Codec", "tenure.store.JsonCodec")}


def names(room: str) -> Iterator[str]:
    """The names that are described on the page of a room. What the front door has too is described there alone."""
    front, module = import_module("tenure"), import_module(room)
    errors = frozenset[str](import_module("tenure.errors").__all__)
    exported: tuple[str, ...] = OF_A_ROOM.get(room) or module.__all__
    for name in exported:
        if name in NOT_SHOWN:
            continue
        if room == "tenure.errors":
            yield f"tenure.{name}"
        elif room == "tenure":
            if name not in errors:
                yield f"tenure.{name}"
        elif getattr(front, name, None) is not getattr(module, name):
            yield f"{room}.{name}"
    yield from ALSO.get(room, ())


def pages() -> dict[str, str]:
    """The Markdown of each page, by its path in the docs."""
    return {f"{FOLDER}/{page}.md": "\n\n".join(_parts(page, rooms)) + "\n" for page, rooms in PAGES.items()}


def _parts(page: str, rooms: tuple[str, ...]) -> Iterator[str]:
    yield "# tenure" if page == "tenure" else f"# tenure.{page}"
    for room in rooms:
        yield (import_module(room).__doc__ or "").partition("\n\n")[0]
        yield ", ".join(f"[`{name.rpartition('.')[2]}`][{name}]" for name in names(room))
    for room in rooms:
        yield from (f"::: {name}" for name in names(room))
