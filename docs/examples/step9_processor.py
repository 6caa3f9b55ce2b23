"""Step 9: all patterns composed: keys, connections, a rate, a cache under a lock, priorities, and figures."""

import sys
from functools import partial

import anyio

import tenure
from tenure.local import CircuitBreaker, Pool
from tenure.processor import Context

TEXTS = {f"page {n}": "word " * n for n in range(12)}
CACHE: dict[str, set[str]] = {}


class Connection:
    """A connection to the site."""

    async def get(self, name: str, key: str) -> str:
        """Fetch a page with a key."""
        if name == "page 5" and key == "key-1":
            raise ConnectionError("the site does not like this key today")
        await anyio.sleep(0.01)
        return TEXTS[name]


async def connect() -> Connection:
    """Open a connection."""
    await anyio.sleep(0.01)
    return Connection()


async def close(connection: Connection) -> None:
    """Close it."""


async def count_words(page: str, context: Context) -> int:
    """Count the words of one page; its key, its connection and its start are granted."""
    if "ignored" not in CACHE:
        async with context.lock("step9 ignored words"):
            if "ignored" not in CACHE:
                await anyio.sleep(0.01)
                CACHE["ignored"] = {"a", "an", "the"}
    try:
        text = await context.connection.get(page, context.claim.resource)
    except ConnectionError:
        await context.claim.cool_down(0.5)  # and the next try gets another key
        raise
    return sum(word not in CACHE["ignored"] for word in text.split())


async def main(where: str = "memory:") -> None:
    """Count the words of all pages, and show the figures."""
    async with tenure.open_store(where) as store:
        keys = tenure.ResourcePool(store, "step9 keys", quarantine=5)
        await keys.add("key-1")
        await keys.add("key-2")
        async with tenure.Processor(
            store,
            "step9 pages",
            count_words,
            preset="small",
            rate=200,
            claims=keys,
            pool=partial(Pool, connect, close=close),
            breaker=partial(CircuitBreaker, min_calls=20),
            retry=tenure.Retry(attempts=3, backoff=0.05),
            timeout=10,
        ) as processor:
            ids = [await processor.submit(name, priority=n) for n, name in enumerate(TEXTS)]
            await processor.join()
            words = sum([await processor.queue().result(task_id) for task_id in ids])
            metrics = processor.metrics()
        print(f"{words} words of {len(ids)} pages; tries that failed: {metrics.totals['failures']}")
        waits = metrics.waits.claim
        print(f"p95 of a page: {metrics.latency.total.p95:.3f} s; of the wait for a key: {waits.p95:.3f} s")


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
