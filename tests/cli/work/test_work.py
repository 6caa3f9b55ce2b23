"""`tenure work` and `tenure queue put`: real processes that are stopped, restarted and killed while there is work."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections import Counter

import anyio
import depth
import pytest

import tenure

LINE = r"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z INFO {} tenure: (.*)"
PATIENCE = 50

HANDLERS = """
import os, time, anyio, tenure

def note(*words):
    with open("log", "a") as log:
        log.write(" ".join(map(str, (os.getpid(), *words))) + "\\n")

async def quick(task: tenure.Task):
    await anyio.sleep(0.02)
    note(task.id, task.attempt, task.payload)

def in_a_thread(payload):
    note(payload)
    return payload

async def fails(payload):
    note(payload)
    raise ValueError("no")

def died(letter):
    note("dead", letter.payload)

async def slow(task: tenure.Task):
    note(task.id, task.attempt, task.payload)
    await anyio.sleep(task.payload)

async def batches(tasks: list[tenure.Task]):
    await anyio.sleep(0)
    note(*(task.payload for task in tasks))
    for task in tasks:
        if task.payload is None:
            task.fail(tenure.Discard("nothing"))
        if task.payload == "dead":
            task.fail(tenure.Dead("no use"))
        task.set_result(len(tasks))

def batches_in_a_thread(batch: list[tenure.Task[int]]):
    note(*(task.payload for task in batch))

def batches_of_payloads(payloads):
    note(*payloads)

def bare(task):
    note(task)

def bare_batches(tasks):
    note(*tasks)

async def ticks(task: tenure.Task):
    note(task.meta["scheduled_for"])

def kills(payload):
    note("begun")
    os._exit(9)

async def dies_of_memory(payload):
    note("begun")
    await anyio.sleep(0.5)
    os._exit(137)

kept = []

async def grows(payload):
    note("grows")
    kept.append(b"x" * 100 * 2**20)

async def blocks(payload):
    note("blocked")
    time.sleep(1000)

async def main(store):
    note("main", store.url)
    await anyio.sleep_forever()

async def short(s: tenure.Store):
    note("short")

async def serves(store):
    await tenure.serve(tenure.Worker(tenure.WorkQueue(store, "q"), quick))

def sync_main(store):
    pass
"""


@pytest.fixture(autouse=True)
def work_handlers(handlers):
    handlers("work_handlers", HANDLERS)


def made(engine, request, here):
    if engine == "redis":
        return request.getfixturevalue("redis_server").url
    if engine == "postgres":
        return request.getfixturevalue("postgres_server").url()
    return f"sqlite:///{here}/tenure.db"


@pytest.fixture(params=["sqlite", "redis", pytest.param("postgres", marks=pytest.mark.full)])
def each_url(request, here):
    return made(request.param, request, here)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.full)])
def url(request, here):
    """For tests of the processes, not of what they do to the store."""
    return made(request.param, request, here)


def on(url, function):
    """What `await function(queue)` returns."""

    async def ask():
        async with tenure.open_store(url) as store:
            return await function(tenure.WorkQueue(store, "q"))

    return anyio.run(ask)


def put(url, *payloads):
    return on(url, lambda queue: queue.put_many(payloads))


@pytest.fixture
def log(here):
    """What the handlers have noted, as lists of words."""

    def read():
        path = here / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    return read


class Process:
    """`tenure work`, whose messages are read as they come."""

    def __init__(self, child):
        self.child = child
        self.said = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        self.said.extend(iter(self.child.stderr.readline, ""))

    @property
    def pid(self):
        return self.child.pid

    @property
    def text(self):
        return "".join(self.said)

    def send(self, number=signal.SIGTERM):
        self.child.send_signal(number)

    def ended(self):
        """The exit code."""
        code = self.child.wait(PATIENCE)
        self._thread.join(PATIENCE)
        return code


@pytest.fixture
def work(command, monkeypatch):
    """Runs `tenure work` in this process, with the log of a process of its own."""

    def run(handler, *words):
        loggers = {logger: logger.level for logger in (logging.root, logging.getLogger("tenure"))}
        logging.getLogger("tenure").setLevel(logging.NOTSET)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(logging.root, "handlers", [])
                return command("work", handler, *words)
        finally:
            logging.captureWarnings(False)
            for logger, level in loggers.items():
                logger.setLevel(level)

    return run


@pytest.fixture
def worker(start, until):
    """Starts `tenure work`, and waits until it works."""

    def run(handler, *words, store, queue=("--queue", "q"), times=1, wait="Ctrl-C stops it"):
        process = Process(start("work", f"work_handlers:{handler}", *queue, "--store", store, *words))
        until(lambda: process.text.count(wait) == times or process.child.poll() is not None)
        return process

    return run


def get(port, path):
    """The status of a health check."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        data = b""
        while more := connection.recv(4096):
            data += more
    return int(data.split()[1])


# ------------------------------------------------------------------------------------------------- one process


@pytest.mark.parametrize(
    "backend", ["trio", *(pytest.param(b, marks=pytest.mark.full) for b in ("asyncio", "uvloop"))]
)
def test_it_works_until_it_is_stopped(worker, url, until, log, backend):
    process = worker("in_a_thread", "--backend", backend, store=url)
    ids = put(url, 1, "two", [3])
    until(lambda: len(log()) == 3)
    process.send()
    assert process.ended() == 0, process.text
    assert [on(url, lambda queue, i=i: queue.result(i)) for i in ids] == [1, "two", [3]]
    begin, drain, end = (
        re.fullmatch(LINE.format(process.pid), line)[1] for line in process.text.splitlines()
    )
    assert re.match(r"work_handlers:in_a_thread works on queue q of \S+, 10 at once; Ctrl-C stops it", begin)
    assert drain == "SIGTERM: takes no more, finishes what has begun, for at most 30 s"
    outcomes = r"work.ended taken=3 done=3 retried=0 dead=0 given_back=0 seconds=\d+\.\d"
    assert re.fullmatch(outcomes, end)


def test_retries_and_timeout(work, url, log):
    (first,) = put(url, 1)
    words = ("--queue", "q", "--store", url, "--retries", 1, "--until-empty")
    assert work("work_handlers:fails", *words, "--on-dead", "work_handlers:died").code == 0
    assert [line[1:] for line in log()][-1] == ["dead", "1"]
    assert on(url, lambda queue: queue.get(first)).error == "ValueError: no"
    put(url, 1000)
    assert work("work_handlers:slow", *words, "--timeout", 0.1).code == 0
    assert on(url, lambda queue: queue.statistics()).dead == 2


def test_batches(work, url, log):
    ids = put(url, 1, None, 3, 4, "dead")
    words = ("--queue", "q", "--store", url, "--until-empty")
    ended = work("work_handlers:batches", "--batch", "3:1", *words)
    assert ended.code == 0
    assert "works on queue q of" in ended.err
    assert ", 10 batches of up to 3 at once; Ctrl-C stops it" in ended.err
    assert [line[1:] for line in log()] == [["1", "None", "3"], ["4", "dead"]]
    results = [on(url, lambda queue, i=i: queue.result(i)) for i in (ids[0], *ids[2:4])]
    assert results == [3, 3, 2]
    counts = on(url, lambda queue: queue.statistics())
    assert (counts.done, counts.discarded, counts.dead) == (3, 1, 1)
    assert on(url, lambda queue: queue.get(ids[4])).error == "no use"


def test_a_schedule_beside_the_worker(worker, url, until, log):
    processes = [worker("ticks", "--every", 0.2, store=url) for _ in range(2)]
    until(lambda: len(log()) >= 3)
    for process in processes:
        process.send()
    assert [process.ended() for process in processes] == [0, 0]
    ticks = [line[1] for line in log()]
    assert len(set(ticks)) == len(ticks), "each tick once"


@pytest.mark.parametrize("handler", ["batches_in_a_thread", "batches_of_payloads"])
def test_batches_in_threads_and_without_linger(work, url, log, handler):
    put(url, *range(5))
    words = ("--batch", "256:0", "--concurrency", 1, "--queue", "q", "--store", url, "--until-empty")
    assert work(f"work_handlers:{handler}", *words).code == 0
    assert [line[1:] for line in log()] == [["0", "1", "2", "3", "4"]]


def test_after_the_first_signal_others_take_the_tasks_and_after_the_second_also_what_was_begun(
    worker, url, until, log
):
    first = worker("slow", store=url)
    (long,) = put(url, 1000)
    until(log)
    other = worker("slow", store=url)
    first.send()
    until(lambda: "takes no more" in first.text)
    ids = put(url, *[0] * 5)
    for number in ids:
        on(url, lambda queue, number=number: queue.result(number))
    assert [line[0] for line in log()] == [str(first.pid)] + [str(other.pid)] * 5
    first.send()
    until(lambda: len(log()) == 7)
    assert log()[-1] == [str(other.pid), str(long), "1", "1000"]
    assert first.ended() == 1
    assert "SIGTERM: cancels what has not finished; its tasks are given back\n" in first.text
    assert "work.ended taken=1 done=0 retried=0 dead=0 given_back=1" in first.text
    other.send()
    until(lambda: "takes no more" in other.text)
    other.send()
    assert other.ended() == 1
    assert on(url, lambda queue: queue.statistics()).waiting == 1


def test_the_end_of_the_grace_gives_back(worker, url, until, log):
    put(url, 1000)
    process = worker("slow", "--grace", 0.2, store=url)
    until(log)
    process.send()
    assert process.ended() == 1
    assert "not done within 0.2 s" in process.text
    counts = on(url, lambda queue: queue.statistics())
    assert (counts.waiting, counts.leased) == (1, 0)


@pytest.mark.parametrize(
    "more", [(), pytest.param(("--processes", 2), marks=pytest.mark.full)], ids=["one", "two"]
)
def test_a_signal_while_the_handler_is_imported(start, handlers, here, until, more):
    handlers("slow_import", "import time\nopen('importing', 'a').close()\ntime.sleep(1000)")
    process = Process(start("work", "slow_import:handle", "--queue", "q", *more))
    until((here / "importing").exists)
    process.send()
    assert process.ended() == 1
    assert "tenure: interrupted" in process.text


@pytest.mark.full
def test_a_rolling_restart_under_load_loses_nothing_and_counts_no_attempt(
    worker, each_url, until, log, free_port
):
    stop, put_ids, failed = threading.Event(), [], []

    async def load():
        async with tenure.open_store(each_url) as store:
            queue = tenure.WorkQueue(store, "q")
            while not stop.is_set():
                put_ids.extend(await queue.put_many(range(10)))
                await anyio.sleep(0.05)

    loading = threading.Thread(target=anyio.run, args=(load,))
    port = free_port()
    workers = [worker("quick", "--health", f"127.0.0.1:{port}", "--concurrency", 5, store=each_url)]
    workers += [worker("quick", "--concurrency", 5, store=each_url) for _ in range(2)]
    until(lambda: get(port, "/ready") == 200)

    def probe():
        while not stop.is_set():
            statuses = get(port, "/live"), get(port, "/ready")
            if statuses != (200, 200):
                failed.append(statuses)
            time.sleep(0.02)

    probing = threading.Thread(target=probe)
    loading.start()
    probing.start()
    codes = []
    try:
        until(lambda: len(log()) > 20)
        for _ in range(3 if depth.full else 1):
            for number in (1, 2):
                old, workers[number] = workers[number], worker("quick", "--concurrency", 5, store=each_url)
                old.send()
                codes.append(old.ended())
    finally:
        stop.set()
        loading.join()
        probing.join()
    assert put_ids
    assert failed == []
    on(each_url, lambda queue: queue.join())
    for process in workers:
        process.send()
    codes += [process.ended() for process in workers]
    assert set(codes) == {0}
    lines = log()
    assert sorted(int(line[1]) for line in lines) == sorted(put_ids)
    assert {line[2] for line in lines} == {"1"}
    audit = on(each_url, lambda queue: queue.verify())
    assert audit, audit.problems
    assert audit.statistics.done == len(put_ids)


def test_ready_while_the_server_is_there_and_live_all_the_time(worker, own_redis_server, until, free_port):
    server, port = own_redis_server("--appendonly", "yes", "--appendfsync", "always"), free_port()
    process = worker("quick", "--health", f":{port}", store=server.url)
    assert f"health checks at port {port}" in process.text
    until(lambda: get(port, "/ready") == 200)
    server.kill()
    until(lambda: get(port, "/ready") == 503)
    assert get(port, "/live") == 200
    server.start()
    until(lambda: get(port, "/ready") == 200)
    assert get(port, "/live") == 200
    process.send()
    assert process.ended() == 0


def test_health_checks_are_answered_while_it_drains(worker, url, until, log, free_port):
    port, metrics = free_port(), free_port()
    put(url, 1000)
    process = worker("slow", "--health", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics}", store=url)
    until(log)
    until(lambda: get(metrics, "/metrics") == 200)
    # or 503 could mean "not ready yet", and a second signal that comes before the first is handled is lost
    until(lambda: get(port, "/ready") == 200)
    process.send()
    until(lambda: get(port, "/ready") == 503)
    assert get(port, "/live") == 200
    process.send()
    assert process.ended() == 1


# ------------------------------------------------------------------------------------- programs that take the store


@pytest.mark.parametrize("more", [(), ("--processes", 2)], ids=["one", "two"])
def test_a_hangup_drains_and_a_second_one_changes_nothing(worker, url, until, log, more):
    """A terminal that closes sends it, and so does the shell in it."""
    put(url, *[0.5] * 4)
    process = worker("slow", *more, store=url, times=2 if more else 1)
    until(log)
    process.send(signal.SIGHUP)
    process.send(signal.SIGHUP)
    assert process.ended() == 0, process.text
    assert (
        f"INFO {process.pid} tenure: SIGHUP: {'stops 2 processes' if more else 'takes no more'}"
        in process.text
    )
    counts = on(url, lambda queue: queue.statistics())
    assert counts.leased == 0 and counts.done and counts.done + counts.waiting == 4


def test_a_hangup_is_ignored_where_it_was(handlers, start, url, until):
    setup = "import signal, work_handlers\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    handlers("ignores", f"{setup}quick = work_handlers.quick")
    process = Process(start("work", "ignores:quick", "--queue", "q", "--store", url))
    until(lambda: "Ctrl-C stops it" in process.text)
    process.send(signal.SIGHUP)
    put(url, 1)
    until(lambda: on(url, lambda queue: queue.statistics()).done == 1)
    process.send()
    assert process.ended() == 0 and "SIGHUP" not in process.text


FAULTY = """
import anyio, tenure
async def alone(store):
    tenure.Lock(store, 5)
async def together(store):
    async with anyio.create_task_group() as group:
        group.start_soon(alone, store)
async def missing(store):
    open("none")
async def caused(store):
    try:
        await anyio.to_thread.run_sync(missing_too)
    except OSError as error:
        raise LookupError("a\\nb") from error
def missing_too():
    open("none")
"""


@pytest.mark.parametrize(
    ("function", "ending", "frames"),
    [
        ("alone", "faulty.py:4: TypeError: name must be a str, not int", ["alone"]),
        ("together", "faulty.py:4: TypeError: name must be a str, not int", ["alone"]),
        (
            "missing",
            "faulty.py:9: FileNotFoundError: [Errno 2] No such file or directory: 'none'",
            ["missing"],
        ),
        ("caused", "faulty.py:14: LookupError: a b", ["caused", "missing_too", "caused"]),
    ],
)
@pytest.mark.parametrize("more", [(), ("--log", "json")], ids=["text", "json"])
def test_an_error_of_the_program_is_a_line_of_the_log(work, handlers, here, function, ending, frames, more):
    handlers("faulty", FAULTY)
    ended = work(f"faulty:{function}", "--store", f"sqlite:///{here}/store.db", *more)
    err = ended.err
    assert ended.code == 1
    if more:
        (error,) = (line for line in map(json.loads, err.splitlines()) if line["level"] == "ERROR")
        trace, found = error["exception"], error["message"]
    else:
        (line,) = (line for line in err.splitlines() if " ERROR " in line)
        trace, found = err, line.partition(" tenure: ")[2]
        assert err.splitlines()[-1] == f"tenure: {ending}"
    assert found == ending
    assert sorted(re.findall(r'File ".*", line \d+, in (\w+)', trace)) == sorted(frames)


@pytest.mark.parametrize("more", [(), ("--log", "json")], ids=["text", "json"])
@pytest.mark.parametrize("option", ["--health", "--metrics"])
def test_an_address_in_use_is_named_in_the_log(work, here, option, more):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("--store", f"sqlite:///{here}/store.db", option, address, *more)
        ended = work("work_handlers:quick", "--queue", "q", *words)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    text = json.loads(line)["message"] if more else line.partition(" tenure: ")[2]
    assert text.endswith(f"Address already in use: '{address}'") and "ERROR" in line


def test_a_program_is_cancelled_by_the_first_signal(worker, url, until, log):
    process = worker("main", store=url, queue=())
    until(log)
    process.send()
    assert process.ended() == 0, process.text
    assert log()[0][1] == "main"


def test_a_program_that_returns_and_one_that_serves(worker, url, until, log):
    assert worker("short", store=url, queue=()).ended() == 0
    assert log()[0][1] == "short"
    process = worker("serves", store=url, queue=())
    ids = put(url, *range(20))
    until(lambda: len(log()) > 1)
    process.send()
    assert process.ended() == 0
    counts = on(url, lambda queue: queue.statistics())
    assert (counts.leased, counts.done + counts.waiting) == (0, len(ids))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quick"], "--queue is missing"),
        (["main", "--queue", "q"], "--queue is for a handler of tasks"),
        (["main", "--retries", "3"], "--retries is for a handler of tasks"),
        (["sync_main"], "has to be an async function"),
        (["nothing", "--queue", "q"], "has no 'nothing'"),
        (["quick", "--queue", "tenure:queue:q"], "tenure:queue:q is a key of the store: write q, the name"),
        (["quick", "--queue", "q", "--store", "memory:"], "is visible only to its own process"),
        (["quick", "--queue", "q", "--store", "nosuch://x"], "--store: 'nosuch' is not an engine"),
        (["quick", "--queue", "q", "--health", "8081"], "HOST:PORT"),
        (["quick", "--queue", "q", "--concurrency", "0"], "--concurrency"),
        (["quick", "--queue", "q", "--ttl", "0.1"], "ttl must be at least 0.5 seconds"),
        (["quick", "--queue", "q", "--batch", "9"], "is for a single task; annotate it list[tenure.Task]"),
        (
            ["bare", "--queue", "q"],
            "annotate it: task: tenure.Task, or rename it, as a handler gets the payload",
        ),
        (["bare_batches", "--queue", "q", "--batch", "9"], "annotate it: tasks: list[tenure.Task]"),
        (["batches", "--queue", "q"], "is for a list of tasks; annotate it tenure.Task, or use BatchWorker"),
        (
            ["quick", "--queue", "q", "--log", "json:loud"],
            "'json:loud' is not text or json, nor one of these",
        ),
        (["batches", "--queue", "q", "--batch", "257"], "--batch: '257' is not a whole number from 1 to 256"),
        (["batches", "--queue", "q", "--batch", "0"], "--batch"),
        (["batches", "--queue", "q", "--batch", "9:-1"], "--batch"),
        (["main", "--batch", "3"], "--batch is for a handler of tasks"),
        (["main", "--every", "3"], "--every is for a handler of tasks"),
        (["quick", "--queue", "q", "--every", "0.001"], "--every must be at least 0.01 seconds"),
        (["quick", "--queue", "q", "--every", "1", "--cron", "0 3 * * *"], "--every or --cron, not both"),
        (["quick", "--queue", "q", "--cron", "never"], "--cron must have five fields"),
        (["quick", "--queue", "q", "--cron", "0 3 * * *", "--tz", "Mars"], "--tz must be the name of"),
        (["quick", "--queue", "q", "--every", "1", "--tz", "UTC"], "--tz is for --cron"),
        (["quick", "--queue", "q", "--grace", "never"], "--grace"),
        (["main", "--on-dead", "work_handlers:fails"], "--on-dead is for a handler of tasks"),
        (
            ["quick", "--queue", "q", "--on-dead", "work_handlers:main"],
            "--on-dead: work_handlers:main takes a store",
        ),
        (["quick", "--queue", "q", "--on-dead", "work_handlers:none"], "has no 'none'"),
        (["quick", "--queue", "q", "--processes", "0"], "--processes"),
        (["quick", "--queue", "q", "--max-memory", "300"], "'300' is not a size such as 300M or 2G"),
        (["main", "--until-empty"], "--until-empty is for a handler of tasks"),
        (["quick", "--queue", "q", "--health", ":65535", "--processes", "2"], "there are no ports"),
        (
            ["quick", "--queue", "q", "--health", ":8181", "--metrics", "localhost:8182", "--processes", "2"],
            "--health takes ports 8181 to 8182 and --metrics takes ports 8182 to 8183: name ports that are 2 apart",
        ),
        (
            ["quick", "--queue", "q", "--health", ":8181", "--metrics", ":8181"],
            "--health takes port 8181 and --metrics takes port 8181",
        ),
        (
            ["quick", "--queue", "q", "--metrics", ":65535", "--processes", "2"],
            "--metrics: there are no ports",
        ),
    ],
)
def test_misuse(misused, words, message):
    assert message in misused("work", f"work_handlers:{words[0]}", *words[1:])


def test_it_waits_for_a_server_that_is_away(worker, own_redis_server, until, log, free_port):
    server, port = own_redis_server("--appendonly", "yes", "--appendfsync", "always"), free_port()
    server.kill()
    process = worker("quick", "--health", f":{port}", "--backend", "trio", store=server.url, wait="link.lost")
    assert f"tenure: link.lost url={server.url} error=StoreUnavailable(" in process.text
    assert "Traceback" not in process.text
    until(lambda: get(port, "/ready") == 503)
    assert get(port, "/live") == 200
    server.start()
    until(lambda: get(port, "/ready") == 200)
    put(server.url, 1)
    until(log)
    process.send()
    assert process.ended() == 0, process.text
    assert f"tenure: link.back url={server.url} seconds=" in process.text


@pytest.mark.parametrize("more", [(), ("--processes", 2)], ids=["one", "two"])
def test_a_signal_ends_the_wait_for_a_server_at_once(worker, here, more):
    waits = {"wait": "link.lost", "times": 2 if more else 1}
    process = worker("quick", "--grace", 1000, *more, store=f"unix://{here}/no.sock", **waits)
    process.send()
    assert process.ended() == 0, process.text


def test_a_server_that_refuses_for_good_ends_it_in_a_line(work, redis_server):
    url = redis_server.url.replace("unix://", "unix://nobody:wrong@")
    ended = work("work_handlers:quick", "--queue", "q", "--store", url)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "the server refuses this user or password" in ended.err


def test_the_level_and_the_format_of_the_log(work, url):
    put(url, 1)
    words = ("--queue", "q", "--store", url, "--until-empty")
    ended = work("work_handlers:fails", "--retries", 1, "--log", "json:debug", *words)
    assert ended.code == 0
    documents = [json.loads(line) for line in ended.err.splitlines()]
    assert {document["process"] for document in documents} == {os.getpid()}
    (dead,) = (document for document in documents if document["message"].startswith("task.dead"))
    assert (dead["level"], dead["logger"], dead["tenure_queue"]) == ("WARNING", "tenure", "q")
    assert "ValueError: no" in dead["exception"]
    assert [d["level"] for d in documents if d["message"].startswith("session.opened")] == ["DEBUG"]
    (end,) = (document for document in documents if document["message"].startswith("work.ended"))
    assert (end["level"], end["tenure_taken"], end["tenure_dead"]) == ("INFO", 1, 1)


def test_logging_that_the_module_of_the_handler_sets_up_stays(work, handlers, url):
    handlers("logs", "import logging\nlogging.basicConfig(format='mine: %(message)s')\ndef f(payload): pass")
    ended = work("logs:f", "--queue", "q", "--store", url, "--log", "json", "--until-empty")
    assert ended.code == 0
    assert [line.partition(" ")[0] for line in ended.err.splitlines()] == ["mine:"] * 3


# --------------------------------------------------------------------------------------------- several processes


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.full
def test_several_processes(worker, url, until, log, free_port):
    port = free_port()
    words = ("--processes", 2, "--concurrency", 1, "--health", f"127.0.0.1:{port}")
    process = worker("quick", *words, store=url, times=2)
    until(lambda: get(port, "/ready") == get(port + 1, "/ready") == 200)
    put(url, *range(40))
    until(lambda: len({line[0] for line in log()}) == 2)
    victim, other = {int(line[0]) for line in log()}
    os.kill(victim, signal.SIGKILL)
    died = rf"\({victim}\) was killed by SIGKILL \(often: out of memory\)(, with 1 task in work)?, after \d+ tasks?"
    until(lambda: re.search(rf"{died}; starts it again in 1 s", process.text))
    until(lambda: process.text.count("Ctrl-C stops it") == 3)
    process.send()
    assert process.ended() == 0, process.text
    assert gone(other)
    assert f"INFO {other} tenure: SIGTERM: takes no more" in process.text
    assert f"INFO {process.pid} tenure: SIGTERM: stops 2 processes" in process.text


def test_the_second_signal_reaches_the_children(worker, url, until, log):
    put(url, 1000, 1000)
    process = worker("slow", "--processes", 2, "--concurrency", 1, store=url, times=2)
    until(lambda: len(log()) == 2)
    process.send()
    until(lambda: process.text.count("takes no more") == 2)
    process.send(signal.SIGINT)
    assert process.ended() == 1
    counts = on(url, lambda queue: queue.statistics())
    assert (counts.waiting, counts.leased) == (2, 0)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="/proc: none")
def test_children_end_with_their_parent(worker, url, until, log):
    process = worker("quick", "--processes", 2, "--concurrency", 1, store=url, times=2)
    put(url, *range(20))
    until(lambda: len({line[0] for line in log()}) == 2)
    process.child.kill()
    until(lambda: all(gone(line[0]) for line in log()))


@pytest.mark.full
def test_a_process_that_does_not_end_is_killed(worker, url, until, log):
    put(url, 1)
    process = worker("blocks", "--processes", 2, "--grace", 0.1, store=url, times=2)
    until(log)
    process.send()
    assert process.ended() == 1
    assert re.search(r"process [12] \(\d+\) does not end: kills it", process.text)


@pytest.mark.full
def test_a_process_that_dies_again_and_again_starts_later_and_later(worker, url, until, log):
    put(url, *range(9))
    process = worker("kills", "--processes", 2, "--concurrency", 1, store=url, times=2)
    until(lambda: re.search(r"exit code 9.*, like 3 others before; starts it again in 2 s", process.text))
    process.send()
    assert process.ended() == 1  # the last that was heard of a process


@pytest.mark.full
def test_a_process_that_dies_at_each_start_is_told_seldom(handlers, start, url, until):
    handlers("faulty", FAULTY)
    process = Process(start("work", "faulty:alone", "--processes", 2, "--store", url))
    until(lambda: re.search(r"exit code 1, like 7 others before; starts it again in 8 s", process.text))
    process.send()
    assert process.ended() == 1
    assert process.text.count("Traceback") == 1  # of all processes
    assert 2 <= process.text.count("Ctrl-C stops it") <= 3


def test_a_dead_process_had_so_many_tasks(worker, url, until, log):
    put(url, *range(3))
    process = worker("dies_of_memory", "--processes", 2, "--concurrency", 3, store=url, times=2)
    said = (
        r"exit code 137 \(SIGKILL\) \(often: out of memory\), with \d tasks? in work, after 0 tasks; starts"
    )
    until(lambda: re.search(said, process.text))
    process.send()
    process.ended()


def test_a_process_that_has_done_enough_tasks_is_replaced(worker, url, log):
    ids = put(url, *range(12))
    words = ("--max-tasks", 5, "--concurrency", 1, "--until-empty")
    process = worker("quick", *words, store=url)
    assert process.ended() == 0, process.text
    assert sorted(int(line[3]) for line in log()) == list(range(len(ids)))
    by_process = Counter(line[0] for line in log())
    assert len(by_process) > 1
    assert all(count >= 5 for count in list(by_process.values())[:-1])
    assert re.search(r"has done \d+ tasks: finishes what has begun, and is replaced", process.text)
    assert "starts it again" not in process.text


def test_a_replaced_process_finishes_what_takes_longer_than_the_grace(worker, url, until, log):
    put(url, 1.5, 0, 0, 0)
    words = ("--max-tasks", 2, "--grace", 0.2, "--until-empty", "--concurrency", 2)
    process = worker("slow", *words, store=url)
    assert process.ended() == 0, process.text
    assert "given back" not in process.text
    assert len(log()) == 4


def test_a_process_that_has_grown_is_replaced(worker, url, log):
    put(url, *range(3))
    process = worker("grows", "--max-memory", "100M", "--concurrency", 1, "--until-empty", store=url)
    assert process.ended() == 0, process.text
    assert re.search(r"has used \d+ MiB of memory: finishes what has begun", process.text)
    assert len(log()) == 3


def test_until_the_queue_is_empty(work, each_url, log):
    on(each_url, lambda queue: queue.put(2, delay=1000))
    on(each_url, lambda queue: queue.schedules.set("due", cron="0 0 1 1 *"))
    put(each_url, 0, 0.3)
    ended = work(
        "work_handlers:slow", "--queue", "q", "--store", each_url, "--until-empty", "--concurrency", 1
    )
    assert ended.code == 0
    assert sorted(line[3] for line in log()) == ["0", "0.3"]
    assert "nothing waits in queue q: ends" in ended.err
    assert on(each_url, lambda queue: queue.statistics()).delayed == 1


def test_it_is_not_empty_while_another_process_has_a_task(worker, url, until, log):
    put(url, 4)
    other = worker("slow", store=url)
    until(log)
    processes = worker("slow", "--until-empty", "--processes", 2, store=url, times=2)
    assert processes.ended() == 0, processes.text
    assert on(url, lambda queue: queue.statistics()).done == 1
    other.send()
    assert other.ended() == 0


def test_one_message_for_processes_that_are_misused(start):
    child = start("work", "work_handlers:nothing", "--queue", "q", "--processes", 2)
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2
    assert "has no 'nothing'" in err


def test_reload(worker, url, until, here, log):
    process = worker("in_a_thread", "--reload", store=url)
    put(url, "old")
    until(log)
    source = HANDLERS.replace("note(payload)\n    return", "note('new', payload)\n    return")
    (here / "work_handlers.py").write_text(source + "\n# longer\n")
    until(lambda: process.text.count("Ctrl-C stops it") == 2)
    assert "a file has changed: starts again" in process.text
    put(url, "x")
    until(lambda: len(log()) == 2)
    assert log()[1][1:] == ["new", "x"]
    (here / "work_handlers.py").write_text("this is no Python")
    until(lambda: "waits until a file changes" in process.text)
    (here / "work_handlers.py").write_text(source + "\n# longer again\n")
    until(lambda: process.text.count("Ctrl-C stops it") == 3)
    process.send(signal.SIGINT)
    assert process.ended() == 0, process.text


# ------------------------------------------------------------------------------------------------------ queue put


def test_put_prints_the_id(command, url):
    ended = command("queue", "put", "q", '{"to": "ann"}', "--store", url)
    assert ended.code == 0
    assert on(url, lambda queue: queue.get(int(ended.out))).payload == {"to": "ann"}
    ended = command("queue", "put", "q", "--store", url, "--json", "--priority", "-3", "--delay", "60")
    said = json.loads(ended.out)
    assert said["name"] == "q"
    record = on(url, lambda queue: queue.get(said["id"]))
    assert (record.payload, record.priority, record.state) == (None, -3, "delayed")


def test_put_leaves_the_size_that_the_program_has_set(command, url):
    async def put(queue):
        await tenure.WorkQueue(queue.store, "q", max_size=7).put(None)

    on(url, put)
    assert command("queue", "put", "q", "--store", url).code == 0
    assert on(url, lambda queue: queue.statistics()).max_size == 7


def test_put_makes_the_file_of_the_store(command, here):
    assert command("queue", "put", "q", "1").code == 0
    assert (here / "tenure.db").exists()


def test_put_reads_standard_input(url, command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("[1,\n 2]"))
    ended = command("queue", "put", "q", "-", "--store", url)
    assert ended.code == 0
    assert on(url, lambda queue: queue.get(int(ended.out))).payload == [1, 2]


@pytest.mark.parametrize("count", [2, 600])
def test_put_reads_lines_of_json(each_url, command, monkeypatch, count):
    lines = "".join(f'{{"n": {n}, "text": "\u2028"}}\r\n\n' for n in range(count))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    ended = command("queue", "put", "q", "-", "--priority", "2", "--store", each_url)
    assert ended.code == 0, ended.err
    ids = [int(line) for line in ended.out.splitlines()]

    async def put(queue):
        return [await queue.get(task_id) for task_id in ids]

    records = on(each_url, put)
    assert [record.payload for record in records] == [{"n": n, "text": "\u2028"} for n in range(count)]
    assert {record.priority for record in records} == {2}


@pytest.mark.parametrize(
    ("lines", "words", "message"),
    [
        ("1\n2\nthree\n", [], "line 3 of standard input is not JSON"),
        ("[1,\n 2\n", [], "standard input is not JSON"),
        ("", [], "standard input is not JSON"),
        ("1\n2\n", ["--key", "k"], "--key is for one task, and standard input has more"),
    ],
)
def test_wrong_lines_put_nothing(misused, monkeypatch, lines, words, message):
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert message in misused("queue", "put", "q", "-", *words)


def test_put_refuses_a_duplicate(command, url):
    words = ["queue", "put", "q", "1", "--key", "nightly", "--store", url]
    first = command(*words)
    again = command(*words)
    assert (first.code, again.code, again.out) == (0, 1, "")
    assert again.err.startswith(
        f"tenure: q: not put: task {first.out.strip()} has the key 'nightly'; --on-duplicate keep prints"
    )


def test_put_keeps_or_replaces_a_duplicate(command, url):
    ids = set()
    for words in (
        ["1"],
        ["2", "--on-duplicate", "keep"],
        ["3", "--on-duplicate", "replace", "--delay", "5"],
    ):
        put = command("queue", "put", "q", *words, "--key", "nightly", "--store", url)
        assert put.code == 0
        ids.add(int(put.out))
    (task_id,) = ids
    assert on(url, lambda queue: queue.get(task_id)).payload == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{"], "the payload is not JSON"),
        (["NaN"], "there is no NaN in JSON"),
        (["1", "--delay", "-1"], "--delay"),
        (["1", "--priority", "x"], "--priority"),
        (["1", "--key", ""], "--key"),
        (["1", "--on-duplicate", "keep"], "needs --key"),
        (["1", "--store", "memory:"], "is visible only to its own process"),
    ],
)
def test_put_is_misused(misused, words, message):
    assert message in misused("queue", "put", "q", *words)
