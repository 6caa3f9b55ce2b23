from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, cast

from anyio import CancelScope

import tenure.engine as e
from tenure import engine
from tenure.arguments import (
    AsyncBlock,
    NotAwaited,
    Seconds,
    check_name,
    check_seconds,
    check_text,
    check_timeout,
)
from tenure.errors import AcquireTimeout, LeaseLost
from tenure.local import passes_check
from tenure.shared._lease import Hold, Lease, LeaseRequest
from tenure.store import Codec, Grant, StoreHandle, decoded, encoded
from tenure.waiting import now

from ._matching import MatchCheck

_LONGEST_REASON = 4096
_LEAST_REST = 1.0


@dataclass(frozen=True, slots=True)
class ClaimRequest(LeaseRequest):
    where: e.Metadata = ()
    quarantine: float = 0.0
    fair_for: str = ""

    def ask(self, session: str, name: str) -> e.Operation[Any]:
        return engine.Claim(session, self.key, name, self.where, self.quarantine, self.wait, self.fair_for)

    def undo(self, name: str) -> e.Operation[Any]:
        return e.GiveBack(self.key, name)


class Claim(Lease):
    """A claimed resource, for as long as the block lasts: a `Lease` with the `key` of the pool.

    `resource` is its name. `token`, the fence, is higher than the token of every earlier claim of this resource.
    """

    __slots__ = ("_fields", "_store", "resource")

    def __init__(self, store: StoreHandle, request: LeaseRequest, grant: Grant, scope: CancelScope) -> None:
        super().__init__(request, grant, scope)
        self.resource: str = grant.answer.resource
        self._fields: e.Metadata = grant.answer.metadata
        self._store = store

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the resource when it was claimed, or as `set_metadata` stored it; decoded at each reading."""
        return decode(self._store.codec, self._fields)

    @property
    def _subject(self) -> str:
        return f"{self.resource!r} of {self.key}"

    def _fence(self) -> tuple[str, int]:
        return f"{self.key} {self.resource!r}", self.token

    async def cool_down(self, seconds: Seconds) -> None:
        """Let the resource rest after it is given back, until `seconds` from now.

        The last call counts; 0 revokes an earlier call. Raises `LeaseLost`, `StoreClosed`, `EngineError`.
        Cancellation: it may or may not be applied.
        """
        await self._edit(cool_down=check_seconds("seconds", seconds))

    async def retire(self, reason: str) -> None:
        """Never lend the resource again after it is given back, unless it is added anew.

        Raises `LeaseLost`, `StoreClosed`, `EngineError`. Cancellation: it may or may not be applied.
        """
        await self._edit(retire=check_text("reason", reason, most=_LONGEST_REASON))

    async def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata that is stored with the resource, and so the claims that it matches.

        Raises `LeaseLost`, `StoreClosed`, `EngineError`, and the errors of the codec.
        Cancellation: it may or may not be applied.
        """
        fields = encode(self._store.codec, "metadata", metadata)
        await self._edit(metadata=fields)
        self._fields = fields

    async def _edit(self, **changes: Any) -> None:
        self.check()
        edit = e.EditClaim(self.key, self._name, self.token, **changes)
        if await self._store.call(edit, patient=True) is e.Reply.REFUSED:
            raise LeaseLost(self.key, self.lost or "refused")


@dataclass(frozen=True, slots=True)
class Check:
    function: Callable[[Claim], object]
    timeout: float


def claiming(
    store: StoreHandle, request: ClaimRequest, *, ttl: float, timeout: Seconds | None, check: Check | None
) -> AbstractAsyncContextManager[Claim, None]:
    if check is None:
        return _ClaimHold(store, request, ttl=ttl, timeout=timeout)
    return _CheckedClaim(store, request, ttl=ttl, timeout=timeout, check=check)


class _ClaimHold(Hold[Claim]):
    __slots__ = ("_match", "_where")

    def __init__(
        self, store: StoreHandle, request: ClaimRequest, *, ttl: float, timeout: Seconds | None
    ) -> None:
        super().__init__(partial(Claim, store), store, request, ttl=ttl, timeout=timeout)
        self._where = request.where
        self._match: MatchCheck | None = None
        if request.where:
            self._match = MatchCheck(store, request.key, request.where, self._timeout, self._warn)

    def _on_position(self, position: int) -> None:
        del position
        if self._match is not None:
            self._match.begin()

    async def _obtain(self) -> Grant:
        try:
            return await super()._obtain()
        finally:
            if self._match is not None:
                self._match.ended = True

    def _timed_out(self, timeout: float, position: int | None, reason: str) -> AcquireTimeout:
        unmatched = self._match is not None and self._match.unmatched
        return super()._timed_out(timeout, position, self._unmatched if unmatched else reason)

    def _warn(self) -> None:
        self._store.reporter.warn("claim.unmatched", key=self._key, reason=self._unmatched)

    @property
    def _unmatched(self) -> str:
        fields = ", ".join(f"{name}={value.decode(errors='replace')}" for name, value in self._where)
        return f"when the claim read the pool, no resource matched where {fields}"


class _CheckedClaim(AsyncBlock, NotAwaited):
    __slots__ = ("_check", "_entered", "_hold", "_request", "_store", "_timeout", "_ttl")

    def __init__(
        self, store: StoreHandle, request: ClaimRequest, *, ttl: float, timeout: Seconds | None, check: Check
    ) -> None:
        self._store = store
        self._request = request
        self._ttl = ttl
        self._timeout = check_timeout("timeout", timeout)
        self._check = check
        self._entered = False
        self._hold: Hold[Claim] | None = None

    async def __aenter__(self) -> Claim:
        if self._entered:
            raise RuntimeError(f"{self._request.key}: this block was entered before; make a new one")
        self._entered = True
        left, started = self._timeout, now()
        try:
            while (claim := await self._attempt(left)) is None:
                if self._timeout is not None:
                    left = started + self._timeout - now()
                    if left <= 0:
                        raise AcquireTimeout(self._request.key, left)
        except AcquireTimeout as error:
            seconds = self._timeout or 0
            raise AcquireTimeout(error.key, seconds, position=error.position, reason=error.reason) from None
        return claim

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hold is None:
            raise RuntimeError(f"{self._request.key}: this block was not entered")
        await self._hold.__aexit__(kind, error, trace)

    async def _attempt(self, timeout: float | None) -> Claim | None:
        hold = _ClaimHold(self._store, self._request, ttl=self._ttl, timeout=timeout)
        check = self._check
        try:
            async with AsyncExitStack() as stack:
                claim = await stack.enter_async_context(hold)
                failed = partial(self._check_failed, claim)
                if await passes_check(check.timeout, check.function, claim, shield=False, failed=failed):
                    self._hold = hold
                    stack.pop_all()
                    return claim
                self._store.reporter.notice("claim.unfit", **_about(claim))
                await claim.cool_down(max(self._request.quarantine, _LEAST_REST))
        except LeaseLost:
            pass  # while it was being checked
        return None

    def _check_failed(self, claim: Claim, error: Exception) -> None:
        self._store.reporter.warn("pool.check_failed", **_about(claim), error=error)


def _about(claim: Claim) -> dict[str, object]:
    return {"key": claim.key, "resource": claim.resource, "token": claim.token}


def encode(codec: Codec, what: str, fields: object) -> e.Metadata:
    if fields is None:
        return ()
    if not isinstance(fields, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(fields).__name__}")
    values = cast("Mapping[object, Any]", fields)
    checked = {check_name(f"{what}: a name", name): value for name, value in values.items()}
    return tuple((name, encoded(codec, f"{what}: {name!r}", checked[name])) for name in sorted(checked))


def decode(codec: Codec, fields: e.Metadata) -> dict[str, Any]:
    return {name: decoded(codec, f"the metadata {name!r}", value) for name, value in fields}
