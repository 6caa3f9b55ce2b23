"""Waiting for what becomes of tasks: hinted when it happens, asked for again when no hint comes."""

from __future__ import annotations

from random import uniform

import anyio

from tenure.engine import Count, GetResult, Outcome, QueueCounts, Reply, Unfinished
from tenure.errors import ResultUnavailable, StoreClosed
from tenure.local._line import Line
from tenure.store import Held, Session, Store

_DRAINED = ""
_LEAST_PAUSE = 0.05


class Watchers:
    """All of this process's callers that wait for the end of a task, or of all tasks, of one queue.

    Thread safety: none.
    """

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._lines: dict[str, Line[None, None]] = {}

    async def outcome(self, task_id: int) -> Outcome:
        """Wait for the end of a task. Raises `ResultUnavailable`. Cancellation: has no effect."""
        while True:
            session = await self._store.session(self._store.ttl, self._key)
            watch = _Watch(self._lines, str(task_id), session)
            try:
                answer = await self._store.call(GetResult(self._key, task_id, session.id))
                if isinstance(answer, Outcome):
                    return answer
                if answer is Reply.UNKNOWN:
                    raise ResultUnavailable(self._key, task_id)
                if isinstance(answer, Unfinished):
                    await watch.wait(answer.ask_again_in)
                else:
                    session.lose("gone")
            finally:
                watch.end()

    async def drained(self) -> None:
        """Wait until no task is unfinished. Cancellation: has no effect."""
        while True:
            session = await self._store.session(self._store.ttl, self._key)
            watch = _Watch(self._lines, _DRAINED, session)
            try:
                answer = await self._store.call(Count(self._key, session.id))
                if not isinstance(answer, QueueCounts):
                    session.lose("gone")
                elif answer.waiting or answer.delayed or answer.leased:
                    await watch.wait(answer.ask_again_in)
                else:
                    return
            finally:
                watch.end()

    def wake(self, name: str = _DRAINED) -> None:
        """A hint came for a task, or for the whole queue."""
        line = self._lines.get(name)
        if line is not None:
            for waiter in line:
                line.grant(waiter, None)

    def wake_all(self) -> None:
        """Hints may have been lost."""
        for name in list(self._lines):
            self.wake(name)

    def close(self) -> None:
        """The store closes."""
        for line in list(self._lines.values()):
            line.fail_all(lambda: StoreClosed("the store was closed"))


class _Watch(Held):
    """One caller's wait for a hint: begun before the engine is asked, so that no hint is missed."""

    __slots__ = ("_line", "_lines", "_name", "_session", "_waiter")

    def __init__(self, lines: dict[str, Line[None, None]], name: str, session: Session) -> None:
        self._lines = lines
        self._name = name
        self._session = session
        self._line = lines.setdefault(name, Line(lambda _: None))
        self._waiter = self._line.join(None)
        session.add(self)

    async def wait(self, ask_again_in: float) -> None:
        """Wait for a hint, or until it is time to ask again."""
        with anyio.move_on_after(max(_LEAST_PAUSE, ask_again_in) * uniform(1, 1.05)):
            await self._line.wait(self._waiter)

    def lose(self, reason: str) -> None:
        """The engine watches for this process no more: ask again. For the session alone."""
        del reason
        self._line.grant(self._waiter, None)

    def end(self) -> None:
        """Wait no more."""
        self._session.drop(self)
        self._line.leave(self._waiter)
        if not len(self._line) and self._lines.get(self._name) is self._line:
            del self._lines[self._name]
