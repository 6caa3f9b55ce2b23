"""The scripts, put together of the files in `lua/`."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


class Module(NamedTuple):
    """Functions that a script makes together, when it first needs one of them: `cold().admit(queue)`.

    A script makes its functions anew each time it runs, and making one costs as much as a small command. `groups(true)`
    makes the `first` part only, which the others know as `made_alone`: as a module of its own it would be an expense of
    scripts that need neither.
    """

    name: str
    parts: tuple[str, ...]
    first: str = ""


_START = ("prelude", "numbers", "check")
_SESSIONS = ("cap", "step", "time", "notify_watchers", "detach", "session_items", "save_numbers")
_OBJECTS = (*_START, *_SESSIONS, "operations")
_GROUPS = (Module("groups", ("groups",), "alone"), Module("paces", ("paces",)))
_COLD = ("order", "group_lines", "producers")
_HOT = (
    *(
        *_START,
        "cap",
        "save_numbers",
        "replies",
        "queue",
        "detach",
        "takers",
        "tasks",
        *_GROUPS,
        "save_queue",
    ),
    Module("cold", ("notify_watchers", "session_items", *_COLD)),
)
_ADMINISTRATION = (
    *("due", "queue", "takers", "tasks", *_GROUPS, "save_queue", "endings", "dead_letters"),
    *(Module("cold", _COLD), Module("families", ("families",))),
)
_LISTS = (*_ADMINISTRATION, "keys", "task_lists")

_PARTS: dict[str, tuple[str | Module, ...]] = {
    "probe": ("probe",),
    "sessions": (*_START, "due", "sessions"),
    "acquire": ("prelude", "acquire"),
    "release": ("prelude", "release"),
    "holds": (*_OBJECTS, "serve_line", "serve_key", "remove_hold", "holds", "dispatch"),
    "claims": (*_OBJECTS, "claims", "claim_operations", "dispatch"),
    "rates": (*_START, "replies", "rates"),
    "put": (
        *_HOT,
        Module("families", ("step", "due", "endings", "families")),
        Module("keys", ("keys",)),
        "put",
    ),
    "exchange": (*_HOT, "endings", Module("families", ("step", "due", "families")), "exchange"),
    "records": (*_OBJECTS, *_LISTS, "records", "dispatch"),
    "families": (*_OBJECTS, *_ADMINISTRATION, "family_operations", "dispatch"),
    "scan": (*_OBJECTS, "claims", *_LISTS, "task_pages", "survey", "scan", "dispatch"),
    "sweep": (
        *("prelude", "numbers", *_SESSIONS),
        *("serve_line", "serve_key", "remove_hold", "claims", *_ADMINISTRATION, "sweep"),
    ),
}
"""The parts of each script, in their order: files in `lua/`, and modules of such files."""

_call = re.compile(r"\bcall\('([A-Z]+)'")
_include = re.compile(r"^ *-- include (\w+)$", re.MULTILINE)
_made = re.compile(r"^local (?:function )?(\w+)\b", re.MULTILINE)


class Script(NamedTuple):
    """A script for the server, and the name under which the server remembers it."""

    source: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name."""
    source = source_of(name)
    if name == "probe":
        names = ", ".join(map(repr, _commands()))
        source = f"local COMMANDS = {{{names}}}\n".encode() + source
    return Script(source, sha1(source, usedforsecurity=False).hexdigest().encode())


def _commands() -> list[str]:
    """The commands that the scripts call, apart from PUBLISH or SPUBLISH."""
    text = b"".join(source_of(name) for name in _PARTS if name != "probe").decode()
    return sorted(set(_call.findall(text)))


def source_of(name: str) -> bytes:
    """The text of a script; a line `-- include NAME` stands for another file."""
    modules = [part for part in _PARTS[name] if isinstance(part, Module)]
    texts = [_text(part) for part in _PARTS[name]]
    firsts = [text_of(module.first) for module in modules if module.first]
    used = set(re.findall(r"\.(\w+)", "\n".join((*texts, *firsts))))
    declared = [f"local {', '.join(module.name for module in modules)}"] if modules else []
    made = [
        _module(part, text, used) if isinstance(part, Module) else text
        for part, text in zip(_PARTS[name], texts, strict=True)
    ]
    if "check" in _PARTS[name]:
        # A function that uses a variable of the function around it finds it among all such variables, one after the
        # other. The variables of the next function outside are found at once, and these are used most.
        begins = _PARTS[name].index("check") + 1
        made[begins:] = ["return (function()", *made[begins:], "end)()"]
    return "\n".join((*declared, *made)).encode()


def _text(part: str | Module) -> str:
    return text_of(part) if isinstance(part, str) else "\n".join(map(text_of, part.parts))


def text_of(name: str) -> str:
    """The text of a file in `lua/`, with those that it includes."""
    text = (files(__spec__.parent) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return _include.sub(lambda found: text_of(found[1]), text)


def _module(module: Module, text: str, used: set[str]) -> str:
    """The function of a module: it returns a table of those functions that the script uses elsewhere."""
    tables, made = f"made_{module.name}", _making(module.name, text, used)
    if module.first:
        tables += f", made_{module.first}"
        first = _making(module.first, text_of(module.first), used)
        made = f"{first}\nif is_first then return made_{module.first} end\n{made}"
    return f"""local {tables}
{module.name} = function({"is_first" if module.first else ""})
{made}
    return made_{module.name}
end"""


def _making(name: str, text: str, used: set[str]) -> str:
    """The statement that makes a table of the functions of a text, unless it was made."""
    shown = ", ".join(f"{made} = {made}" for made in _made.findall(text) if made in used)
    return f"""    if not made_{name} then
{text}
        made_{name} = {{{shown}}}
    end"""


def all_scripts() -> list[Script]:
    """Every script there is."""
    return [script(name) for name in _PARTS]


def loads() -> list[tuple[str, str, bytes]]:
    """The commands by which a server gets to know every script."""
    return [("SCRIPT", "LOAD", script.source) for script in all_scripts()]
