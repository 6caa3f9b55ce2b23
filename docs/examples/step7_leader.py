"""Step 7: three copies of the service. One of them, the leader, puts the work; all of them do it, and share a cache.

Run it: python step7_leader.py [asyncio | trio] [a store, such as sqlite:///file or redis://localhost]
"""

import sys
from functools import partial

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}
CACHE: dict[str, str] = {}  # in a file or a table, if the copies are processes


async def stop_words(store: tenure.Store) -> str:
    """Read the list of words that do not count. Whoever finds it missing fetches it; the others wait for that."""
    if "stop words" not in CACHE:
        async with tenure.Lock(store, "stop words").hold(timeout=5):
            if "stop words" not in CACHE:  # nobody has done it meanwhile
                print("fetching the stop words")
                await anyio.sleep(0.01)
                CACHE["stop words"] = "a an the"
    return CACHE["stop words"]


async def count_words(store: tenure.Store, task: tenure.Task) -> int:
    """Count the words of one page that count."""
    ignored = set((await stop_words(store)).split())
    return sum(word not in ignored for word in TEXTS[task.payload["page"]].split())


async def schedule(queue: tenure.WorkQueue, term: tenure.Term) -> int:
    """Put the pages; the later ones are more urgent. This is the leader's work, and only one does it."""
    for n, name in enumerate(TEXTS):
        term.check()  # right before the side effect
        await queue.put({"page": name}, priority=n, key=name)
    return term.number


async def serve(store: tenure.Store, copy: str) -> None:
    """Be one copy: work, and lead if nobody else does."""
    queue = tenure.WorkQueue(store, "pages")
    worker = tenure.Worker(queue, partial(count_words, store), concurrency=2)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        if not (await queue.statistics()).put:
            async with tenure.Election(store, "scheduler", node=copy).term() as term:
                if not (await queue.statistics()).put:
                    await schedule(queue, term)
                    print(f"{copy} has scheduled in term {term.number}")
        await queue.join()
        await worker.drain()
        print(f"{copy} did {worker.statistics().done} pages")


async def main(where: str = "memory:") -> None:
    """Run three copies at once. Over a SQLite file or a server they could as well be three processes."""
    async with tenure.open_store(where) as store, anyio.create_task_group() as group:
        for copy in ("ann", "bob", "cid"):
            group.start_soon(serve, store, copy)


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
