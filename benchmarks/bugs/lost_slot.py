"""aiohttp #9670: a waiter for a connection is woken and then cancelled, and wakes no other."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from aiohttp import ClientTimeout
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import BaseConnector

from tenure.testing import cancellable


class _Connector(BaseConnector):
    """Makes connections of nothing."""

    async def _create_connection(self, *_: Any) -> Any:
        await asyncio.sleep(0)
        return Mock(should_close=True, closed=None)


async def lost_slot() -> None:
    """Everybody who stays gets the one connection in the end."""
    connector = _Connector(limit=1)
    request = Mock(connection_key=ConnectionKey("host", 80, False, True, None, None, None))

    async def connect() -> None:
        connection = await connector.connect(request, [], ClientTimeout())
        try:
            await asyncio.sleep(1)
        finally:
            connection.release()

    async def victim() -> None:
        with cancellable():
            await connect()

    async with asyncio.TaskGroup() as group:
        for task in (connect, victim, victim, connect):
            group.create_task(task())
    await connector.close()
