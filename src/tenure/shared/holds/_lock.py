from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import tenure.engine as e
from tenure.arguments import AsyncBlock, Seconds, check_count, hinted
from tenure.shared._lease import Hold, HoldRequest, Lease
from tenure.shared._listing import Listing, Page, read_matching
from tenure.store import Store, StoreHandle, check_ttl, handle_of, read_pages
from tenure.waiting import this_task

if TYPE_CHECKING:
    from types import CoroutineType
else:
    # the class takes no parameters before Python 3.13
    from collections.abc import Coroutine as CoroutineType


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """A holder or a waiter: its process, for how many seconds it has held or waited, its token and its weight."""

    process: str
    seconds: float
    token: int
    weight: int


async def break_holder(store: StoreHandle, key: str, token: int) -> bool:
    token = check_count("token", token, most=2**63 - 1)
    for held in (await read_pages(store, e.Scan(e.HOLDERS, key))).holders:
        if held.token == token and await store.call(e.BreakHold(key, held.holder, token)) is e.Reply.OK:
            store.reporter.warn("lock.broken", key=key, token=token, holder=held.process)
            return True
    return False


class Holdable:
    __slots__ = ()
    _store: StoreHandle
    _key: str

    def holders(self) -> Listing[HolderInfo]:
        """The holders, in the order in which they came."""
        return Listing(partial(self._read, False))

    def waiters(self) -> Listing[HolderInfo]:
        """The waiters, in the order of the line; they have no token yet, which is 0."""
        return Listing(partial(self._read, True))

    async def break_holder(self, token: int) -> bool:
        """Take the lock from a holder that is stuck, known by its token (see `holders`); for operators.

        The next waiter has the lock at once. The holder's block is cancelled when its process learns of it, and raises
        `LeaseLost` ("broken"); until then, only the token can fence its writes. Returns False if the token holds
        nothing.
        Cancellation: it may or may not be applied.
        """
        return await break_holder(self._store, self._key, token)

    async def _read(self, waiting: bool, after: str, most: int) -> Page[HolderInfo]:
        # holders come before waiters: the first waiter ends the listing of the holders
        scan = e.Scan(e.HOLDERS, self._key, after)
        page = await read_matching(self._store, scan, (lambda row: not row.token) if waiting else None, most)
        rows = [row for row in page.rows if bool(row.token) is not waiting]
        shown = [HolderInfo(row.process, row.age, row.token, row.weight) for row in rows]
        return Page(shown, page.next or None if len(rows) == len(page.rows) else None)


class Lock(Holdable, AsyncBlock):
    """Mutual exclusion over all processes that use the store: one holder at a time, first come, first served.

    `async with Lock(store, "report") as lease` holds it for the block; `hold(timeout=5)` limits the wait. The hold is
    renewed while the block runs. If it is lost all the same, asynchronous code in the block is cancelled, and leaving
    the block raises `LeaseLost`. `ttl` is for how many seconds the lock outlives a holder that died (the store's by
    default). Locks with equal names are one lock.

    A frozen process may believe in its lease for too long: hand `lease.token` to what you write to, or call
    `lease.check()` right before side effects.

    Source: the direct hand-over of MCS locks; fencing tokens come from Chubby (Burrows 2006, "sequencers").
    """

    __slots__ = ("_key", "_request", "_store", "_ttl", "name")
    _instead = "tenure.blocking.Lock"

    @hinted(timeout="write lock.hold(timeout=5)")
    def __init__(self, store: Store, name: str, *, ttl: Seconds | None = None) -> None:
        self._store = handle_of(store)
        self._key = self._store.key("lock", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self._request = HoldRequest(self._key, 1)
        self.name: str = name

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    def hold(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[Lease, None]:
        """Hold the lock for a block, `async with lock.hold() as lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try, given up after a second or so if the engine
        does not answer). Entering raises `AcquireTimeout`, `RuntimeError` if the caller holds the lock already,
        `StoreClosed`, `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        return Hold(Lease, self._store, self._request, ttl=self._ttl, timeout=timeout, exclusive=True)

    # these two are no coroutine functions themselves: each layer of those costs as much as all that a lock does here

    def __aenter__(self) -> CoroutineType[Any, Any, Lease]:
        """Hold the lock, however long it takes. Cancellation: nothing is held."""
        return self.hold().__aenter__()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> CoroutineType[Any, Any, None]:
        """Give the lock back. Raises `LeaseLost` if it was lost and the body raised nothing of its own.

        Cancellation: giving back goes on; only the wait for its acknowledgement ends.
        """
        hold = self._store.entered.get((self._key, this_task())) or self._held_by_another_task()
        if isinstance(hold, Hold):
            return hold.__aexit__(kind, error, trace)  # pyright: ignore[reportUnknownMemberType] `cast` costs a call
        raise RuntimeError(f"{self._key}: not held by this task")

    async def locked(self) -> bool:
        """True if any process holds the lock at present. Raises `StoreClosed`, `EngineError`."""
        return bool((await self.holders().page(limit=1)).records)

    def _held_by_another_task(self) -> object:
        # a task that leaves a block it did not enter leaves it for the task that did, and there is but one
        for (key, _), hold in self._store.entered.items():
            if key == self._key and isinstance(hold, Hold) and hold.is_held:
                return cast("Hold[Lease]", hold)
        return None
