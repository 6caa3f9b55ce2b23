from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

import anyio
from anyio import CancelScope

import tenure.engine as e
from tenure.arguments import Seconds, check_timeout
from tenure.errors import AcquireTimeout, LeaseLost
from tenure.store import Grant, Held, Session, StoreHandle
from tenure.waiting import Parked, now

from ._block import LeasedBlock
from ._guard import Guarded

_ONE_TRY = 1.0
"""Seconds after which a single try is given up because the engine is away; the settle_timeout if that is longer."""


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    key: str
    wait: bool = field(default=True, kw_only=True)

    @property
    def shared(self) -> bool:
        return False

    def ask(self, session: str, name: str) -> e.Operation[Any]:
        raise NotImplementedError

    def undo(self, name: str) -> e.Operation[Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class HoldRequest(LeaseRequest):
    capacity: int
    weight: int = 1
    value: bytes = b""

    @property
    def shared(self) -> bool:
        return self.weight < self.capacity

    def ask(self, session: str, name: str) -> e.Operation[Any]:
        return e.Acquire(session, self.key, name, self.capacity, self.weight, self.value, self.wait)

    def undo(self, name: str) -> e.Operation[Any]:
        return e.Release(self.key, name)


class Lease(Guarded, Held):
    """A hold, for as long as the block lasts.

    `token` is the fence: higher than the token of every earlier grant. Send it with each write, and let the receiver
    refuse lower tokens. `lost` is None, or the reason of the loss.
    Thread safety: `check` and `remaining` belong on the event loop's thread.
    """

    __slots__ = ("_ended", "_name", "_request", "_scope", "_session", "key", "lost", "token")

    def __init__(self, request: LeaseRequest, grant: Grant, scope: CancelScope) -> None:
        answer: e.Granted | e.Claimed = grant.answer
        self.key: str = request.key
        self.token: int = answer.token
        self._request = request
        self.lost: str | None = None
        self._ended = False
        self._name = grant.name
        self._session: Session = grant.session
        self._scope = scope
        self._session.add(self)

    def __repr__(self) -> str:
        state = f"lost={self.lost!r}" if self.lost else "released" if self._ended else "held"
        return f"<{type(self).__name__} {self._subject} token={self.token} {state}>"

    def remaining(self) -> float:
        """The seconds for which the lease would last without a further renewal; 0 once it is over."""
        return 0.0 if self.lost or self._ended else self._session.remaining()

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost, its time has passed, or the block was left ("released").

        Call it right before a side effect: a process that was frozen may run one more step before its cancellation
        arrives, and synchronous code is not cancelled at all. It sends nothing.
        """
        if self._ended:
            raise LeaseLost(self.key, self.lost or "released")
        if self.lost or self._session.check():
            raise LeaseLost(self.key, self.lost or "expired")

    def _is_over(self) -> bool:
        """True if the time of the lease has passed; from any thread."""
        return self.lost is not None or self._session.is_over()

    @property
    def _subject(self) -> str:
        return self.key

    def _fence(self) -> tuple[str, int]:
        if self._request.shared:
            raise RuntimeError(
                f"{self.key}: others may hold it too, and the newest token would refuse the rest"
            )
        return self.key, self.token

    @property
    def _granted_as(self) -> tuple[str, int]:
        return self._name, self.token

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self._scope.cancel(f"{self.key} lost: {reason}")
            self._report_loss(reason)

    def _end(self, time: float) -> None:
        reason = self._session.check(time)
        if reason is not None and self.lost is None:
            self.lost = reason
            self._report_loss(reason)
        late = time - self._session.deadline - self._session.margin
        if self.lost and late > 0:
            self._session.reporter.warn("lease.overran", key=self.key, token=self.token, seconds=late)
        self._ended = True
        self._session.drop(self)

    def _report_loss(self, reason: str) -> None:
        error = LeaseLost(self.key, reason)
        self._session.report_loss("lease.lost", reason, key=self.key, token=self.token, error=error)


H = TypeVar("H", bound=Lease)


class Hold(LeasedBlock[H, Grant, None]):
    __slots__ = ("_exclusive", "_kind", "_release", "_request", "_since", "_timeout", "_ttl", "grant")

    grant: Grant

    def __init__(
        self,
        kind: Callable[[LeaseRequest, Grant, CancelScope], H],
        store: StoreHandle,
        request: LeaseRequest,
        *,
        ttl: float,
        timeout: Seconds | None,
        exclusive: bool = False,
    ) -> None:
        super().__init__(store, request.key)
        self._timeout = None if timeout is None else check_timeout("timeout", timeout)
        self._kind = kind
        self._request = request
        self._ttl = ttl
        self._exclusive = exclusive

    def _obtain(self) -> Awaitable[Grant]:
        store, key = self._store, self._key
        if self._exclusive and store.entered.setdefault((key, self._task), self) is not self:
            raise RuntimeError(f"{key}: this task holds it already and would wait for itself")
        if store.observer is not None:
            self._since = now()
        if self._timeout is None:
            return store.acquisitions.acquire(self._request, self._ttl, self._on_position)
        return self._acquire_within(self._timeout)

    async def _acquire_within(self, timeout: float) -> Grant:
        last: int | None = None

        def on_position(position: int) -> None:
            nonlocal last
            last = position
            self._on_position(position)

        request, refused = self._request if timeout else replace(self._request, wait=False), False
        seconds = timeout or max(self._store.settle_timeout, _ONE_TRY)
        with anyio.move_on_after(seconds):
            grant = await self._store.acquisitions.acquire(request, self._ttl, on_position)
            if grant.answer is not e.Reply.REFUSED:
                return grant
            refused = True
        reason = "held"
        if not refused:
            silent = None if last is not None else f"has not answered for {seconds:g} s"
            if trouble := self._store.dispatchers.trouble(self._key) or silent:
                reason = f"the store {trouble}"
        raise self._timed_out(timeout, last, reason)

    def _on_position(self, position: int) -> None:
        """Note the number of waiters before the holder in the line."""

    def _timed_out(self, timeout: float, position: int | None, reason: str) -> AcquireTimeout:
        return AcquireTimeout(self._key, timeout, position=position, reason=reason)

    def _hand_over(self, obtained: Grant, scope: CancelScope) -> H:
        self.grant = obtained
        if self._store.observer is not None:
            started, self._since = self._since, now()
            fields = {"waited": self._since - started, **self._store.availability.outage(started)}
            token = obtained.answer.token
            self._store.reporter.notice("lease.acquired", key=self._key, token=token, **fields)
        return self._kind(self._request, obtained, scope)

    def _give_back(self, held: H, error: BaseException | None) -> None:
        del error
        grant = self.grant
        self._release = self._store.acquisitions.release(self._request, grant.name, grant.session)
        held._end(self._release.since)  # pyright: ignore[reportPrivateUsage]
        if self._store.observer is not None and not held.lost:
            since = now() - self._since
            self._store.reporter.notice("lease.released", key=held.key, token=held.token, held=since)

    def _acknowledgement(self, held: H, error: BaseException | None) -> tuple[Parked, float] | None:
        del held, error
        waiter = self._store.settle_timeouts.waiter(self._release)
        return None if waiter is None else (waiter, inf)

    def _conclude(self, held: H, error: BaseException | None, *, ended_by_us: bool) -> None:
        if held.lost and (ended_by_us or error is None):
            raise LeaseLost(held.key, held.lost) from None

    def _forget(self) -> None:
        if self._exclusive and self._store.entered.get((self._key, self._task)) is self:
            del self._store.entered[self._key, self._task]
