"""Step 6: the site wants a key with every request. Each key is lent to one task at a time, and can be given a rest."""

import sys

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}
BUSY = {"key-1"}  # the site is tired of this one


class TooManyRequests(Exception):
    """The key asks too often."""


async def download(name: str, key: str) -> str:
    """Fetch a page with a key."""
    await anyio.sleep(0.01)
    if key in BUSY:
        BUSY.remove(key)
        raise TooManyRequests
    return TEXTS[name]


async def count_words(store: tenure.Store, name: str, counts: dict[str, int]) -> None:
    """Count the words of one page with a free key."""
    pool = tenure.ResourcePool(store, "step6 keys", quarantine=5)
    while name not in counts:
        async with pool.claim(timeout=10, where={"tier": "paid"}) as claim:
            site = tenure.RateLimiter(store, f"step6 site {claim.resource}", tenure.Limit(100, burst=4))
            await site.acquire()
            try:
                counts[name] = len((await download(name, claim.resource)).split())
            except TooManyRequests:
                print(f"{claim.resource} has to rest, {name} is tried with another key")
                await claim.cool_down(0.2)


async def main(where: str = "memory:") -> None:
    """Fetch all pages, with two keys."""
    counts: dict[str, int] = {}
    async with tenure.open_store(where) as store:
        pool = tenure.ResourcePool(store, "step6 keys")
        await pool.add("key-1", {"tier": "paid"})
        await pool.add("key-2", {"tier": "paid"})
        await pool.add("key-3", {"tier": "free"})
        async with anyio.create_task_group() as group:
            for name in TEXTS:
                group.start_soon(count_words, store, name, counts)
        print(f"{sum(counts.values())} words of {len(counts)} pages")
        print(await pool.statistics())


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
