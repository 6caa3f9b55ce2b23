"""The catalogue of mutants: each is a replacement in one function or class, found by its name and not by its file."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src" / "tenure"


@dataclass(frozen=True)
class Mutant:
    """One fault: in the function or class `place`, the text `old`, which stands there once, becomes `new`."""

    name: str
    area: str
    place: str
    """A folder of src/tenure, a colon, and a qualified name; `*` is the module itself, `x.sql` a file."""
    old: str
    new: str
    why: str
    by: str = ""
    """The test of the contract that finds it, in the area `contract`."""

    def applied(self, sources: Path = SOURCES) -> tuple[str, str]:
        """The path of the file below `sources`, and its text with the fault."""
        folder, _, name = self.place.partition(":")
        found = [
            (path, begin + text[begin:end].index(self.old), text)
            for path, text, begin, end in _places(sources / folder, name)
            if text[begin:end].count(self.old) == 1
        ]
        if len(found) != 1:
            raise LookupError(
                f"{self.name}: `old` stands in {len(found)} places that are called {self.place}"
            )
        [(path, at, text)] = found
        changed = f"{text[:at]}{self.new}{text[at + len(self.old) :]}"
        return path.relative_to(sources).as_posix(), changed


@cache
def mutants() -> tuple[Mutant, ...]:
    """All that mutants.toml has, in its order: its tables are areas, and those in them mutants."""
    areas = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))
    return tuple(
        Mutant(
            f"{area}-{name}", area, **{"place" if key == "in" else key: value for key, value in entry.items()}
        )
        for area, entries in areas.items()
        for name, entry in entries.items()
    )


def _places(folder: Path, name: str) -> Iterator[tuple[Path, str, int, int]]:
    """The files below a folder, or the module of that name, with the range of what bears the name in each."""
    files = [folder.with_suffix(".py")] if folder.with_suffix(".py").is_file() else sorted(folder.rglob("*"))
    for path in files:
        if path.name == name:
            text = path.read_text(encoding="utf-8")
            yield path, text, 0, len(text)
        elif path.suffix == ".py":
            text, ranges = _definitions(path)
            for begin, end in ranges.get(name, ()):
                yield path, text, begin, end


@cache
def _definitions(path: Path) -> tuple[str, dict[str, list[tuple[int, int]]]]:
    """The text of a module, and where in it each function and class stands, by its qualified name."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    ranges: dict[str, list[tuple[int, int]]] = {"*": [(0, len(text))]}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                ranges.setdefault(f"{prefix}{child.name}", []).append(
                    (starts[first - 1], starts[child.end_lineno or first])
                )
                visit(child, f"{prefix}{child.name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(text), "")
    return text, ranges
