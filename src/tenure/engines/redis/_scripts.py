"""The scripts, put together of the files in `lua/`."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_PARTS = {
    "sessions": ("state", "sessions", "operate"),
    "acquire": ("acquire", "state", "holds", "operate"),
    "release": ("release", "state", "holds", "operate"),
    "holds": ("state", "holds", "operate"),
    "claims": ("state", "claims", "operate"),
    "counters": ("state", "counters", "operate"),
    "put": ("put", "state", "tasks", "producers", "operate"),
    "exchange": ("exchange", "state", "tasks", "takers", "operate"),
    "records": ("state", "tasks", "records", "operate"),
    "survey": ("state", "survey", "operate"),
    "sweep": ("state", "holds", "claims", "counters", "tasks", "sweep"),
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
