"""What passes on the bytes between a client on TCP and a server on a Unix socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio.abc import SocketAttribute

from tenure.engines.redis._socket import plain


async def inside(path):
    """A connection to a server's socket.

    On asyncio, anyio's own raises `InvalidStateError` in a callback if it is cancelled in the turn of the loop in
    which data arrives: `UNIXSocketStream` registers the bare `set_result` of a future that is cancelled by then.
    """
    return await plain(await anyio.connect_unix(path))


async def passed_on(client, server, change=lambda data, *, up: data):
    """Pass bytes on until one side ends. `change(data, up=)` returns what to pass on in place of data."""

    async def forward(source, target, *, up):
        try:
            async for data in source:
                await target.send(change(data, up=up))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(partial(forward, client, server, up=True))
        group.start_soon(partial(forward, server, client, up=False))


@asynccontextmanager
async def relay(path, change_of):
    """The port through which the server at `path` is reached. `change_of(client)`: see `passed_on`."""

    async def serve(client):
        async with client, await inside(path) as server:
            await passed_on(client, server, change_of(client))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            yield listener.extra(SocketAttribute.local_port)
            group.cancel_scope.cancel()
