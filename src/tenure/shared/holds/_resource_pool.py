from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import tenure.engine as e
from tenure.arguments import (
    LARGEST,
    NotABlock,
    Seconds,
    check_count,
    check_flag,
    check_name,
    check_seconds,
    hinted,
)
from tenure.shared._listing import Listing, listing
from tenure.store import Store, check_ttl, handle_of, read_pages

from ._claim import Check, Claim, ClaimRequest, claiming, decode, encode


@dataclass(frozen=True, slots=True)
class PooledResource:
    """A resource of a pool, at one moment.

    `state` is "free", "claimed" (no slot is left, or it leaves with its last claim), "resting" (for `rest` more
    seconds) or "retired" (for that `reason`). `claimed` of its `slots` are claimed. `process` and `token` belong to
    the last claim, until it ends.
    """

    resource: str
    metadata: dict[str, Any]
    preference: int
    state: str
    process: str
    token: int
    rest: float
    reason: str
    slots: int = 1
    claimed: int = 0


@dataclass(frozen=True, slots=True)
class ResourcePoolStatistics:
    """The number of slots of a pool in each state, and of waiting claimers, over all processes.

    A free slot has the state of its resource.
    """

    free: int
    claimed: int
    resting: int
    retired: int
    waiting: int

    @property
    def size(self) -> int:
        """The number of slots."""
        return self.free + self.claimed + self.resting + self.retired


class ResourcePool(NotABlock):
    """Named resources (API keys, accounts, ports, devices) over all processes that use the store.

    A resource is lent to one claimer at a time, or to as many as it has slots. `claim` takes the resource of the
    highest preference, then the least recently used.

    `ttl` is for how many seconds a claim outlives a claimer that died (the store's by default); its resource then
    rests for `quarantine` seconds. `check` is a plain or an async function, called with each claim before its block is
    entered. If it returns False, raises, or takes more than `check_timeout` seconds, the resource rests for
    `quarantine` seconds, at least one, and another is claimed.

    Source: leases and line as in `Lock`; matching by fields comes from tuple spaces (Linda, Gelernter 1985).
    """

    __slots__ = ("_check", "_key", "_quarantine", "_store", "_ttl", "name")
    _blocks = "pool.claim()"

    @hinted(timeout="write pool.claim(timeout=5)")
    def __init__(
        self,
        store: Store,
        name: str,
        *,
        ttl: Seconds | None = None,
        quarantine: Seconds = 0.0,
        check: Callable[[Claim], object] | None = None,
        check_timeout: Seconds = 5.0,
    ) -> None:
        self._store = handle_of(store)
        self._key = self._store.key("pool", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self._quarantine = check_seconds("quarantine", quarantine)
        check_timeout = check_seconds("check_timeout", check_timeout, least=None)
        if check is not None and not callable(check):
            raise TypeError(f"check must be callable, not {type(check).__name__}")
        self._check = check and Check(check, check_timeout)
        self.name: str = name

    def __repr__(self) -> str:
        return f"<ResourcePool {self.name!r}>"

    def claim(
        self,
        timeout: Seconds | None = None,
        where: Mapping[str, Any] | None = None,
        *,
        quarantine: Seconds | None = None,
        fair_for: str | None = None,
    ) -> AbstractAsyncContextManager[Claim, None]:
        """Claim a resource for a block, `async with pool.claim() as claim`.

        `timeout` is as in `Lock.hold`. `where` has fields that the metadata must have; values are equal if the store's
        codec encodes them alike. `quarantine` is the pool's by default. Claimers with the same `fair_for`
        ("tenant-42") are served first come, first served, and take turns with all others. Entering raises
        `AcquireTimeout`, `StoreClosed`, `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        seconds = self._quarantine if quarantine is None else check_seconds("quarantine", quarantine)
        request = ClaimRequest(self._key, encode(self._store.codec, "where", where), seconds)
        if fair_for is not None:
            request = replace(request, fair_for=check_name("fair_for", fair_for))
        return claiming(self._store, request, ttl=self._ttl, timeout=timeout, check=self._check)

    async def add(
        self,
        resource: str,
        metadata: Mapping[str, Any] | None = None,
        preference: int = 0,
        *,
        slots: int = 1,
        revive: bool = False,
    ) -> None:
        """Put a resource into the pool, or change its metadata, preference and slots; higher preference is lent first.

        Up to `slots` claimers (at most 256) have it at the same time. Additional slots serve waiting claimers. With
        fewer, all claims stay, and none is added until fewer than `slots` are left. A claimed, resting or retired
        resource stays so. With `revive`, a retired one can be lent again; `remove` and `add` end a rest.
        Raises `StoreClosed`, `EngineError`, and the errors of the codec. Cancellation: it may or may not be applied.
        """
        fields = encode(self._store.codec, "metadata", metadata)
        resource = check_name("resource", resource)
        rank = check_count("preference", preference, least=-LARGEST)
        revive = check_flag("revive", revive)
        slots = check_count("slots", slots, least=1, most=e.CAP)
        await self._store.call(e.AddResource(self._key, resource, fields, rank, revive, slots))

    async def remove(self, resource: str) -> bool:
        """Take a resource out of the pool, a claimed resource when it is given back. Returns False if there is none.

        After a lost answer of the engine, it may return False although it has removed the resource.
        Raises `StoreClosed`, `EngineError`. Cancellation: it may or may not be applied.
        """
        return (
            await self._store.call(e.RemoveResource(self._key, check_name("resource", resource)))
            is e.Reply.OK
        )

    def resources(self) -> Listing[PooledResource]:
        """The resources, in the order of their names."""
        return listing(self._store, e.Scan(e.RESOURCES, self._key), self._shown)

    async def statistics(self) -> ResourcePoolStatistics:
        """Count the slots by state, and the waiters. Raises `StoreClosed`, `EngineError`."""
        page = await read_pages(self._store, e.Scan(e.RESOURCES, self._key))
        return ResourcePoolStatistics(**page.slots(), waiting=page.waiting)

    def _shown(self, r: e.Resource) -> PooledResource:
        return PooledResource(
            *(r.resource, decode(self._store.codec, r.metadata), r.preference, r.state),
            *(r.process, r.token, r.rest, r.reason, r.slots, r.claimed),
        )
