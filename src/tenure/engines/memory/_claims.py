"""Claims: a pool of named resources, matched by metadata, least recently used first, with a line of claimers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from math import inf

from tenure.engine import (
    CAP,
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

from ._state import ItemKey, Session, State


@dataclass(slots=True)
class Item:
    """One resource. It rests while `rests` (until `rest_until`), and is claimed while it has a claim."""

    name: str
    metadata: Metadata
    preference: int
    used: int = 0  # the rank of its last use: the lowest is the least recently used
    rests: bool = False
    rest_until: float = -inf
    claim: Claimer | None = None
    token: int = 0
    retired: str | None = None
    removed: bool = False

    def is_free(self) -> bool:
        return self.claim is None and not self.rests and self.retired is None

    def matches(self, where: Metadata) -> bool:
        return set(where) <= set(self.metadata)


@dataclass(slots=True)
class Claimer:
    """One claimer, waiting or served."""

    holder: str
    session: Session
    where: Metadata
    quarantine: float
    group: str
    rank: Rank = (0, 0)


Rank = tuple[int, int]
"""A place in the line: the number, then the order of coming."""


@dataclass(slots=True)
class Pool:
    """The resources of one pool and its line of claimers."""

    items: dict[str, Item] = field(default_factory=dict[str, Item])
    claims: dict[str, Item] = field(default_factory=dict[str, Item])
    waiting: dict[str, Claimer] = field(default_factory=dict[str, Claimer])
    line: list[tuple[Rank, str]] = field(default_factory=list[tuple[Rank, str]])
    """The ranks and holders of those that wait, in order."""
    numbers: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The numbers of those that wait, by group, in order."""
    came: int = 0

    def head(self) -> Claimer:
        return self.waiting[self.line[0][1]]

    def wait(self, claimer: Claimer) -> None:
        """Join the line."""
        self.came += 1
        numbers = self.numbers[claimer.group]
        least = self.line[0][0][0] if self.line else 0
        number = max(least, numbers[-1] + 1) if numbers else least
        claimer.rank = number, self.came
        numbers.append(number)
        self.waiting[claimer.holder] = claimer
        insort(self.line, (claimer.rank, claimer.holder))

    def leave(self, claimer: Claimer) -> None:
        """Leave the line, served or not."""
        del self.waiting[claimer.holder]
        del self.line[bisect_left(self.line, (claimer.rank, claimer.holder))]
        numbers = self.numbers[claimer.group]
        numbers.remove(claimer.rank[0])
        if not numbers:
            del self.numbers[claimer.group]

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

    def add_resource(self, op: AddResource) -> Reply:
        pool = self._pools.setdefault(op.key, Pool())
        item = pool.items.setdefault(op.resource, Item(op.resource, op.metadata, op.preference))
        item.metadata, item.preference, item.removed = op.metadata, op.preference, False
        if op.revive:
            item.retired = None
        self._offer(op.key, pool, item)
        return Reply.OK

    def remove_resource(self, op: RemoveResource) -> Reply:
        pool = self._pools.get(op.key)
        item = pool.items.get(op.resource) if pool else None
        if pool is None or item is None:
            return Reply.UNKNOWN
        if item.claim:
            item.removed = True
        else:
            self._delete(op.key, pool, item)
        return Reply.OK

    def claim(self, op: Claim) -> ClaimAnswer:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        pool = self._pools.get(op.key) or Pool()
        if (item := pool.claims.get(op.holder)) is not None:
            return Claimed(item.name, item.metadata, item.token)
        if (claimer := pool.waiting.get(op.holder)) is None:
            free = [item for item in pool.items.values() if item.is_free() and item.matches(op.where)]
            if not free and not op.wait:
                return Reply.REFUSED
            self._pools[op.key] = pool
            claimer = Claimer(op.holder, session, op.where, op.quarantine, op.group)
            session.attach("claims", op.key, op.holder)
            if free:
                return self._serve(pool, min(free, key=lambda i: (-i.preference, i.used, i.name)), claimer)
            pool.wait(claimer)
        return Queued(len(pool.line), self._state.ask_again_in(pool.next_rested()))

    def give_back(self, op: GiveBack) -> Reply:
        pool = self._pools.get(op.key)
        if pool is None:
            return Reply.UNKNOWN
        if (claimer := pool.waiting.get(op.holder)) is not None:
            claimer.session.detach("claims", op.key, op.holder)
            self._step_out(op.key, pool, claimer)
            return Reply.LEFT
        item = pool.claims.get(op.holder)
        if item is None or item.claim is None:
            return Reply.UNKNOWN
        item.claim.session.detach("claims", op.key, op.holder)
        self._free(op.key, pool, item)
        return Reply.RELEASED

    def drop(self, claim: ItemKey) -> None:
        """The session of a claimer has ended."""
        name, holder = claim
        pool = self._pools[name]
        if (claimer := pool.waiting.get(holder)) is not None:
            self._step_out(name, pool, claimer)
        else:
            item = pool.claims[holder]
            if item.claim and item.claim.quarantine > 0:
                item.rest_until = max(item.rest_until, self._state.now + item.claim.quarantine)
            self._free(name, pool, item)

    def edit_claim(self, op: EditClaim) -> Reply:
        pool = self._pools.get(op.key)
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
        pool = self._pools.get(op.key, Pool())
        names = nsmallest(CAP + 1, (name for name in pool.items if name > op.after))
        shown = tuple(self._show(pool.items[name]) for name in names[:CAP])
        return ResourcePage(shown, len(pool.waiting), shown[-1].resource if len(names) > CAP else "")

    def in_use(self) -> list[str]:
        """The pools that have a resource."""
        return [name for name, pool in self._pools.items() if pool.items]

    def has(self, claim: ItemKey) -> bool:
        """Whether it is claimed, and not waited for."""
        return claim[1] in self._pools[claim[0]].claims

    def token(self, claim: ItemKey) -> int:
        """The token of one that is claimed."""
        return self._pools[claim[0]].claims[claim[1]].token

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
                self._hint_head(name, pool)
        else:
            self._offer(name, pool, item)

    def _offer(self, name: str, pool: Pool, item: Item) -> None:
        """Grant a free resource to the first claimer in the line that it matches."""
        if item.is_free():
            for _, holder in pool.line:
                claimer = pool.waiting[holder]
                if item.matches(claimer.where):
                    answer = self._serve(pool, item, claimer)
                    self._state.hint(claimer.session.process, name, claimer.holder, answer)
                    self._step_out(name, pool, claimer)
                    return

    def _step_out(self, name: str, pool: Pool, claimer: Claimer) -> None:
        """Leave the line, served or not."""
        was_head = pool.head() is claimer
        pool.leave(claimer)
        if was_head:
            self._hint_head(name, pool)
        self._tidy(name, pool)

    def _hint_head(self, name: str, pool: Pool) -> None:
        """While resources rest, one waiting claimer has to know when to ask again: the head of the line."""
        if pool.waiting and pool.next_rested() < inf:
            head = pool.head()
            self._state.hint(head.session.process, name, head.holder, Notice.ASK)

    def _serve(self, pool: Pool, item: Item, claimer: Claimer) -> Claimed:
        item.claim, item.token, item.rest_until = claimer, self._state.token(), -inf
        pool.claims[claimer.holder] = item
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
