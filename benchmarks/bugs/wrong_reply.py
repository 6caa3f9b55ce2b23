"""redis-py #2624: the reply to a command that was cancelled is read as the reply to the next command."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redis.asyncio import Redis

from tenure.testing import cancellable


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each GET with the name of its key, after a moment, and anything else with OK."""
    with suppress(ConnectionError):
        while header := await reader.readline():
            words = []
            for _ in range(int(header[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            get = words[0].upper() == b"GET"
            if get:
                await asyncio.sleep(0.5)
            writer.write(b"$%d\r\n%s\r\n" % (len(words[1]), words[1]) if get else b"+OK\r\n")
    writer.close()


async def wrong_reply() -> None:
    """Each key has its own name as its value."""
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.extend(filter(None, [asyncio.current_task()]))
        await _serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Redis(port=server.sockets[0].getsockname()[1], max_connections=1)

    async def victim() -> None:
        with cancellable():
            await client.get("a")

    try:
        await client.get("first")
        async with asyncio.TaskGroup() as group:
            group.create_task(victim())
        value = await client.get("b")
        assert value == b"b", f"the value of b is {value!r}"
    finally:
        await client.connection_pool.disconnect()
        server.close()
        await asyncio.gather(*serving, return_exceptions=True)
