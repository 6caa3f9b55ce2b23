"""The command line and the page have one word for each state of a task, those of `TaskRecord.state`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "tenure"
OTHERS = re.compile(r"\b(running|in progress|resting|postponed|failed tries|tries failed)\b", re.IGNORECASE)
"""Other words for leased and delayed tasks, and for attempts."""

KEPT = {
    "_document.py": {"running", "resting"},
    "_working.py": {"postponed"},
    "_frame.py": {"resting"},
    "tables.js": {"running", "resting"},
}
"""Durations of handlers, resources of pools, and the field `postponed` of the statistics of a worker."""


def texts(path):
    if path.suffix != ".py":
        return [re.sub("^ *//.*", "", path.read_text("utf-8"), flags=re.MULTILINE)]
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    strings = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return [node.value for node in strings if isinstance(node.value, str)]


@pytest.mark.parametrize("room", ["cli", "web"])
def test_the_states_of_tasks_have_one_word_each(room):
    found = {
        (path.name, word.lower())
        for path in (SOURCES / room).rglob("*.*")
        if path.suffix in (".py", ".js", ".html")
        for text in texts(path)
        for word in OTHERS.findall(text)
        if word.lower() not in KEPT.get(path.name, ())
    }
    assert found == set()
