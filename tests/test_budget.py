"""The size of the library is a budget: five numbers, each with a limit in budget.toml that rarely rises.

`python tests/test_budget.py` prints them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import tomllib
from enum import Enum
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
SOURCES = TOP / "src"
LANGUAGES = {".py", ".pyi", ".lua", ".sql", ".html", ".js", ".css"}
LIMITS = tomllib.loads((TOP / "tests/budget.toml").read_text())
ROOMS = (
    "tenure",
    "tenure.types",
    *(f"tenure.{room}" for room in ("local", "sql", "processor", "observe", "testing", "blocking")),
)
"""The rooms from which users import."""


def lines():
    """The lines of all files of the package."""
    files = [path for path in SOURCES.rglob("*") if path.suffix in LANGUAGES]
    return sum(len(path.read_text().splitlines()) for path in files)


def parameters():
    """The parameters of what users construct and call: no values that only the library makes, errors, enumerations,
    protocols.
    """
    public = {}
    for room in map(importlib.import_module, ROOMS):
        public.update((id(value), value) for name in room.__all__ if callable(value := getattr(room, name)))
    return sum(map(_parameters_of, public.values()))


def _parameters_of(value):
    if inspect.isclass(value):
        if (
            issubclass(value, BaseException | Enum)
            or getattr(value, "_is_protocol", False)
            or (dataclasses.is_dataclass(value) and not value.__dict__.get("__post_init__"))
        ):
            return 0
    elif not inspect.isroutine(value):
        return 0
    try:
        return len(inspect.signature(value).parameters)
    except ValueError:
        return 0


def words():
    """The words of the documents, programs in them included."""
    return sum(_count(path.read_text()) for path in (*TOP.glob("docs/**/*.md"), TOP / "README.md"))


def _count(text):
    """The words of a text, without the rulers of tables and other marks."""
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def docstrings():
    """The words of all docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        _count(ast.get_docstring(node) or "")
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds)
    )


def flags():
    """The different options of `tenure`, over all of its commands, but for `--help` and `--version`."""
    calls = [
        node
        for path in (SOURCES / "tenure/cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and re.search(r"\badd(_argument)?$", ast.unparse(node.func))
    ]
    words = [word.value for call in calls for word in call.args if isinstance(word, ast.Constant)]
    return len({word for word in words if isinstance(word, str) and word.startswith("--")})


NUMBERS = {
    "lines": lines,
    "parameters": parameters,
    "words": words,
    "docstrings": docstrings,
    "flags": flags,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_stays_within_its_limit(name):
    limit, number = LIMITS[name]["limit"], NUMBERS[name]()
    assert number <= limit, (
        f"{number:,} {name}: take as much away, or raise the limit and say why in the commit"
    )
    # else the room that a change has made would be filled by the next one
    assert number >= limit * 0.99, f"{number:,} {name}: lower the limit in tests/budget.toml, now {limit:,}"


def test_each_limit_has_a_reason():
    text = (TOP / "tests/budget.toml").read_text()
    assert len(re.findall(r"(?m)^\[\w+\]\n# .+\nlimit = \d+$", text)) == len(NUMBERS) == len(LIMITS)


if __name__ == "__main__":
    for name, number in NUMBERS.items():
        print(f"{number():>9,} {name}, limit {LIMITS[name]['limit']:,}")  # noqa: T201
