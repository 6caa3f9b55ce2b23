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
    errors = set(import_module("tenure.errors").__all__)
    at_the_top = set(front.__all__) - errors
    for name in OF_A_ROOM.get(room, module.__all__):
        value = getattr(module, name)
        elsewhere = room != "tenure" and name in at_the_top and value is getattr(front, name)
        if name not in NOT_SHOWN and not elsewhere and not (room == "tenure" and name in errors):
            yield f"tenure.{name}" if room == "tenure.errors" else f"{room}.{name}"
    yield from ALSO.get(room, ())


def pages() -> dict[str, str]:
    """The Markdown of each page, by its path in the docs."""
    return {f"{FOLDER}/{page}.md": "".join(_parts(page, rooms)) for page, rooms in PAGES.items()}


def _parts(page: str, rooms: tuple[str, ...]) -> Iterator[str]:
    title = "tenure" if page == "tenure" else f"tenure.{page}"
    yield f"# {title}\n"
    for room in rooms:
        for name in names(room):
            yield f"\n::: {name}\n"
