"""What type checkers make of the blocks: `return` inside of one is the function's end, and its value has a type.

Not run: .ci/run has mypy and pyright read it, both as strict as they can be. A block that might swallow an exception,
because its `__aexit__` returned a bool, would make them ask for another `return` behind it.
"""

from contextlib import AsyncExitStack
from typing import assert_type

import tenure
from tenure import local, testing
from tenure.processor import Context


async def store() -> str:
    async with tenure.open_store("memory:") as opened:
        assert_type(opened, tenure.Store)
        return repr(opened)


async def lock(lock: tenure.Lock) -> int:
    async with lock as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def lock_held(lock: tenure.Lock) -> int:
    async with lock.hold(timeout=5) as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def semaphore(semaphore: tenure.Semaphore) -> int:
    async with semaphore as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def semaphore_held(semaphore: tenure.Semaphore) -> int:
    async with semaphore.hold(2, timeout=5) as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def read(lock: tenure.RWLock) -> int:
    async with lock.read() as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def write(lock: tenure.RWLock) -> int:
    async with lock.write() as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def claim(pool: tenure.ResourcePool) -> str:
    async with pool.claim(timeout=5) as claim:
        assert_type(claim, tenure.types.Claim)
        return claim.resource


async def term(election: tenure.Election) -> int:
    async with election.term() as term:
        assert_type(term, tenure.types.Term)
        return term.number


async def lead(election: tenure.Election) -> None:
    async def body(term: tenure.types.Term) -> str:
        return str(term.number)

    assert_type(await election.lead(body), str)


async def watch(election: tenure.Election) -> str | None:
    async with election.watch() as changes:
        return await anext(changes)


async def take(queue: tenure.WorkQueue) -> int:
    async with queue.take(timeout=5) as task:
        assert_type(task, tenure.Task)
        return task.id
    return 0  # this one does swallow: RetryLater and Discard


def refusals(guard: tenure.types.LuaGuard) -> str:
    with guard.refusals():
        return guard.script("return 1")


async def processor(processor: tenure.Processor) -> int:
    async with processor as entered:
        assert_type(entered, tenure.Processor)
        return await entered.submit("a page")


async def lock_of_a_handler(context: Context) -> int:
    async with context.lock("cache") as lease:
        assert_type(lease, tenure.types.Lease)
        return lease.token


async def connect() -> int:
    return 1


async def connect_to(host: str) -> int:
    return len(host)


def close(_: int) -> None:
    pass


async def pool() -> int:
    async with local.Pool(connect, close=close) as pool, pool.acquire(timeout=5) as connection:
        assert_type(pool, local.Pool[int])
        assert_type(connection, int)
        return connection


async def keyed_pool() -> int:
    async with local.KeyedPool(connect_to, close=close) as pool, pool.acquire("a.host") as connection:
        assert_type(pool, local.KeyedPool[str, int])
        assert_type(connection, int)
        return connection


async def queue(queue: local.Queue[int]) -> int:
    async with queue.take() as item:
        assert_type(item, int)
        return item


async def local_read(lock: local.RWLock) -> int:
    async with lock.read():
        return 1


async def local_write(lock: local.RWLock) -> int:
    async with lock.write():
        return 1


def local_read_at_once(lock: local.RWLock) -> int:
    with lock.read_nowait():
        return 1


async def barrier(barrier: local.Barrier) -> int:
    async with barrier as place:
        assert_type(place, int)
        return place


async def breaker(breaker: local.CircuitBreaker) -> int:
    async with breaker:
        return 1


async def breaker_with_arguments(breaker: local.CircuitBreaker) -> None:
    assert_type(await breaker.call(connect_to, host="a.host"), int)
    await breaker.call(connect_to, 1)  # type: ignore[arg-type]
    assert_type(local.CircuitBreaker.consecutive(5), local.CircuitBreaker)


async def limiter(limiter: tenure.RateLimiter) -> int:
    async with limiter:
        return 1


async def token_bucket(bucket: local.TokenBucket) -> int:
    async with bucket:
        return 1


async def bulkhead(bulkhead: local.Bulkhead) -> int:
    async with bulkhead.enter("search", timeout=5):
        return 1


async def blocking_watch() -> int:
    async with local.BlockingWatch() as watch:
        return watch.statistics().blocks


async def flush(batch: dict[str, int]) -> None:
    batch.clear()


async def coalescer() -> int:
    async with local.Coalescer(flush, window=0.1) as coalescer:
        assert_type(coalescer, local.Coalescer[str, int])
        return 1


async def single_flight() -> int:
    async with local.SingleFlight() as flights:
        return await flights.run("key", connect)


async def handle(kind: str, item: int) -> None:
    pass


async def router() -> int:
    async with local.Router({"mail": 2}, handle, max_size=10) as router:
        assert_type(router, local.Router[str, int])
        return 1


async def proxy() -> int:
    async with testing.FaultProxy("localhost", 6379) as proxy:
        return proxy.port


async def no_leaks() -> int:
    async with testing.assert_no_leaks():
        return 1


def no_leaks_of_a_plain_function() -> int:
    with testing.assert_no_leaks():
        return 1


def no_checkpoints() -> int:
    with testing.assert_no_checkpoints():
        return 1


async def on_a_stack(
    lock: tenure.Lock, semaphore: tenure.Semaphore, turns: local.RWLock, breaker: local.CircuitBreaker
) -> None:
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(lock), tenure.types.Lease)
        assert_type(await stack.enter_async_context(semaphore), tenure.types.Lease)
        await stack.enter_async_context(turns.read())
        await stack.enter_async_context(turns.write())
        await stack.enter_async_context(breaker)
