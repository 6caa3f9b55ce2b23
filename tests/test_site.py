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


def test_the_index_by_words_becomes_words_of_the_search():
    search = runpy.run_path(str(DOCS / "site" / "search.py"))
    index = "- late, `finally`: [a](how-to/a.md#b), [c](c.md); on\n  time: [c](c.md)"
    named = search["tags"](f"# Start\n\n## Find it by a word\n\n{index}\n\nEnd")
    assert named == {"how-to/a/#b": ["late", "finally"], "c/": ["on time"]}
    places = {"how-to/a/#b": "Too late", "reference/x/": "x", "": "Start"}
    sections = [{"location": place, "title": title} for place, title in places.items()]
    made = json.loads(search["arranged"](json.dumps({"config": {"fields": {}}, "docs": sections}), named))
    first, second, third = made["docs"]
    assert first["tags"] == ["finally"] and "tags" not in second
    assert first["boost"] > second["boost"] > third["boost"]


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


@pytest.mark.timeout(400)  # a browser and each page: two minutes beside other tests
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


@pytest.fixture
def served():
    """The address of the built site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(SITE is None, reason=NO_SITE)
def test_the_search_leaves_out_programs_and_pages_without_answers():
    sections = json.loads((Path(SITE) / "search/search_index.json").read_text("utf-8"))["docs"]
    assert not any("import anyio" in section["text"] for section in sections)
    assert not any(section["location"].startswith("source/benchmarks/FIGURES/") for section in sections)
    assert any("max_payload" in section["text"] for section in sections)


@pytest.mark.skipif(SITE is None, reason=NO_SITE)
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_words_are_found(tmp_path, served):
    with Browser(tmp_path) as browser:
        browser.open(f"{served}/?q=quarantine")
        browser.until("document.querySelectorAll('.md-search-result__item').length > 1")
        assert browser.complaints == []


QUESTIONS = {
    "tomorrow at 5pm": "how-to/run-schedules/#once-tomorrow-at-1700",
    "lock lost": "explanations/lease/",
    "Redis loses data": "explanations/guarantees/",
    "How do I test my handler?": "how-to/test-your-own-code/",
    "how many workers": "how-to/scale-workers/",
    "SQLAlchemy async session": "how-to/get-or-create/",
    "stop a running task": "how-to/stop-a-task/",
    "exactly once": "how-to/exactly-once/",
    "several arguments, pydantic": "reference/shared-worker/",
    "result in a web request": "how-to/follow-a-task/",
    "changed payload": "how-to/survive-deploys/#changed-payloads",
    "time limit": "how-to/handle-tasks/",
    "priorities": "reference/shared-queue/",
    "payload size": "how-to/large-payloads/",
    "task id in logs": "how-to/report-errors/",
    "PgBouncer": "how-to/use-a-managed-server/",
    "failed tasks, retry": "how-to/",  # follow a task, or handle tasks
    "summer time": "how-to/run-schedules/#summer-time",
    "dedupe": "how-to/run-once-per-key/",
    "delete old results": "how-to/follow-a-task/",
    "one Redis for staging and production": "how-to/separate-staging/",
    "Windows": "reference/compatibility/",
    "outbox": "how-to/outbox/",
    "idempotency key": "how-to/run-once-per-key/",
    "poison": "reference/shared-worker/",
    "SIGHUP": "how-to/operate-workers/",
    "contextvars": "how-to/report-errors/",
    "backup": "how-to/back-up-and-restore/",
    "graceful shutdown": "how-to/operate-workers/",
}
"""What a new user asked of the search, and where the first answer leads."""

ASK = """(async () => {
    const worker = new Worker(JSON.parse(document.getElementById("__config").textContent).search)
    const said = message => new Promise(done => {
        worker.onmessage = event => done(event.data)
        worker.postMessage(message)
    })
    const index = await (await fetch("search/search_index.json")).json()
    await said({type: 0, data: {...index, options: {}}})
    const found = {}
    for (const question of QUESTIONS) {
        const [page] = (await said({type: 2, data: question})).data.items
        found[question] = page?.sort((one, other) => other.score - one.score)[0].location
    }
    worker.terminate()
    return found
})()"""


@pytest.mark.skipif(SITE is None, reason=NO_SITE)
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_the_search_answers_questions_with_its_first_hit(tmp_path, served):
    with Browser(tmp_path) as browser:
        browser.open(served)
        browser.until("document.getElementById('__config')")
        found = browser.ask(ASK.replace("QUESTIONS", json.dumps([*QUESTIONS])))
    wrong = {
        question: hit for question, hit in found.items() if not (hit or "").startswith(QUESTIONS[question])
    }
    assert wrong == {}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_): ...
