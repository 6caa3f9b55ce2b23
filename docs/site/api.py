"""The pages of the API reference: one for each room, with every public name, described by its docstring.

Nothing is imported, so no extra is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDER = "reference/api"
ROOT = Path(__file__).parents[2]

PAGES = {
    "tenure": ("tenure",),
    "types": ("tenure.types",),
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

ALSO = {"tenure": ("tenure.store.Codec", "tenure.store.JsonCodec")}


def names(room: str) -> Iterator[str]:
    """The names that are described on the page of a room. What the front door has too is described there alone."""
    at_the_top = _imported("tenure")
    exported = set(_exported(room))
    if room == "tenure":
        exported -= at_the_top["tenure.errors"]
    elif room == "tenure.errors":
        yield from (f"tenure.{name}" for name in sorted(at_the_top[room], key=str.casefold))
        exported -= at_the_top[room]
    else:
        exported -= at_the_top.get(room, set())
    yield from (f"{room}.{name}" for name in sorted(exported, key=str.casefold))
    yield from ALSO.get(room, ())


@cache
def _read(room: str) -> ast.Module:
    path = ROOT / "src" / room.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))


def _exported(room: str) -> tuple[str, ...]:
    """What `__all__` of a room says, or else what it imports as itself."""
    nodes = [node for node in ast.walk(_read(room)) if isinstance(node, ast.ImportFrom)]
    aliases = (alias for node in nodes if node.module != "tenure" for alias in node.names)
    if itself := tuple(alias.name for alias in aliases if alias.name == alias.asname):
        return itself
    for node in _read(room).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise LookupError(f"{room} has no __all__")


def _imported(room: str) -> dict[str, set[str]]:
    """What a room imports, by module."""
    return {
        node.module: {name.name for name in node.names}
        for node in ast.walk(_read(room))
        if isinstance(node, ast.ImportFrom) and node.module
    }


def pages() -> dict[str, str]:
    """The Markdown of each page, by its path in the docs."""
    return {f"{FOLDER}/{page}.md": "\n\n".join(_parts(page, rooms)) + "\n" for page, rooms in PAGES.items()}


def _parts(page: str, rooms: tuple[str, ...]) -> Iterator[str]:
    yield "# tenure" if page == "tenure" else f"# tenure.{page}"
    for room in rooms:
        yield (ast.get_docstring(_read(room)) or "").partition("\n\n")[0]
        yield ", ".join(f"[`{name.rpartition('.')[2]}`][{name}]" for name in names(room))
    for room in rooms:
        yield from (f"::: {name}" for name in names(room))
