"""Objects of one process on more than one event loop: one after the other, in two threads at once, after a fork."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import anyio
import pytest
from trio._core._run import SystemClock

from tenure import CircuitOpen
from tenure.local import (
    Barrier,
    Bulkhead,
    CircuitBreaker,
    Coalescer,
    KeyedLock,
    KeyedPool,
    Pool,
    Queue,
    Router,
    RWLock,
    SingleFlight,
    Threads,
    TokenBucket,
)


@pytest.mark.parametrize("offsets", [(1e6, 1e4), (1e4, 1e6)])
@pytest.mark.parametrize("first", ["asyncio", "trio"])
def test_instants_outlive_a_loop(first, offsets):
    # trio's clock begins at random in each run
    runs = [
        {
            "backend": first,
            "backend_options": {"clock": SystemClock(offset=offsets[0])} if first == "trio" else {},
        },
        {"backend": "trio", "backend_options": {"clock": SystemClock(offset=offsets[1])}},
    ]
    bucket, breaker = TokenBucket(1000, burst=1), CircuitBreaker.consecutive(1, open_seconds=60)

    async def fails():
        raise OSError

    async def begin():
        await bucket.acquire()
        with pytest.raises(OSError):
            await breaker.call(fails)

    async def go_on():
        with anyio.fail_after(5):
            for _ in range(3):
                await bucket.acquire()
        with pytest.raises(CircuitOpen) as refused:
            await breaker.call(fails)
        assert 50 < refused.value.retry_after <= 60

    anyio.run(begin, **runs[0])
    anyio.run(go_on, **runs[1])


async def enter(block):
    async with block:
        await anyio.sleep_forever()


async def take_or_wait(lock):
    try:
        taken = lock.write_nowait()
    except anyio.WouldBlock:
        taken = lock.write()
    await enter(taken)


async def spend(bucket):
    while True:
        await bucket.acquire()


OBJECTS = {
    "bulkhead": (lambda: Bulkhead(1), lambda it: enter(it.enter())),
    "rwlock": (RWLock, lambda it: enter(it.write())),
    "rwlock taken": (RWLock, take_or_wait),
    "keyed lock": (KeyedLock, lambda it: enter(it.hold("key"))),
    "barrier": (lambda: Barrier(3), lambda it: it.wait()),
    "queue": (lambda: Queue(1), lambda it: it.get()),
    "bucket": (lambda: TokenBucket(1e-3), spend),
    "flight": (SingleFlight, lambda it: it.run("key", anyio.sleep_forever)),
}


@contextmanager
def elsewhere(backend, use):
    """A loop in another thread that uses the object meanwhile."""
    begun, over = threading.Event(), threading.Event()

    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(use)
            await anyio.wait_all_tasks_blocked()
            begun.set()
            while not over.is_set():
                await anyio.sleep(0.005)
            group.cancel_scope.cancel()

    thread = threading.Thread(target=lambda: anyio.run(main, backend=backend))
    thread.start()
    assert begun.wait(20)
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("other", ["asyncio", "trio"])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_task_that_would_wait_for_another_loop_is_refused(name, other):
    make, use = OBJECTS[name]

    async def alone():
        with anyio.move_on_after(0.01) as scope:
            await use(it)
        assert scope.cancelled_caught

    async def main():
        named = f"^<{type(it).__name__}.* belongs to another event loop"
        with anyio.fail_after(20), pytest.raises(RuntimeError, match=named):
            await use(it)

    for backend in ("asyncio", "trio"):
        it = make()
        anyio.run(alone)  # a loop that has ended
        if name == "barrier":
            it.reset()
        with elsewhere(other, lambda: use(it)):  # noqa: B023 - it ends before the next
            anyio.run(main, backend=backend)

    if name == "barrier":
        it.reset()  # the party elsewhere was cancelled
    anyio.run(alone)  # when the other loop has ended, the object is free


async def hold_open(block, use):
    async with block as it:
        await use(it)


async def create(*_):
    return object()


async def for_ever(*_):
    await anyio.sleep_forever()


async def work_for_ever(router):
    await router.put("a", 1)
    await anyio.sleep_forever()


OPENED = {
    "pool": (
        lambda: Pool(create, close=create, max_size=1, close_timeout=0.1),
        lambda it: enter(it.acquire()),
    ),
    "keyed pool": (
        lambda: KeyedPool(create, close=create, max_total=1, close_timeout=0.1),
        lambda it: enter(it.acquire("k")),
    ),
    "coalescer": (lambda: Coalescer(for_ever, window=60), lambda it: it.put("k", 1)),
    "router": (lambda: Router({"a": 1}, for_ever, max_size=1), lambda it: it.join()),
    "threads": (lambda: Threads(1), lambda it: it.run(time.sleep, 0.5)),
}


@pytest.mark.parametrize("name", OPENED)
def test_what_is_in_use_on_another_loop_refuses_waiters_by_its_name(name):
    make, use = OPENED[name]
    it = make()

    async def main():
        named = f"^<{type(it).__name__}.* belongs to another event loop"
        with anyio.fail_after(20), pytest.raises(RuntimeError, match=named):
            await use(it)

    there = {"router": work_for_ever, "coalescer": for_ever}.get(name, use)
    with elsewhere("asyncio", lambda: use(it) if name == "threads" else hold_open(it, there)):
        anyio.run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("other", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", [Pool, KeyedPool])
def test_a_pool_creates_nothing_on_another_loop(kind, other, backend):
    it, key = kind(create, close=create), () if kind is Pool else ("k",)

    async def main():
        with anyio.fail_after(20), pytest.raises(RuntimeError, match="belongs to another event loop"):
            await enter(it.acquire(*key))
        assert (it.statistics().size, it.statistics().creating) == (1, 0)

    with elsewhere(other, lambda: hold_open(it, lambda it: enter(it.acquire(*key)))):
        anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", ["pool", "keyed pool"])
def test_a_pool_is_drained_on_its_own_loop_alone(name, backend):
    make, use = OPENED[name]
    it = make()

    async def drain():
        with anyio.fail_after(20), pytest.raises(RuntimeError, match="belongs to another event loop"):
            await it.drain()
        assert it.statistics().lent == 1 and not repr(it).startswith(f"<{type(it).__name__} closing")

    with elsewhere(backend, lambda: hold_open(it, use)):
        anyio.run(drain, backend=backend)


@pytest.mark.parametrize("name", ["bulkhead", "rwlock", "keyed lock"])
def test_a_holder_of_a_later_loop_of_the_same_thread_is_known(name):
    make, use = OBJECTS[name]
    it, held, over = make(), threading.Event(), threading.Event()

    async def alone():
        with anyio.move_on_after(0.01):
            await use(it)

    async def hold():
        async with anyio.create_task_group() as group:
            group.start_soon(use, it)
            await anyio.wait_all_tasks_blocked()
            held.set()
            while not over.is_set():
                await anyio.sleep(0.005)
            group.cancel_scope.cancel()

    def one_after_the_other():
        anyio.run(alone)
        anyio.run(hold)

    thread = threading.Thread(target=one_after_the_other)
    thread.start()
    assert held.wait(20)
    try:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            anyio.run(use, it)
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_handed_over_from_another_thread_arrives(backend):
    queue, got = Queue(1), []

    async def get():
        got.append(await queue.get())

    with elsewhere(backend, get):
        queue.put_nowait("item")
        ends = time.monotonic() + 20
        while not got and time.monotonic() < ends:
            time.sleep(0.005)
    assert got == ["item"]


FORKS = """
import asyncio, os, anyio
from tenure import PoolClosed
from tenure.local import KeyedPool, Pool

async def close(resource):
    print("closed by", "parent" if os.getpid() == parent else "child", flush=True)

async def main():
    async with Pool(object, close=close) as pool, KeyedPool(lambda key: object(), close=close) as keyed:
        async with pool.acquire(), keyed.acquire("k"):
            pass
        if (child := os.fork()) == 0:
            for acquire in (pool.acquire, lambda: keyed.acquire("k")):
                asyncio.run(borrow(acquire))
            os._exit(0)
        os.waitpid(child, 0)

async def borrow(acquire):
    try:
        async with acquire():
            print("lent", flush=True)
    except PoolClosed as refusal:
        print("before a fork" in str(refusal), flush=True)

parent = os.getpid()
anyio.run(main)
"""


def test_a_child_borrows_and_closes_nothing_of_its_parent():
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.splitlines() == ["True", "True", "closed by parent", "closed by parent"]
