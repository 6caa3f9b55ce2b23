"""Step 11: a task puts children, waits for them without a worker, and goes on when all have ended."""

import sys

import anyio

import tenure

SITE = {"home": ["news", "shop"], "news": ["today", "archive"], "shop": ["cart"]}


async def count(page: tenure.Task[str]) -> int:
    """Count the words of a page, and those of the pages that it links to."""
    links = await page.step("links", lambda: SITE.get(page.payload, []))
    async with page.children() as children:  # of its own queue
        await children.put_many(links)
    below: int = sum(child.result for child in children)
    return len(page.payload) + below


async def main(where: str = "memory:") -> None:
    """Count a whole site with one worker that does one task at a time."""
    async with tenure.open_store(where) as store, anyio.create_task_group() as group:
        pages = tenure.WorkQueue[str](store, "step11 pages")
        worker = tenure.Worker(pages, count, concurrency=1)
        group.start_soon(worker.run)
        print("words:", await pages.result(await pages.put("home")))
        print("suspended:", worker.statistics().suspended)
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
