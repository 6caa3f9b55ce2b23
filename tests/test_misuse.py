"""Each block that is entered in the wrong way, and each call with the wrong argument, says what to write."""

from __future__ import annotations

import asyncio
import inspect
from collections import UserDict

import anyio
import pytest

import tenure
from tenure import blocking, local
from tenure.processor import Processor


async def nothing(*_):
    pass


BLOCKS = {
    "Lock": lambda store: tenure.Lock(store, "a"),
    "lock.hold()": lambda store: tenure.Lock(store, "a").hold(),
    "Semaphore": lambda store: tenure.Semaphore(store, "a", 2),
    "semaphore.hold()": lambda store: tenure.Semaphore(store, "a", 2).hold(2),
    "read": lambda store: tenure.RWLock(store, "a").read(),
    "write": lambda store: tenure.RWLock(store, "a").write(),
    "term": lambda store: tenure.Election(store, "a").term(),
    "watch": lambda store: tenure.Election(store, "a").watch(),
    "claim": lambda store: tenure.ResourcePool(store, "a").claim(),
    "checked claim": lambda store: tenure.ResourcePool(store, "a", check=nothing).claim(),
    "take": lambda store: tenure.WorkQueue(store, "a").take(),
    "follow": lambda store: tenure.WorkQueue(store, "a").follow(1),
    "RateLimiter": lambda store: tenure.RateLimiter(store, "a", tenure.Limit(1)),
    "spend": lambda store: tenure.RateLimiter(store, "a", tenure.Limit(1)).spend(),
    "Processor": lambda store: Processor(store, "a", nothing),
    "Store": lambda store: tenure.open_store("memory:"),
    "local.Barrier": lambda store: local.Barrier(2),
    "local.read": lambda store: local.RWLock().read(),
    "local.write": lambda store: local.RWLock().write(),
    "local.take": lambda store: local.Queue(1).take(),
    "local.take by priority": lambda store: local.PriorityQueue(1).take(),
    "local.TokenBucket": lambda store: local.TokenBucket(1),
    "local.spend": lambda store: local.TokenBucket(1).spend(),
    "local.enter": lambda store: local.Bulkhead(1).enter(),
    "local.CircuitBreaker": lambda store: local.CircuitBreaker(),
    "local.Pool": lambda store: local.Pool(nothing, close=nothing),
    "local.acquire": lambda store: local.Pool(nothing, close=nothing).acquire(),
    "local.hold": lambda store: local.KeyedLock().hold("a"),
    "local.KeyedPool": lambda store: local.KeyedPool(nothing, close=nothing),
    "local.acquire of a key": lambda store: local.KeyedPool(nothing, close=nothing).acquire("a"),
    "local.Router": lambda store: local.Router({"a": 1}, nothing, max_size=1),
    "local.Coalescer": lambda store: local.Coalescer(nothing, window=1),
    "local.SingleFlight": lambda store: local.SingleFlight(),
    "local.BlockingWatch": lambda store: local.BlockingWatch(),
}
BLOCKING = {
    "open_store": lambda store: blocking.open_store("memory:"),
    "Lock": lambda store: blocking.Lock(store, "a"),
    "lock.hold()": lambda store: blocking.Lock(store, "a").hold(),
    "Semaphore": lambda store: blocking.Semaphore(store, "a", 2),
    "RateLimiter": lambda store: blocking.RateLimiter(store, "a", tenure.Limit(1)),
    "take": lambda store: blocking.WorkQueue(store, "a").take(),
}


@pytest.fixture
async def store():
    async with tenure.open_store("memory:") as opened:
        yield opened


@pytest.fixture
def blocking_store():
    store = blocking.open_store("memory:")
    yield store
    store.close()


@pytest.mark.parametrize("name", BLOCKS)
async def test_a_block_of_async_code_says_that_it_needs_async_with(store, name):
    with pytest.raises(TypeError, match=r": write `async with`, not `with`"):
        with BLOCKS[name](store):
            pytest.fail("it was entered")


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.rpartition(".")[2][0].islower()])
async def test_a_block_of_one_use_says_that_it_is_not_awaited(store, name):
    with pytest.raises(TypeError, match=r": write `async with \.\.\.:`, not `await \.\.\.`"):
        await BLOCKS[name](store)


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.rpartition(".")[2][0].isupper()])
def test_what_lives_on_is_not_taken_for_an_awaitable(name):
    """Containers for dependencies ask that, and await what is one."""
    assert not inspect.isawaitable(BLOCKS[name](tenure.open_store("memory:")))


@pytest.mark.parametrize("name", BLOCKING)
async def test_a_block_of_sync_code_says_that_it_needs_with(blocking_store, name):
    with pytest.raises(TypeError, match=r": write `with`, not `async with`; in async code use tenure, not"):
        async with BLOCKING[name](blocking_store):
            pytest.fail("it was entered")


@pytest.mark.parametrize("name", ["lock.hold()", "take"])
async def test_a_block_of_sync_code_says_that_it_is_not_awaited(blocking_store, name):
    with pytest.raises(TypeError, match=r": write `with \.\.\.:`, not `await \.\.\.`"):
        await BLOCKING[name](blocking_store)


def test_the_messages_name_the_thing_and_what_is_for_synchronous_code():
    store = tenure.open_store("memory:")
    for block, says in (
        (store, "Store: write `async with`, not `with`; in synchronous code use tenure.blocking.open_store"),
        (
            tenure.Lock(store, "a"),
            "Lock: write `async with`, not `with`; in synchronous code use tenure.blocking.Lock",
        ),
        (
            tenure.Lock(store, "a").hold(),
            "tenure:lock:a: write `async with`, not `with`; in synchronous code use tenure.blocking",
        ),
        (local.TokenBucket(1), "TokenBucket: write `async with`, not `with`"),
    ):
        with pytest.raises(TypeError) as caught, block:
            pass
        assert str(caught.value) == says


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda s: tenure.RWLock(s, "a"),
            "RWLock: write `async with lock.read()` or `async with lock.write()`",
        ),
        (lambda s: tenure.Election(s, "a"), "Election: write `async with election.term()`"),
        (lambda s: tenure.ResourcePool(s, "a"), "ResourcePool: write `async with pool.claim()`"),
    ],
)
async def test_a_pattern_that_is_no_block_says_which_method_is(store, make, says):
    with pytest.raises(TypeError) as caught:
        async with make(store):
            pytest.fail("it was entered")
    assert str(caught.value) == says
    with pytest.raises(TypeError) as caught, make(store):
        pytest.fail("it was entered")
    assert str(caught.value) == says


async def test_changes_that_are_read_without_their_block_say_what_to_write(store):
    for changes, says in (
        (tenure.WorkQueue(store, "a").follow(1), r"write `async with queue\.follow\(\.\.\.\) as changes:`"),
        (tenure.Election(store, "a").watch(), r"write `async with election\.watch\(\) as changes:`"),
    ):
        with pytest.raises(RuntimeError, match=says):
            await anext(changes)


async def test_a_turn_that_is_held_already_is_entered_in_both_ways():
    lock = local.RWLock()
    with lock.read_nowait():
        pass
    async with lock.write_nowait():
        pass


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s, of: of.Lock(s, "a", timeout=5), r"'timeout': write lock\.hold\(timeout=5\)"),
        (lambda s, of: of.Semaphore(s, "a", 2, timeout=5), r"'timeout': write semaphore\.hold\(timeout=5\)"),
        (
            lambda s, of: of.RWLock(s, "a", timeout=5),
            r"'timeout': write lock\.read\(timeout=5\) or lock\.write\(timeout=5\)",
        ),
        (lambda s, of: of.RateLimiter(s, "a", 100), r"not int: write Limit\(100\)"),
        (lambda s, of: of.RateLimiter(s, "a", rate=100), r"'rate': write Limit\(100\)"),
        (lambda s, of: of.RateLimiter(s, "a"), r"must have a limit: write Limit\(100\)"),
    ],
)
async def test_an_argument_of_another_method_is_named(store, blocking_store, make, says):
    for of, over in ((tenure, store), (blocking, blocking_store)):
        with pytest.raises(TypeError, match=says):
            make(over, of)


async def test_more_arguments_of_other_methods(store):
    with pytest.raises(TypeError, match=r"'timeout': write election\.term\(timeout=5\)"):
        tenure.Election(store, "a", timeout=5)
    with pytest.raises(TypeError, match=r"'timeout': write pool\.claim\(timeout=5\)"):
        tenure.ResourcePool(store, "a", timeout=5)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'$"):
        tenure.Lock(store, "a", colour="red")
    assert list(inspect.signature(tenure.Lock).parameters) == ["store", "name", "ttl"]


@pytest.mark.parametrize("items", ["abc", b"abc", {"a": 1}, UserDict(a=1), 5])
async def test_put_many_refuses_what_is_one_payload(store, blocking_store, items):
    says = f"^items must be an iterable of payloads, such as a list, not {type(items).__name__}$"
    queue = tenure.WorkQueue(store, "a")
    with pytest.raises(TypeError, match=says):
        await queue.put_many(items)
    assert (await queue.statistics()).put == 0
    with pytest.raises(TypeError, match=says):
        blocking.WorkQueue(blocking_store, "a").put_many(items)


# a block that is left in another task than it was entered in

LEFT_ELSEWHERE = ("local.Pool", "local.KeyedPool", "local.Router", "local.Coalescer", "local.SingleFlight")


@pytest.mark.backends(
    "asyncio"
)  # such a task corrupts trio's own state, of which the rest of the run may die
@pytest.mark.parametrize("name", ["local.Pool", "local.KeyedPool"])
async def test_a_pool_that_is_left_in_another_task_says_so_and_is_closed(name):
    pool = BLOCKS[name](None)
    entered, left = anyio.Event(), anyio.Event()

    async def enter():
        await pool.__aenter__()
        entered.set()
        await left.wait()

    with pytest.raises(BaseExceptionGroup):  # the loop's own, about the scopes of that task
        async with anyio.create_task_group() as group:
            group.start_soon(enter)
            await entered.wait()
            with pytest.raises(RuntimeError, match="the pool was left in another task than .* in one task"):
                await pool.__aexit__(None, None, None)
            left.set()
    with pytest.raises(tenure.PoolClosed):
        await pool.acquire(*(["a"] if name == "local.KeyedPool" else [])).__aenter__()


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("name", LEFT_ELSEWHERE)
async def test_a_block_that_is_left_after_its_task_has_ended_says_so(name):
    """As by fixtures and hooks that run in tasks of their own."""
    block = BLOCKS[name](None)
    await asyncio.create_task(block.__aenter__())
    with pytest.raises(
        RuntimeError, match=r"was left in another task than .* Enter and leave it in one task"
    ):
        await block.__aexit__(None, None, None)


# messages


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("localhost:6379", "redis://localhost:6379"),
        ("localhost:6379/0", "redis://localhost:6379/0"),
        ("db.example.org:5432", "postgresql://db.example.org:5432/DATABASE"),
        ("db.example.org:5432/jobs", "postgresql://db.example.org:5432/jobs"),
    ],
)
def test_a_host_and_a_port_are_no_engine(url, meant):
    with pytest.raises(ValueError) as caught:
        tenure.open_store(url)
    assert str(caught.value) == (
        f"{url!r} is a host and a port, without the name of an engine: write {meant}"
    )
    with pytest.raises(ValueError, match=r"^'nosuch' is not an engine; use memory:"):
        tenure.open_store("nosuch:x")


async def test_a_block_that_was_left_is_not_said_to_be_lost(store):
    async with tenure.Lock(store, "a") as lease:
        pass
    with pytest.raises(tenure.LeaseLost) as caught:
        lease.check()
    assert str(caught.value) == "tenure:lock:a: its block was left, so it is not held any more (released)"
    assert str(tenure.LeaseLost("tenure:lock:a", "gone")) == "tenure:lock:a: lost (gone)"


async def test_a_result_that_another_memory_store_has(store):
    async with tenure.open_store("memory:") as other:
        task_id = await tenure.WorkQueue(other, "a").put(1)
        with pytest.raises(
            tenure.ResultUnavailable, match="each open_store\\('memory:'\\) is a store of its own"
        ):
            await tenure.WorkQueue(store, "a").result(task_id)


async def test_a_result_that_a_file_does_not_have(tmp_path):
    async with tenure.open_store(f"sqlite:///{tmp_path}/a.db") as store:
        with pytest.raises(tenure.ResultUnavailable, match="unknown, purged or expired$"):
            await tenure.WorkQueue(store, "a").result(1)
