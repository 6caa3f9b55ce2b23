"""Asks a Redis server by a blocking call, and returns what the server pushes meanwhile beside its replies."""

from __future__ import annotations

import socket

import hiredis

from tenure.engines.redis._resp import pack


class RedisSocket:
    """A connection that speaks RESP3."""

    def __init__(self, path):
        self._reader = hiredis.Reader()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self.ask(("HELLO", "3"))

    def close(self):
        self._socket.close()

    def tell(self, command):
        """Send a command that is answered by pushes alone."""
        self._socket.sendall(pack([command]))

    def ask(self, *commands):
        """The replies to commands, and the pushes up to the last of them and by it."""
        # Redis 8 sends the messages of a script behind the reply to it, and before the reply to the next command.
        self._socket.sendall(pack([*commands, ("PING",)]))
        replies, pushes = [], []
        while len(replies) <= len(commands):
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 18))
            elif isinstance(reply, hiredis.PushNotification):
                pushes.append(reply)
            else:
                assert not isinstance(reply, Exception), reply
                replies.append(reply)
        return replies[:-1], pushes
