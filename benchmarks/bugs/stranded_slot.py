"""httpcore #1093: a request that is cancelled between being given a connection and using it leaves that for ever."""

from __future__ import annotations

from typing import Any

import anyio
import httpcore
from httpcore import AsyncMockBackend, AsyncNetworkStream

from tenure.testing import cancellable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
VICTIMS = 3


class _Network(AsyncMockBackend):
    """In memory; a connection takes a moment to come about."""

    async def connect_tcp(self, *args: Any, **options: Any) -> AsyncNetworkStream:
        await anyio.sleep(0.01)
        return await super().connect_tcp(*args, **options)


async def stranded_slot() -> None:
    """When the cancelled are gone the pool's one connection serves again."""
    async with httpcore.AsyncConnectionPool(
        max_connections=1, network_backend=_Network([ANSWER] * (VICTIMS + 1))
    ) as pool:

        async def request() -> None:
            response = await pool.request("GET", "http://server/", extensions={"timeout": {"pool": 10}})
            assert response.status == 200

        async def victim() -> None:
            with cancellable():
                await request()

        async with anyio.create_task_group() as group:
            for _ in range(VICTIMS):
                group.start_soon(victim)
        await request()
