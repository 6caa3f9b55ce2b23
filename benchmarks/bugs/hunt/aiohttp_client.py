"""aiohttp's client: streams, and names that are looked up once for all who ask; see lost_slot for its connections."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from aiohttp import StreamReader, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from tenure.testing import cancellable


class _Resolver(AbstractResolver):
    async def resolve(self, host: str, port: int = 0, *_: Any, **__: Any) -> list[ResolveResult]:
        await asyncio.sleep(1)
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=2, proto=6, flags=0)]

    async def close(self) -> None:
        pass


async def every_lookup_ends() -> None:
    """A lookup that others wait for does not end with the task that began it."""
    connector = TCPConnector(resolver=_Resolver())

    async def look_up() -> None:
        assert (await connector._resolve_host("server", 80))[0]["host"] == "127.0.0.1"

    async def victim() -> None:
        with cancellable():
            await look_up()

    try:
        async with asyncio.TaskGroup() as group:
            for task in (victim, look_up, victim, look_up):
                group.create_task(task())
    finally:
        await connector.close()
    assert not connector._throttle_dns_futures


async def no_byte_of_a_stream_is_lost() -> None:
    """What a reader that is cancelled did not get, the next one gets."""
    stream = StreamReader(Mock(_reading_paused=False), limit=4, loop=asyncio.get_running_loop())
    got = b""

    async def read() -> None:
        nonlocal got
        while chunk := await stream.readany():
            got += chunk

    async def reader() -> None:
        for _ in range(3):
            with cancellable():
                await read()
        await read()

    async def feed() -> None:
        for byte in b"abcdef":
            await asyncio.sleep(0.1)
            stream.feed_data(bytes([byte]))
        stream.feed_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(reader())
        group.create_task(feed())
    assert got == b"abcdef", got
