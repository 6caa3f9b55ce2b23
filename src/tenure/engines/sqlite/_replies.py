"""The replies to numbered operations, kept so that a batch that is sent again is applied once."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import tenure.engine as e

from ._session import SqliteSession


class CachedReply(NamedTuple):
    n: int
    answer: Any
    until: int


class CachedReplies:
    """Replies by session and operation. Each session belongs to the process that opened it, so the file has none."""

    def __init__(self) -> None:
        self._boot = 0
        self._replies: dict[tuple[int, str], CachedReply] = {}
        self._new: dict[tuple[int, str], CachedReply] = {}
        self._due: list[tuple[int, tuple[int, str]]] = []

    def begin(self, boot: int) -> None:
        self._boot = boot
        self._new = {}

    def cached(self, session: SqliteSession, n: int, name: str) -> Any:
        reply = self._new.get((session.number, name)) or self._replies.get((session.number, name))
        if reply is None or reply.n != n or reply.until <= self._boot:
            return None
        self.cache(session, n, name, reply.answer)
        return reply.answer

    def cache(self, session: SqliteSession, n: int, name: str, answer: Any) -> None:
        self._new[session.number, name] = CachedReply(n, answer, self._boot + 2 * session.micros)

    def committed(self) -> None:
        for name, reply in self._new.items():
            if name not in self._replies:
                heappush(self._due, (reply.until, name))
            self._replies[name] = reply
        self._new = {}
        self._forget()

    def _forget(self) -> None:
        for _ in range(2 * e.CAP):
            if not self._due or self._due[0][0] > self._boot:
                return
            _, name = heappop(self._due)
            reply = self._replies[name]
            if reply.until > self._boot:
                heappush(self._due, (reply.until, name))
            else:
                del self._replies[name]

    def __len__(self) -> int:
        return len(self._replies)
