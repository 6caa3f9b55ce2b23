"""A process for the tests beside it: `find_child.py LOOP URL LOG`, a worker whose step never ends."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import anyio

import tenure


async def main(url: str, path: str) -> None:
    """Work until killed."""
    log = os.open(path, os.O_APPEND | os.O_WRONLY)

    async def charge() -> str:
        os.write(log, b"charge\n")
        await anyio.sleep_forever()
        return "receipt"

    def find() -> str | None:
        os.write(log, b"find\n")
        return "found" if "charge" in Path(path).read_text() else None

    async def handler(task: tenure.Task[int]) -> str:
        return await task.step("charge", charge, find=find)

    async with tenure.open_store(url, ttl=1) as store:
        await tenure.Worker(tenure.WorkQueue[int](store, "jobs"), handler).run()


if __name__ == "__main__":
    loop, *where = sys.argv[1:]
    anyio.run(partial(main, *where), backend=loop)
