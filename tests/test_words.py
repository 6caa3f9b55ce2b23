"""The words of the sources: one word for each state of a task, and docstrings that name their subject."""

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


NO_SUBJECTS = {
    *("What", "Whether", "How", "Which", "Where", "When", "Why", "Who"),
    *("One", "That", "Those", "It", "Some", "Something", "Everything", "Nothing", "Anything"),
}
"""Words that a docstring does not begin with: its first sentence names its subject. "The number of waiting tasks"."""


def docstrings(file):
    """The docstrings of a file, those below variables included: the line of each, and its text."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield node.lineno, text


def without_subject(folder):
    """The docstrings below a folder that do not name their subject at once, a line each."""
    for file in sorted(folder.rglob("*.py")):
        for line, text in docstrings(file):
            if (first := re.match(r"\W*(\w*)", text)[1]) in NO_SUBJECTS:
                yield f"{file.relative_to(folder).as_posix()}:{line}: {first} ..."


def test_docstrings_name_their_subject():
    assert [line for line in without_subject(SOURCES) if not line.startswith("engines/")] == []


def test_ever_more_docstrings_of_the_engines_name_their_subject():
    left = [*without_subject(SOURCES / "engines")]
    assert len(left) <= LEFT_IN_ENGINES, "\n".join(left)


def test_a_docstring_without_a_subject_is_found(tmp_path):
    (tmp_path / "file.py").write_text('"""The file."""\n\nsize = 0\n"""How many there are."""\n')
    assert [*without_subject(tmp_path)] == ["file.py:4: How ..."]
