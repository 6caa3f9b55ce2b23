"""The site has every page and every public name. `.ci/run` builds it, which checks links, and looks at it."""

from __future__ import annotations

import json
import os
import re
import runpy
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from browser import CHROMIUM, Browser
from needed import NO_CHROMIUM, NO_SITE
from test_front_door import THINGS

from benchmarks._bars import drawings
from benchmarks._record import recorded

DOCS = Path(__file__).parents[1] / "docs"
CONFIG = (DOCS / "site" / "mkdocs.yml").read_text("utf-8")
NAVIGATION = set(re.findall(r"^ +- (?:.*: )?(\S+\.md)$", CONFIG, re.MULTILINE))

# Rooms that users meet only through others.
NOT_FOR_USERS = {"tenure.lazy", "tenure.pages", "tenure.serving", "tenure.shared", "tenure.store"}


@pytest.fixture(scope="module")
def api():
    return runpy.run_path(str(DOCS / "site" / "api.py"))


def test_every_public_name_has_its_place_in_the_api_reference(api):
    text = "".join(api["pages"]().values())
    described = re.findall(r"^::: (.*)$", text, re.MULTILINE)
    # errors stand on a page of their own, under the name by which they are imported
    public = {name for name, value in THINGS if name.rpartition(".")[0] not in NOT_FOR_USERS}
    assert len(described) == len(set(described))
    assert sorted(public - set(described)) == []


def test_every_page_is_in_the_navigation(api):
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | set(api["pages"]())
    assert pages == NAVIGATION


def test_machines_get_a_list_of_the_pages_and_all_of_them():
    pytest.importorskip("mkdocs")
    hooks = runpy.run_path(str(DOCS / "site" / "hooks.py"))
    nav = ["index.md", {"Tutorial": ["tutorial/index.md", {"More": ["tutorial/0-worker.md"]}]}]
    made = hooks["for_machines"]([*nav, {"API": ["reference/api/tenure.md"]}])
    assert "\n- [0. Run a worker, and kill it](tutorial/0-worker/): You need Python" in made["llms.txt"]
    assert "\n- [tenure](.): " in made["llms.txt"]
    assert "](tutorial/): " in made["llms.txt"]
    assert made["llms-full.txt"].count("\n<!-- ") == 3
    assert "```python\nimport anyio" in made["llms-full.txt"]
    assert "](" not in "".join(line.partition("): ")[2] for line in made["llms.txt"].splitlines())


def test_the_front_page_has_an_index_of_symptoms_and_verbs():
    index = (DOCS / "index.md").read_text("utf-8").partition("\n## Find it by a word\n")[2]
    words = set(re.findall(r"[\w ]+", re.sub(r"\]\(.*?\)", "", index)))
    sought = """backup, cancelled, connection, dedupe, idempotency key, in order, late, memory, once at a time, outbox,
        poison, stop a task, stuck, tomorrow, too fast, twice"""
    assert {" ".join(word.split()) for word in sought.split(",")} <= {word.strip() for word in words}


def test_the_pages_most_read_are_two_screens():
    pages = (
        "../README.md",
        "index.md",
        "tutorial/0-worker.md",
        "how-to/which-pattern.md",
        "how-to/run-workers.md",
    )
    assert {page: words_of(DOCS / page) for page in pages if words_of(DOCS / page) > 800} == {}


def test_no_page_of_the_reference_is_longer_than_ten_screens():
    pages = sorted((DOCS / "reference").glob("*.md"))
    assert {page.name: words_of(page) for page in pages if words_of(page) > 4000} == {}


def words_of(page):
    """How many words a page has; a screen has some 400."""
    return len(page.read_text("utf-8").split())


def test_the_drawings_are_those_that_the_script_draws():
    drawn = {
        f"{drawing.name}.svg": drawing.svg()
        for drawing in runpy.run_path(str(DOCS / "site" / "draw.py"))["DRAWINGS"]
    }
    files = {file.name: file.read_text("utf-8") for file in (DOCS / "drawings").iterdir()}
    bars = {f"{drawing.name}.svg": drawing.svg() for drawing in drawings(recorded())}
    assert files == drawn | bars
    shown = re.findall(
        r"!\[[^\]]{40,}\]\([./]*drawings/([\w-]+\.svg)\)",
        "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md")),
    )
    assert sorted({*shown}) == sorted(files)


# ------------------------------------------------------------------------------------------------- in a browser

SITE = os.environ.get("TENURE_SITE")
LOOK = """(() => {
    const width = document.documentElement.clientWidth;
    const wide = [...document.querySelectorAll(".md-content *")].filter(one =>
        one.getBoundingClientRect().right > width + 1 && !one.closest("pre, svg, .md-typeset__scrollwrap"));
    const foreign = performance.getEntriesByType("resource").filter(one => !one.name.startsWith("file:"));
    return [wide.map(one => one.textContent.slice(0, 60)), foreign.map(one => one.name),
        document.documentElement.scrollWidth - width];
})()"""


@pytest.mark.skipif(SITE is None, reason=NO_SITE)
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_each_page_fits_a_phone_and_loads_nothing_from_elsewhere(tmp_path):
    pages = sorted(Path(SITE).rglob("index.html"))
    assert len(pages) > 100
    seen = {}
    for start in range(0, len(pages), 30):
        with Browser(tmp_path, width=390) as browser:
            for page in pages[start : start + 30]:
                browser.open(page.as_uri())
                browser.until(f"location.href == {page.as_uri()!r} && document.readyState == 'complete'")
                if (found := browser.ask(LOOK)) != [[], [], 0]:
                    seen[page.relative_to(SITE).as_posix()] = found
    assert seen == {}


@pytest.mark.skipif(SITE is None, reason=NO_SITE)
def test_the_search_leaves_out_programs_and_pages_without_answers():
    sections = json.loads((Path(SITE) / "search/search_index.json").read_text("utf-8"))["docs"]
    assert not any("import anyio" in section["text"] for section in sections)
    assert not any(section["location"].startswith("source/benchmarks/FIGURES/") for section in sections)
    assert any("max_payload" in section["text"] for section in sections)


@pytest.mark.skipif(SITE is None, reason=NO_SITE)
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_words_are_found(tmp_path):
    handler = partial(Quiet, directory=SITE)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, Browser(tmp_path) as browser:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            browser.open(f"http://127.0.0.1:{server.server_port}/?q=quarantine")
            browser.until("document.querySelectorAll('.md-search-result__item').length > 1")
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_): ...
