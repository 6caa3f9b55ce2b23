"""The scripts, put together of the files in `lua/`."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_START = ("prelude", "numbers", "check")
_OBJECTS = (*_START, "step", "time", "session_items", "save_numbers")
_PARTS = {
    "probe": ("probe",),
    "sessions": (*_START, "due", "sessions"),
    "acquire": ("prelude", "acquire"),
    "release": ("prelude", "release"),
    "holds": (*_OBJECTS, "holds", "dispatch"),
    "claims": (*_OBJECTS, "claims", "dispatch"),
    "rates": (*_START, "rates"),
    "barriers": (*_OBJECTS, "barriers", "dispatch"),
    "put": (*_START, "step", "save_numbers", "queue", "takers", "tasks", "rare", "put"),
    "exchange": (*_START, "step", "save_numbers", "queue", "takers", "tasks", "rare", "exchange"),
    "records": (*_OBJECTS, "queue", "takers", "tasks", "rare", "records", "dispatch"),
    "survey": (*_OBJECTS, "claims", "barriers", "survey", "dispatch"),
    "sweep": (
        *("prelude", "numbers", "step", "time", "session_items", "save_numbers", "due"),
        *("claims", "barriers", "queue", "takers", "tasks", "rare", "sweep"),
    ),
}


_call = re.compile(r"\bcall\('([A-Z]+)'")
_include = re.compile(r"^ *-- include (\w+)$", re.MULTILINE)


class Script(NamedTuple):
    """What the server runs, and the name under which it remembers it."""

    source: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name."""
    source = source_of(*_PARTS[name])
    if name == "probe":
        names = ", ".join(map(repr, _commands()))
        source = f"local COMMANDS = {{{names}}}\n".encode() + source
    return Script(source, sha1(source, usedforsecurity=False).hexdigest().encode())


def _commands() -> list[str]:
    """The commands that the scripts call, apart from PUBLISH or SPUBLISH."""
    text = b"".join(source_of(*parts) for name, parts in _PARTS.items() if name != "probe").decode()
    return sorted(set(_call.findall(text)))


def source_of(*parts: str) -> bytes:
    """The text of a script that consists of these parts; a line `-- include NAME` stands for another part."""
    return "\n".join(map(_text, parts)).encode()


def _text(part: str) -> str:
    text = (files(__spec__.parent) / "lua" / f"{part}.lua").read_text(encoding="utf-8")
    return _include.sub(lambda found: _text(found[1]), text)


def all_scripts() -> list[Script]:
    """Every script there is."""
    return [script(name) for name in _PARTS]
