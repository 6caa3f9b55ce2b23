"""A process that runs a processor until it is told to end: `processor_child.py LOOP URL GRACE LOG`."""

from __future__ import annotations

import signal
import sys

import anyio

import tenure
from tenure.processor import Processor


async def main(url: str, grace: float, log: str) -> None:
    async def handler(task: tenure.Task) -> None:
        with open(log, "a") as file:
            file.write(f"{task.id}\n")
        await anyio.sleep(task.payload)

    async with tenure.open_store(url) as store:
        async with Processor(store, "jobs", handler) as processor:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    await processor.drain(grace)
                    break


if __name__ == "__main__":
    loop, where, seconds, path = sys.argv[1:]
    anyio.run(main, where, float(seconds), path, backend=loop)
