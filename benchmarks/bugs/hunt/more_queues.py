"""Queues and limiters of other packages: aiochannel, janus, aiolimiter."""

from __future__ import annotations

import asyncio

from tenure.testing import cancellable


async def aiochannel_gives_each_item_once() -> None:
    """All that was put into a channel comes out, and everybody learns that it is closed."""
    from aiochannel import Channel, ChannelClosed

    channel: Channel[int] = Channel(1)
    put: list[int] = []
    got: list[int] = []

    async def getter() -> None:
        try:
            while True:
                got.append(await channel.get())
        except ChannelClosed:
            pass

    async def victim() -> None:
        with cancellable():
            await getter()

    async def putter(first: int) -> None:
        for item in range(first, first + 3):
            with cancellable():
                await channel.put(item)
                put.append(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(victim())
        group.create_task(getter())
        try:
            async with asyncio.TaskGroup() as putters:
                putters.create_task(putter(0))
                putters.create_task(putter(10))
        finally:
            channel.close()
    assert sorted(got) == sorted(put)


async def janus_gives_each_item_once() -> None:
    """All that was put into a queue comes out, and the queue is joined."""
    import janus

    queue: janus.Queue[int] = janus.Queue(maxsize=1)
    put: list[int] = []
    got: list[int] = []

    async def getter() -> None:
        while True:
            got.append(await queue.async_q.get())
            queue.async_q.task_done()

    async def victim() -> None:
        with cancellable():
            await getter()

    async def putter(first: int) -> None:
        for item in range(first, first + 3):
            with cancellable():
                await queue.async_q.put(item)
                put.append(item)

    try:
        async with asyncio.TaskGroup() as group:
            getters = [group.create_task(victim()), group.create_task(getter())]
            async with asyncio.TaskGroup() as putters:
                putters.create_task(putter(0))
                putters.create_task(putter(10))
            await queue.async_q.join()
            for task in getters:
                task.cancel()
    finally:
        await queue.aclose()
    assert sorted(got) == sorted(put)


async def aiolimiter_serves_all_in_time() -> None:
    """No more than ten in a second, and everybody who stays is served as soon as there is room."""
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(2, 1)
    served: list[float] = []

    async def ask(amount: float) -> None:
        await limiter.acquire(amount)
        served.append(amount)

    async def victim(amount: float) -> None:
        with cancellable():
            await ask(amount)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for task in (ask(2), victim(1), ask(2), victim(2), ask(1)):
            group.create_task(task)
    loop = asyncio.get_running_loop()
    assert sum(served) <= 2 + 2 * (loop.time() + 0.3), (served, loop.time())
