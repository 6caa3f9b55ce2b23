"""aiochannel #13: a channel that is closed right after a put leaves the getter that was woken asleep, for ever."""

from __future__ import annotations

import asyncio

from aiochannel import Channel, ChannelClosed


async def sleeping_getter() -> None:
    """A getter gets what was put, or hears that the channel is closed."""
    channel: Channel[int] = Channel(1)

    async def get() -> None:
        try:
            while True:
                await channel.get()
        except ChannelClosed:
            pass

    async def put() -> None:
        await channel.put(1)
        channel.close()

    async with asyncio.TaskGroup() as group:
        for task in (get, get, put):
            group.create_task(task())
