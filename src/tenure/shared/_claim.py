"""The claim: a hold of whatever resource of a pool matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import anyio

from tenure import engine
from tenure.arguments import check_name, check_seconds, check_text, check_timeout
from tenure.engine import EditClaim, GiveBack, Metadata, Operation, Reply
from tenure.errors import AcquireTimeout, LeaseLost
from tenure.local._pool_hooks import works
from tenure.store import Codec, Obtained, Store, encoded

from ._guard import Guarded
from ._lease import Hold, HoldWish, Lease

_LONGEST_REASON = 4096
_LEAST_REST = 1.0


@dataclass(frozen=True, slots=True)
class ClaimWish(HoldWish):
    """A wish for one resource of a pool that has all the fields of `where`."""

    where: Metadata = ()
    quarantine: float = 0.0

    def ask(self, session: str, name: str) -> Operation[Any]:
        return engine.Claim(session, self.key, name, self.where, self.quarantine, self.wait)

    def undo(self, name: str) -> Operation[Any]:
        return GiveBack(self.key, name)


class Claim(Guarded):
    """A claimed resource, for as long as the block lasts.

    `resource` is its name; `key` and `token` (the fence) are as those of a `Lease`.
    Thread safety: none; it belongs to the event loop.
    """

    __slots__ = ("_fields", "_lease", "_name", "_store", "resource")

    def __init__(self, store: Store, lease: Lease, obtained: Obtained) -> None:
        self.resource: str = obtained.answer.resource
        self._fields: Metadata = obtained.answer.metadata
        self._lease = lease
        self._name = obtained.name
        self._store = store

    def __repr__(self) -> str:
        return f"<Claim {self.resource!r} of {self._lease!r}>"

    @property
    def key(self) -> str:
        """The engine's key of the pool."""
        return self._lease.key

    @property
    def token(self) -> int:
        """Higher than that of every earlier claim of this resource."""
        return self._lease.token

    @property
    def metadata(self) -> dict[str, Any]:
        """What was stored with the resource when it was claimed, or by `set_metadata`; decoded each time it is read."""
        return decode(self._store.codec, self._fields)

    @property
    def lost(self) -> str | None:
        """None, or why the claim was lost."""
        return self._lease.lost

    def remaining(self) -> float:
        """For how many seconds the claim would last if no further renewal came through; 0 once it is over."""
        return self._lease.remaining()

    def check(self) -> None:
        """Raise `LeaseLost` if the claim is lost, its time has passed, or the block was left ("released").

        It costs nothing and sends nothing. Call it right before a side effect.
        """
        self._lease.check()

    def _fence(self) -> tuple[str, int]:
        return f"{self.key} {self.resource!r}", self.token

    async def cool_down(self, seconds: float) -> None:
        """Let the resource rest once it is given back, until so many seconds from now have passed.

        The last call counts; 0 takes an earlier one back. Raises `LeaseLost`, `StoreClosed`, `EngineError`.
        Cancellation: it may or may not be applied.
        """
        await self._edit(cool_down=check_seconds("seconds", seconds))

    async def retire(self, reason: str) -> None:
        """Never lend the resource again once it is given back, unless it is added anew.

        Raises `LeaseLost`, `StoreClosed`, `EngineError`. Cancellation: it may or may not be applied.
        """
        await self._edit(retire=check_text("reason", reason, most=_LONGEST_REASON))

    async def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace what is stored with the resource, and so whom it will match.

        Raises `LeaseLost`, `StoreClosed`, `EngineError`, and what the codec raises.
        Cancellation: it may or may not be applied.
        """
        fields = encode(self._store.codec, "metadata", metadata)
        await self._edit(metadata=fields)
        self._fields = fields

    async def _edit(self, **changes: Any) -> None:
        self.check()
        if await self._store.call(EditClaim(self.key, self._name, self.token, **changes)) is Reply.REFUSED:
            raise LeaseLost(self.key, self.lost or "refused")


class _ClaimHold(Hold):
    __slots__ = ()

    @property
    def obtained(self) -> Obtained:
        return self._obtained


@dataclass(frozen=True, slots=True)
class Check:
    """What is called with a claim before it is lent, and for how many seconds at most."""

    function: Callable[[Claim], object]
    timeout: float


class Claiming:
    """An async context manager that claims a resource and gives it back. For one use.

    Thread safety: none.
    """

    __slots__ = ("_check", "_entered", "_hold", "_store", "_timeout", "_ttl", "_wish")

    def __init__(
        self, store: Store, wish: ClaimWish, *, ttl: float, timeout: float | None, check: Check | None
    ) -> None:
        self._store = store
        self._wish = wish
        self._ttl = ttl
        self._timeout = check_timeout("timeout", timeout)
        self._check = check
        self._entered = False
        self._hold: Hold | None = None

    async def __aenter__(self) -> Claim:
        """Claim a resource. Raises `AcquireTimeout`, `StoreClosed`, `EngineError`.

        Cancellation: nothing is held and no place is kept.
        """
        if self._entered:
            raise RuntimeError(f"{self._wish.key}: this claim was entered before; make a new one")
        self._entered = True
        left, started = self._timeout, anyio.current_time()
        try:
            while (claim := await self._attempt(left)) is None:
                if self._timeout is not None:
                    left = started + self._timeout - anyio.current_time()
                    if left <= 0:
                        raise AcquireTimeout(self._wish.key, left)
        except AcquireTimeout as error:
            raise AcquireTimeout(error.key, self._timeout or 0, ahead=error.ahead) from None
        return claim

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back. Raises `LeaseLost` if it was lost and the body did not raise something of its own.

        Cancellation: giving back goes on by itself; only the wait for its acknowledgement ends.
        """
        if self._hold is None:
            raise RuntimeError(f"{self._wish.key}: this claim was not entered")
        await self._hold.__aexit__(kind, error, trace)

    async def _attempt(self, timeout: float | None) -> Claim | None:
        """Claim a resource that passes the check; None if it did not, and another one may."""
        hold = _ClaimHold(self._store, self._wish, ttl=self._ttl, timeout=timeout, exclusive=False)
        try:
            async with AsyncExitStack() as stack:
                claim = Claim(self._store, await stack.enter_async_context(hold), hold.obtained)
                check = self._check
                if check is None or await works(check.timeout, check.function, claim, shield=False):
                    self._hold = hold
                    stack.pop_all()
                    return claim
                self._store.notice("claim.unfit", key=claim.key, resource=claim.resource, token=claim.token)
                await claim.cool_down(max(self._wish.quarantine, _LEAST_REST))
        except LeaseLost:
            pass  # while it was being checked
        return None


def encode(codec: Codec, what: str, fields: object) -> Metadata:
    """The fields as engines keep them: sorted by name, each value encoded by itself. None is none."""
    if fields is None:
        return ()
    if not isinstance(fields, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(fields).__name__}")
    values = cast("Mapping[object, Any]", fields)
    checked = {check_name(f"{what}: a name", name): value for name, value in values.items()}
    return tuple((name, encoded(codec, f"{what}: {name!r}", checked[name])) for name in sorted(checked))


def decode(codec: Codec, fields: Metadata) -> dict[str, Any]:
    """The fields as they were given."""
    return {name: codec.decode(value) for name, value in fields}
