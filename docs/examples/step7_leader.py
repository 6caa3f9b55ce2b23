"""Step 7: three copies of the service. One of them, the leader, puts the work; all of them do it."""

import sys
from uuid import uuid4

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}


async def count_words(page: dict[str, str]) -> int:
    """Count the words of one page."""
    return len(TEXTS[page["page"]].split())


async def is_scheduled(queue: tenure.WorkQueue, batch: str) -> bool:
    """Whether a leader has put this batch."""
    return (await queue.cursors()).get("batch") == batch


async def schedule(queue: tenure.WorkQueue, term: tenure.types.Term, batch: str) -> None:
    """Put the pages, and note in the same step that this batch has been put."""
    items = [tenure.Item({"page": name}, priority=n, key=name) for n, name in enumerate(TEXTS)]
    term.check()  # right before the side effect
    await queue.put_many(items, cursor=("batch", batch))


async def serve(store: tenure.Store, copy: str, batch: str) -> None:
    """Work, and lead if no other copy does."""
    queue = tenure.WorkQueue(store, "step7 pages")
    worker = tenure.Worker(queue, count_words, concurrency=2)
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
    """Run three copies at once. A service would name its batch by the day."""
    batch = batch or uuid4().hex
    async with tenure.open_store(where) as store, anyio.create_task_group() as group:
        for copy in ("ann", "bob", "cid"):
            group.start_soon(serve, store, copy, batch)


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
