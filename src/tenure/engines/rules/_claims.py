"""Claims: a pool of named resources, matched by metadata, least recently used first, with a line of claimers."""

from __future__ import annotations

from dataclasses import dataclass

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
    ResourcePage,
    Resources,
    SessionItem,
)
from tenure.engine import Resource as ShownResource

from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table

_FREE, _CLAIMED, _RESTING, _RETIRED = "free", "claimed", "resting", "retired"


@dataclass(slots=True)
class Pool:
    """A pool with resources or waiting claimers; `ordinal` counts the claims ever made."""

    name: str
    ordinal: int = 0
    size: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Resource:
    """A resource. `used` is the rank of its last use; `reason` is that of its retirement, also while it is claimed."""

    pool: str
    name: str
    metadata: Metadata
    dislike: int
    """The preference with the sign changed: the resources with the lowest dislike are lent first."""
    state: str = _FREE
    used: int = 0
    rest_until: float = -1.0
    session: int = 0
    token: int = 0
    reason: str | None = None
    removed: bool = False


@dataclass(slots=True)
class Claimer:
    """A claimer, waiting or served. Its place in the line is its number, then the order of coming."""

    pool: str
    holder: str
    session: int
    rank: int
    wanted: Metadata
    quarantine: float
    group_name: bytes
    ordinal: int
    number: int = 0
    waits: bool = False
    resource: str = ""


POOLS = Layout("pool", Pool, ("name",))
RESOURCES = Layout(
    "resource",
    Resource,
    ("pool", "name"),
    name=Order(("pool",), ("name",)),
    free=Order(("pool",), ("dislike", "used", "name"), when=("state", _FREE)),
    rest=Order((), ("rest_until", "pool", "name"), when=("state", _RESTING)),
    rest_in_pool=Order(("pool",), ("rest_until", "name"), when=("state", _RESTING)),
)
CLAIMERS = Layout(
    "claim",
    Claimer,
    ("pool", "holder"),
    line=Order(("pool",), ("number", "ordinal"), when=("waits", True)),
    line_of_group=Order(("pool", "group_name"), ("number", "ordinal"), when=("waits", True)),
    session=OF_SESSION,
)


class Claims:
    """The family of claims."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pools: Table[Pool] = state.table(POOLS)
        self._resources: Table[Resource] = state.table(RESOURCES)
        self._claimers: Table[Claimer] = state.table(CLAIMERS)

    def add_resource(self, op: AddResource) -> Reply:
        pool, resource = self._pool(op.key), self._resources.get(op.key, op.resource)
        if resource is None:
            resource = Resource(op.key, op.resource, op.metadata, -op.preference)
            pool.size += 1
            self._pools.save(pool)
        resource.metadata, resource.dislike, resource.removed = op.metadata, -op.preference, False
        if op.revive:
            resource.reason = None
            if resource.state == _RETIRED:
                resource.state = _FREE
        self._resources.save(resource)
        self._offer(pool, resource)
        return Reply.OK

    def remove_resource(self, op: RemoveResource) -> Reply:
        resource = self._resources.get(op.key, op.resource)
        if resource is None:
            return Reply.UNKNOWN
        if resource.state == _CLAIMED:
            resource.removed = True
            self._resources.save(resource)
        else:
            self._delete(self._pool(op.key), resource)
        return Reply.OK

    def claim(self, op: Claim) -> ClaimAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        pool, claimer = self._pool(op.key), self._claimers.get(op.key, op.holder)
        if claimer is None:
            free = self._best(op.key, op.where)
            if free is None and not op.wait:
                return Reply.REFUSED
            pool.ordinal += 1
            group = op.group.encode("utf-8", "surrogatepass")
            claimer = Claimer(
                *(op.key, op.holder, session.number, state.rank()),
                *(op.where, op.quarantine, group, pool.ordinal),
            )
            if free is not None:
                self._lend(free, claimer)
            else:
                claimer.number, claimer.waits = self._number(op.key, group), True
                pool.waiting += 1
                self._claimers.save(claimer)
            self._pools.save(pool)
        if not claimer.waits:
            return _claimed(self._resource_of(claimer))
        return Queued(pool.waiting, state.ask_again_in(self._next_rested(op.key)))

    def give_back(self, op: GiveBack) -> Reply:
        claimer = self._claimers.get(op.key, op.holder)
        return Reply.UNKNOWN if claimer is None else self._remove(claimer, 0.0)

    def drop(self, claimer: Claimer) -> None:
        """Remove a claimer whose session has ended."""
        self._remove(claimer, claimer.quarantine)

    def edit_claim(self, op: EditClaim) -> Reply:
        claimer = self._claimers.get(op.key, op.holder)
        if claimer is None or claimer.waits:
            return Reply.REFUSED
        resource = self._resource_of(claimer)
        if resource.token != op.token:
            return Reply.REFUSED
        if op.metadata is not None:
            resource.metadata = op.metadata
        if op.cool_down is not None:
            resource.rest_until = self._state.now + op.cool_down
        if op.retire is not None:
            resource.reason = op.retire
        self._resources.save(resource)
        return Reply.OK

    def resources(self, op: Resources) -> ResourcePage:
        after = (op.after,) if op.after else ()
        rows = self._resources.some("name", op.key, limit=CAP + 1, after=after)
        shown = tuple(map(self._show, rows[:CAP]))
        return ResourcePage(shown, self._pool(op.key).waiting, shown[-1].resource if len(rows) > CAP else "")

    def item(self, claimer: Claimer) -> SessionItem:
        """Describe a claimer as a part of its session."""
        token = 0 if claimer.waits else self._resource_of(claimer).token
        return SessionItem("claims", claimer.pool, claimer.holder, not claimer.waits, token)

    def clear_up(self) -> None:
        """Wake the resources that have rested enough, in the order of their time, pool and name."""
        state = self._state
        while (resource := self._resources.first("rest")) is not None:
            if resource.rest_until > state.now:
                break
            if not state.step():
                return
            resource.state = _FREE
            self._resources.save(resource)
            self._offer(self._pool(resource.pool), resource)
        state.wake_at("rest", None)
        if resource is not None:
            state.wake_at("rest", resource.rest_until)

    def _remove(self, claimer: Claimer, quarantine: float) -> Reply:
        """The claimer goes; its resource rests for the quarantine or its cool-down, or goes to the next claimer."""
        pool = self._pool(claimer.pool)
        if claimer.waits:
            was_head = self._is_head(claimer)
            self._claimers.remove(claimer)
            self._count_out(pool)
            if was_head:
                self._hint_head(pool)
            return Reply.LEFT
        state, resource = self._state, self._resource_of(claimer)
        self._claimers.remove(claimer)
        if quarantine > 0:
            resource.rest_until = max(resource.rest_until, state.now + quarantine)
        resource.session, resource.token, resource.used = 0, 0, state.rank()
        if resource.removed:
            self._delete(pool, resource)
        elif resource.reason is not None:
            self._change(resource, _RETIRED)
        elif resource.rest_until > state.now:
            soonest = self._next_rested(pool.name)
            self._change(resource, _RESTING)
            state.wake_at("rest", resource.rest_until)
            if soonest is None or resource.rest_until < soonest:
                self._hint_head(pool)
        else:
            self._change(resource, _FREE)
            self._offer(pool, resource)
        return Reply.RELEASED

    def _offer(self, pool: Pool, resource: Resource) -> None:
        """Lend a free resource to the first claimer in the line that it matches."""
        if not pool.waiting or resource.state != _FREE:
            return
        for claimer in self._claimers.each("line", pool.name):
            if _matches(resource, claimer.wanted):
                was_head = self._is_head(claimer)
                self._count_out(pool)
                self._lend(resource, claimer)
                self._hint(claimer, _claimed(resource))
                if was_head:
                    self._hint_head(pool)
                return

    def _lend(self, resource: Resource, claimer: Claimer) -> None:
        claimer.waits, claimer.resource = False, resource.name
        self._claimers.save(claimer)
        resource.session, resource.token, resource.rest_until = claimer.session, self._state.token(), -1.0
        self._change(resource, _CLAIMED)

    def _is_head(self, claimer: Claimer) -> bool:
        head = self._claimers.first("line", claimer.pool)
        return head is not None and head.holder == claimer.holder

    def _hint_head(self, pool: Pool) -> None:
        """While resources rest, one waiting claimer has to know when to ask again: the head of the line."""
        head = self._claimers.first("line", pool.name)
        if head is not None and self._next_rested(pool.name) is not None:
            self._hint(head, Notice.ASK)

    def _hint(self, claimer: Claimer, news: Claimed | Notice) -> None:
        self._state.hint(self._state.process(claimer.session), claimer.pool, claimer.holder, news)

    def _number(self, pool: str, group: bytes) -> int:
        """The number of a claimer that begins to wait: those of a group come one after the other."""
        head = self._claimers.first("line", pool)
        last = self._claimers.last("line_of_group", pool, group)
        return max(head.number if head else 0, last.number + 1 if last else 0)

    def _next_rested(self, pool: str) -> float | None:
        """The time when the next resource of the pool has rested enough."""
        resource = self._resources.first("rest_in_pool", pool)
        return resource and resource.rest_until

    def _best(self, pool: str, where: Metadata) -> Resource | None:
        """The next free resource that matches `where`."""
        free = self._resources.each("free", pool)
        return next((resource for resource in free if _matches(resource, where)), None)

    def _show(self, resource: Resource) -> ShownResource:
        state = self._state
        rest = max(0.0, resource.rest_until - state.now) if resource.state == _RESTING else 0.0
        process = state.process(resource.session) if resource.state == _CLAIMED else ""
        return ShownResource(
            *(
                resource.name,
                resource.metadata,
                -resource.dislike,
                resource.state,
                process,
                resource.token,
                rest,
            ),
            resource.reason or "",
        )

    def _change(self, resource: Resource, state: str) -> None:
        resource.state = state
        self._resources.save(resource)

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

    def _pool(self, name: str) -> Pool:
        return self._pools.get(name) or Pool(name)

    def _resource_of(self, claimer: Claimer) -> Resource:
        resource = self._resources.get(claimer.pool, claimer.resource)
        assert resource is not None
        return resource


def _claimed(resource: Resource) -> Claimed:
    return Claimed(resource.name, resource.metadata, resource.token)


def _matches(resource: Resource, where: Metadata) -> bool:
    return not where or set(where) <= set(resource.metadata)
