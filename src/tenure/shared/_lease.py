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

from tenure.arguments import check_timeout
from tenure.engine import Acquire, Claimed, Granted, Operation, Release, Reply
from tenure.errors import AcquireTimeout, LeaseLost
from tenure.local._park import now, on_task_end, this_task
from tenure.store import Held, Obtained, Session, Settlement, Store

from ._guard import Guarded

_ONE_TRY = 1.0
"""Seconds (or the settle_timeout, if it is longer) after which a single try is given up: the engine is away."""


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


class Lease(Guarded, Held):
    """What is held, for as long as the block lasts.

    `token` is the fence: it is higher than that of every earlier grant; hand it to whatever you write to, and let that
    refuse lower ones. `lost` is None, or why the lease was lost.
    Thread safety: `check` and `remaining` belong on the event loop's thread.
    """

    __slots__ = ("_ended", "_name", "_scope", "_session", "_shared", "key", "lost", "token")

    def __init__(self, key: str, obtained: Obtained, scope: CancelScope, *, shared: bool = False) -> None:
        answer: Granted | Claimed = obtained.answer
        self.key = key
        self._shared = shared
        self.token = answer.token
        self.lost: str | None = None
        self._ended = False
        self._name = obtained.name
        self._session: Session = obtained.session
        self._scope = scope
        self._session.add(self)

    def __repr__(self) -> str:
        state = f"lost={self.lost!r}" if self.lost else "released" if self._ended else "held"
        return f"<{type(self).__name__} {self.key} token={self.token} {state}>"

    def remaining(self) -> float:
        """For how many seconds the lease would last if no further renewal came through; 0 once it is over."""
        return 0.0 if self.lost or self._ended else self._session.remaining()

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost, its time has passed, or the block was left ("released").

        It costs nothing and sends nothing. Call it right before a side effect: a process that was frozen may run one
        more step before its cancellation reaches it.
        """
        if self._ended:
            raise LeaseLost(self.key, self.lost or "released")
        if self.lost or self._session.look():
            raise LeaseLost(self.key, self.lost or "expired")

    def _fence(self) -> tuple[str, int]:
        if self._shared:
            raise RuntimeError(
                f"{self.key}: others may hold it too, and the newest token would refuse the rest"
            )
        return self.key, self.token

    @property
    def granted_as(self) -> tuple[str, int]:
        """The name of the holder, and the token. For the store alone."""
        return self._name, self.token

    def lose(self, reason: str) -> None:
        """It is lost: cancel the body. For the store alone."""
        if self.lost is None:
            self.lost = reason
            self._scope.cancel(f"{self.key} lost: {reason}")

    def end(self) -> None:
        """The block is being left. For the hold alone."""
        self.lost = self.lost or self._session.look()
        self._ended = True
        self._session.drop(self)


class Hold:
    """An async context manager that obtains a lease and gives it back. For one use.

    Thread safety: none.
    """

    __slots__ = (
        "_exclusive",
        "_lease",
        "_obtained",
        "_scope",
        "_settlement",
        "_since",
        "_store",
        "_task",
        "_timeout",
        "_ttl",
        "_unwatch",
        "_wish",
    )

    def __init__(
        self, store: Store, wish: HoldWish, *, ttl: float, timeout: float | None, exclusive: bool
    ) -> None:
        timeout = check_timeout("timeout", timeout)
        self._store = store
        self._wish = wish
        self._ttl = ttl
        self._timeout = timeout
        self._exclusive = exclusive
        self._lease: Lease | None = None
        self._settlement: Settlement | None = None
        self._task: object = None

    @property
    def holds(self) -> bool:
        """Whether it was entered and not yet left."""
        return self._lease is not None and self._settlement is None

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
        observer = self._store.observer
        started = 0.0 if observer is None else anyio.current_time()
        try:
            self._obtained = await self._obtain()
        except BaseException:
            self._forget()
            raise
        self._scope = scope = CancelScope()
        scope.__enter__()
        self._lease = lease = Lease(
            self._wish.key, self._obtained, scope, shared=self._wish.weight < self._wish.capacity
        )
        self._unwatch = on_task_end(task, self._abandoned)
        if observer is not None:
            self._since = anyio.current_time()
            observer.notice("lease.acquired", key=lease.key, token=lease.token, waited=self._since - started)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back. Raises `LeaseLost` if it was lost and the body did not raise something of its own.

        Cancellation: giving back goes on by itself; only the wait for its acknowledgement ends.
        """
        lease = self._lease
        if lease is None:
            raise RuntimeError(f"{self._wish.key}: this hold was not entered")
        settlement = self._give_back(lease)
        if this_task() is not self._task:
            raise RuntimeError(
                f"{lease.key}: left from another task than it was entered in; it has been released. Keep its "
                "`async with` in one task, such as one that waits in between for the end"
            )
        # a body around this one may hold something under the same session, and has to end with it
        limit = min(self._store.settle_timeout, self._obtained.session.remaining())
        if error is None and lease.lost is None and (berth := settlement.berth()) is not None:
            # nobody will cancel this scope any more, so that it does for the wait as well
            self._scope.shield, self._scope.deadline = True, now() + limit
            try:
                await berth
            except BaseException as late:
                if not self._scope.__exit__(type(late), late, late.__traceback__):
                    raise
            else:
                self._scope.__exit__(None, None, None)
            return
        try:
            ended_by_us = bool(self._scope.__exit__(kind, error, trace))
        except BaseException as rest:
            # the scope took its own cancellations out of a group, and raises what is left of it
            await settlement.wait(limit)
            _tell_of_the_loss(rest, lease)
            raise
        await settlement.wait(limit)
        if lease.lost and (ended_by_us or error is None):
            raise LeaseLost(lease.key, lease.lost) from None
        _tell_of_the_loss(error, lease)

    def compose(self) -> None:
        """The task ended without leaving the block: nobody is there any more to hold it. For the store alone."""
        if self._lease is not None:
            self._give_back(self._lease)

    async def _obtain(self) -> Obtained:
        if self._timeout is None:
            return await self._store.obtain(self._wish, self._ttl)
        ahead: list[int] = []
        wish = self._wish if self._timeout else replace(self._wish, wait=False)
        with anyio.move_on_after(self._timeout or max(self._store.settle_timeout, _ONE_TRY)):
            obtained = await self._store.obtain(wish, self._ttl, ahead.append)
            if obtained.answer is not Reply.REFUSED:
                return obtained
        raise AcquireTimeout(self._wish.key, self._timeout, ahead=ahead[-1] if ahead else None)

    def _give_back(self, lease: Lease) -> Settlement:
        """Synchronous: from here on nothing can stop it."""
        if self._settlement is None:
            self._unwatch()
            del self._unwatch  # it knows this hold: together they would wait for the garbage collector
            self._forget()
            self._settlement = self._store.settle(self._wish, self._obtained)
            lease.end()
            self._notice_end(lease)
        return self._settlement

    def _notice_end(self, lease: Lease) -> None:
        if self._store.observer is None:
            return
        if lease.lost:
            self._store.notice("lease.lost", key=lease.key, token=lease.token, reason=lease.lost)
        else:
            held = anyio.current_time() - self._since
            self._store.notice("lease.released", key=lease.key, token=lease.token, held=held)

    def _abandoned(self) -> None:
        # called outside of any task, where not even the time can be told on every loop
        self._store.compose_soon(self, self._wish.key)

    def _forget(self) -> None:
        if self._exclusive:
            self._store.entered.pop((self._wish.key, self._task), None)


def _tell_of_the_loss(error: BaseException | None, lease: Lease) -> None:
    if lease.lost and isinstance(error, Exception):
        error.add_note(f"{lease.key} was lost meanwhile ({lease.lost})")
