"""The scripts, put together of the files in `lua/`."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_PARTS = {
    "sessions": ("start", "state", "sessions", "operate"),
    "acquire": ("start", "quick", "acquire", "state", "holds", "operate"),
    "release": ("start", "quick", "release", "state", "holds", "operate"),
    "holds": ("start", "state", "holds", "operate"),
    "claims": ("start", "state", "claims", "operate"),
    "counters": ("start", "state", "counters", "operate"),
    "put": ("start", "quick", "put", "state", "tasks", "producers", "operate"),
    "exchange": ("start", "quick", "exchange", "state", "tasks", "takers", "operate"),
    "records": ("start", "state", "tasks", "records", "operate"),
    "survey": ("start", "state", "survey", "operate"),
    "sweep": ("start", "state", "holds", "claims", "counters", "tasks", "sweep"),
}


class Script(NamedTuple):
    """What the server runs, and the name under which it remembers it."""

    source: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name."""
    source = source_of(*_PARTS[name])
    return Script(source, sha1(source, usedforsecurity=False).hexdigest().encode())


def source_of(*parts: str) -> bytes:
    """The text of a script that consists of these parts."""
    folder = files(__spec__.parent) / "lua"
    *outer, inner = ((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
    # each part is a function inside of that of the part before: Lua searches for the local variables that a function
    # takes from around it one by one, but not for those from further out
    return (
        "".join(f"{part}\nreturn (function()\n" for part in outer) + inner + "\nend)()" * len(outer)
    ).encode()


def all_scripts() -> list[Script]:
    """Every script there is."""
    return [script(name) for name in _PARTS]
