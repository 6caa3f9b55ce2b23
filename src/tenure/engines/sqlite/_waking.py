"""Waking other processes: a datagram makes a process read a hint at once.

The addresses are abstract ones of Linux: no files, gone with their sockets. A lost datagram does no harm, since each
process also looks for hints by itself; on other systems, and in containers that share only the file, it does only that.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b

_AT_ONCE = 10
"""The number of datagrams that are taken in at once. Linux keeps as many for a socket by default."""


class Waker:
    """Wakes processes that use the file with this identity. Thread safety: none; used on the thread of
    the connection.
    """

    def __init__(self, file: tuple[int, int]) -> None:
        self._file = file
        self._socket = _open()

    def wake(self, processes: Iterable[str]) -> None:
        if self._socket is None:
            return
        for process in processes:
            # the process is gone, or has not read the last ones: then one more changes nothing
            with suppress(OSError):
                self._socket.sendto(b"", _address(self._file, process))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def listen(file: tuple[int, int], process: str) -> socket.socket | None:
    """The socket at which others wake this process, or None where there is none. It does not block."""
    listening = _open()
    if listening is not None:
        try:
            listening.bind(_address(file, process))
        except OSError:  # there is another one of this name
            listening.close()
            return None
    return listening


def take_in(listening: socket.socket) -> None:
    """Take in the datagrams that have come, or as many as usually fit: they all mean the same."""
    with suppress(BlockingIOError):
        # every local user can send some, faster than they are taken in
        for _ in range(_AT_ONCE):
            listening.recv(1)


def _open() -> socket.socket | None:
    if sys.platform != "linux":
        return None
    try:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError:  # a sandbox forbids it
        return None
    opened.setblocking(False)
    return opened


def _address(file: tuple[int, int], process: str) -> bytes:
    device, number = file
    name = blake2b(f"{device}:{number}:{process}".encode(), digest_size=16).hexdigest()
    return f"\0tenure/{name}".encode()
