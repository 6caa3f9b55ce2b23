"""A loop that is blocked loses no lease, for as long as `max_block` says; then what blocks it fails on record."""

from __future__ import annotations

import socket
import threading
import time
from ipaddress import ip_address
from math import inf

import anyio
import pytest
from hypothesis import given, strategies as st

import tenure
from tenure import BatchWorker, Lock, Retry, Task, Worker, WorkQueue
from tenure.store._sessions import Session, boot_time
from tenure.store._watchdog import Watchdog, gives_up_at, overdue_in

TIMES = st.floats(0, 1e6)
HEARTBEATS = st.lists(st.tuples(TIMES, st.floats(0.5, 1e4)))

# the decision


@given(TIMES, HEARTBEATS)
def test_a_heartbeat_is_overdue_half_a_ttl_after_the_last(now, heartbeats):
    seconds = overdue_in(now, heartbeats)
    assert (seconds <= 0) == any(now - beat >= ttl / 2 for beat, ttl in heartbeats) or abs(seconds) < 1e-6
    assert (seconds == inf) == (not heartbeats)


@given(HEARTBEATS, st.floats(0, 1e3))
def test_a_block_counts_from_the_first_heartbeat_that_was_due(heartbeats, max_block):
    until = gives_up_at(heartbeats, max_block)
    assert all(until <= beat + ttl / 3 + max_block for beat, ttl in heartbeats)
    assert (until == inf) == (not heartbeats)


def session_with(seconds_left):
    session = Session("s", 30.0, dispatcher=None)
    session._thread, session.beat = 0, boot_time()  # of another thread than this
    session.deadline = session._boot_deadline = boot_time() + seconds_left
    return session


def test_a_renewal_of_the_watchdog_extends_both_deadlines():
    session, sent = session_with(1), boot_time()
    session._offset = 1000.0
    session.extend_from_outside(sent)
    assert session._boot_deadline == sent + 27
    assert session.deadline == sent + 1027


def test_a_deadline_that_has_passed_is_not_extended():
    session = session_with(-1)
    session.extend_from_outside(boot_time())
    assert session.is_over()


def test_a_session_that_is_lost_stays_lost():
    session = session_with(1)
    session.abandon()
    session.extend_from_outside(boot_time())
    assert session.is_over()
    assert session.lost == "blocked"


# the thread


@pytest.fixture(
    params=["memory", "sqlite", "redis", "postgres", pytest.param("cluster", marks=pytest.mark.full)]
)
def url(request, tmp_path):
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    if request.param == "cluster":
        return request.getfixturevalue("redis_cluster").url
    server = request.getfixturevalue(f"{request.param}_server")
    return server.url if request.param == "redis" else server.url()


def block_until(condition):
    """Block the loop until a condition of the thread holds, for at most fifty seconds."""
    end = time.monotonic() + 50
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)  # it blocks


def watchdogs():
    return [thread.name for thread in threading.enumerate() if "watchdog" in thread.name]


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


async def work_off(queue, handler):
    worker = Worker(queue, handler)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(50):
            await queue.join()
            await worker.drain()
    return worker.statistics()


@pytest.mark.parametrize("where", ["atexit", "elsewhere"])
async def test_without_its_thread_a_lease_lasts_all_the_same(url, monkeypatch, caplog, where):
    """Python 3.12 starts no thread in a function of `atexit`, which is not worth a word."""
    start = threading.Thread.start

    def refuse(thread):
        if "watchdog" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: where == "elsewhere")
    async with tenure.open_store(url, ttl=4) as store, Lock(store, "report") as lease:
        granted_until = lease._session.deadline
        with anyio.fail_after(50):
            while lease._session.deadline == granted_until:
                await anyio.sleep(0.01)
        lease.check()
        assert watchdogs() == []
    assert ("nothing watches the event loop: can't start new thread" in caplog.text) == (where == "elsewhere")


async def test_a_handler_that_blocks_for_longer_than_the_ttl_runs_once(url, caplog):
    runs = []
    async with tenure.open_store(url, ttl=4) as store:

        async def handler(n: int):
            runs.append(n)
            async with Lock(store, f"lock {n}") as lease:
                if n == 1:
                    block_until(lambda: store._handle.watchdog.renewals >= 3)
                else:
                    await anyio.sleep(0.1)
                lease.check()

        queue = WorkQueue(store, "jobs")
        first, second = await queue.put_many([1, 2])
        statistics = await work_off(queue, handler)
        assert (sorted(runs), statistics.done, statistics.lost) == ([1, 2], 2, 0)
        assert {(await queue.get(task)).deliveries for task in (first, second)} == {1}
        statistics = await store.statistics()
        assert statistics.blocks == 1
        assert statistics.watchdog_renewals >= 3
    assert watchdogs() == []
    (warning,) = warnings(caplog)
    assert "the event loop is blocked" in warning
    assert (
        f"{__file__}:{block_until.__code__.co_firstlineno + 4}, in block_until: time.sleep(0.01)" in warning
    )


@pytest.mark.parametrize(
    "url", ["sqlite", "redis", "postgres", pytest.param("cluster", marks=pytest.mark.full)], indirect=True
)
async def test_what_blocks_for_too_long_fails_on_record_and_the_rest_goes_back(url, caplog):
    runs, begun = [], anyio.Event()
    async with tenure.open_store(url, ttl=4, max_block=1) as store:

        async def handler(task: Task[int]):
            runs.append(task.payload)
            if task.payload == 1 and task.attempt == 1:
                session = task._session
                await begun.wait()
                block_until(lambda: session.lost)
                with pytest.raises(tenure.LeaseLost):
                    task.check()
            elif task.payload == 2 and not begun.is_set():
                begun.set()
                await anyio.sleep(60)

        queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0))
        first, second = await queue.put_many([1, 2])
        statistics = await work_off(queue, handler)
        assert (sorted(runs), statistics.done, statistics.lost) == ([1, 1, 2, 2], 2, 2)
        blocked, other = await queue.get(first), await queue.get(second)
        assert (blocked.attempts, other.attempts) == (1, 0)
    (said,) = [line for line in warnings(caplog) if "the handler blocked" in line]
    assert f"the handler blocked the event loop for 1 s at {__file__}:" in said


async def test_no_holder_is_notified_of_a_block_before_the_verdict_is_on_record(tmp_path):
    runs, seen = [], threading.Event()
    async with tenure.open_store(f"sqlite:///{tmp_path}/store.db", ttl=4, max_block=0.5) as store:
        watchdog = store._handle.watchdog
        another = watchdog._another

        def slow_for_verdicts():
            engine = another()
            execute = engine.execute

            async def execute_later(operations):
                while session.lost and not seen.is_set():
                    await anyio.sleep(0.01)
                return await execute(operations)

            engine.execute = execute_later
            return engine

        watchdog._another = slow_for_verdicts
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        put = await queue.put(1)
        (session,) = store._handle.sessions

        async def handler(n: int):
            runs.append(n)
            if len(runs) == 1:
                block_until(lambda: session.lost)
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0)
                    # behind all that the loop may have sent of its own accord
                    await queue.statistics()
                seen.set()

        await work_off(queue, handler)
        record = await queue.get(put)
        assert (runs, record.state) == ([1], "dead")
        assert "the handler blocked the event loop for 0.5 s" in record.error


async def test_the_last_try_that_blocks_says_so_on_record(redis_server):
    async with tenure.open_store(redis_server.url, ttl=4, max_block=1) as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=5))
        put = await queue.put(1)

        async def handler(task: Task[int]):
            session = task._session
            block_until(lambda: session.lost)

        # the worker's own retry counts, and not the queue's
        worker = Worker(queue, handler, retry=Retry(attempts=1))
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            with anyio.fail_after(50):
                await queue.join()
                await worker.drain()
        record = await queue.get(put)
        assert record.state == "dead"
        assert "TimeoutError: the handler blocked the event loop for 1 s at " in record.error
        assert record.error.endswith('use a thread, executor="process" or a longer max_block')


async def test_a_batch_that_blocks_for_too_long_fails(redis_server):
    async with tenure.open_store(redis_server.url, ttl=4, max_block=1) as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        put = await queue.put_many([1, 2])

        async def handler(tasks: list[Task[int]]):
            session = tasks[0]._session
            block_until(lambda: session.lost)

        worker = BatchWorker(queue, handler, size=2)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            with anyio.fail_after(50):
                await queue.join()
                await worker.drain()
        assert {(await queue.get(task)).state for task in put} == {"dead"}


async def test_a_take_that_blocks_for_too_long_fails(redis_server):
    async with tenure.open_store(redis_server.url, ttl=4, max_block=1) as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        put = await queue.put(1)
        with pytest.raises(tenure.LeaseLost, match="blocked"):
            async with queue.take() as task:
                session = task._session
                block_until(lambda: session.lost)
                await anyio.sleep(1)
        assert "the handler blocked the event loop" in (await queue.get(put)).error


async def test_a_lock_whose_body_blocks_for_too_long_is_lost(redis_server):
    async with tenure.open_store(redis_server.url, ttl=4, max_block=1) as store:
        with pytest.raises(tenure.LeaseLost, match="blocked"):
            async with Lock(store, "report") as lease:
                session = lease._session
                block_until(lambda: session.lost)
                await anyio.sleep(1)
        async with Lock(store, "report") as lease:
            lease.check()


async def test_a_session_that_has_gone_is_not_renewed(redis_server):
    async with tenure.open_store(redis_server.url, ttl=1) as store:
        with pytest.raises(tenure.LeaseLost):
            async with Lock(store, "report") as lease:
                session = lease._session
                (gone,) = (key for key in redis_server("KEYS", "*:session") if session.id.encode() in key)
                redis_server("DEL", gone)
                block_until(session.is_over)
                assert session.is_over()
                lease.check()
        assert (await store.statistics()).watchdog_renewals == 0


async def test_without_max_block_a_warning_says_that_leases_are_lost(caplog):
    async with tenure.open_store("memory:", ttl=0.6, max_block=0) as store:
        async with Lock(store, "report"):
            block_until(lambda: caplog.records)
        assert (await store.statistics()).watchdog_renewals == 0
    assert "when that lasts, leases are lost (ttl 0.6 s)" in warnings(caplog)[0]


async def test_a_loop_that_lives_is_not_blocked_though_no_renewal_was_sent(caplog):
    async with tenure.open_store("memory:", ttl=600) as store:
        async with Lock(store, "report") as lease:
            asked, watchdog = threading.Event(), store._handle.watchdog
            on_loop = watchdog._on_loop

            def ask(function):
                asked.set()
                on_loop(function)

            watchdog._on_loop = ask
            lease._session.beat -= 400
            watchdog.watch()
            with anyio.fail_after(50):
                while not (asked.is_set() and watchdog._alive.is_set()):
                    await anyio.sleep(0.01)
        assert (await store.statistics()).blocks == 0
    assert warnings(caplog) == []


async def test_in_virtual_time_there_is_no_watchdog(virtual_clock):
    async with tenure.open_store("memory:") as store, Lock(store, "report"):
        assert watchdogs() == []


@pytest.mark.parametrize("max_block", [-1, float("nan"), "60"])
def test_a_wrong_max_block_is_refused(max_block):
    with pytest.raises((TypeError, ValueError), match="max_block"):
        tenure.open_store("memory:", max_block=max_block)


# names of hosts


class SlowResolver:
    """Looks names up as the machine does, and slowly from the moment on when `slow` is set."""

    def __init__(self, monkeypatch):
        self.slow = threading.Event()
        self.go_on = threading.Event()
        self.asked = []
        self._look_up = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host, *args, **kwargs):
        if self.slow.is_set() and host is not None and not _is_address(host):
            self.asked.append(host)
            self.go_on.wait(50)
        return self._look_up(host, *args, **kwargs)


def _is_address(host):
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@pytest.fixture(params=["redis", "postgres"])
def named_server(request, free_port):
    """The URL of a server with the name of its host."""
    port = free_port()
    if request.param == "redis":
        request.getfixturevalue("own_redis_server")("--port", str(port), "--bind", "127.0.0.1")
        return f"redis://localhost:{port}"
    request.getfixturevalue("own_postgres_server")("listen_addresses=127.0.0.1", f"port={port}")
    return f"postgresql://tenure@localhost:{port}/postgres"


async def test_the_watchdog_looks_up_no_name(named_server, monkeypatch):
    resolver = SlowResolver(monkeypatch)
    async with tenure.open_store(named_server, ttl=2.0, retry=50) as store, Lock(store, "x") as lease:
        resolver.slow.set()
        for block in (1, 2):
            before = store._handle.watchdog.renewals
            block_until(lambda before=before: store._handle.watchdog.renewals >= before + 2)
            await anyio.sleep(0.2)
            assert (await store.statistics()).blocks == block
            lease.check()
        began = time.monotonic()
    assert time.monotonic() - began < 1
    assert resolver.asked == []
    assert watchdogs() == []
    resolver.go_on.set()


async def test_closing_waits_for_the_thread_for_a_bounded_time_and_blocks_no_loop(url, monkeypatch):
    let_go, hung = threading.Event(), threading.Event()

    def hang(_):
        hung.set()
        let_go.wait(50)

    monkeypatch.setattr(Watchdog, "_on_block", hang)
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            await anyio.sleep(0.01)
            turns += 1

    async with anyio.create_task_group() as group:
        async with tenure.open_store(url, ttl=0.5) as store:
            await store._handle.session(0.5)
            block_until(hung.is_set)
            group.start_soon(turn)
            await anyio.sleep(0.05)
            began, turns = time.monotonic(), 0
        assert 0.4 < time.monotonic() - began < 5
        assert turns > 10
        group.cancel_scope.cancel()
    let_go.set()
    with anyio.fail_after(50):
        while watchdogs():
            await anyio.sleep(0.01)
