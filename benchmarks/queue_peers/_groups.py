"""What the contestants of `benchmarks.groups` have to do: tasks of accounts, of each of which one may run at a time."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import anyio

CONCURRENCY = 10
SECONDS = 0.005
"""How long a handler takes."""
_BACKENDS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}


@dataclass
class Contestant:
    """A queue: `put` puts a task of an account, `work` runs one worker until cancelled."""

    put: Callable[[str], Coroutine[Any, Any, object]]
    work: Callable[[], Coroutine[Any, Any, object]]


Handler = Callable[[str], Coroutine[Any, Any, object]]
Opened = Callable[[str, Handler], AbstractAsyncContextManager[Contestant]]


class Tally:
    """What has been done, and how many of an account ran at a time."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.most = 0
        self.done: list[str] = []

    async def handle(self, account: str) -> None:
        self.running[account] = self.running.get(account, 0) + 1
        self.most = max(self.most, self.running[account])
        await anyio.sleep(SECONDS)
        self.running[account] -= 1
        self.done.append(account)


async def _measure(opened: Opened, name: str, path: str, n: int) -> None:
    """One account has put `n` tasks; then ten others put one each. When are those done, and when all?"""
    tally = Tally()
    async with opened(path, tally.handle) as queue:
        for _ in range(n):
            await queue.put("big")
        for number in range(10):
            await queue.put(f"small {number}")
        began = time.perf_counter()
        others = 0.0
        async with anyio.create_task_group() as group:
            group.start_soon(queue.work)
            while len(tally.done) < n + 10:
                await anyio.sleep(0.002)
                if not others and sum(account != "big" for account in tally.done) == 10:
                    others = time.perf_counter() - began
            seconds = time.perf_counter() - began
            figures = {"name": name, "others": others or seconds, "all": seconds, "most": tally.most}
            print(json.dumps(figures), flush=True)
            os._exit(0)  # not every peer's worker can be stopped


def main(opened: Opened, name: str) -> None:
    """Do it, under this name, on the server and loop that the command line names."""
    logging.disable(logging.CRITICAL)
    path, loop, _, n = sys.argv[1:]
    anyio.run(_measure, opened, name, path, int(n), **_BACKENDS[loop])


def named(*releases: str) -> str:
    """The names of packages with their versions."""
    return ", ".join(f"{release} {version(release)}" for release in releases)
