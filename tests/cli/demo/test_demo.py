"""`tenure demo`: the fleet is killed and comes back, the verdict is true, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tenure.cli.demo._audit import judge
from tenure.cli.demo._books import Written
from tenure.shared import Audit, QueueStatistics

PATIENCE = 100


@pytest.fixture
def demo(start, here):
    """Starts `tenure demo`, whose folder is below the test's."""

    def run(*words):
        return start("demo", *words, env={**os.environ, "TMPDIR": str(here)})

    return run


def said(child, pattern):
    """Read what a demo says up to a line with the pattern; the lines."""
    lines = []
    while not (lines and re.search(pattern, lines[-1])):
        line = child.stdout.readline()
        assert line, (lines, child.stderr.read())
        lines.append(line)
    return lines


def workers(folder):
    """The numbers of the processes that work in a folder; those that have ended do not count."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder) in file.read_text() and "--child" in file.read_text():
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def written_again(folder):
    """Write a letter down once more, if one was delivered; whether it was."""
    (file,) = folder.glob("tenure-demo-*/demo.db")
    with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
        again = "INSERT INTO delivered SELECT letter, worker FROM delivered LIMIT 1"
        return connection.execute(again).rowcount == 1


@pytest.mark.slow
def test_a_worker_is_killed_and_replaced_and_the_records_agree(demo, here):
    child = demo("--quick")
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (0, "")
    assert "\x1b" not in out
    story, _, audit = out.partition("queue.verify()")
    assert all(len(line) <= 80 for line in story.splitlines())
    token = int(re.search(r"kill -9 (\w+): had the ledger, token (\d+)", story)[2])
    assert int(re.search(r"\w+ has the ledger \S+ s later, token (\d+)", story)[1]) > token
    assert " is back, as process " in story
    (sent,) = re.findall(r"the last one has the number (\d+)", story)
    assert f"{sent} put, {sent} done; {sent} delivered, 0 again" in audit
    assert all(len(line) <= 80 for line in audit.splitlines())
    assert audit.splitlines()[-1].startswith("PASSED")
    assert list(here.iterdir()) == []
    assert workers(here) == []


def test_a_signal_ends_it_at_once_with_what_there_is(demo, here):
    child = demo()
    said(child, "workers deliver letters")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (1, "")
    assert out.splitlines()[-1] == "STOPPED before the end. So far, the records agree."
    assert list(here.iterdir()) == []
    assert workers(here) == []


@pytest.mark.full
def test_a_letter_that_is_delivered_twice_fails_it(demo, here, until):
    child = demo()
    said(child, "workers deliver letters")
    until(lambda: written_again(here))
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1
    assert re.search(r"letter \d+ was delivered more than once", out)
    assert out.splitlines()[-1].startswith("FAILED")


@pytest.mark.full
def test_a_worker_that_ends_by_itself_fails_it(demo, here):
    child = demo()
    said(child, "workers deliver letters")
    for number in workers(here):
        with suppress(ProcessLookupError):  # the demo may have killed one of them
            os.kill(number, signal.SIGTERM)
    out, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1
    assert "ended by itself with exit code -15" in out


@pytest.mark.full
def test_workers_end_when_the_demo_is_killed(demo, here, until):
    child = demo()
    said(child, "workers deliver letters")
    child.kill()
    until(lambda: workers(here) == [])


def test_the_page_shows_it_too(demo):
    child = demo("--web")
    (page,) = re.findall(r"http://\S+", said(child, "http://")[-1])
    with urllib.request.urlopen(page, timeout=50) as answer:
        assert b"tenure" in answer.read()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=PATIENCE)


@pytest.mark.full
@pytest.mark.slow
def test_on_a_terminal_its_frames_fit_and_the_verdict_stays(terminal):
    demo = terminal("demo", "--quick", "--backend", "trio")
    demo.until(lambda: "\x1b[?1049l" in demo.shown)
    assert demo.child.wait(PATIENCE) == 0
    demo.read()
    text = "\n".join("\n".join(drawn) for drawn in demo.frames)
    for drawn in demo.frames[:-1]:
        assert len(drawn) <= 24
        assert all(len(line) <= 80 for line in drawn)
    assert re.search(r"^(ann|bob|cem|dora) .* killed ", text, re.MULTILINE)
    assert re.search(r"^(ann|bob|cem|dora) .* token \d+", text, re.MULTILINE)
    assert "PASSED" in demo.shown.rpartition("\x1b[?1049l")[2]


@pytest.mark.parametrize("columns", [pytest.param(80, marks=pytest.mark.full), 60])
def test_q_ends_it_on_a_terminal_of_any_width(terminal, columns):
    demo = terminal("demo", columns=columns)
    demo.until(lambda: demo.frames)
    assert [line for line in demo.frames[0] if len(line) > columns] == []
    (header,) = (line.split() for line in demo.frames[0] if line.startswith("worker"))
    process = ["process"] if columns == 80 else []
    assert header == ["worker", *process, "state", "letters", "ledger", "postmaster"]
    os.write(demo.own, b"q")
    assert demo.child.wait(PATIENCE) == 1
    demo.read()
    assert "STOPPED" in demo.shown


def test_usage(misused):
    assert "--seconds" in misused("demo", "--seconds", "0")
    assert "--seconds" in misused("demo", "--quick", "--seconds", "9")


def test_without_the_extra_there_is_no_page(misused, monkeypatch):
    monkeypatch.setitem(sys.modules, "h11", None)
    assert "needs h11" in misused("demo", "--web")


# the verdict


def audited(done, left=0, problems=()):
    fields = dict.fromkeys(QueueStatistics.__dataclass_fields__, 0)
    counted = QueueStatistics(**{**fields, "put": done + left, "done": done, "waiting": left})
    return Audit(counted, problems)


GOOD = Written([1, 3, 2], [7, 7, 9], [7])


def test_records_that_agree_are_no_problem():
    assert judge(audited(3), 3, GOOD, finished=True).problems == []
    assert judge(audited(3, left=2), 5, GOOD, finished=False).problems == []


@pytest.mark.parametrize(
    ("audit", "sent", "written", "problem"),
    [
        (audited(3, problems=("the states do not add up to put",)), 3, GOOD, "queue.verify()"),
        (audited(3), 4, GOOD, "but 3 were put"),
        (audited(2, left=1), 3, GOOD, "2 tasks are done, but 3 letters"),
        (audited(4), 4, GOOD._replace(letters=[1, 2, 3, 3]), "letter 3 was delivered more than once"),
        (audited(3, left=1), 4, GOOD, "letter 4 was not delivered"),
        (audited(3), 3, GOOD._replace(tokens=[7, 9, 7]), "a stale write: token 7 after 9"),
    ],
)
def test_records_that_do_not_agree_are(audit, sent, written, problem):
    problems = judge(audit, sent, written, finished=True).problems
    assert any(problem in one for one in problems)
