"""The description of an open socket in words; on Linux, where open files are listed."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any, cast

# As the Linux kernel numbers them, in include/net/tcp_states.h.
TCP_STATES = (
    *("", "established", "connecting", "being accepted", "closing", "closing", "closing", "not connected"),
    *("closed by the peer", "closing", "listening", "closing"),
)


def socket_text(fd: int) -> str | None:
    try:
        # The copy can be closed with its file number.
        with socket.socket(fileno=os.dup(fd)) as copy:
            return ", ".join(filter(None, (_kind(copy), _state(copy), _addresses(copy))))
    except OSError:
        return None


def _kind(sock: socket.socket) -> str:
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        return {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}.get(sock.type, "ip")
    return sock.family.name.removeprefix("AF_").lower()


def _state(sock: socket.socket) -> str:
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "listening"
    if _kind(sock) == "tcp":
        return TCP_STATES[sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]]
    try:
        sock.getpeername()
    except OSError:
        return "not connected"
    return "connected"


def _addresses(sock: socket.socket) -> str:
    local, peer = _address(sock.getsockname()), ""
    with suppress(OSError):
        peer = _address(sock.getpeername())
    return f"{local} to {peer}" if local and peer else local or peer


def _address(name: Any) -> str:
    if isinstance(name, tuple):
        host, port = cast("tuple[Any, ...]", name)[:2]
        return "" if not port else f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    # Linux begins an abstract unix address with a zero.
    return os.fsdecode(name).replace("\0", "@")
