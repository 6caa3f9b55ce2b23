"""A store belongs to the thread and the process in which it was opened: elsewhere it raises, and sends nothing."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import socket
import threading
import warnings

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

import tenure
from tenure import (
    Barrier,
    Election,
    Limit,
    Lock,
    Processor,
    QueueFigures,
    RateLimiter,
    ResourcePool,
    RWLock,
    Schedule,
    Semaphore,
    Worker,
    WorkQueue,
)
from tenure.engine import Ping
from tenure.engines.sqlite import SqliteEngine
from tenure.observe import LoggingObserver
from tenure.waiting import Home


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def where(request, tmp_path):
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return SqliteEngine(tmp_path / "store.db")
    server = request.getfixturevalue(f"{request.param}_server")
    return server.url if request.param == "redis" else server.url()


@pytest.fixture
async def store(where):
    async with tenure.open_store(where, ttl=5, observer=LoggingObserver()) as opened:
        yield opened


async def enter(manager):
    async with manager:
        pytest.fail("entered")


async def look(changes, times=1):
    async with changes:
        async for _ in changes:
            times -= 1
            assert times, "seen"


async def handle(task: tenure.Task):
    pytest.fail("handled")


def calls(store):
    """Every public call that reaches the engine, or waits for what another task gets from it."""
    lock, semaphore, rwlock = Lock(store, "x"), Semaphore(store, "x", 2), RWLock(store, "x")
    election, barrier, limiter = (
        Election(store, "x"),
        Barrier(store, "x", 2),
        RateLimiter(store, "x", Limit(1)),
    )
    pool, queue = ResourcePool(store, "x"), WorkQueue(store, "x")
    return {
        "store.ping": store.ping,
        "store.statistics": store.statistics,
        "lock": lambda: enter(lock),
        "lock.hold": lambda: enter(lock.hold()),
        "lock.hold, one try": lambda: enter(lock.hold(0)),
        "lock.holders": lock.holders().page,
        "semaphore": lambda: enter(semaphore),
        "semaphore.resize": lambda: semaphore.resize(3),
        "rwlock.read": lambda: enter(rwlock.read()),
        "rwlock.write": lambda: enter(rwlock.write(1)),
        "election.term": lambda: enter(election.term()),
        "election.lead": lambda: election.lead(handle),
        "election.leader": election.leader,
        "election.watch": lambda: look(election.watch()),
        "barrier.wait": barrier.wait,
        "barrier.reset": barrier.reset,
        "barrier.statistics": barrier.statistics,
        "limiter.acquire": limiter.acquire,
        "limiter.try_acquire": limiter.try_acquire,
        "pool.claim": lambda: enter(pool.claim()),
        "pool.add": lambda: pool.add("r"),
        "pool.remove": lambda: pool.remove("r"),
        "pool.resources": pool.resources().page,
        "pool.statistics": pool.statistics,
        "queue.put": lambda: queue.put(1),
        "queue.try_put": lambda: queue.try_put(1),
        "queue.put_many": lambda: queue.put_many([1]),
        "queue.take": lambda: enter(queue.take()),
        "queue.take, one try": lambda: enter(queue.take(0)),
        "queue.result": lambda: queue.result(1),
        "queue.cancel": lambda: queue.cancel(1),
        "queue.join": queue.join,
        "queue.statistics": queue.statistics,
        "queue.verify": queue.verify,
        "queue.cursors": queue.cursors,
        "queue.tasks": queue.tasks("dead").page,
        "queue.requeue": queue.requeue,
        "queue.purge": lambda: queue.purge("dead"),
        "queue.pause": queue.pause,
        "queue.resume": queue.resume,
        "worker.run": Worker(queue, handle).run,
        "processor": lambda: enter(Processor(store, "x", handle)),
    }


async def outcomes(each):
    """What each of these calls raises, or None."""
    found = {}
    for name, call in each.items():
        found[name] = None
        try:
            with anyio.fail_after(2):
                await call()
        except* Exception as errors:
            error = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            found[name] = f"{type(error).__name__}: {error}"
    return found


def wrong(found, words):
    return {
        name: said for name, said in found.items() if not (said or "").startswith(f"RuntimeError: {words}")
    }


async def works(store):
    with anyio.fail_after(10):
        async with Lock(store, "x").hold(), Semaphore(store, "x", 2).hold():
            queue = WorkQueue(store, "x")
            await queue.put("mine")
            async with queue.take() as task:
                assert task.payload == "mine"
            assert (await queue.statistics()).put == 1
            assert await RateLimiter(store, "x", Limit(1)).try_acquire()
        assert (await store.statistics()).available


async def test_every_call_from_another_thread_is_refused_at_once(store, anyio_backend_name):
    each = calls(store)
    found = await anyio.to_thread.run_sync(
        lambda: anyio.run(outcomes, each, backend=anyio_backend_name), abandon_on_cancel=True
    )
    assert wrong(found, "the store was opened in another thread") == {}
    await works(store)


async def test_what_runs_here_is_not_drained_from_another_thread(store, anyio_backend_name):
    queue, handled = WorkQueue(store, "y"), anyio.Event()

    async def handle_now(payload: str) -> None:
        handled.set()

    schedules = WorkQueue(store, "z").schedules
    running = {
        "worker": Worker(queue, handle_now),
        "schedule": Schedule(queue, "yearly", cron="@yearly"),
        "schedules": schedules,
        "figures": QueueFigures(store),
        "processor": Processor(store, "x", handle),
    }
    drains = {name: each.drain for name, each in running.items()}
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for each in running.values():
                group.start_soon(each.run)
            await anyio.wait_all_tasks_blocked()
            found = await anyio.to_thread.run_sync(
                lambda: anyio.run(outcomes, drains, backend=anyio_backend_name), abandon_on_cancel=True
            )
            assert wrong(found, "the store was opened in another thread") == {}
            await queue.put("task")
            await handled.wait()
            assert "draining" not in repr(running)
            for drain in drains.values():
                await drain()


async def test_each_line_of_waiters_says_whose_it_is(where, monkeypatch):
    owners, init = [], Home.__init__

    def note(home, owner):
        owners.append(owner)
        init(home, owner)

    monkeypatch.setattr(Home, "__init__", note)
    async with tenure.open_store(where, ttl=5) as store:
        async with anyio.create_task_group() as group:
            queue, limiter = WorkQueue(store, "y"), RateLimiter(store, "x", Limit(1))
            task_id = await queue.put("task")
            for use in (
                limiter.acquire,
                limiter.acquire,
                lambda: look(Election(store, "x").watch(), times=2),
                lambda: queue.result(task_id),
                lambda: look(queue.follow(task_id), times=2),
                Schedule(queue, "yearly", cron="@yearly").run,
                QueueFigures(store).run,
                Processor(store, "x", handle).run,
                Worker(WorkQueue(store, "z"), handle).run,
            ):
                group.start_soon(use)
            await anyio.wait_all_tasks_blocked()
            names = {owner if isinstance(owner, str) else repr(owner) for owner in owners}
            group.cancel_scope.cancel()
    assert len(names) > 8
    assert not [name for name in names if re.search("<function|<lambda|<bound|None|object at", name)], names


@pytest.mark.backends("asyncio")
async def test_every_call_from_another_loop_of_the_thread_is_refused_at_once(where, anyio_backend_name):
    """As in tests of which each has a loop of its own, with a store for all of them."""

    def in_two_loops():
        store = tenure.open_store(where)
        opened, ended = asyncio.Event(), asyncio.Event()

        async def keep():
            async with store:
                opened.set()
                await ended.wait()

        async def begin():
            keeper = asyncio.create_task(keep())
            await opened.wait()
            return keeper

        async def end(keeper):
            await works(store)
            ended.set()
            await keeper

        with asyncio.Runner() as runner:
            keeper = runner.run(begin())
            with asyncio.Runner() as other:
                found = other.run(outcomes(calls(store)))
            runner.run(end(keeper))
        return found

    found = await anyio.to_thread.run_sync(in_two_loops)
    assert len(found) > 30
    assert wrong(found, "the store was opened in another event loop") == {}


def in_a_child(function):
    """What a function returns in a forked child of this process, where it is called in a thread of its own."""
    reader, writer = socket.socketpair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the tests may exist
        child = os.fork()
    if child == 0:
        try:
            # in this one trio thinks that its loop still runs
            thread = threading.Thread(target=lambda: writer.sendall(pickle.dumps(function())), daemon=True)
            thread.start()
            thread.join(30)
        finally:
            os._exit(0)
    writer.close()
    with reader:
        data = b""
        while part := reader.recv(1 << 16):
            data += part
    os.waitpid(child, 0)
    return pickle.loads(data)


async def test_every_call_from_a_forked_child_is_refused_at_once(store, anyio_backend_name):
    await store._handle.session(store.ttl)
    each = calls(store)
    found = await anyio.to_thread.run_sync(
        in_a_child, lambda: anyio.run(outcomes, each, backend=anyio_backend_name)
    )
    assert len(found) == len(each)
    assert wrong(found, "the store was opened before this process was forked") == {}
    await works(store)


async def test_what_the_store_sends_of_itself_is_not_sent_by_a_child(store):
    def send():
        try:
            store._handle.send(Ping(), print)
        except RuntimeError as error:
            return str(error)

    assert "forked" in await anyio.to_thread.run_sync(in_a_child, send)
    assert "another thread" in await anyio.to_thread.run_sync(send)
    await works(store)


async def use_twice(store):
    async with store:
        async with Lock(store, "x").hold(timeout=5):
            return store.process


async def test_a_store_that_was_made_before_a_fork_is_opened_in_the_child(where, anyio_backend_name):
    """As by gunicorn with preload: the parent imports the program, each child opens the store."""
    if where == "memory:":
        return
    store = tenure.open_store(where)
    made_as = store.process
    children = [
        await anyio.to_thread.run_sync(
            in_a_child, lambda: anyio.run(use_twice, store, backend=anyio_backend_name)
        )
        for _ in range(2)
    ]
    own = await use_twice(store)
    assert own == made_as
    assert len({own, *children}) == 3, "a session of one would be taken for that of another"


async def test_a_store_may_be_made_in_one_thread_and_opened_in_another(where, anyio_backend_name):
    store = tenure.open_store(where)
    await anyio.to_thread.run_sync(lambda: anyio.run(use_twice, store, backend=anyio_backend_name))


async def test_threads_call_it_through_its_loop(store):
    def in_thread():
        return anyio.from_thread.run(WorkQueue(store, "x").put, 1)

    assert await anyio.to_thread.run_sync(in_thread)
