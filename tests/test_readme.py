"""What the README shows works: its examples run, its figures are on record, and its two commands are in their place."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.soak import evidence
from tenure import blocking
from tenure.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")
FLAGS = re.MULTILINE | re.DOTALL
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", FLAGS)


def section(heading):
    """The text under a heading of the second level."""
    return re.split(r"^## ", TEXT, flags=re.MULTILINE)[
        [part.partition("\n")[0] for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)].index(heading)
    ]


def commands():
    return [code for language, code in BLOCK.findall(section("Start")) if language == "sh"]


def test_there_are_two_commands_of_one_line_each():
    assert len(BLOCK.findall(section("Start"))) == len(commands()) == 2
    assert [command.count("\n") for command in commands()] == [1, 1]
    assert not any(command.startswith((" ", "$", "#")) for command in commands())


def test_both_install_what_they_need_from_this_directory():
    for command in commands():
        install, then = command.split(" && ")
        assert re.fullmatch(r"pip install -e '\.\[\w+\]'", install)
        assert then.split()[0] in {"tenure", "python"}


def test_the_workflow_runs_the_first_on_each_python():
    workflow = Path(__file__).parents[1] / ".github" / "workflows" / "ci.yml"
    assert f"run: {commands()[0]}" in workflow.read_text()


def programs():
    return [code for language, code in BLOCK.findall(TEXT) if language == "python"]


def consoles():
    return [code for language, code in BLOCK.findall(TEXT) if language == "console"]


def tenure_words(line):
    """The words of a `tenure` command for a console: without its prompt, and without "&" and what follows."""
    return shlex.split(line.removeprefix("$ ").partition(" &")[0])[1:]


def until(condition):
    limit = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture
def command(capsys):
    """Runs `tenure WORDS` in this process, without an error; gives its output."""

    def run(words):
        assert main(words) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started(tmp_path):
    """Starts Python in a folder, with the sources of this test run; kills what is left."""
    running = []

    def start(*words):
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_the_first_command_is_short_enough_to_type():
    assert len(commands()[0]) < 100


def test_the_examples_have_ten_lines():
    assert len(programs()) == 3
    assert all(code.count("\n") <= 10 for code in programs())
    lines = [line for code in (*programs(), *consoles()) for line in code.splitlines()]
    assert max(map(len, lines)) <= 116


def test_a_worker_is_killed_and_another_goes_on(tmp_path, started, command):
    quicker = programs()[0].replace("sleep(2)", "sleep(0.5)")
    (tmp_path / "shop.py").write_text(quicker)
    *lines, stop = consoles()[0].splitlines()
    assert stop == "$ kill $!"  # no worker is left behind
    first, second = (
        [*["-m", "tenure.cli"], *tenure_words(line)] for line in lines if line.startswith("$ tenure work")
    )
    runpy.run_path("shop.py", run_name="__main__")
    with blocking.open_store(f"sqlite:///{tmp_path}/tenure.db") as store:
        photos = blocking.WorkQueue(store, "photos")
        worker = started(*first)
        until(lambda: photos.statistics().leased == 10)
        worker.kill()
        worker = started(*second)
        until(lambda: photos.statistics().done == 100)
        assert photos.verify()
        worker.terminate()
        assert worker.wait(50) == 0
    said = command(tenure_words(lines[4])).split()
    assert said[:-1] == "\n".join(lines[5:]).split()[:-1]


def test_a_frozen_holder_of_a_lock_is_cancelled(tmp_path, started):
    (tmp_path / "report.py").write_text(programs()[1])
    line, *output = consoles()[1].splitlines()
    assert "sleep 4; kill -CONT" in line
    report = started("report.py")
    with blocking.open_store(f"sqlite:///{tmp_path}/tenure.db") as store:
        until(blocking.Lock(store, "report").locked)
    report.send_signal(signal.SIGSTOP)
    time.sleep(4)
    report.send_signal(signal.SIGCONT)
    said, _ = report.communicate(timeout=50)
    assert said.splitlines() == output


def test_a_task_waits_for_its_children(tmp_path, started, command):
    (tmp_path / "pages.py").write_text(programs()[2])
    work, follow, *output, stop = consoles()[2].splitlines()
    assert stop == "$ kill $!"
    follow, put = follow.removesuffix(")").split("$(")
    started("-m", "tenure.cli", *tenure_words(work))
    task_id = command(tenure_words(put))
    assert command([*tenure_words(follow), task_id.strip()]).splitlines()[-1:] == output


def test_the_line_of_evidence_is_what_the_soaks_have_recorded():
    line = evidence.sentence(evidence.read())
    assert f"\n{line}: [how tenure is" in TEXT
    assert f"\n{line}.\n" in (ROOT / "docs/explanations/how-it-is-tested.md").read_text("utf-8")
    assert f"\n{line}: [how tenure is" in (ROOT / "docs/index.md").read_text("utf-8")


def test_a_soak_is_put_on_record(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["soak", "redis", "--record", "--faults", "5"])
    evidence.put_on_record(tmp_path / "runs", seed=7, kills=3, writes=20, tasks=10, violations=0)
    (run,) = evidence.read(tmp_path / "runs")
    assert run.pop("date").startswith("20")
    assert run == {
        "command": "python -m benchmarks.soak redis --faults 5",
        "seed": 7,
        "kills": 3,
        "writes": 20,
        "tasks": 10,
        "violations": 0,
    }
    assert evidence.sentence([run, run]) == "0 stale writes in 40, 0 tasks lost in 20, through 6 kills"
    run["violations"] = 1
    assert evidence.sentence([run]) == "1 violations in 20 writes and 10 tasks, through 3 kills"


def test_the_landing_page_and_the_tutorial_begin_with_the_same_program():
    """What is tested here goes for them, too."""
    landing, tutorial = (
        (ROOT / "docs" / name).read_text("utf-8") for name in ("index.md", "tutorial/0-worker.md")
    )
    for page in (landing, tutorial):
        (program,) = (
            code for code in re.findall(r"^```python[^\n]*\n(.*?)^```$", page, FLAGS) if "resize" in code
        )
        assert ast.dump(ast.parse(program)) == ast.dump(ast.parse(programs()[0]))
    assert consoles()[0] in landing
    assert f"\n    {tenure_line(consoles()[0])}\n" in tutorial


def tenure_line(console):
    """The command of a worker, as a page shows it that has no prompt."""
    line = next(line for line in console.splitlines() if "tenure work" in line)
    return line.removeprefix("$ ").partition(" &")[0]


def test_the_first_command_does_its_job(tmp_path, command):
    """With some of the standard library's files, and without the installation."""
    words = shlex.split(commands()[0].split(" && ")[1])[1:]
    files = sorted(Path(json.__file__).parent.glob("*.py"))
    command([*words, "--from", f"{Path(json.__file__).parent}/*.py"])
    assert (tmp_path / "digests.jsonl").read_text().count("\n") == len(files)
