# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tenure.arguments import AsyncBlock, NotAwaited, Seconds
from tenure.errors import AcquireTimeout
from tenure.local._limits import check_key, seconds
from tenure.waiting import Expired, Home, Line, checkpoint, this_task

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType

    from tenure.waiting import Waiter


@dataclass(frozen=True, slots=True)
class KeyedLockStatistics:
    """The state of a `KeyedLock` at one moment."""

    keys: int
    """The number of keys that a task holds."""
    tasks_waiting: int
    """The number of tasks that wait."""


class KeyedLock:
    """A lock for each key: one task at a time in a block of a key, first come first served.

    Any hashable object is a key. Nothing is kept for a key that no task holds. Tasks that take several keys in
    different orders can wait for each other for ever.
    """

    __slots__ = ("_holders", "_home", "_lines")

    def __init__(self) -> None:
        self._home = Home(self)
        self._holders: dict[Hashable, object] = {}
        self._lines: dict[Hashable, Line[object, None]] = {}

    def hold(
        self, key: Hashable, *, timeout: Seconds | None = None
    ) -> AbstractAsyncContextManager[None, None]:
        """Hold the lock of a key for a block: ``async with lock.hold(key):``.

        `timeout` in seconds limits the wait (None: for ever; 0: one try). Entering raises `AcquireTimeout`, and
        `RuntimeError` if this task holds the key already; it is always a checkpoint. Leaving is none.

        Cancellation: while waiting, the place in the line is lost and nothing is held.
        """
        return _Hold(self, check_key(key), seconds("timeout", timeout, zero=True))

    def statistics(self) -> KeyedLockStatistics:
        """The current state."""
        return KeyedLockStatistics(len(self._holders), sum(map(len, self._lines.values())))

    def __repr__(self) -> str:
        state = self.statistics()
        return f"<KeyedLock {state.keys} keys held, {state.tasks_waiting} tasks waiting>"

    def _pass_on(self, key: Hashable) -> None:
        line = self._lines.get(key)
        if line is not None and (head := line.head()) is not None:
            self._holders[key] = head.want
            line.grant(head, None)
        else:
            self._lines.pop(key, None)
            del self._holders[key]

    def _left(self, key: Hashable, waiter: Waiter[object, None]) -> None:
        if waiter.granted:
            self._pass_on(key)


class _Hold(AsyncBlock, NotAwaited, AbstractAsyncContextManager[None, None]):
    __slots__ = ("_holds", "_key", "_lock", "_timeout")

    def __init__(self, lock: KeyedLock, key: Hashable, timeout: float) -> None:
        self._lock = lock
        self._key = key
        self._timeout = timeout
        self._holds: bool | None = None  # None: not entered yet

    async def __aenter__(self) -> None:
        lock, key, task = self._lock, self._key, this_task()
        if self._holds is not None:
            raise RuntimeError("the result of hold() is for one block: call it again for another")
        self._holds = False
        if key not in lock._holders:
            if not lock._holders:
                lock._home.hold()  # a waiter elsewhere has to know
            lock._holders[key] = task
            try:
                await checkpoint()
            except BaseException:
                lock._pass_on(key)
                raise
        elif lock._holders[key] is task:
            raise RuntimeError(f"{key!r}: this task holds it already and would wait for itself")
        else:
            line = lock._lines.get(key)
            if line is None:
                line = lock._lines[key] = Line(partial(lock._left, key), lock._home)
            try:
                await line.wait(line.join(task), self._timeout)
            except Expired:
                raise AcquireTimeout(repr(key), self._timeout, reason="held") from None
        self._holds = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._holds:
            raise RuntimeError("nothing is held by this block, or it was left already")
        self._holds = False
        self._lock._pass_on(self._key)
