"""The docs are true as far as a machine can tell: programs run, links lead somewhere, public names are described."""

from __future__ import annotations

import ast
import asyncio
import gc
import importlib
import importlib.util
import inspect
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

import anyio
import pytest
from needed import NO_DJANGO, NO_PYTEST_ASYNCIO

import tenure
from tenure.cli._handler import load_handler

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
LINKED = [*PAGES, ROOT / "README.md", *(ROOT / "benchmarks").rglob("*.md")]
BACKENDS = ("asyncio", "trio")

BLOCK = re.compile(r"^```python(?: +(?P<info>\S+))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
TEST_FILE = re.compile(r"\btests/[\w/]+\.py\b")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(info=None):
    """The Python blocks of all pages, with what stands behind the word "python"."""
    for page in PAGES:
        for number, found in enumerate(BLOCK.finditer(page.read_text("utf-8"))):
            if info is None or found["info"] == info:
                yield pytest.param(found["code"], id=f"{name_of(page)}-{number}")


def anchors(text):
    """The anchors of the headings of a page, as they are commonly made."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(FENCED.sub("", text))
    }


def dead_links(page, text):
    """The relative links of a page that lead nowhere."""
    for target in LINK.findall(FENCED.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        there = file.exists()
        if not there or (anchor and anchor not in anchors(file.read_text("utf-8") if path else text)):
            yield target


# ------------------------------------------------------------------------------------------------------- programs


# What each step says at its end, whatever else is in its store.
OUTCOMES = {
    "processes.py": r"spawn 2 tasks\nfork 2 tasks\n",
    "step1_lock.py": r"(copy \d holds \S+ summary, fence \d+\n){3}6 words, by copy \d\n",
    "step2_limits.py": r"66 words of 12 pages in \S+ s\n",
    "step3_queue.py": r"66 words of 12 pages\n0 are left\n",
    "step4_worker.py": r"WorkerStatistics\(.* done=10, retried=2, dead=1, .*\)\n"
    r"dead: page 7 after 2 attempts: ValueError: .*\n",
    "step5_run.py": r"(?s:.*)inputs +3\ndone +3\n(?s:.*)(\{.*\"status\": \"done\".*\}\n){3}",
    "step6_keys.py": r"key-1 has to rest, .*\n66 words of 12 pages\nResourcePoolStatistics\(.*\)\n",
    "step7_leader.py": r"\w+ has scheduled in term \d+\n(\w+ did \d+ pages\n){3}",
    "step8_phases.py": r"the longest: page 11 of 12\n",
    "step9_processor.py": r"66 words of 12 pages; tries that failed: \d+\np95 of a page: .*\n",
    "step11_children.py": r"words: 28\nsuspended: \d\n",
    "step10_gateway.py": r"60 answers, 1250 tokens; calls above a limit: 0\n",
}


def run_example(example, folder, *words):
    """What a step prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(example.parent), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def run_here(capsys, monkeypatch, tmp_path):
    """What a step prints that runs in this process, which takes a tenth of the time."""

    def run(example, *words):
        if example.name == "processes.py":  # it forks
            return run_example(example, tmp_path, *words)
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.syspath_prepend(example.parent)
            patch.setattr(sys, "argv", [str(example), *words])
            code = 0
            try:
                runpy.run_path(str(example), run_name="__main__")
            except SystemExit as ended:
                code = ended.code
        said = capsys.readouterr()
        assert not code, said.err
        return said.out

    return run


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs_again_on_a_server_that_was_kept(example, backend, redis_server, run_here):
    """On a file, all run again where they share a store."""
    for _ in range(2):
        said = run_here(example, backend, redis_server.url)
        assert re.fullmatch(OUTCOMES[example.name], said), said
    assert sum(map(int, re.findall(r" did (\d+) pages", said))) == 12 * (example.name == "step7_leader.py")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("backend", BACKENDS)
def test_all_examples_can_share_a_store(tmp_path, backend, run_here):
    where = f"sqlite:///{tmp_path}/example.db"
    for example in EXAMPLES:
        # to start a process is what takes the longest
        alone = example is EXAMPLES[0]
        said = run_example(example, tmp_path, backend, where) if alone else run_here(example, backend, where)
        assert re.fullmatch(OUTCOMES[example.name], said), (example.name, said)
    for example in reversed(EXAMPLES):
        said = run_here(example, backend, where)
        assert re.fullmatch(OUTCOMES[example.name], said), (example.name, said)
    uses = {}
    for example in EXAMPLES:
        prefix = example.stem.partition("_")[0]
        for name in re.findall(
            r"(?:Lock|RateLimiter|Semaphore|WorkQueue|ResourcePool|Election|Barrier)\(store, f?\"([^\"]+)",
            example.read_text(),
        ):
            uses.setdefault(name, example.name)
            assert name.startswith(f"{prefix} ")
    assert len(uses) > 8


def test_step_5_replaces_the_results_of_another_store(tmp_path, run_here):
    (example,) = (file for file in EXAMPLES if file.name == "step5_run.py")
    for where in ("one", "two"):
        said = run_here(example, "asyncio", f"sqlite:///{tmp_path}/{where}.db")
        assert re.fullmatch(OUTCOMES[example.name], said), said


def test_step_5_can_be_run_as_it_says(tmp_path):
    (example,) = (file for file in EXAMPLES if file.name == "step5_run.py")
    lines = ast.get_docstring(ast.parse(example.read_text())).splitlines()
    shell = "\n".join(line.strip() for line in lines if line.startswith("    "))
    assert shell.startswith("printf ")
    (tmp_path / example.name).write_text(example.read_text())
    shell = shell.replace("tenure run", f"{sys.executable} -m tenure.cli run")
    subprocess.run(["/bin/sh", "-ec", shell], cwd=tmp_path, capture_output=True, timeout=50, check=True)
    results = [json.loads(line)["result"] for line in (tmp_path / "words.jsonl").read_text().splitlines()]
    assert sorted(results) == [1, 2, 3]


def test_step_1_names_the_extra_that_is_missing(tmp_path):
    (example,) = (file for file in EXAMPLES if file.name == "step1_lock.py")
    without = (
        "import importlib.util, runpy, sys; find = importlib.util.find_spec;"
        " importlib.util.find_spec = lambda name: None if name == 'trio' else find(name);"
        f" sys.argv[1:] = ['trio']; runpy.run_path({str(example)!r}, run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", without], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "trio is not installed: pip install 'tenure[trio]'\n")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("code", list(blocks("runnable")))
def test_a_runnable_block_runs(code, backend, tmp_path, monkeypatch):
    if "sqlite:" in code:
        need("tenure.engines.sqlite", "SqliteEngine")
    monkeypatch.chdir(tmp_path)
    # A module, because frameworks look up what annotations name.
    monkeypatch.setitem(sys.modules, "block", block := ModuleType("block"))
    names = vars(block)
    exec(compile(code, "<block>", "exec"), names)
    # An exploration runs loops of its own.
    if "main" in names or ("explore" not in names and "cancel_everywhere" not in names):
        anyio.run(names["main"], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_blocks_that_change_their_process_run(backend, tmp_path):
    codes = [code for block in blocks("process") for code in block.values]
    assert len(codes) > 1
    code = f"\n\nimport anyio\nanyio.run(main, backend={backend!r})\n".join([*codes, ""])
    # Sentry imports every framework that it can report from: seconds of CPU, which are many on a busy machine
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=100, check=True
    )
    assert b"the observer failed" not in ran.stderr


@pytest.mark.parametrize("code", list(blocks("script")))
def test_a_script_runs(code, tmp_path):
    """Without a loop of its own, and in its own process."""
    for framework in ("flask", "django"):
        if f"from {framework}" in code:
            pytest.importorskip(framework)
    if "from django.tasks" in code and importlib.util.find_spec("django.tasks") is None:
        pytest.skip(NO_DJANGO)
    (tmp_path / "shop.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "shop.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(r"waiting\n|{'task': \d+}\n|sent to ann at attempt 1\n", ran.stdout)


async def test_the_first_day_of_a_worker_is_as_its_page_says(tmp_path, monkeypatch):
    """The handlers of the page, given to `tenure work` and to the page's program alike."""
    page = (DOCS / "how-to" / "run-workers.md").read_text("utf-8")
    handlers, put, program = (found["code"] for found in list(BLOCK.finditer(page))[:3])
    assert "async def send_mail" in handlers and "import shop" in program
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in (("shop", handlers), ("workers", program)):
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
    exec(compile(put, "<block>", "exec"), names := {})
    await names["main"]()
    async with tenure.open_store("sqlite:///tenure.db") as store, anyio.create_task_group() as group:
        mails, bills = tenure.WorkQueue(store, "mail"), tenure.WorkQueue(store, "bills")
        group.start_soon(importlib.import_module("workers").main, store)
        with anyio.fail_after(50):
            assert await mails.result((await mails.get(key="welcome-ann")).id) == "sent to ann@example.org"
            assert await bills.result(await bills.put({"amount": 7})) == "billed 7"
            group.cancel_scope.cancel()
    for name in ("send_mail", "send_bill"):
        load_handler(f"shop:{name}").of_tasks()


def test_gunicorn_serves_the_application_of_its_page(tmp_path):
    pytest.importorskip("flask")
    pytest.importorskip("gunicorn")
    (code,) = (p.values[0] for p in blocks("script") if p.values[0].startswith("# shop.py"))
    (tmp_path / "shop.py").write_text(code)
    page = (DOCS / "how-to" / "use-from-synchronous-code.md").read_text("utf-8")
    (command,) = re.findall(r"^gunicorn (.*)$", page, re.MULTILINE)
    words = command.replace("127.0.0.1:8000", "unix:http.sock").split()
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        for line in server.stderr:
            if "Booting worker" in line:
                break
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(tmp_path / "http.sock"))
            connection.sendall(b"POST /mail/ann HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
    finally:
        server.terminate()
        assert server.wait(30) == 0
        server.stderr.close()
    assert re.search(rb'{"task":\d+}\n$', answer)


@pytest.mark.parametrize("code", list(blocks("asyncio")))
def test_a_block_for_asyncio_alone_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "block"}
    exec(compile(code, "<block>", "exec"), names)
    anyio.run(names["main"])
    gc.collect()  # SQLAlchemy 2.0 on Python 3.11 leaves closed connections in cycles, which hold their file


@pytest.mark.backends("asyncio")
async def test_the_cells_of_a_notebook_run(tmp_path, monkeypatch):
    """Each in a task of its own, as Jupyter runs them."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for param in blocks("cell"):
        (code,) = param.values
        cell = FunctionType(compile(code, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        await asyncio.create_task(cell())
    assert names["keeper"].done()


@pytest.mark.parametrize(
    ("page", "mode"),
    [
        ("test-your-own-code", "anyio_mode = auto"),
        ("use-in-notebooks", "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"),
    ],
)
def test_the_blocks_that_are_files_of_tests_run_when_they_are_copied(page, mode, tmp_path):
    path = os.environ.get("PYTHONPATH", "")
    if "asyncio" in mode:
        path += os.pathsep + (os.environ.get("TENURE_PYTEST_ASYNCIO") or pytest.skip(NO_PYTEST_ASYNCIO))
    for param in blocks():
        (code,) = param.values
        found = re.match(r"# (conftest\.py|test_mine\.py)\b", code)
        if found and page in param.id:
            (tmp_path / found[1]).write_text(code)
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{mode}\nfilterwarnings = error\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


@pytest.mark.parametrize("code", list(blocks()))
def test_a_block_is_python(code):
    compile(code, "<block>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_lines_of_the_five_programs_are_counted_rightly():
    page = (DOCS / "coming-from" / "five-programs.md").read_text("utf-8")
    codes = [found["code"].partition("# only for this page")[0] for found in BLOCK.finditer(page)]
    lines = [len(re.findall(r"^ *[^\s#]", code, re.MULTILINE)) for code in codes]
    rows = re.findall(r"^\| \[.*", page, re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")[2:-1]] for row in rows]
    figures = [[int(found[0]) for cell in row if (found := re.match(r"\d+", cell))] for row in cells]
    # ours come first on the page, then those of the others
    assert [row[0] for row in figures] == lines[:5]
    assert [figure for row in figures for figure in row[1:]] == lines[5:]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.name)
def test_an_example_stands_in_the_tutorial_as_it_is(example):
    shown = [param.values[0] for param in blocks(f"examples/{example.name}")]
    assert shown == [example.read_text("utf-8")]


# --------------------------------------------------------------------------------------------- files for supervisors

MANIFEST = DOCS / "examples" / "kubernetes-worker.yaml"
UNIT = DOCS / "examples" / "tenure-worker@.service"


def test_the_commands_of_the_supervisors_are_ones():
    from tenure.cli.work._work import _parser

    manifest = json.loads(re.search(r"command: (\[.*\])", MANIFEST.read_text())[1])
    unit = re.search(r"ExecStart=(.*)", UNIT.read_text())[1].replace("%i", "1").split()
    for words, grace in (
        (manifest, re.search(r"terminationGracePeriodSeconds: (\d+)", MANIFEST.read_text())),
        (unit, re.search(r"TimeoutStopSec=(\d+)", UNIT.read_text())),
    ):
        assert words[0].endswith("tenure") and words[1] == "work"
        assert int(grace[1]) >= _parser().parse_args(words[2:]).grace + 2
    probes = re.findall(r"(\w+)Probe:\n +httpGet:\n +path: (\S+)\n +port: (\w+)", MANIFEST.read_text())
    assert probes == [("liveness", "/live", "health"), ("readiness", "/ready", "health")]
    port = re.search(r"name: health\n +containerPort: (\d+)", MANIFEST.read_text())[1]
    assert _parser().parse_args(manifest[2:]).health[1] == int(port)
    assert "KillSignal=SIGTERM\n" in UNIT.read_text()
    page = (DOCS / "how-to" / "operate-workers.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shown in MANIFEST.read_text()


def test_the_manifest_is_yaml(tmp_path):
    kubectl = shutil.which("kubectl") or pytest.skip("kubectl: none")
    (tmp_path / MANIFEST.name).write_text(MANIFEST.read_text())
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{MANIFEST.name}]\n")
    ended = subprocess.run(
        [kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "path: /live" in ended.stdout


def test_the_unit_is_one(tmp_path):
    analyze = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze: none")
    unit = tmp_path / UNIT.name.replace("@", "@1")
    unit.write_text(UNIT.read_text().replace("/opt/shop/venv/bin/tenure", sys.executable))
    ended = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=50, check=False
    )
    assert (ended.returncode, UNIT.stem in ended.stderr) == (0, False), ended.stderr


# ------------------------------------------------------------------------------------------------ links and names


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_every_link_leads_somewhere(page):
    assert list(dead_links(page, page.read_text("utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_exists(page):
    named = set(TEST_FILE.findall(page.read_text("utf-8")))
    assert [file for file in sorted(named) if not (ROOT / file).exists()] == []


@cache
def reached():
    """The pages that links lead to from the index."""
    seen, to_do = set(), [DOCS / "index.md"]
    while to_do:
        here = to_do.pop()
        if here in seen or here.suffix != ".md" or not here.exists():
            continue
        seen.add(here)
        targets = (target.partition("#")[0] for target in LINK.findall(here.read_text("utf-8")))
        to_do += [(here.parent / target).resolve() for target in targets if target and ":" not in target]
    return seen


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_is_reached_from_the_index(page):
    assert page in reached()


def test_the_extras_stand_in_the_reference_as_they_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (DOCS / "reference/compatibility.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    extras = project["optional-dependencies"]
    # no program needs pytest to run
    assert ",".join(sorted(rows.keys() - {"testing"})) == extras["all"][0].removeprefix(
        "tenure["
    ).removesuffix("]")
    needs = [(text, one) for one in project["dependencies"]] + [
        (rows[e], one) for e in rows for one in extras[e]
    ]
    for row, one in needs:
        if found := re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", one):
            assert f"{found[1]} {found[2]} or later" in row


def need(module, name):
    """Skip where a part is not built yet."""
    if not hasattr(pytest.importorskip(module), name):
        pytest.skip(f"{module} has no {name} yet")


@cache
def reference():
    """The pages of the reference, and of the sources what the site makes the rest of it from."""
    pages = [page.read_text("utf-8") for page in sorted((DOCS / "reference").glob("*.md"))]
    trees = [ast.parse(file.read_text("utf-8")) for file in sorted((ROOT / "src").rglob("*.py"))]
    return "\n".join([*pages, *(text for tree in trees for text in described(tree))])


def described(tree):
    """The names that have a docstring, with their parameters, the docstrings, and the fields of all classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            text := ast.get_docstring(node)
        ):
            yield f"{node.name} {text}"
            if not isinstance(node, ast.ClassDef):
                yield from (one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg))


@pytest.mark.parametrize("room", ["tenure", "tenure.blocking", "tenure.local", "tenure.types"])
def test_completion_shows_what_the_reference_has(room):
    module, words = importlib.import_module(room), set(re.findall(r"\w+", reference()))
    classes = [value for name in module.__all__ if inspect.isclass(value := getattr(module, name))]
    shown = {
        (kind.__name__, name)
        for kind in classes
        for base in kind.__mro__
        if base.__module__.startswith("tenure")
        for name in vars(base)
    }
    assert [
        ".".join(pair) for pair in sorted(shown) if not pair[1].startswith("_") and pair[1] not in words
    ] == []


# --------------------------------------------------------------------------- the tests above, tested on planted faults


def test_dead_links_are_seen(tmp_path):
    (tmp_path / "there.md").write_text("# The title, with `code`\n")
    page = tmp_path / "page.md"
    text = (
        "# Here\n[a](there.md) [b](gone.md) [c](there.md#the-title-with-code) [d](there.md#gone) [e](#here)"
        " [f](#gone) [g](https://example.org/gone.md)\n```\n[h](gone.md)\n```\n"
    )
    page.write_text(text)
    assert list(dead_links(page, text)) == ["gone.md", "there.md#gone", "#gone"]
