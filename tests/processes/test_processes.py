"""Real processes on one file or server, killed and frozen: nothing lost, nothing twice on record, no two holders."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import depth
import psycopg
import pytest
from postgres_servers import PostgresCalls

import tenure
from benchmarks.soak.referees import History, in_order

CHILD = Path(__file__).with_name("child.py")
PATIENCE = 50  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_loop]


class Children:
    """The processes of one test and what they have logged."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self.log = folder / "log"
        self.log.touch()
        self._all: list[subprocess.Popen] = []

    def start(self, loop, role, amount):
        command = [sys.executable, CHILD, loop, role, self.url, self.log, str(amount)]
        self._all.append(subprocess.Popen(command))
        return self._all[-1]

    def lines(self):
        return [line.split() for line in self.log.read_text().splitlines()]

    async def until(self, condition):
        with anyio.fail_after(PATIENCE):
            while not condition(self.lines()):
                await anyio.sleep(0.01)

    async def ended(self, process):
        with anyio.fail_after(PATIENCE):
            while process.poll() is None:
                await anyio.sleep(0.01)
        assert process.returncode == 0

    def end(self):
        for process in self._all:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def children(tmp_path):
    with contextlib.ExitStack() as stack:
        children = Children(tmp_path)
        stack.callback(children.end)
        yield children


@pytest.fixture(params=("sqlite", "redis"))
def children_on_each(request, children):
    if request.param == "redis":
        children.url = request.getfixturevalue("redis_server").url
    return children


def said(process, *words):
    wanted = [str(process.pid), *words]
    return lambda lines: any(line[: len(wanted)] == wanted for line in lines)


async def test_workers_killed_at_random_lose_nothing_and_complete_nothing_twice(children, anyio_backend_name):
    tasks, kills = (200, 5) if depth.full else (100, 2)
    async with tenure.open_store(children.url) as store:
        await tenure.WorkQueue(store, "jobs").put_many(range(tasks))
    for _ in range(kills):
        process = children.start(anyio_backend_name, "work", 0.01)
        before = len(children.lines())
        enough = before + random.randint(5, 60)
        await children.until(lambda lines, enough=enough: len(lines) >= enough)
        process.kill()
        process.wait()
    await children.ended(children.start(anyio_backend_name, "work", 0.01))
    async with tenure.open_store(children.url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        audit = await queue.verify()
        assert audit, audit.problems
        assert (audit.statistics.done, audit.statistics.unfinished, audit.statistics.dead) == (tasks, 0, 0)
        on_record = Counter(
            record.id for record in (await queue.tasks("ended").page(limit=10 * tasks)).records
        )
        assert len(on_record) == tasks
        assert set(on_record.values()) == {1}
    started = Counter(line[2] for line in children.lines() if line[1] == "start")
    assert len(started) == tasks
    assert sum(started.values()) - tasks <= 5 * 16  # at most what was at hand when a process was killed


async def test_groups_are_done_in_their_order_whichever_process_is_killed(children, anyio_backend_name):
    tasks, kills = (300, 5) if depth.full else (90, 2)
    history = History()
    async with tenure.open_store(children.url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        await queue.configure(groups=tenure.Groups(limit=1))
        ids = await queue.put_many(tenure.Item(n, group="abc"[n % 3]) for n in range(tasks))
    group_of = {str(task_id): "abc"[n % 3] for n, task_id in enumerate(ids)}
    for name, group in group_of.items():
        with history.putting(group, name):
            pass
    processes = [children.start(anyio_backend_name, "work", 0.01) for _ in range(2)]
    for _ in range(kills):
        before = len(children.lines())
        enough = before + random.randint(5, 30)
        await children.until(lambda lines, enough=enough: len(lines) >= enough)
        killed = processes.pop(0)
        killed.kill()
        killed.wait()
        processes.append(children.start(anyio_backend_name, "work", 0.01))
    for process in processes:
        await children.ended(process)
    last, ended = {}, set()
    for _, word, *about in children.lines():
        if word == "start":
            group = group_of[about[0]]
            history.taken(group, about[0])
            assert last.get(group, about[0]) in {about[0], *ended}, "one began before the other had ended"
            last[group] = about[0]
        elif word == "end":
            ended.add(about[0])
    assert in_order(history) >= tasks
    async with tenure.open_store(children.url) as store:
        audit = await tenure.WorkQueue(store, "jobs").verify()
        assert audit, audit.problems
        assert (audit.statistics.done, audit.statistics.unfinished, audit.statistics.groups) == (tasks, 0, 0)


async def test_what_a_frozen_worker_sends_afterwards_is_refused(children, anyio_backend_name):
    async with tenure.open_store(children.url) as store:
        ids = await tenure.WorkQueue(store, "jobs").put_many(range(4))
    frozen = children.start(anyio_backend_name, "work", 0.3)
    await children.until(lambda lines: sum(line[1] == "start" for line in lines) == 4)
    frozen.send_signal(signal.SIGSTOP)
    other = children.start(anyio_backend_name, "work", 0.01)
    await children.until(said(other, "lost"))
    frozen.send_signal(signal.SIGCONT)
    await children.ended(frozen)
    assert said(frozen, "lost", "4")(children.lines())
    async with tenure.open_store(children.url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        assert [await queue.result(task_id) for task_id in ids] == [other.pid] * 4
        assert (await queue.statistics()).done == 4


async def test_a_killed_holder_is_followed_within_its_ttl(children, anyio_backend_name):
    first = children.start(anyio_backend_name, "hold", 1000)
    await children.until(said(first, "held"))
    second = children.start(anyio_backend_name, "hold", 3)
    await children.until(said(second, "ready"))
    first.kill()
    await children.ended(second)
    tokens = [int(line[2]) for line in children.lines() if line[1] == "held"]
    assert tokens == sorted(tokens)


async def test_a_frozen_holder_learns_that_it_lost_the_lock(children, anyio_backend_name):
    first = children.start(anyio_backend_name, "hold", 2)
    await children.until(said(first, "held"))
    first.send_signal(signal.SIGSTOP)
    seen = len(children.lines())
    second = children.start(anyio_backend_name, "hold", 2)
    await children.until(said(second, "held"))
    first.send_signal(signal.SIGCONT)
    await children.ended(first)
    await children.ended(second)
    lines = children.lines()
    assert said(first, "lost")(lines)
    stale = {line[2] for line in lines[:seen] if line[0] == str(first.pid) and line[1] == "held"}
    after = [line for line in lines[seen:] if line[1] == "held" and line[2] in stale]
    # what `check` cannot exclude: the one step between it and the log, if it was frozen right there
    assert len(after) <= 1
    fresh = [int(line[2]) for line in lines[seen:] if line[1] == "held" and line[2] not in stale]
    assert fresh == sorted(fresh)


async def test_a_limiter_goes_on_when_the_process_that_held_it_off_was_killed(
    children_on_each, anyio_backend_name
):
    children = children_on_each
    victim = children.start(anyio_backend_name, "hold_off", 2)
    await children.until(said(victim, "waits"))
    async with tenure.open_store(children.url) as store:
        limiter = tenure.RateLimiter(store, "api", tenure.Limit(20, burst=1))
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(limiter.acquire)
                victim.kill()
                await limiter.acquire()
            assert (await limiter.state()).held_off == 0
            await limiter.acquire()


@pytest.mark.full
async def test_callers_that_give_up_in_many_processes_waste_little_of_the_rate(
    children_on_each, anyio_backend_name
):
    """And the callers of a process that is killed; they want different amounts."""
    children = children_on_each
    processes = [children.start(anyio_backend_name, "spend", 10) for _ in range(4)]
    for process in processes:
        await children.until(said(process, "ready"))
    await anyio.sleep(4)
    killed = time.monotonic()
    processes[0].kill()
    for process in processes[1:]:
        await children.ended(process)
    went = sorted((float(line[2]), int(line[3])) for line in children.lines() if line[1] == "went")
    begin = max(float(line[2]) for line in children.lines() if line[1] == "ready")
    end = min(float(line[2]) for line in children.lines() if line[1] == "ends")
    for first, last in ((begin + 0.5, killed), (killed + 2.5, end)):
        assert sum(cost for when, cost in went if first < when < last) >= 0.75 * 20 * (last - first)
    # a process that has to wait for the processor may be late
    for n, (first, _) in enumerate(went):
        spent = 0
        for when, cost in went[n:]:
            spent += cost
            assert spent <= 5 + 20 * (when - first + 0.2)


# on PostgreSQL, while a transaction is held open: locks, and no keys, see to it that each thing has one row


def items(number):
    for n in range(number):
        match n % 5:
            case 0:
                yield tenure.Item(n)
            case 1:
                yield tenure.Item(n, priority=n % 7)
            case 2:
                yield tenure.Item(n, delay=0.3)
            case _:
                yield tenure.Item(n, group="abcd"[n % 4])


@contextlib.contextmanager
def held(server):
    with contextlib.closing(psycopg.connect(server.url())) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT FROM tenure.queue")
        yield


async def test_beside_a_held_transaction_nothing_is_lost_whatever_is_killed(
    children, own_postgres_server, anyio_backend_name
):
    tasks = 600 if depth.full else 200
    server = own_postgres_server("fsync=on")
    children.url = server.url()

    async def until_ended(number):
        await children.until(lambda lines: sum(line[1] == "end" for line in lines) >= number)

    async with tenure.open_store(children.url) as store:
        await tenure.WorkQueue(store, "jobs", keep=tenure.Keep(results=None)).put_many(
            list(items(tasks // 2))
        )
    with held(server):
        first, second = (children.start(anyio_backend_name, "work", 0.02) for _ in range(2))
        await until_ended(tasks // 10)
        first.kill()
        first.wait()
        third = children.start(anyio_backend_name, "work", 0.02)
        async with tenure.open_store(children.url) as store:
            await tenure.WorkQueue(store, "jobs", keep=tenure.Keep(results=None)).put_many(
                list(items(tasks // 2))
            )
        await until_ended(tasks // 4)
        server.stop()
    server.start()
    with held(server):
        await until_ended(tasks // 2)
        second.kill()
        second.wait()
        with anyio.fail_after(PATIENCE):
            await children.ended(third)
        async with tenure.open_store(children.url) as store:
            queue = tenure.WorkQueue(store, "jobs", keep=tenure.Keep(results=None))
            audit = await queue.verify()
            assert audit, audit.problems
            assert (audit.statistics.done, audit.statistics.unfinished, audit.statistics.dead) == (
                tasks,
                0,
                0,
            )
            on_record = Counter(
                record.id for record in (await queue.tasks("ended").page(limit=10 * tasks)).records
            )
            assert len(on_record) == tasks
            assert set(on_record.values()) == {1}
        calls = PostgresCalls(server.url())
        calls.check_marks()
        calls.close()
