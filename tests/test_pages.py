"""Messages name pages of the documentation by their addresses."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from email.message import Message
from pathlib import Path

import pytest

from tenure.pages import doc_page

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "tenure").rglob("*.py"))
DOCUMENTATION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"][
    "Documentation"
]


def strings(tree):
    """All strings of a module but those that stand for themselves: docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def pages_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "doc_page":
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
        elif isinstance(node, ast.Constant) and str(node.value).startswith("how-to/"):
            yield node.value  # for a function that passes it on


@pytest.fixture(scope="module")
def trees():
    return {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in SOURCES}


def test_no_message_names_a_path_of_the_repository(trees):
    paths = re.compile(r"\b(docs|src|tests|benchmarks)/\w|\w\.md\b")
    named = [(path, text) for path, tree in trees.items() for text in strings(tree) if paths.search(text)]
    assert [(str(path), text) for path, text in named if path.name != "pages.py"] == []


def test_each_page_that_is_named_exists(trees):
    named = {name for tree in trees.values() for name in pages_in(tree)}
    assert len(named) > 3
    for name in named:
        path, _, section = name.partition("#")
        text = (ROOT / "docs" / f"{path}.md").read_text("utf-8")
        headings = {
            re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-") for line in text.splitlines()
        }
        assert not section or section in headings, name


def test_the_address_is_below_that_of_the_documentation():
    assert doc_page("how-to/run-workers#logs") == f"{DOCUMENTATION}/how-to/run-workers.md#logs"


def test_a_site_has_a_folder_for_each_page(monkeypatch):
    said = Message()
    said["Project-URL"] = "Documentation, https://tenure.example.org/latest"
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: said)
    assert doc_page("how-to/run-workers#logs") == "https://tenure.example.org/latest/how-to/run-workers/#logs"


def test_without_metadata_the_page_is_named(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.metadata", missing)
    assert doc_page("reference/web") == "the page reference/web of the documentation of tenure"
