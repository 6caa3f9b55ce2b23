"""Step 4: a worker takes the tasks, retries failures, keeps dead letters, and drains on request."""

import sys

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}


async def count_words(task: tenure.Task) -> int:
    """Count the words of one page."""
    name = task.payload["page"]
    if name == "page 5" and task.attempt == 1:
        raise ConnectionError("the first try fails, the second will do")
    if name == "page 7":
        raise ValueError("no attempt will ever do")
    if name == "page 9":
        raise tenure.Discard("not a page that we want")
    await anyio.sleep(0.01)  # the download
    return len(TEXTS[name].split())


async def main(where: str = "sqlite:///pages.db") -> None:
    """Put all pages, work until nothing is left, and show what became of them."""
    async with tenure.open_store(where) as store:
        queue = tenure.WorkQueue(store, "step4 pages", retry=tenure.Retry(attempts=2, backoff=0.1))
        await queue.put_many([tenure.Item({"page": name}, key=name) for name in TEXTS])
        worker = tenure.Worker(queue, count_words, concurrency=3, timeout=10)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
        print(worker.statistics())
        async for letter in queue.tasks("dead"):
            print(f"dead: {letter.key} after {letter.attempts} attempts: {letter.error}")
        assert await queue.verify(), "the books must balance"
        await queue.purge("dead")  # they have been looked at


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
