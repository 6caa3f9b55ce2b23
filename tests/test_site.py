"""The site has every page and every public name. `.ci/run` builds it, which checks links, anchors and drawings."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from internal import FOR_OTHER_ROOMS
from test_front_door import THINGS

DOCS = Path(__file__).parents[1] / "docs"
CONFIG = (DOCS / "site" / "mkdocs.yml").read_text("utf-8")
NAVIGATION = set(re.findall(r"^ +- (?:.*: )?(\S+\.md)$", CONFIG, re.MULTILINE))

# Rooms that users meet only through others.
NOT_FOR_USERS = {"tenure.lazy", "tenure.serving", "tenure.shared", "tenure.store"}


@pytest.fixture(scope="module")
def api():
    return runpy.run_path(str(DOCS / "site" / "api.py"))


def test_every_public_name_has_its_place_in_the_api_reference(api):
    text = "".join(api["pages"]().values())
    described = re.findall(r"^::: (.*)$", text, re.MULTILINE)
    # errors stand on a page of their own, under the name by which they are imported
    public = {
        name
        for name, value in THINGS
        if name.rpartition(".")[0] not in NOT_FOR_USERS and value.__name__ not in FOR_OTHER_ROOMS
    }
    assert len(described) == len(set(described))
    assert sorted(public - set(described)) == []


def test_every_page_is_in_the_navigation(api):
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | set(api["pages"]())
    assert pages == NAVIGATION


def test_the_drawings_are_those_that_the_script_draws():
    drawn = {
        f"{drawing.name}.svg": drawing.svg()
        for drawing in runpy.run_path(str(DOCS / "site" / "draw.py"))["DRAWINGS"]
    }
    assert {file.name: file.read_text("utf-8") for file in (DOCS / "drawings").iterdir()} == drawn
    shown = re.findall(
        r"!\[[^\]]{40,}\]\([./]*drawings/([\w-]+\.svg)\)",
        "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md")),
    )
    assert sorted(shown) == sorted(drawn)
