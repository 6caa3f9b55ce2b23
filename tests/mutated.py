"""The memory engine with a fault, in the same process as the one without."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from mutants.patches import SOURCES, mutants

import tenure.engine
import tenure.engines.memory

ENGINE = "engines/memory"
SHARED = "tenure.engines.rules"
RULES = {"engine/_rules.py", "engine/_rates.py"}
NAME = "mutated_memory"

MUTANTS = [mutant for mutant in mutants() if mutant.area == "contract"]
"""Those for the contract: in the memory engine, or in the rules that it shares with others."""


@cache
def compiled(file):
    """A source without a fault, compiled once."""
    return compile((SOURCES / file).read_text(encoding="utf-8"), f"{NAME}: {file}", "exec")


class Finder:
    """Finds the modules of the package that has the fault, which is in one file of it."""

    def __init__(self, file, code):
        self._file = file
        self._code = code

    def find_spec(self, name, path=None, target=None):
        if _is_mutated(name):
            return ModuleSpec(name, self, is_package=name in (NAME, SHARED))
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = module.__name__.replace(NAME, ENGINE).replace(SHARED, "engines/rules").replace("._", "/_")
        file = f"{file}.py" if "/_" in file else f"{file}/__init__.py"
        exec(self._code if file == self._file else compiled(file), vars(module))


def _is_mutated(name):
    return name.partition(".")[0] == NAME or f"{name}.".startswith(f"{SHARED}.")


def mutated(mutant):
    """The class `MemoryEngine` with the fault."""
    return with_fault(*mutant.applied())


def with_fault(file, text):
    """The class `MemoryEngine` with another text of one of its files, or of the rules."""
    code = compile(text, f"{NAME}: {file}", "exec")
    finder = Finder(file, code)
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_mutated(name)}
    sys.meta_path.insert(0, finder)
    try:
        engine = import_module(NAME).MemoryEngine
    finally:
        sys.meta_path.remove(finder)
        parts = [sys.modules.pop(name) for name in list(sys.modules) if _is_mutated(name)]
        sys.modules.update(kept)
        vars(tenure.engines)["rules"] = kept[SHARED]
    if file in RULES:
        rules = ModuleType(f"tenure.engine.{Path(file).stem}")
        rules.__package__ = "tenure.engine"
        exec(code, vars(rules))
        room = ModuleType("tenure.engine")
        vars(room).update(vars(tenure.engine))
        vars(room).update((name, vars(rules)[name]) for name in tenure.engine.__all__ if name in vars(rules))
        for part in parts:
            vars(part)["e"] = room
    return engine
