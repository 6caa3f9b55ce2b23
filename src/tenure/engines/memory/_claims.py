"""Claims: a pool of named resources, matched by metadata, least recently used first, with a line for those who wait."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from tenure.engine import (
    AddResource,
    Claim,
    ClaimAnswer,
    Claimed,
    EditClaim,
    GiveBack,
    Metadata,
    Notice,
    Queued,
    RemoveResource,
    Reply,
    Resource,
    ResourcePage,
    Resources,
)

from ._state import Session, State, Thing


@dataclass(slots=True)
class Item:
    """One resource. It rests while `rests` (then `rest_until` says until when), and is claimed while it has a claim."""

    name: str
    metadata: Metadata
    preference: int
    used: int = 0  # the rank of its last use: the lowest is the least recently used
    rests: bool = False
    rest_until: float = -inf
    claim: Wish | None = None
    token: int = 0
    retired: str | None = None
    removed: bool = False

    def is_free(self) -> bool:
        return self.claim is None and not self.rests and self.retired is None

    def matches(self, where: Metadata) -> bool:
        return set(where) <= set(self.metadata)


@dataclass(slots=True)
class Wish:
    """One claimer, waiting or served."""

    holder: str
    session: Session
    where: Metadata
    quarantine: float
    ordinal: int


@dataclass(slots=True)
class Pool:
    """The resources of one pool and those who wait for one."""

    items: dict[str, Item] = field(default_factory=dict[str, Item])
    claims: dict[str, Item] = field(default_factory=dict[str, Item])
    waiting: OrderedDict[str, Wish] = field(default_factory=OrderedDict[str, Wish])
    ordinal: int = 0

    def next_rested(self) -> float:
        """When the next resource has rested enough."""
        return min((item.rest_until for item in self.items.values() if item.rests), default=inf)


class Claims:
    """The family of claims."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pools: dict[str, Pool] = {}
        self._uses = 0
        self._resting: list[tuple[float, str, str]] = []

    def add(self, op: AddResource) -> Reply:
        pool = self._pools.setdefault(op.pool, Pool())
        item = pool.items.setdefault(op.resource, Item(op.resource, op.metadata, op.preference))
        item.metadata, item.preference, item.removed = op.metadata, op.preference, False
        if op.revive:
            item.retired = None
        self._offer(op.pool, pool, item)
        return Reply.OK

    def remove(self, op: RemoveResource) -> Reply:
        pool = self._pools.get(op.pool)
        item = pool.items.get(op.resource) if pool else None
        if pool is None or item is None:
            return Reply.UNKNOWN
        if item.claim:
            item.removed = True
        else:
            self._delete(op.pool, pool, item)
        return Reply.OK

    def claim(self, op: Claim) -> ClaimAnswer:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        pool = self._pools.get(op.pool) or Pool()
        if (item := pool.claims.get(op.holder)) is not None:
            return Claimed(item.name, item.metadata, item.token)
        if (wish := pool.waiting.get(op.holder)) is None:
            free = [item for item in pool.items.values() if item.is_free() and item.matches(op.where)]
            if not free and not op.wait:
                return Reply.REFUSED
            self._pools[op.pool] = pool
            pool.ordinal += 1
            wish = Wish(op.holder, session, op.where, op.quarantine, pool.ordinal)
            session.things["claims"][op.pool, op.holder] = None
            if free:
                return self._serve(pool, min(free, key=lambda i: (-i.preference, i.used, i.name)), wish)
            pool.waiting[op.holder] = wish
        first = next(iter(pool.waiting.values()))
        return Queued(wish.ordinal - first.ordinal + 1, self._state.ask_again_in(pool.next_rested()))

    def give_back(self, op: GiveBack) -> Reply:
        pool = self._pools.get(op.pool)
        if pool is None:
            return Reply.UNKNOWN
        if (wish := pool.waiting.get(op.holder)) is not None:
            del wish.session.things["claims"][op.pool, op.holder]
            self._step_out(op.pool, pool, wish)
            return Reply.LEFT
        item = pool.claims.get(op.holder)
        if item is None or item.claim is None:
            return Reply.UNKNOWN
        del item.claim.session.things["claims"][op.pool, op.holder]
        self._free(op.pool, pool, item)
        return Reply.RELEASED

    def drop(self, thing: Thing) -> None:
        """The session of a claimer or waiter has ended."""
        name, holder = thing
        pool = self._pools[name]
        if (wish := pool.waiting.get(holder)) is not None:
            self._step_out(name, pool, wish)
        else:
            item = pool.claims[holder]
            if item.claim and item.claim.quarantine > 0:
                item.rest_until = max(item.rest_until, self._state.now + item.claim.quarantine)
            self._free(name, pool, item)

    def edit(self, op: EditClaim) -> Reply:
        pool = self._pools.get(op.pool)
        item = pool.claims.get(op.holder) if pool else None
        if item is None or item.token != op.token:
            return Reply.REFUSED
        if op.metadata is not None:
            item.metadata = op.metadata
        if op.cool_down is not None:
            item.rest_until = self._state.now + op.cool_down
        if op.retire is not None:
            item.retired = op.retire
        return Reply.OK

    def resources(self, op: Resources) -> ResourcePage:
        pool = self._pools.get(op.pool, Pool())
        return ResourcePage(
            tuple(self._show(pool.items[name]) for name in sorted(pool.items)), len(pool.waiting)
        )

    def in_use(self) -> list[str]:
        """The pools that have a resource."""
        return [name for name, pool in self._pools.items() if pool.items]

    def has(self, thing: Thing) -> bool:
        """Whether it is claimed, and not waited for."""
        return thing[1] in self._pools[thing[0]].claims

    def token(self, thing: Thing) -> int:
        """The token of one that is claimed."""
        return self._pools[thing[0]].claims[thing[1]].token

    def clear_up(self) -> None:
        """Wake the resources that have rested enough, in the order of their time, pool and name."""
        while self._resting and self._resting[0][0] <= self._state.now:
            if not self._state.step():
                return
            _, name, resource = heappop(self._resting)
            item = self._pools[name].items[resource]
            item.rests = False
            self._offer(name, self._pools[name], item)

    def _free(self, name: str, pool: Pool, item: Item) -> None:
        assert item.claim is not None
        del pool.claims[item.claim.holder]
        self._uses += 1
        item.claim, item.token, item.used = None, 0, self._uses
        if item.removed:
            self._delete(name, pool, item)
        elif item.retired is None and item.rest_until > self._state.now:
            sooner = item.rest_until < pool.next_rested()
            item.rests = True
            heappush(self._resting, (item.rest_until, name, item.name))
            if sooner:
                self._tell_head(name, pool)
        else:
            self._offer(name, pool, item)

    def _offer(self, name: str, pool: Pool, item: Item) -> None:
        """Give a free resource to the first in the line whom it suits."""
        if item.is_free():
            for wish in pool.waiting.values():
                if item.matches(wish.where):
                    answer = self._serve(pool, item, wish)
                    self._state.hint(wish.session.process, name, wish.holder, answer)
                    self._step_out(name, pool, wish)
                    return

    def _step_out(self, name: str, pool: Pool, wish: Wish) -> None:
        """Leave the line, served or not."""
        was_head = next(iter(pool.waiting)) == wish.holder
        del pool.waiting[wish.holder]
        if was_head:
            self._tell_head(name, pool)
        self._tidy(name, pool)

    def _tell_head(self, name: str, pool: Pool) -> None:
        """While resources rest, somebody who waits must know when to ask: the head of the line."""
        if pool.waiting and pool.next_rested() < inf:
            head = next(iter(pool.waiting.values()))
            self._state.hint(head.session.process, name, head.holder, Notice.ASK)

    def _serve(self, pool: Pool, item: Item, wish: Wish) -> Claimed:
        item.claim, item.token, item.rest_until = wish, self._state.token(), -inf
        pool.claims[wish.holder] = item
        return Claimed(item.name, item.metadata, item.token)

    def _delete(self, name: str, pool: Pool, item: Item) -> None:
        del pool.items[item.name]
        if item.rests:
            self._resting.remove((item.rest_until, name, item.name))
            self._resting.sort()
        self._tidy(name, pool)

    def _tidy(self, name: str, pool: Pool) -> None:
        if not pool.items and not pool.waiting:
            del self._pools[name]

    def _show(self, item: Item) -> Resource:
        state = "retired" if item.retired is not None else "resting" if item.rests else "free"
        rest = max(0.0, item.rest_until - self._state.now) if item.rests else 0.0
        process = ""
        if item.claim is not None:
            state, process = "claimed", item.claim.session.process
        reason = item.retired or ""
        return Resource(item.name, item.metadata, item.preference, state, process, item.token, rest, reason)
