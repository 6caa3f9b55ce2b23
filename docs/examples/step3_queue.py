"""Step 3: the pages become tasks of a queue. Producers and takers need not know each other."""

import sys

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}


async def put_pages(queue: tenure.WorkQueue) -> list[int]:
    """Put a task for each page that is not in the queue."""
    items = [tenure.Item({"page": name}, key=name) for name in TEXTS]
    return [outcome for outcome in await queue.put_many(items) if isinstance(outcome, int)]


async def take_pages(queue: tenure.WorkQueue) -> None:
    """Take tasks until none has come for a tenth of a second."""
    while True:
        try:
            async with queue.take(timeout=0.1) as task:
                await anyio.sleep(0.01)  # the download
                task.set_result(len(TEXTS[task.payload["page"]].split()))
        except tenure.AcquireTimeout:
            return


async def main(where: str = "memory:") -> None:
    """Put, take, and add up the results."""
    async with tenure.open_store(where) as store:
        queue = tenure.WorkQueue(store, "step3 pages")
        task_ids = await put_pages(queue)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(take_pages, queue)
        words = sum([await queue.result(task_id) for task_id in task_ids])
        print(f"{words} words of {len(task_ids)} pages")
        print(f"{(await queue.statistics()).unfinished} are left")


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
