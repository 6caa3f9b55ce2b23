"""Step 7: three copies of the service. One of them, the leader, puts the work; all of them do it, and share a cache.

Run it: python step7_leader.py [asyncio | trio] [a store, such as sqlite:///file or redis://localhost] [a batch]
"""

import sys
from functools import partial
from uuid import uuid4

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}
CACHE: dict[str, str] = {}  # in a file or a table, if the copies are processes


async def stop_words(store: tenure.Store) -> str:
    """Read the list of words that do not count. The first copy that finds it missing fetches it; the others wait."""
    if "stop words" not in CACHE:
        async with tenure.Lock(store, "step7 stop words").hold(timeout=5):
            if "stop words" not in CACHE:  # not fetched meanwhile
                print("fetching the stop words")
                await anyio.sleep(0.01)
                CACHE["stop words"] = "a an the"
    return CACHE["stop words"]


async def count_words(store: tenure.Store, page: dict[str, str]) -> int:
    """Count the words of one page that count."""
    ignored = set((await stop_words(store)).split())
    return sum(word not in ignored for word in TEXTS[page["page"]].split())


async def is_scheduled(queue: tenure.WorkQueue, batch: str) -> bool:
    """Whether a leader has put this batch."""
    return (await queue.cursors()).get("batch") == batch


async def schedule(queue: tenure.WorkQueue, term: tenure.types.Term, batch: str) -> None:
    """Put the pages; the later ones are more urgent. In the same step the store notes that this batch has been put."""
    items = [tenure.Item({"page": name}, priority=n, key=name) for n, name in enumerate(TEXTS)]
    term.check()  # right before the side effect
    await queue.put_many(items, cursor=("batch", batch))


async def serve(store: tenure.Store, copy: str, batch: str) -> None:
    """Be one copy: work, and lead if no other copy does."""
    queue = tenure.WorkQueue(store, "step7 pages")
    worker = tenure.Worker(queue, partial(count_words, store), concurrency=2)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        if not await is_scheduled(queue, batch):
            async with tenure.Election(store, "step7 scheduler", node=copy).term() as term:
                if not await is_scheduled(queue, batch):  # not scheduled meanwhile
                    await schedule(queue, term, batch)
                    print(f"{copy} has scheduled in term {term.number}")
        await queue.join()
        await worker.drain()
        print(f"{copy} did {worker.statistics().done} pages")


async def main(where: str = "memory:", batch: str = "") -> None:
    """Run three copies at once. Over a SQLite file or a server they could be three processes.

    A batch is scheduled once. A service would name it by the day, so that there is one a day, under any leader.
    """
    batch = batch or uuid4().hex
    async with tenure.open_store(where) as store, anyio.create_task_group() as group:
        for copy in ("ann", "bob", "cid"):
            group.start_soon(serve, store, copy, batch)


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
