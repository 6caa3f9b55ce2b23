"""The lease: a cancel scope that ends with its session.

Entering obtains a grant; the body runs in a cancel scope of the lease's own, in the caller's own task. When the session
is lost, that scope is cancelled, and leaving the block tells why. What was held is given back synchronously, before the
first await of leaving, so that nothing can stop it; the acknowledgement is then waited for in a shield.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import anyio
from anyio import CancelScope

from tenure.engine import Acquire, Claimed, Granted, Operation, Release, Reply
from tenure.errors import AcquireTimeout, LeaseLost
from tenure.local._park import on_task_end, this_task
from tenure.store import Obtained, Session, Settlement, Store


@dataclass(frozen=True, slots=True)
class HoldWish:
    """A wish for `weight` of the `capacity` of a key."""

    key: str
    capacity: int
    weight: int = 1
    value: bytes = b""
    wait: bool = True

    def ask(self, session: str, name: str) -> Operation[Any]:
        return Acquire(session, self.key, name, self.capacity, self.weight, self.value, self.wait)

    def undo(self, name: str) -> Operation[Any]:
        return Release(self.key, name)


class Lease:
    """What is held, for as long as the block lasts.

    `token` is the fence: it is higher than that of every earlier grant; hand it to whatever you write to, and let that
    refuse lower ones. `lost` is None, or why the lease was lost.
    Thread safety: `check` and `remaining` belong on the event loop's thread.
    """

    __slots__ = ("_leave", "_obtained", "_scope", "_session", "key", "lost", "token")

    def __init__(self, key: str, obtained: Obtained, scope: CancelScope) -> None:
        answer: Granted | Claimed = obtained.answer
        self.key = key
        self.token = answer.token
        self.lost: str | None = None
        self._obtained = obtained
        self._session: Session = obtained.session
        self._scope = scope
        self._session.add(self)

    def __repr__(self) -> str:
        state = f"lost={self.lost!r}" if self.lost else f"remaining={self.remaining():.3f}"
        return f"<{type(self).__name__} {self.key} token={self.token} {state}>"

    def remaining(self) -> float:
        """For how many seconds the lease would last if no further renewal came through; 0 once it is lost."""
        return 0.0 if self.lost else self._session.remaining()

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost or its time has passed; costs nothing, sends nothing.

        Call it right before a side effect: a process that was frozen may run one more step before its cancellation
        reaches it.
        """
        if self.lost or self._session.look():
            raise LeaseLost(self.key, self.lost or "expired")

    def lose(self, reason: str) -> None:
        """The session is lost: cancel the body. For the session alone."""
        self.lost = reason
        self._scope.cancel(f"{self.key} lost: {reason}")


class Hold:
    """An async context manager that obtains a lease and gives it back. For one use.

    Thread safety: none.
    """

    __slots__ = (
        "_exclusive",
        "_lease",
        "_obtained",
        "_scope",
        "_since",
        "_store",
        "_task",
        "_timeout",
        "_ttl",
        "_unwatch",
        "_wish",
    )

    def __init__(self, store: Store, wish: HoldWish, *, ttl: float, timeout: float | None, exclusive: bool) -> None:
        check_timeout(timeout)
        self._store = store
        self._wish = wish
        self._ttl = ttl
        self._timeout = timeout
        self._exclusive = exclusive
        self._lease: Lease | None = None
        self._task: object = None

    async def __aenter__(self) -> Lease:
        """Obtain the lease. Raises `AcquireTimeout`, `CapacityMismatch`, `StoreClosed`, `EngineError`.

        Cancellation: nothing is held and no place is kept.
        """
        if self._task is not None:
            raise RuntimeError(f"{self._wish.key}: this hold was entered before; make a new one")
        self._task = task = this_task()
        if self._exclusive:
            if (self._wish.key, task) in self._store.entered:
                raise RuntimeError(f"{self._wish.key}: this task holds it already and would wait for itself")
            self._store.entered[self._wish.key, task] = self
        started = anyio.current_time()
        try:
            self._obtained = await self._obtain()
        except BaseException:
            self._forget()
            raise
        self._scope = scope = CancelScope()
        scope.__enter__()
        self._lease = lease = Lease(self._wish.key, self._obtained, scope)
        self._since = anyio.current_time()
        self._unwatch = on_task_end(task, self._abandoned)
        if self._store.observer is not None:
            self._store.notice("lease.acquired", key=lease.key, token=lease.token, waited=self._since - started)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Give the lease back. Raises `LeaseLost` if it was lost and the body did not raise something of its own.

        Cancellation: giving back goes on by itself; only the wait for its acknowledgement ends.
        """
        lease = self._lease
        if lease is None:
            raise RuntimeError(f"{self._wish.key}: this hold was not entered")
        settlement = self._give_back(lease)
        if this_task() is not self._task:
            raise RuntimeError(f"{lease.key}: left from another task than it was entered in; it has been released")
        lost = lease.lost
        try:
            ended_by_us = bool(self._scope.__exit__(kind, error, trace))
        except BaseException as rest:
            # trio: the scope took its own cancellations out of a group and raises what is left
            if lost and isinstance(rest, Exception):
                rest.add_note(f"{lease.key} was lost meanwhile ({lost})")
            raise
        await settlement.wait(self._store.settle_timeout)
        if lost and (ended_by_us or error is None):
            raise LeaseLost(lease.key, lost) from None
        if lost and isinstance(error, Exception):
            error.add_note(f"{lease.key} was lost meanwhile ({lost})")
        return False

    async def _obtain(self) -> Obtained:
        if self._timeout is None:
            return await self._store.obtain(self._wish, self._ttl)
        ahead: list[int] = []
        if self._timeout == 0:
            obtained = await self._store.obtain(replace(self._wish, wait=False), self._ttl)
            if obtained.answer is not Reply.REFUSED:
                return obtained
        else:
            with anyio.move_on_after(self._timeout):
                return await self._store.obtain(self._wish, self._ttl, ahead.append)
        raise AcquireTimeout(self._wish.key, self._timeout, ahead=ahead[-1] if ahead else None)

    def _give_back(self, lease: Lease) -> Settlement:
        """Synchronous: from here on nothing can stop it."""
        lease.lost = lease.lost or self._obtained.session.look()
        self._unwatch()
        self._forget()
        settlement = self._store.settle(self._wish, self._obtained)
        self._obtained.session.drop(lease)
        if self._store.observer is not None:
            fields = {"key": lease.key, "token": lease.token}
            if lease.lost:
                self._store.notice("lease.lost", reason=lease.lost, **fields)
            else:
                self._store.notice("lease.released", held=anyio.current_time() - self._since, **fields)
        return settlement

    def _abandoned(self) -> None:
        # the task ended without leaving the block: nobody is there any more to hold it
        if self._lease is not None:
            self._give_back(self._lease)

    def _forget(self) -> None:
        if self._exclusive:
            self._store.entered.pop((self._wish.key, self._task), None)


def check_timeout(timeout: float | None) -> None:
    """A time limit is None, or a number of seconds not below 0."""
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be None or a number of seconds, not below 0: {timeout!r}")
