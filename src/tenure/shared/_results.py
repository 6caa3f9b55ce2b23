"""Waiting for what becomes of tasks: hinted when it happens, asked for again when no hint comes."""

from __future__ import annotations

from random import uniform

import anyio

from tenure.engine import Count, GetResult, Outcome, QueueCounts, Reply, Unfinished
from tenure.errors import ResultUnavailable, StoreClosed
from tenure.local._line import Line
from tenure.store import Store

_DRAINED = ""


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
            session = await self._store.session(self._store.ttl)
            line = self._lines.setdefault(str(task_id), Line(lambda _: None))
            waiter = line.join(None)
            try:
                answer = await self._store.call(GetResult(self._key, task_id, session.id))
                if isinstance(answer, Outcome):
                    return answer
                if answer is Reply.UNKNOWN:
                    raise ResultUnavailable(self._key, task_id)
                if answer is Reply.GONE:
                    session.lose("gone")
                if isinstance(answer, Unfinished):
                    with anyio.move_on_after(_pause(answer.ask_again_in)):
                        await line.wait(waiter)
            finally:
                line.leave(waiter)
                if not len(line):
                    self._lines.pop(str(task_id), None)

    async def drained(self) -> None:
        """Wait until no task is unfinished. Cancellation: has no effect."""
        while True:
            session = await self._store.session(self._store.ttl)
            line = self._lines.setdefault(_DRAINED, Line(lambda _: None))
            waiter = line.join(None)
            try:
                answer = await self._store.call(Count(self._key, session.id))
                if answer is Reply.GONE:
                    session.lose("gone")
                if isinstance(answer, QueueCounts):
                    if not (answer.waiting or answer.delayed or answer.leased):
                        return
                    with anyio.move_on_after(_pause(answer.ask_again_in)):
                        await line.wait(waiter)
            finally:
                line.leave(waiter)

    def wake(self, name: str = _DRAINED) -> None:
        """A hint came for a task, or for the whole queue."""
        line = self._lines.get(name)
        if line is not None:
            for waiter in line:
                line.grant(waiter, None)

    def wake_all(self) -> None:
        """Hints may have been lost."""
        for name in self._lines:
            self.wake(name)

    def close(self) -> None:
        """The store closes."""
        for line in self._lines.values():
            line.fail_all(lambda: StoreClosed("the store was closed"))


def _pause(ask_again_in: float) -> float:
    return max(0.05, ask_again_in) * uniform(1, 1.1)
