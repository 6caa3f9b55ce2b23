"""Tasks that a test cancels in each way that there is."""

from __future__ import annotations

import anyio
import pytest

from tenure.waiting import this_task

WAYS = [("asyncio", "scope"), ("trio", "scope"), ("asyncio", "native")]
EVERY_WAY = pytest.mark.parametrize(("anyio_backend", "how"), WAYS, indirect=["anyio_backend"])
ON_UVLOOP_TOO = pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [*WAYS, ("uvloop", "scope"), ("uvloop", "native")],
    indirect=["anyio_backend"],
)


class Cancellable:
    """A task that does something and can be cancelled by its scope or, on asyncio, natively."""

    cancelled = "cancelled"

    def __init__(self, how="scope"):
        self.how = how
        self.scope = anyio.CancelScope()
        self.outcome = None

    async def run(self, *args):
        self.task = this_task()
        with self.scope:
            try:
                await self.do(*args)
            except anyio.get_cancelled_exc_class():
                self.outcome = self.cancelled
                if self.how == "scope":
                    raise

    async def do(self, *args):
        raise NotImplementedError

    def cancel(self):
        if self.how == "native":
            self.task.cancel()
        else:
            self.scope.cancel()


class Caller(Cancellable):
    """One that makes a call; its outcome is a word and a value."""

    cancelled = ("cancelled", None)

    async def do(self, fn, *args):
        self.outcome = ("returned", await fn(*args))


async def start_in_turn(group, tasks):
    """Start each when those before it wait; returns them."""
    for task in tasks:
        group.start_soon(task.run)
        await anyio.wait_all_tasks_blocked()
    return tasks
