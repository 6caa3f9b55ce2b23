"""The words of the sources: one word for each state of a task, and docstrings that name their subject."""

from __future__ import annotations

import ast
import re
from functools import cache
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
    "page.html": {"running"},
}
"""Durations of handlers, what runs now, resources of pools, and the field `postponed` of the statistics of a worker."""


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


@cache
def docstrings(file):
    """The docstrings of a file, those below variables included: the line of each, and its text."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return [
        (node.lineno, node.value.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
    ]


def without_subject(folder):
    """The docstrings below a folder that do not name their subject at once, a line each."""
    for file in sorted(folder.rglob("*.py")):
        for line, text in docstrings(file):
            if (first := re.match(r"\W*(\w*)", text)[1]) in NO_SUBJECTS:
                yield f"{file.relative_to(folder).as_posix()}:{line}: {first} ..."


def test_docstrings_name_their_subject():
    assert [*without_subject(SOURCES)] == []


def test_a_docstring_without_a_subject_is_found(tmp_path):
    (tmp_path / "file.py").write_text('"""The file."""\n\nsize = 0\n"""How many there are."""\n')
    assert [*without_subject(tmp_path)] == ["file.py:4: How ..."]


NO_NOUNS = re.compile(r"\b(that of|those of|ones? that|the ones?(?!-)|what is|any more)\b", re.IGNORECASE)
"""Phrases that stand where a noun, or a shorter sentence, should: "the timeout of the call", not "that of the call"."""

LEFT = {"docs": 8, "src": 80}
"""How often such phrases stand in the documents, and in the comments and docstrings; the numbers only fall."""


def prose(path):
    """The text of a file, without the blocks of code of a document."""
    text = path.read_text("utf-8")
    if path.suffix != ".md":
        return text
    code = re.compile(r"^( *)```.*?^\1```|^(?: {4}|\t).*?$", re.MULTILINE | re.DOTALL)
    return code.sub(lambda block: "\n" * block[0].count("\n"), text)


def without_nouns(*paths):
    """The phrases of NO_NOUNS in files, a line each; the end of a line may be inside of a phrase."""
    for path in paths:
        text = re.sub(r"\n *(?:(?:#|--) )? *(?=\S)", "\n", prose(path))
        for phrase in NO_NOUNS.finditer(text.replace("\n", " ")):
            yield f"{path}:{text.count(chr(10), 0, phrase.start()) + 1}: {phrase[0]}"


def documents():
    root = SOURCES.parents[1]
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def sources():
    return [file for file in sorted(SOURCES.rglob("*.*")) if file.suffix in (".py", ".lua", ".sql")]


@pytest.mark.parametrize("files", [documents, sources])
def test_ever_more_sentences_have_nouns(files):
    left = [*without_nouns(*files())]
    assert len(left) <= LEFT["docs" if files is documents else "src"], "\n".join(left)


def test_a_phrase_without_a_noun_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "The timeout is that\nof the call.\n\n```python\nx = 1  # what is\n```\n\nAny one that waits.\n"
    )
    assert [*without_nouns(page)] == [f"{page}:1: that of", f"{page}:8: one that"]


LONGEST = 40
"""The most words of a sentence of the documents, and of a cell of a table."""


def sentences(path):
    """The sentences of a document; a cell of a table is one."""
    text = re.sub(r"\n+(?=#|\s*[-*] |\s*\d+\. )|(?<=\|)\n", "\n\n", prose(path))
    for part in re.split(r"\n\s*\n", text):
        if part.lstrip().startswith("|"):
            yield from part.strip("| \n").split(" | ")
        else:
            yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])", part)


def test_no_sentence_of_the_documents_is_long():
    long = [
        (path.name, text) for path in documents() for text in sentences(path) if len(text.split()) > LONGEST
    ]
    assert long == []


def test_a_long_sentence_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        f"# Words\nShort. {'A long ' * 20}one.\n- Item.\n\n| a | {'word ' * 41}|\n|---|---|\n| b | c |\n"
    )
    assert sum(len(text.split()) > LONGEST for text in sentences(page)) == 2
