"""The scripts, linked of the modules in `lua/`.

A script is a module that needs others: `local queues = require('queues')`. The linker puts their texts before it, each
in a block, and makes a local of each exported name: `queues.read` becomes `queues__read`. Other names stay in the
block. Tables of functions would cost the server more, since a script makes everything anew each time it runs.

Making a function costs as much as a small command. So `require('order').enqueue(task)` makes the functions of `order`,
and of what `order` alone needs, when the script first comes to such a line; `package.loaded.order` says whether it did.
A module that is needed within a block of a script is made there.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

SCRIPTS = (
    *("probe", "sessions", "acquire", "release", "holds", "claim_operations", "rates"),
    *("put", "exchange", "records", "family_operations", "scan", "sweep"),
)
_Names = dict[str, None]  # in an order

_call = re.compile(r"\bcall\('([A-Z]+)'")
_word = re.compile(  # with comments and texts, which hold no words
    r"^(?P<indent> *)(?:local (?P<local>\w+) = (?=require\('(?P=local)'))?require\('(?P<needed>\w+)'\)\n"
    r"|(?:--)?\[\[(?s:.*?)\]\]|--.*|'(?:\\.|[^'\\])*'" + r'|"(?:\\.|[^"\\])*"'
    r"|package\.loaded\.(?P<loaded>\w+)"
    r"|(?:require\('(?P<late>\w+)'\)|(?<![\w.])(?P<module>\w+))\.(?P<name>\w+)|(?P<unknown>\brequire\b)",
    re.MULTILINE,
)


class Script(NamedTuple):
    source: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    source = source_of(name)
    if name == "probe":
        names = ", ".join(map(repr, _commands()))
        source = f"local COMMANDS = {{{names}}}\n".encode() + source
    return Script(source, sha1(source, usedforsecurity=False).hexdigest().encode())


def _commands() -> list[str]:
    text = b"".join(source_of(name) for name in SCRIPTS if name != "probe").decode()
    return sorted(set(_call.findall(text)))


def source_of(name: str) -> bytes:
    return (text_of(name) if name == "probe" else _Linker(name).linked()).encode()


@cache
def text_of(name: str) -> str:
    return (files(__spec__.parent) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


@cache
def exports_of(name: str) -> tuple[str, ...]:
    made = re.findall(rf"^(?:function )?({name}\.\w[^=(\n]*)(?: =|\()", text_of(name), re.MULTILINE)
    return tuple(re.findall(rf"\b{name}\.(\w+)", " ".join(made)))


@cache
def _needs_of(name: str) -> list[str]:
    return [need["needed"] for need in _words_of(name)[1] if not need["indent"]]


@cache
def _late_of(name: str) -> set[str]:
    return {word["late"] for word in _words_of(name)[2] if word["late"]}


@cache
def _words_of(name: str) -> tuple[str, list[re.Match[str]], list[re.Match[str]]]:
    text = text_of(name).replace(f"\nlocal {name} = {{}}\n", "\n", 1).removesuffix(f"return {name}\n")
    found = [*_word.finditer(text)]
    needs = [word for word in found if word["needed"]]
    known = {name, *(need["needed"] for need in needs)}
    words = [word for word in found if word["loaded"] or word["late"] or word["module"] in known]
    if any(word["unknown"] for word in found):
        raise LookupError(f"{name} needs a module in a way that the linker does not know")
    return text, needs, words


def _with_needs(names: list[str], known: _Names) -> _Names:
    found: _Names = {}
    for name in names:
        if name not in known and name not in found:
            found |= _with_needs(_needs_of(name), known | found)
            found[name] = None
    return found


class _Linker:
    def __init__(self, name: str) -> None:
        self._name = name
        self._at_once = _with_needs(_needs_of(name), {})
        self._late: dict[str, _Names] = {}
        """The modules that are made late, and for each the modules that are made within it."""
        while new := self._wanted_late() - self._late.keys():
            self._late |= {late: {} for late in sorted(new)}
            known = self._at_once | dict.fromkeys(self._late)
            self._late = {late: _with_needs(_needs_of(late), known) for late in self._late}
        self._shown: dict[str, _Names] = {late: {} for late in self._late}
        """The names of each late module that other modules use."""

    def _wanted_late(self) -> set[str]:
        inner = [name for names in self._late.values() for name in names]
        asked = set[str]().union(*map(_late_of, (self._name, *self._at_once, *self._late, *inner)))
        return asked - self._at_once.keys() | {name for name in inner if inner.count(name) > 1}

    def linked(self) -> str:
        begin = next((need.start() for need in _words_of(self._name)[1] if not need["indent"]), 0)
        first = _with_needs(["numbers"], {}) if "numbers" in self._at_once else {}
        others = {name: None for name in self._at_once if name not in first}
        made = [
            self._blocks(others),
            *(self._blocks({**inner, late: None}) for late, inner in self._late.items()),
        ]
        script = self._flat(self._name, {})
        parts = [script[:begin], made[0], *map(self._maker, self._late, made[1:]), script[begin:]]
        if first:
            # A function that uses a variable of the function around it finds it among all such variables, one after the
            # other. The variables of the next function outside are found at once, and these are used most.
            parts = [self._blocks(first), "return (function()", *parts, "end)()"]
        if self._late:
            parts.insert(0, f"local {', '.join(f'make_{late}, made_{late}' for late in self._late)}")
        return "\n".join((text_of("prelude"), *parts))

    def _blocks(self, names: _Names) -> str:
        exports = [f"{name}__{export}" for name in names for export in exports_of(name)]
        declared = [f"local {', '.join(exports)}"] if exports else []
        return "\n".join((*declared, *(f"do -- {name}.lua\n{self._flat(name, names)}end" for name in names)))

    def _maker(self, late: str, blocks: str) -> str:
        shown = ", ".join(f"{name} = {late}__{name}" for name in self._shown[late])
        return f"""make_{late} = function()
    if not made_{late} then
{blocks}
        made_{late} = {{{shown}}}
    end
    return made_{late}
end"""

    def _flat(self, of: str, near: _Names) -> str:
        text, needs, words = _words_of(of)
        around = self._at_once | near
        within = _with_needs([need["needed"] for need in needs], around | dict.fromkeys(self._late))

        def written(word: re.Match[str]) -> str:
            module, name = word["late"] or word["module"], word["name"]
            if word["loaded"]:
                return f"made_{word['loaded']}"
            if name not in exports_of(module):
                raise LookupError(f"{module} exports no {name}")
            if module in around or module in within:
                return f"{module}__{name}"
            self._shown[module][name] = None
            return f"make_{module}().{name}" if word["late"] else word[0]

        def placed(need: re.Match[str]) -> str:
            indent, name = need["indent"], need["needed"]
            if name in self._late:
                return f"{indent}local {name} = make_{name}()\n"
            return "" if name in around else self._blocks(_with_needs([name], around)) + "\n"

        changes = [(need, placed(need)) for need in needs] + [(word, written(word)) for word in words]
        parts, end = list[str](), 0
        for found, new in sorted(changes, key=lambda change: change[0].start()):
            parts += text[end : found.start()], new
            end = found.end()
        return "".join((*parts, text[end:]))


def all_scripts() -> list[Script]:
    return [script(name) for name in SCRIPTS]


def loads() -> list[tuple[str, str, bytes]]:
    return [("SCRIPT", "LOAD", script.source) for script in all_scripts()]
