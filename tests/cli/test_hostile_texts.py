"""Whatever strangers have put into a store, no command prints what a terminal would obey."""

from __future__ import annotations

import json
import signal
from unicodedata import category

import anyio
import pytest
from anyio import TASK_STATUS_IGNORED
from anyio.from_thread import start_blocking_portal
from filled_store import ids_of

import tenure

HOSTILE = "x\r\n\x1b]52;c;aGk=\x07\x7f\x9b2J\x85\u061c\u200e\u202e\u2066\u2028\u2029y"
DEEP = b"[" * 980 + b"]" * 980
FORGED = "WARNING page.purge"
STORE = "sqlite:///tenure.db"


def obeyed(text):
    """The characters that a terminal obeys, and those that end a line otherwise than at its end."""
    return {c for c in text if category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}


class Raw:
    def encode(self, value):
        return value

    def decode(self, data):
        return data


async def wait(lock):
    async with lock:
        pass


async def inhabit(*, task_status=TASK_STATUS_IGNORED):
    """Puts hostile texts wherever a store has texts, and holds what can be held."""
    async with tenure.open_store(STORE, ttl=5.0) as store, anyio.create_task_group() as group:
        queue = tenure.WorkQueue(
            store, HOSTILE, retry=tenure.Retry(attempts=1), keep=tenure.Keep(payloads=True)
        )
        for outcome in ("done", "dead", "open"):
            await queue.put(
                {HOSTILE: HOSTILE}, key=f"{outcome}{HOSTILE}", group=HOSTILE, meta={HOSTILE: HOSTILE}
            )
            if outcome != "open":
                try:
                    async with queue.take() as task:
                        await task.progress(HOSTILE)
                        task.set_result(HOSTILE)
                        if outcome == "dead":
                            raise ValueError(HOSTILE)
                except ValueError:
                    pass
        raw = tenure.WorkQueue(store, HOSTILE, codec=Raw())
        await raw.put_many([b'"\\ud800"', b"\xff\x1b", DEEP, b"[" * 10**5 + b"]" * 10**5])
        group.start_soon(tenure.Schedule(queue, HOSTILE, every=3600).run)
        while not await queue.cursors():
            await anyio.sleep(0.01)
        pool = tenure.ResourcePool(store, HOSTILE)
        await pool.add(HOSTILE)
        async with (
            tenure.Lock(store, HOSTILE),
            tenure.Semaphore(store, HOSTILE, 2).hold(),
            pool.claim(),
            tenure.Election(store, HOSTILE, node=HOSTILE).term(),
        ):
            group.start_soon(wait, tenure.Lock(store, HOSTILE), name=HOSTILE)
            task_status.started()
            await anyio.sleep_forever()


async def ids():
    """The ids of the tasks by their places among them, which the commands below have in place of the ids."""
    async with tenure.open_store(STORE) as store:
        return dict(enumerate(await ids_of(tenure.WorkQueue(store, HOSTILE)), 1))


@pytest.fixture
def inhabited(here):
    with start_blocking_portal() as portal:
        task, _ = portal.start_task(inhabit)
        yield anyio.run(ids)
        task.cancel()


NAMED = (
    *(("queue", "show", HOSTILE, "--state", state) for state in ("waiting", "dead", "ended", "leased")),
    *(("queue", "show", HOSTILE, n) for n in range(1, 9)),
    ("queue", "show", HOSTILE, "--key", f"open{HOSTILE}"),
    *(("queue", "follow", HOSTILE, n) for n in (1, 2, 99)),
    ("queue", "dead", HOSTILE),
    ("queue", "groups", HOSTILE),
    ("queue", "workers", HOSTILE),
    ("queue", "put", HOSTILE, json.dumps(HOSTILE), "--key", HOSTILE),
    ("queue", "put", HOSTILE, "null", "--key", f"open{HOSTILE}"),
    *(("queue", change, HOSTILE, 2, 99) for change in ("cancel", "requeue", "reschedule")),
    ("queue", "signal", HOSTILE, "--key", f"open{HOSTILE}", HOSTILE, json.dumps(HOSTILE)),
    ("queue", "purge", HOSTILE, "expired", "--yes"),
    *(("queue", change, HOSTILE) for change in ("pause", "resume")),
    *(("schedule", change, HOSTILE, HOSTILE) for change in ("next", "run-now", "pause", "resume", "remove")),
    ("holders", "break", "lock", HOSTILE, "--token", 99),
)
COMMANDS = (
    ("queue", "ls"),
    ("schedule", "ls"),
    ("holders",),
    ("doctor",),
    ("top",),
    *NAMED,
    # errors
    *(tuple(f"no{word}" if word == HOSTILE else word for word in words) for words in NAMED),
    ("queue", "show", HOSTILE, "--where", HOSTILE),
    ("holders", "claim", HOSTILE),
    (HOSTILE,),
    ("queue", HOSTILE),
    ("queue", "show", HOSTILE, HOSTILE),
)


def test_commands_print_nothing_that_a_terminal_obeys(inhabited, command):
    told = 0
    for words in COMMANDS:
        for more in ((), ("--json",)):
            ended = command(*(inhabited.get(word, word) for word in words), *more, "--store", STORE)
            assert obeyed(ended.out + ended.err) == set(), words
            if more and ended.out:
                told += HOSTILE in strings(json.loads(ended.out))
    assert told > 20


def strings(document):
    """All texts of a JSON document."""
    match document:
        case str():
            return [document]
        case list():
            return [text for part in document for text in strings(part)]
        case dict():
            return [text for pair in document.items() for part in pair for text in strings(part)]
        case _:
            return []


def test_a_payload_that_cannot_be_decoded_hides_no_other(inhabited, command):
    ended = command("queue", "show", HOSTILE, "--json", "--store", STORE)
    tasks = sorted(json.loads(ended.out)["tasks"], key=lambda task: task["id"])
    shown = [task["payload"] for task in tasks]
    assert (ended.code, shown[0]) == (0, {HOSTILE: HOSTILE})
    assert shown[1] == "\ud800"
    assert shown[3] == DEEP.decode()
    assert shown[4].startswith("[[[")
    assert command("queue", "show", HOSTILE, "--store", STORE).code == 0
    assert command("queue", "show", HOSTILE, inhabited[6], "--store", STORE).code == 0


def test_a_payload_that_is_nested_too_deeply_is_misuse(command):
    for depth in (500, 900, 990, 100_000):
        ended = command("queue", "put", "q", "[" * depth + "]" * depth, "--store", STORE)
        assert (ended.code, ended.err.count("\n"), "Traceback" in ended.err) in ((0, 0, False), (2, 1, False))


FAILS = f"""
def fails(text):
    raise ValueError(f"{{text}}\\n{FORGED}")
"""


def check_log(text):
    assert obeyed(text) == set()
    assert FORGED in text
    assert not any(line.startswith(FORGED) for line in text.split("\n"))


def test_a_run_prints_nothing_that_a_terminal_obeys(start, handlers, here):
    handlers("bad", FAILS)
    file = f"{HOSTILE}.jsonl"
    (here / file).write_text(f"{json.dumps(HOSTILE)}\n")
    words = ("bad:fails", file, "--retries", "1", "--results", f"r{HOSTILE}")
    out, err = start("run", *words).communicate(timeout=50)
    assert obeyed(out) == set()
    check_log(err)
    results = (here / f"r{HOSTILE}").read_text()
    assert obeyed(results) == set()
    assert json.loads(results)["input"] == HOSTILE


def test_a_worker_prints_nothing_that_a_terminal_obeys(start, handlers, until):
    async def put():
        async with tenure.open_store(STORE) as store:
            return await tenure.WorkQueue(store, HOSTILE).put(HOSTILE)

    async def dead():
        async with tenure.open_store(STORE) as store:
            return (await tenure.WorkQueue(store, HOSTILE).statistics()).dead

    handlers("bad", FAILS)
    anyio.run(put)
    child = start("work", "bad:fails", "--queue", HOSTILE, "--store", STORE, "--retries", "1")
    until(lambda: anyio.run(dead) or child.poll() is not None)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=50)
    assert obeyed(out) == set()
    check_log(err)


def test_a_bug_is_reported_safely(capsys, monkeypatch):
    from tenure.cli import _main

    def breaks(words):
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("tenure.cli._top.top", breaks)
    monkeypatch.setattr("sys.argv", ["tenure", "top"])
    # it ends a process in which a thread is left, and other tests of this process may have left threads
    monkeypatch.setattr(_main, "_end_in_spite_of_threads", lambda code: None)
    assert _main.run(None) == 1
    said = capsys.readouterr().err
    assert "RuntimeError: x" in said
    assert obeyed(said) == set()
