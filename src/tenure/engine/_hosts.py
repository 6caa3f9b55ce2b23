"""The known addresses of hosts: the watchdog looks up no name, since nothing can end a look-up that takes long."""

from __future__ import annotations

import socket
from contextvars import ContextVar

import anyio

only_known: ContextVar[bool] = ContextVar("only_known", default=False)
"""True where no name may be looked up."""

_known: dict[str, tuple[str, ...]] = {}


def remember(host: str, *addresses: str) -> None:
    """Remember the addresses of a host. Thread safety: any."""
    _known[host] = addresses


async def addresses_of(host: str) -> tuple[str, ...]:
    """The addresses of a host. Raises `OSError`. Cancellation: a thread may still look the name up."""
    if only_known.get():
        if host not in _known:
            raise OSError(f"{host}: no address is known, and this thread looks up no names")
        return _known[host]
    found = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    remember(host, *(str(entry[-1][0]) for entry in found))
    return _known[host]
