"""`tenure run` as a whole: in this process, and in real ones that are stopped, drained and killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import needed
import pytest

LONG = bool(os.environ.get("TENURE_LONG"))
BACKENDS = ("asyncio", "uvloop", "trio")
PATIENCE = 40

HANDLERS = """
import time, anyio, tenure

def shout(text):
    return text.upper()

async def double(value):
    await anyio.sleep(0)
    return {"twice": value * 2}

async def slow(text):
    with open("log", "a") as log:
        log.write(f"{text}\\\\n")
    await anyio.sleep(0.2)

def slow_thread(text):
    with open("log", "a") as log:
        log.write(f"{text}\\\\n")
    time.sleep(0.2)

async def never_ends(text):
    open("started", "a").close()
    await anyio.sleep_forever()

def thread_never_ends(text):
    open("started", "a").close()
    time.sleep(1000)

def picky(text):
    if text == "bad":
        raise ValueError("I do not like it")

async def stalls(task: tenure.Task):
    if task.attempt == 1:
        await anyio.sleep(60)
    return task.attempt

def bare(task): ...
def lists(tasks: list[tenure.Task]): ...
def with_context(text, context: tenure.processor.Context): ...

async def picks(text):
    raise tenure.Discard("no use")

async def ends(text):
    if text == "later":
        raise tenure.RetryLater(0)
    raise tenure.Dead("no use at all")
""".replace("\\\\", "\\")


@pytest.fixture(autouse=True)
def run_handlers(handlers):
    handlers("run_handlers", HANDLERS)


@pytest.fixture
def numbers(here):
    """Writes a file of so many numbers, a line each."""

    def write(count, name="numbers.txt"):
        (here / name).write_text("".join(f"{i}\n" for i in range(count)))
        return name

    return write


def rows(out):
    """The table as a dict."""
    return dict(line.split(maxsplit=1) for line in out.splitlines())


def inputs_of(values):
    return sorted(value["input"] for value in values)


# ---------------------------------------------------------------------------------------------- in this process


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("store", ["memory:", "sqlite:///tenure.db", "redis"])
def test_a_run(command, here, read, numbers, backend, store, redis_server):
    store = redis_server.url if store == "redis" else store
    words = [
        "run",
        "run_handlers:shout",
        numbers(600),
        "--backend",
        backend,
        "--store",
        store,
        "--results",
        "r.jsonl",
    ]
    ended = command(*words)
    assert ended.code == 0
    table = rows(ended.out)
    assert (table["inputs"], table["done"], table["retried"], table["dead"]) == ("600", "600", "0", "0")
    assert table["run"].startswith("shout-")
    assert table["run"].endswith(", finished")
    assert {"p50", "p95", "p99", "rate", "seconds"} <= set(table)
    values = read(here / "r.jsonl")
    assert inputs_of(values) == sorted(map(str, range(600)))
    assert values[0] == {
        "input": values[0]["input"],
        "status": "done",
        "result": values[0]["input"],
        "error": None,
        "attempts": 1,
    }


def test_json_lines_and_the_working_directory(command, here, read):
    (here / "in.jsonl").write_text('1\n\n"x"\n[3]\n')
    assert command("run", "run_handlers:double", "in.jsonl", "--results", "r.jsonl").code == 0
    found = {json.dumps(v["input"]): v["result"]["twice"] for v in read(here / "r.jsonl")}
    assert found == {"1": 2, '"x"': "xx", "[3]": [3, 3]}


def test_names_of_files_and_the_digest(command, here, read):
    (here / "texts").mkdir()
    (here / "texts" / "a.txt").write_bytes(b"one two\nthree\n")
    (here / "texts" / "b.txt").write_bytes(b"")
    assert command("run", "tenure.examples:digest", "--from", "texts/*.txt", "--results", "r.jsonl").code == 0
    values = {value["input"]: value["result"] for value in read(here / "r.jsonl")}
    assert set(values) == {"texts/a.txt", "texts/b.txt"}
    assert {k: values["texts/a.txt"][k] for k in ("words", "lines", "bytes")} == {
        "words": 3,
        "lines": 2,
        "bytes": 14,
    }
    assert values["texts/b.txt"]["sha256"].startswith("e3b0c44298fc")


def test_an_input_without_lines(command, numbers):
    ended = command("run", "run_handlers:shout", numbers(0))
    assert (ended.code, rows(ended.out)["inputs"]) == (0, "0")
    assert "tenure: the input is empty, so there was nothing to do\n" in ended.err
    ended = command("run", "run_handlers:shout", numbers(1))
    assert (ended.code, rows(ended.out)["inputs"]) == (0, "1")
    assert "empty" not in ended.err


def test_a_finished_run_prints_its_table_and_does_nothing(command, here, numbers):
    words = ["run", "run_handlers:shout", numbers(10), "--results", "r.jsonl"]
    first = command(*words)
    before = (here / "r.jsonl").read_bytes()
    (here / "run_handlers.py").write_text("def shout(text): raise RuntimeError('called')")
    second = command(*words)
    assert second.code == 0
    assert "is finished; --fresh would start it anew" in second.err
    assert rows(second.out) == rows(first.out)
    assert (here / "r.jsonl").read_bytes() == before


def test_a_finished_run_writes_its_results_where_they_are_missing(command, here, numbers):
    words = ["run", "run_handlers:shout", numbers(10)]
    assert command(*words).code == 0
    assert command(*words, "--results", "a.jsonl").code == 0
    assert command(*words, "--results", "b.jsonl").code == 0
    assert (here / "a.jsonl").read_bytes() == (here / "b.jsonl").read_bytes()
    (here / "a.jsonl").write_text("")
    assert command(*words, "--results", "a.jsonl").code == 0
    assert (here / "a.jsonl").read_bytes() == (here / "b.jsonl").read_bytes()


def test_what_makes_another_run(command, numbers):
    numbers(3)
    names = [
        rows(command("run", *words.split()).out)["run"]
        for words in (
            "run_handlers:shout numbers.txt",
            "run_handlers:shout numbers.txt --workers 3 --rate 1000/s --backend trio --results r.jsonl",
            "run_handlers:shout numbers.txt --retries 5",
            "run_handlers:shout numbers.txt --timeout 5",
            "run_handlers:shout --from numbers.*",
            "run_handlers:picky numbers.txt",
            "run_handlers:shout numbers.txt --run mine",
        )
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 6
    assert names[-1] == "mine, finished"


def test_fresh(command, here, numbers, read, queue_of):
    words = ["run", "run_handlers:shout", numbers(100), "--results", "r.jsonl", "--run", "x"]
    for generation in (1, 2, 3):
        ended = command(*words, *(["--fresh"] if generation > 1 else []))
        assert (ended.code, rows(ended.out)["done"]) == (0, "100")
        assert len(read(here / "r.jsonl")) == 100
        # of another size each time: within a second, its bytecode is known as stale by that alone
        (here / "run_handlers.py").write_text(f"def shout(text): return {generation}" + "\n" * generation)
        sys.modules.pop("run_handlers")
    assert {value["result"] for value in read(here / "r.jsonl")} == {2}
    for name in ("x", "x:2", "x:3"):
        audit = queue_of(name, lambda queue: queue.verify())
        assert audit, audit.problems
        assert audit.statistics.put == 100
        left = queue_of(name, lambda queue: queue.tasks("ended").page()).records
        assert bool(left) == (name == "x:3")
    assert "is finished" in command(*words).err


def test_fresh_takes_other_inputs(command, numbers):
    assert command("run", "run_handlers:shout", numbers(5), "--run", "x").code == 0
    numbers(7, "others.txt")
    refused = command("run", "run_handlers:shout", "others.txt", "--run", "x")
    assert refused.code == 2
    assert "has another handler or other inputs" in refused.err
    ended = command("run", "run_handlers:shout", "others.txt", "--run", "x", "--fresh")
    assert (ended.code, rows(ended.out)["done"]) == (0, "7")
    assert command("run", "run_handlers:shout", "others.txt", "--run", "x", "--retries", "9").code == 0


def test_the_dead_are_reported(command, here, read):
    (here / "in.txt").write_text("good\nbad\nfine\n")
    ended = command("run", "run_handlers:picky", "in.txt", "--retries", "2", "--results", "r.jsonl")
    assert ended.code == 1
    table = rows(ended.out)
    assert (table["done"], table["retried"], table["dead"]) == ("2", "1", "1")
    assert "dead: 'bad' (its error is in the log above)" in ended.err
    dead = [value for value in read(here / "r.jsonl") if value["status"] == "dead"]
    assert dead == [
        {
            "input": "bad",
            "status": "dead",
            "result": None,
            "error": "ValueError: I do not like it",
            "attempts": 2,
        }
    ]
    again = command("run", "run_handlers:picky", "in.txt", "--retries", "2", "--results", "r.jsonl")
    assert again.code == 1
    assert "dead: 'bad': ValueError: I do not like it\n" in again.err


@pytest.mark.parametrize("handler", ["a_set", "not_a_number"])
def test_results_that_are_no_json_are_failures(command, here, handlers, queue_of, handler):
    handlers("odd_results", "def a_set(x): return {1}\ndef not_a_number(x): return float('nan')")
    (here / "in.txt").write_text("x\n")
    ended = command("run", f"odd_results:{handler}", "in.txt", "--retries", "1", "--run", "x")
    assert (ended.code, rows(ended.out)["dead"]) == (1, "1")
    (dead,) = queue_of("x", lambda queue: queue.tasks("dead").page()).records
    assert "open_store" not in dead.error, "a hint for programs"


def test_an_input_whose_result_cannot_be_encoded_is_dead_at_once(command, here, handlers, queue_of, caplog):
    handlers("odd_results", "def a_set(x): return {1}")
    (here / "in.txt").write_text("x\ny\n")
    ended = command("run", "odd_results:a_set", "in.txt", "--retries", "3", "--run", "x")
    assert [
        record.attempts for record in queue_of("x", lambda queue: queue.tasks("dead").page()).records
    ] == [1, 1]
    assert (ended.code, rows(ended.out)["dead"], rows(ended.out)["retried"]) == (1, "2", "0")
    dead = [record for record in caplog.records if "task.dead" in record.message]
    assert all("odd_results:a_set returned set, which cannot be the result" in r.message for r in dead)
    assert [record.exc_info for record in dead] == [None, None]


def test_discarded_is_not_done(command, here):
    (here / "in.txt").write_text("x\n")
    ended = command("run", "run_handlers:picks", "in.txt")
    assert (ended.code, rows(ended.out)["discarded"], rows(ended.out)["retried"]) == (1, "1", "0")


@pytest.mark.parametrize("rate", [[], ["--rate", "100/s"]])
def test_a_handler_that_ends_the_tries_itself(command, here, caplog, rate):
    (here / "in.txt").write_text("x\nlater\n")
    ended = command("run", "run_handlers:ends", "in.txt", "--retries", "3", *rate)
    table = rows(ended.out)
    assert (ended.code, table["dead"], table["retried"]) == (1, "2", "2")
    dead = [record.message for record in caplog.records if "task.dead" in record.message]
    assert len(dead) == 2 and "no use at all" in dead[0] + dead[1]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("rate", [[], ["--rate", "100/s"]])
def test_a_try_that_takes_too_long_is_repeated(command, here, read, backend, rate):
    (here / "in.txt").write_text("x\n")
    words = [
        "run",
        "run_handlers:stalls",
        "in.txt",
        "--timeout",
        "0.2",
        "--results",
        "r.jsonl",
        "--backend",
        backend,
    ]
    ended = command(*words, *rate)
    assert (ended.code, rows(ended.out)["retried"]) == (0, "1")
    assert read(here / "r.jsonl")[0]["result"] == 2


def test_a_rate(command, numbers, handlers):
    handlers("timed", "import time\ntimes = []\ndef stamp(text): times.append(time.monotonic())")
    ended = command("run", "timed:stamp", numbers(30), "--rate", "1200/m", "--workers", "30")
    assert (ended.code, rows(ended.out)["done"]) == (0, "30")
    times = sys.modules["timed"].times
    assert max(times) - min(times) >= 0.4  # 20 at once, 10 more at 20 in a second


def test_flaky_ends_well(command, here, numbers):
    (here / "in.txt").write_text("".join(f"{i}\n" for i in range(50)) + "never\n")
    ended = command("run", "tenure.examples:flaky", "in.txt", "--preset", "medium", "--rate", "none")
    assert (ended.code, rows(ended.out)["done"], rows(ended.out)["dead"]) == (1, "50", "1")
    assert int(rows(ended.out)["retried"]) > 2


# -------------------------------------------------------------------------------------------------------- misuse


MISUSES = {
    "no such module": ("run nope_x:f numbers.txt", "there is no module 'nope_x'"),
    "no such handler": ("run run_handlers:nope numbers.txt", "its functions are"),
    "no handler": ("run run_handlers numbers.txt", "write module:function"),
    "a task without an annotation": (
        "run run_handlers:bare numbers.txt",
        "handler bare: its parameter task has no annotation; annotate it: task: tenure.Task, or rename it",
    ),
    "a list of tasks": ("run run_handlers:lists numbers.txt", "its parameter tasks is for a list of tasks"),
    "a context": ("run run_handlers:with_context numbers.txt", "nothing fills its parameter context"),
    "no such input": ("run run_handlers:shout nope.txt", "nope.txt: there is no such file"),
    "a directory": ("run run_handlers:shout .", "is a directory"),
    "no match": ("run run_handlers:shout --from nope/*", "matches no file"),
    "no such scheme": (
        "run run_handlers:shout numbers.txt --store mysql://x",
        "--store: 'mysql' is not an engine",
    ),
    "a wrong url": ("run run_handlers:shout numbers.txt --store sqlite:x.db", "write sqlite:///FILE"),
    "no url": ("run run_handlers:shout numbers.txt --store x.db", "is not a store URL"),
    "no such place": (
        "run run_handlers:shout numbers.txt --store sqlite:///nope/x.db",
        "there is no directory",
    ),
    "no database": (
        "run run_handlers:shout numbers.txt --store sqlite:///numbers.txt",
        "is not a SQLite database",
    ),
    "no place for results": ("run run_handlers:shout numbers.txt --results nope/r.jsonl", "make it first"),
    "results are a directory": ("run run_handlers:shout numbers.txt --results .", "is a directory"),
    "results are an input": ("run run_handlers:shout numbers.txt --results ./numbers.txt", "is an input too"),
    "a wrong option": ("run run_handlers:shout numbers.txt --workers 0", "is not a whole number"),
}


@pytest.mark.parametrize(("words", "told"), MISUSES.values(), ids=MISUSES)
def test_misuse_is_reported_in_one_line_and_nothing_is_made(misused, numbers, words, told):
    numbers(3)
    assert told in misused(*words.split())


def test_the_password_in_a_url_is_not_shown(misused, numbers):
    numbers(3)
    told = misused("run", "run_handlers:shout", "numbers.txt", "--store", "redis://me:s3cret@127.0.0.1:1")
    assert "--store: redis://me@127.0.0.1:1: " in told
    assert "s3cret" not in told


def test_results_of_others_are_not_touched(command, here, numbers):
    (here / "r.jsonl").write_text("precious\n")
    words = ["run", "run_handlers:shout", numbers(3), "--results", "r.jsonl"]
    ended = command(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "exists and is not of this run" in ended.err
    assert (here / "r.jsonl").read_text() == "precious\n"
    assert command(*words, "--fresh").code == 0
    assert "precious" not in (here / "r.jsonl").read_text()


def test_a_changed_input_is_refused(command, here, numbers):
    words = ["run", "run_handlers:shout", numbers(10)]
    assert command(*words).code == 0
    (here / "numbers.txt").write_text("9\n" * 10)
    ended = command(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "changed since it was read; use --fresh" in ended.err
    numbers(11)
    assert rows(command(*words, "--fresh").out)["done"] == "11"


def test_lines_that_were_appended_are_run(command, here, numbers, read):
    words = ["run", "run_handlers:shout", numbers(10), "--results", "r.jsonl"]
    assert command(*words).code == 0
    numbers(600)
    ended = command(*words)
    assert (ended.code, rows(ended.out)["done"]) == (0, "600")
    assert "continues after 10 inputs" in ended.err
    assert inputs_of(read(here / "r.jsonl")) == sorted(map(str, range(600)))
    assert "is finished; --fresh would start it anew" in command(*words).err


def test_a_wrong_line_stops_the_run_and_can_be_mended(command, here, read):
    path = here / "in.jsonl"
    good = "".join(f"{i}\n" for i in range(600))
    path.write_text(f"{good}oops\n")
    words = ["run", "run_handlers:double", "in.jsonl", "--results", "r.jsonl"]
    ended = command(*words)
    assert ended.code == 2
    assert "in.jsonl, line 601, is not a JSON value" in ended.err
    path.write_text(f"{good}600\n")
    ended = command(*words)
    assert (ended.code, rows(ended.out)["done"]) == (0, "601")
    assert inputs_of(read(here / "r.jsonl")) == list(range(601))


# ------------------------------------------------------------------------------------------------ real processes


def test_standard_input(start, here, read):
    child = start("run", "run_handlers:shout", "-", "--run", "piped", "--results", "r.jsonl")
    out, err = child.communicate("a\nb\nc")
    assert child.returncode == 0, err
    assert rows(out)["run"] == "piped, finished"
    assert inputs_of(read(here / "r.jsonl")) == ["a", "b", "c"]


def test_standard_input_is_worked_on_as_it_comes(start, here, until):
    child = start("run", "run_handlers:shout", "-", "--run", "piped", "--results", "r.jsonl")
    child.stdin.write("a\n")
    child.stdin.flush()
    until(lambda: (here / "r.jsonl").exists() and '"input": "a"' in (here / "r.jsonl").read_text())
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 1  # although nobody closes its input
    assert "the same command continues" in child.stderr.read()


@pytest.mark.full
def test_standard_input_is_skipped_as_far_as_it_was_read(start, here, read, until):
    text = "".join(f"{i}\n" for i in range(600))
    child = start("run", "run_handlers:slow", "-", "--run", "piped", "--results", "r.jsonl", "--workers", 100)
    child.stdin.write(text[: len(text) // 2])
    child.stdin.flush()
    until(lambda: (here / "log").exists() and len((here / "log").read_text()) > 200)
    child.kill()
    child.wait()
    child = start("run", "run_handlers:slow", "-", "--run", "piped", "--results", "r.jsonl", "--workers", 300)
    _, err = child.communicate(text)
    assert child.returncode == 0, err
    assert inputs_of(read(here / "r.jsonl")) == sorted(text.split())
    again = start("run", "run_handlers:slow", "-", "--run", "piped")
    assert again.communicate("something else\n")
    assert again.returncode == 0


@pytest.mark.full
def test_other_standard_input_is_refused(start, until, here):
    child = start("run", "run_handlers:slow", "-", "--run", "piped")
    child.stdin.write("a\nb\nc\n")
    child.stdin.flush()
    until((here / "log").exists)
    child.kill()
    child.wait()
    child = start("run", "run_handlers:slow", "-", "--run", "piped")
    _, err = child.communicate("x\ny\nz\n1\n2\n")
    assert child.returncode == 2
    assert "standard input: changed since it was read; use --fresh" in err


@pytest.mark.parametrize(
    ("words", "how"),
    [
        pytest.param("slow", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("slow", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("slow_thread", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("slow --rate 30/s", signal.SIGINT, marks=pytest.mark.full),
        ("slow --backend trio", signal.SIGTERM),
        pytest.param("slow --backend uvloop", signal.SIGINT, marks=pytest.mark.full),
    ],
)
def test_a_signal_drains(start, command, here, numbers, until, read, queue_of, how, words):
    handler, *options = words.split()
    line = ["run", f"run_handlers:{handler}", numbers(60), "--run", "x", "--results", "r.jsonl", *options]
    child = start(*line)
    until(lambda: (here / "log").exists() and len((here / "log").read_text().split()) > 12)
    child.send_signal(how)
    out, err = child.communicate()
    assert child.returncode == 1, err
    assert "finishes what has begun" in err
    assert "the same command continues from here" in err
    begun = (here / "log").read_text().split()
    assert 12 < len(begun) < 60
    assert int(rows(out)["done"]) == len(begun)  # what was begun was finished, nothing was given back
    assert rows(out)["run"] == "x, unfinished"
    assert inputs_of(read(here / "r.jsonl")) == sorted(begun)
    assert queue_of("x", lambda queue: queue.statistics()).leased == 0
    ended = command(*line, "--workers", "30", *(["--rate", "none"] if "--rate" in words else []))
    assert ended.code == 0, ended.err
    assert f"continues after {len(begun)} inputs" in ended.err
    assert sorted((here / "log").read_text().split()) == sorted(map(str, range(60)))
    assert inputs_of(read(here / "r.jsonl")) == sorted(map(str, range(60)))


@pytest.mark.parametrize(
    ("handler", "backend"),
    [
        pytest.param("never_ends", "asyncio", marks=pytest.mark.full),
        ("thread_never_ends", "uvloop"),
        pytest.param("never_ends", "trio", marks=pytest.mark.full),
    ],
)
def test_a_second_signal_stops_at_once(start, here, numbers, until, queue_of, backend, handler):
    child = start("run", f"run_handlers:{handler}", numbers(30), "--run", "x", "--backend", backend)
    until((here / "started").exists)
    child.send_signal(signal.SIGINT)
    until(lambda: "finishes what has begun" in child.stderr.readline())
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=50)
    assert child.returncode == 1
    assert rows(out)["done"] == "0"
    statistics = queue_of("x", lambda queue: queue.statistics())
    assert (statistics.waiting, statistics.leased) == (30, 0)
    assert {r.attempts for r in queue_of("x", lambda queue: queue.tasks("waiting").page()).records} == {0}
    again = start("run", f"run_handlers:{handler}", numbers(30), "--run", "x", "--backend", backend)
    assert again.stderr.readline() == "tenure: run x continues after 0 inputs\n", "nothing has died"


@pytest.mark.timeout(300)
@pytest.mark.full
def test_killed_again_and_again(start, here, numbers, read, queue_of):
    count = 1000
    command = [
        "run",
        "run_handlers:shout",
        numbers(count),
        "--run",
        "x",
        "--results",
        "r.jsonl",
        "--workers",
        "4",
    ]
    for _ in range(10):
        child = start(*command, "--rate", "70/s")
        time.sleep(random.uniform(0.3, 1.3))
        assert child.poll() is None, child.communicate()
        child.kill()
        child.wait()
    child = start(*command)
    out, err = child.communicate()
    assert child.returncode == 0, err
    assert rows(out)["done"] == "1,000"
    assert inputs_of(read(here / "r.jsonl")) == sorted(map(str, range(count)))
    audit = queue_of("x", lambda queue: queue.verify())
    assert audit, audit.problems
    assert (audit.statistics.put, audit.statistics.done) == (count, count)


@pytest.mark.skipif(not LONG, reason=needed.LONG)
@pytest.mark.timeout(1200)
def test_ten_kills_over_ten_thousand_real_files(start, here, read, queue_of):
    """The README's first command, killed ten times."""
    library = sysconfig.get_path("stdlib")
    names = [f"{library}/**/*.py", f"{sysconfig.get_path('purelib')}/**/*.py", f"{library}/**/*.pyc"]
    globs = [word for name in names for word in ("--from", name)]
    command = ["run", "tenure.examples:digest", *globs, "--run", "x", "--results", "r.jsonl"]
    killed = 0
    while killed < 10:
        child = start(*command)
        time.sleep(random.uniform(0.4, 1.2))
        assert child.poll() is None, "too fast to be killed ten times"
        child.kill()
        child.wait()
        killed += 1
    child = start(*command)
    out, err = child.communicate()
    assert child.returncode == 0, err
    values = read(here / "r.jsonl")
    assert len(values) >= 10_000
    assert len({value["input"] for value in values}) == len(values)
    assert {value["status"] for value in values} == {"done"}
    audit = queue_of("x", lambda queue: queue.verify())
    assert audit, audit.problems
    assert audit.statistics.done == audit.statistics.put == len(values)
    sys.stdout.write(f"{killed} kills\n{out}")


def test_two_at_once_work_together(start, here, numbers, read, queue_of):
    command = [
        "run",
        "run_handlers:slow",
        numbers(150),
        "--run",
        "x",
        "--results",
        "r.jsonl",
        "--workers",
        "15",
    ]
    children = [start(*command) for _ in range(2)]
    ended = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], ended
    assert sorted((here / "log").read_text().split()) == sorted(map(str, range(150)))
    assert inputs_of(read(here / "r.jsonl")) == sorted(map(str, range(150)))
    assert {rows(out)["done"] for out, _ in ended} == {"150"}
    assert queue_of("x", lambda queue: queue.verify())


@pytest.mark.full
def test_the_second_takes_over_when_the_first_is_killed(start, here, numbers, read, until):
    command = [
        "run",
        "run_handlers:slow",
        numbers(120),
        "--run",
        "x",
        "--results",
        "r.jsonl",
        "--workers",
        "4",
    ]
    first = start(*command)
    until((here / "log").exists)
    second = start(*command)
    time.sleep(1.0)
    first.kill()
    _, err = second.communicate()
    assert second.returncode == 0, err
    assert inputs_of(read(here / "r.jsonl")) == sorted(map(str, range(120)))


@pytest.mark.full
def test_a_frozen_one_does_not_spoil_anything(start, here, numbers, read, until, queue_of):
    command = [
        "run",
        "run_handlers:slow",
        numbers(120),
        "--run",
        "x",
        "--results",
        "r.jsonl",
        "--workers",
        "4",
    ]
    first = start(*command)
    until((here / "log").exists)
    time.sleep(0.7)
    first.send_signal(signal.SIGSTOP)
    second = start(*command)
    until(lambda: len(set((here / "log").read_text().split())) > 80)
    first.send_signal(signal.SIGCONT)
    for child in (first, second):
        _, err = child.communicate()
        assert child.returncode == 0, err
    assert inputs_of(read(here / "r.jsonl")) == sorted(map(str, range(120)))
    assert queue_of("x", lambda queue: queue.verify())


@pytest.mark.full
def test_fresh_does_not_disturb_a_run_that_is_under_way(start, here, numbers, until):
    command = ["run", "run_handlers:slow", numbers(100), "--run", "x", "--workers", "2"]
    first = start(*command)
    until((here / "log").exists)
    second = start(*command, "--fresh")
    _, err = second.communicate()
    assert second.returncode == 2
    assert re.search(r"run x is under way elsewhere \(.*\); stop it before --fresh", err)
    assert first.poll() is None


# ------------------------------------------------------------------------------------------- handlers at their worst

WORST = """
import sys, os, time, anyio

def leaves(text):
    if text == "3":
        sys.exit(5)

async def leaves_async(text):
    await anyio.sleep(0)
    leaves(text)

def interrupts(text):
    if text == "3":
        raise KeyboardInterrupt

async def starts_one_that_leaves(text):
    async def leave():
        sys.exit(5)
    if text == "3":
        async with anyio.create_task_group() as group:
            group.start_soon(leave)

def kills(text):
    open("begun", "a").write(text)
    if text == "3":
        os._exit(9)
    time.sleep(0.3)

def hangs(text):
    open("begun", "a").write(text)
    time.sleep(1000)

def prints(text):
    print("something long " * 20, text, flush=True)

async def prints_in_a_task(text):
    async def go():
        prints(text)
    async with anyio.create_task_group() as group:
        group.start_soon(go)

def closes(text):
    sys.stdout.close()
"""


@pytest.fixture
def worst(handlers):
    handlers("worst", WORST)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "failing",
    [("leaves", "SystemExit: 5"), ("leaves_async", "SystemExit: 5"), ("interrupts", "KeyboardInterrupt")],
)
def test_a_handler_that_leaves_is_a_failed_try(worst, command, numbers, here, read, backend, failing):
    handler, error = failing
    words = ["run", f"worst:{handler}", numbers(5), "--retries", 2, "--backend", backend]
    ended = command(*words, "--results", "r.jsonl")
    assert ended.code == 1, ended.err
    table = rows(ended.out)
    assert (table["done"], table["retried"], table["dead"]) == ("4", "1", "1")
    (dead,) = [value for value in read(here / "r.jsonl") if value["status"] == "dead"]
    assert (dead["input"], dead["error"], dead["attempts"]) == ("3", error, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.full
def test_a_task_of_the_handler_that_leaves_ends_the_command_at_worst(worst, start, numbers, backend):
    """asyncio stops its loop for that; the same command goes on, and in the end the input is dead."""
    command = ["run", "worst:starts_one_that_leaves", numbers(5), "--backend", backend, "--workers", 1]
    for _ in range(4):
        child = start(*command)
        out, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 1, err
        if out:
            break
        assert "ended by SystemExit(5), which stops the event loop; the same command continues" in err
    assert (rows(out)["done"], rows(out)["dead"]) == ("4", "1")


@pytest.mark.full
def test_an_input_that_kills_the_process_is_dead_and_those_beside_it_are_not(worst, start, numbers, here):
    command = ["run", "worst:kills", numbers(8), "--run", "x", "--workers", 4, "--max-deliveries", 2]
    for _ in range(2):
        child = start(*command)
        child.communicate(timeout=PATIENCE)
        assert child.returncode == 9
    child = start(*command)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1, err
    assert (rows(out)["done"], rows(out)["dead"]) == ("7", "1")
    assert "dead: '3': delivered 2 times without a verdict" in err
    assert (here / "begun").read_text().count("3") == 2


NO_END_OF_SESSIONS = """
import sys, tenure.cli.run._run as run
run.TTL = 1000.0
from tenure.cli import main
sys.exit(main())
"""


def test_after_a_kill_the_same_command_goes_on_at_once(command, monkeypatch, numbers, here, until):
    words = ["run", "run_handlers:slow", numbers(20), "--run", "x"]
    monkeypatch.setattr("tenure.cli.run._run.TTL", 1000.0)
    child = subprocess.Popen([sys.executable, "-c", NO_END_OF_SESSIONS, *words])
    until((here / "log").exists)
    child.kill()
    child.wait()
    ended = command(*words)
    assert ended.code == 0, ended.err
    assert "has died; its inputs run again" in ended.err
    assert rows(ended.out)["done"] == "20"
    assert "has died" not in command(*words).err


@pytest.mark.parametrize("backend", ["asyncio", "trio", pytest.param("uvloop", marks=pytest.mark.full)])
def test_lost_threads_do_not_hold_up_a_signal(worst, start, numbers, here, until, backend):
    words = ["--timeout", 0.1, "--workers", 3, "--retries", 1, "--backend", backend]
    child = start("run", "worst:hangs", numbers(9), "--run", "x", *words)
    until((here / "begun").exists)
    time.sleep(1.0)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1, err
    assert (rows(out)["dead"], len((here / "begun").read_text())) == ("3", 3)
    assert "stops at once" not in err.replace("a second signal stops at once", "")


@pytest.mark.parametrize("handler", [pytest.param("prints", marks=pytest.mark.full), "prints_in_a_task"])
def test_a_closed_output_stops_the_run_and_spoils_no_input(
    worst, start, command, numbers, here, queue_of, handler
):
    child = start("run", f"worst:{handler}", numbers(600), "--run", "x")
    child.stdout.readline()
    child.stdout.close()
    told = child.stderr.read()
    assert child.wait(PATIENCE) == 1
    assert told.count("standard output, whose reader has gone") == 1
    assert "the table cannot be written to standard output" in told
    assert "the same command continues from here" in told
    statistics = queue_of("x", lambda queue: queue.statistics())
    assert (statistics.dead, statistics.leased) == (0, 0)
    assert {r.attempts for r in queue_of("x", lambda queue: queue.tasks("waiting").page()).records} <= {0}
    assert command("run", f"worst:{handler}", "numbers.txt", "--run", "x").code == 0


def test_a_handler_that_closes_the_output(worst, start, numbers):
    child = start("run", "worst:closes", numbers(3))
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err
    assert "the table cannot be written to standard output (I/O operation on closed file" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk")
def test_a_full_disk_is_named(command, numbers):
    ended = command("run", "run_handlers:shout", numbers(5), "--results", "/dev/full", "--run", "x")
    assert ended.code == 1
    assert "--results /dev/full: cannot be written (No space left on device); nothing is lost" in ended.err
    assert command("run", "run_handlers:shout", "numbers.txt", "--results", "r.jsonl", "--run", "x").code == 0


@pytest.mark.parametrize("fresh", [False, True])
def test_what_to_do_with_the_dead(command, numbers, handlers, fresh):
    words = ["run", "run_handlers:picky", numbers(3), "--run", "x"]
    Path("numbers.txt").write_text("good\nbad\n")
    if fresh:
        command(*words)
        words.append("--fresh")
    ended = command(*words, "--retries", "1")
    queue = "run:x:2" if fresh else "run:x"
    assert f"tenure: to see what is dead: tenure queue dead {queue}\n" in ended.err
    assert f"tenure queue requeue {queue} --yes, then the same command" in ended.err
    handlers("run_handlers", "def picky(text): pass")
    sys.modules.pop("run_handlers")
    assert command("queue", "requeue", queue, "--yes").code == 0
    ended = command(*words[:5], "--retries", "1")
    assert (ended.code, rows(ended.out)["done"]) == (0, "2")
    assert "to see what is dead" not in ended.err


def test_prints_stand_above_the_bar(handlers, start, numbers):
    handlers(
        "loud",
        "import sys, time, logging\n"
        "logging.basicConfig()\n"
        "def loud(text):\n"
        "    time.sleep(0.3)\n"
        "    print('note', text)\n"
        "    print('part ', end='', file=sys.stderr); print('of it', file=sys.stderr)\n"
        "    logging.warning('logged')\n",
    )
    ours, theirs = os.openpty()
    child = start("run", "loud:loud", numbers(6), "--workers", 2, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert child.wait(PATIENCE) == 0
    text = shown.decode().replace("\r\n", "\n")
    for line in (*(f"note {n}" for n in range(6)), "part of it", "WARNING:root:logged"):
        # at the left edge: behind another line, or where the bar was wiped out
        assert re.search(rf"(?:^|\n|\r\x1b\[K){line}\n", text), (line, text)
    assert re.search(r"\[[#.]{20}\]", text)
    assert not re.search(r"\][^\n\r]*(?:note|part|WARN)", text), text


def test_the_bar_on_a_terminal(start, numbers):
    ours, theirs = os.openpty()
    child = start("run", "run_handlers:slow", numbers(60), stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal tells that nobody writes to it any more
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert child.wait() == 0
    assert re.search(rb"\r\x1b\[K\[[#.]{20}\]  ?\d+/60  ", shown), shown
    assert shown.endswith(b"\r\x1b[K"), shown


def test_quiet_lines(command, monkeypatch, numbers):
    monkeypatch.setattr("tenure.cli.run._progress._FIRST", 0.3)
    told = command("run", "run_handlers:slow", numbers(80)).err.splitlines()
    shown = [line for line in told if re.fullmatch(r"\d+ of 80 ended, [\d.]+/s(, \d+ s left)?", line)]
    assert 1 <= len(shown) <= 5, told


@pytest.mark.parametrize("count", [1_000_000 if LONG else 30_000])
@pytest.mark.timeout(1200)
@pytest.mark.full
def test_memory_is_bounded(numbers, count):
    """A million lines would be some 100 MB of tasks; the queue holds ten thousand."""
    measure = (
        "import sys, resource; from tenure.cli import main; code = main();"
        "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(code)"
    )
    numbers(count)
    peaks = {}
    for name, few in (("few.txt", 2_000), ("numbers.txt", count)):
        numbers(few, name)
        words = [sys.executable, "-c", measure, "run", "run_handlers:double", name, "--workers", "100"]
        done = subprocess.run(
            [*words, "--results", f"{name}.jsonl"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert Path(f"{name}.jsonl").read_bytes().count(b"\n") == few
        peaks[name] = int(rows(done.stdout)["peak"])
    assert peaks["numbers.txt"] - peaks["few.txt"] < 40_000, peaks  # kilobytes
