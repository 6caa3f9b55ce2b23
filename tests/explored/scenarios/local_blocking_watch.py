"""The watch over the loop. Its thread is real and looks at real time: it must see nothing here, and end."""

from __future__ import annotations

import anyio
from explored.catalogue import scenario
from explored.world import pause

from tenure.local import BlockingWatch
from tenure.testing import cancellable


@scenario("local.BlockingWatch.__aenter__", "local.BlockingWatch.__aexit__")
async def a_watch_ends_with_its_block():
    watch, seen = BlockingWatch(1000), []

    async def victim():
        with cancellable():
            async with BlockingWatch(1000) as mine:
                await pause()
            seen.append(mine.statistics().blocks)

    async with anyio.create_task_group() as group:
        group.start_soon(victim)
        async with watch:
            await pause()
        async with watch:  # again
            await pause()
    assert watch.statistics().blocks == 0 and sum(seen) == 0
