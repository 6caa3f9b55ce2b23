"""Claims: pools of resources with slots, matched by metadata, least recently used first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import tenure.engine as e

from ._pages import page_of, place_in
from ._places import Place, Places
from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table

_FREE, _CLAIMED, _RESTING, _RETIRED = "free", "claimed", "resting", "retired"
_OUT_OF_ORDERS = ("metadata", "session", "token", "reason", "removed", "slots", "claimed")
"""The other fields of a resource that change; no order reads them."""


@dataclass(slots=True)
class Pool:
    key: str
    size: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Resource:
    """A resource. `used` is the rank of its last use; `session` and `token` are the last claimer's until that claim
    ends.
    """

    key: str
    name: str
    metadata: e.Metadata
    dislike: int
    """The negative preference: the resources with the lowest dislike are lent first."""
    state: str = _FREE
    used: int = 0
    rest_until: float = -1.0
    session: int = 0
    token: int = 0
    reason: str | None = None
    removed: bool = False
    slots: int = 1
    claimed: int = 0

    @property
    def is_full(self) -> bool:
        return self.removed or self.claimed >= self.slots


@dataclass(slots=True)
class Claimer(Place):
    wanted: e.Metadata
    quarantine: float
    group_name: bytes
    number: int = 0
    resource: str = ""
    token: int = 0


POOLS = Layout("pool", Pool, ("key",))
RESOURCES = Layout(
    "resource",
    Resource,
    ("key", "name"),
    name=Order(("key",), ("name",)),
    free=Order(("key",), ("dislike", "used", "name"), when=("state", _FREE)),
    rest=Order((), ("rest_until", "key", "name"), when=("state", _RESTING)),
    rest_in_pool=Order(("key",), ("rest_until", "name"), when=("state", _RESTING)),
)
_WAITS = ("waits", True)
CLAIMERS = Layout(
    "claim",
    Claimer,
    ("key", "name"),
    line=Order(("key",), ("number", "rank"), when=_WAITS),
    line_of_group=Order(("key", "group_name"), ("number", "rank"), when=_WAITS, grows=True),
    session=OF_SESSION,
)


class Claims(Places[Claimer]):
    def __init__(self, state: State) -> None:
        super().__init__(state, "claims", CLAIMERS)
        self._pools: Table[Pool] = state.table(POOLS)
        self._resources: Table[Resource] = state.table(RESOURCES)

    def add_resource(self, op: e.AddResource) -> e.Reply:
        pool, resource = self._pool(op.key), self._resources.get(op.key, op.resource)
        if resource is None:
            resource = Resource(op.key, op.resource, op.metadata, -op.preference, slots=op.slots)
            self._resources.save(resource)
            pool.size += 1
            self._pools.save(pool)
        else:
            resource.slots, resource.removed = op.slots, False
            if op.revive:
                resource.reason = None
            self._resources.move(resource, metadata=op.metadata, dislike=-op.preference)
        self._place(pool, resource, resource.used, resource.rest_until)
        return e.Reply.OK

    def remove_resource(self, op: e.RemoveResource) -> e.Reply:
        resource = self._resources.get(op.key, op.resource)
        if resource is None:
            return e.Reply.UNKNOWN
        pool = self._pool(op.key)
        if resource.claimed:
            resource.removed = True
            self._place(pool, resource, resource.used, resource.rest_until)
        else:
            self._delete(pool, resource)
        return e.Reply.OK

    def claim(self, op: e.Claim) -> e.ClaimAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return e.Reply.GONE
        claimer = self._places.get(op.key, op.holder)
        if claimer is not None:
            return self._status(claimer)
        free = (each for each in self._resources.each("free", op.key) if _matches(each, op.where))
        resource = next(free, None)
        if resource is None and not op.wait:
            return e.Reply.REFUSED
        group = op.group.encode("utf-8", "surrogatepass")
        claimer = Claimer(
            *(op.key, op.holder, session.number, state.rank(), resource is None),
            *(op.where, op.quarantine, group),
        )
        if resource is not None:
            claimer.resource, claimer.token = resource.name, state.token()
            self._places.save(claimer)
            return self._lend(resource, claimer, resource.used)
        claimer.number = self._number(op.key, group)
        self._places.save(claimer)
        pool = self._pool(op.key)
        pool.waiting += 1
        self._pools.save(pool)
        return self._queued(pool)

    def give_back(self, op: e.GiveBack) -> e.Reply:
        claimer = self._places.get(op.key, op.holder)
        if claimer is None:
            return e.Reply.UNKNOWN
        self._remove(claimer, 0.0)
        return e.Reply.LEFT if claimer.waits else e.Reply.RELEASED

    def drop(self, claimer: Claimer) -> None:
        self._remove(claimer, claimer.quarantine)

    def edit_claim(self, op: e.EditClaim) -> e.Reply:
        claimer = self._with_token(op.key, op.holder, op.token)
        if claimer is None:
            return e.Reply.REFUSED
        resource = self._resource_of(claimer)
        if op.metadata is not None:
            resource.metadata = op.metadata
        if op.retire is not None:
            resource.reason = op.retire
        rest_until = resource.rest_until if op.cool_down is None else self._state.now + op.cool_down
        self._place(self._pool(op.key), resource, resource.used, rest_until)
        return e.Reply.OK

    def resources(self, op: e.Scan[e.ResourcePage]) -> e.ResourcePage:
        rows = self._resources.some("name", op.key, limit=op.limit + 1, after=place_in(op, ""))
        placed = [((resource.name,), self._show(resource)) for resource in rows]
        return page_of(op, placed, waiting=self._pool(op.key).waiting)

    def clear_up(self) -> None:
        state = self._state
        while (resource := self._resources.first("rest")) is not None:
            if resource.rest_until > state.now:
                break
            if not state.step():
                return
            self._offer(self._pool(resource.key), resource, resource.used)
        state.wake_at("rest", None)
        if resource is not None:
            state.wake_at("rest", resource.rest_until)

    def _status(self, claimer: Claimer) -> e.ClaimAnswer:
        if claimer.waits:
            return self._queued(self._pool(claimer.key))
        return _claimed(self._resource_of(claimer), claimer)

    def _queued(self, pool: Pool) -> e.Queued:
        return e.Queued(pool.waiting, self._state.ask_again_in(self._next_rested(pool.key)))

    def _remove(self, claimer: Claimer, quarantine: float) -> None:
        pool = self._pool(claimer.key)
        if claimer.waits:
            self._places.remove(claimer)
            self._count_out(pool)
            self._hint_head(pool)
            return
        state, resource = self._state, self._resource_of(claimer)
        self._places.remove(claimer)
        rest_until = resource.rest_until
        if quarantine > 0:
            rest_until = max(rest_until, state.now + quarantine)
        resource.claimed -= 1
        if resource.token == claimer.token:
            resource.session = resource.token = 0
        if resource.removed and not resource.claimed:
            self._delete(pool, resource)
        else:
            self._place(pool, resource, state.rank(), rest_until)

    def _place(self, pool: Pool, resource: Resource, used: int, rest_until: float) -> None:
        if resource.is_full:
            self._move(resource, _CLAIMED, used, rest_until)
        elif resource.reason is not None:
            self._move(resource, _RETIRED, used)
        elif rest_until > self._state.now:
            soonest = self._next_rested(pool.key)
            self._move(resource, _RESTING, used, rest_until)
            self._state.wake_at("rest", rest_until)
            if soonest is None or rest_until < soonest:
                self._hint_head(pool)
        else:
            self._offer(pool, resource, used)

    def _offer(self, pool: Pool, resource: Resource, used: int) -> None:
        line = self._places.each("line", pool.key) if pool.waiting else ()
        matching = (claimer for claimer in line if _matches(resource, claimer.wanted))
        served = list(islice(matching, resource.slots - resource.claimed))
        for claimer in served:
            self._places.move(claimer, waits=False, resource=resource.name, token=self._state.token())
            self._count_out(pool)
            self._hint(claimer, self._lend(resource, claimer, used))
            used = resource.used
        if served:
            self._hint_head(pool)
        else:
            self._move(resource, _FREE, used)

    def _lend(self, resource: Resource, claimer: Claimer, used: int) -> e.Claimed:
        resource.claimed += 1
        resource.session, resource.token = claimer.session, claimer.token
        if resource.is_full:
            self._move(resource, _CLAIMED, used)
        else:
            self._move(resource, _FREE, self._state.rank())
        return _claimed(resource, claimer)

    def _move(self, resource: Resource, state: str, used: int, rest_until: float = -1.0) -> None:
        changed = {name: getattr(resource, name) for name in _OUT_OF_ORDERS}
        self._resources.move(resource, state=state, used=used, rest_until=rest_until, **changed)

    def _hint_head(self, pool: Pool) -> None:
        head = self._places.first("line", pool.key)
        if head is not None and self._next_rested(pool.key) is not None:
            self._hint(head, e.Notice.ASK)

    def _number(self, pool: str, group: bytes) -> int:
        head = self._places.first("line", pool)
        last = self._places.last("line_of_group", pool, group)
        return max(head.number if head else 0, last.number + 1 if last else 0)

    def _next_rested(self, pool: str) -> float | None:
        resource = self._resources.first("rest_in_pool", pool)
        return resource and resource.rest_until

    def _show(self, resource: Resource) -> e.Resource:
        state = self._state
        rest = max(0.0, resource.rest_until - state.now) if resource.state == _RESTING else 0.0
        process = state.process(resource.session) if resource.session else ""
        return e.Resource(
            *(resource.name, resource.metadata, -resource.dislike, resource.state),
            *(process, resource.token, rest, resource.reason or "", resource.slots, resource.claimed),
        )

    def _delete(self, pool: Pool, resource: Resource) -> None:
        self._resources.remove(resource)
        pool.size -= 1
        self._save(pool)

    def _count_out(self, pool: Pool) -> None:
        pool.waiting -= 1
        self._save(pool)

    def _save(self, pool: Pool) -> None:
        if pool.size or pool.waiting:
            self._pools.save(pool)
        else:
            self._pools.remove(pool)

    def _pool(self, key: str) -> Pool:
        return self._pools.get(key) or Pool(key)

    def _resource_of(self, claimer: Claimer) -> Resource:
        resource = self._resources.get(claimer.key, claimer.resource)
        assert resource is not None
        return resource

    def _token(self, claimer: Claimer, /) -> int:
        return claimer.token


def _claimed(resource: Resource, claimer: Claimer) -> e.Claimed:
    return e.Claimed(resource.name, resource.metadata, claimer.token)


def _matches(resource: Resource, where: e.Metadata) -> bool:
    return not where or set(where) <= set(resource.metadata)
