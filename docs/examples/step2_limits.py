"""Step 2: many readers that share two limits: on how many run at once, and on how many start in a second."""

import sys

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}


async def count_words(store: tenure.Store, name: str, counts: dict[str, int]) -> None:
    """Fetch one page, and count its words."""
    await tenure.RateLimiter(store, "step2 site", tenure.Limit(50, burst=4)).acquire()
    async with tenure.Semaphore(store, "step2 connections", 3).hold():
        await anyio.sleep(0.01)  # the download
        counts[name] = len(TEXTS[name].split())


async def main(where: str = "memory:") -> None:
    """Fetch all pages at once."""
    counts: dict[str, int] = {}
    async with tenure.open_store(where) as store:
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            for name in TEXTS:
                group.start_soon(count_words, store, name, counts)
        print(f"{sum(counts.values())} words of {len(counts)} pages in {anyio.current_time() - began:.2f} s")


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
