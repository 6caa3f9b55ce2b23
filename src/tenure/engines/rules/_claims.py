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
)
from tenure.engine import Resource as ShownResource

from ._places import Place, Places
from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table

_FREE, _CLAIMED, _RESTING, _RETIRED = "free", "claimed", "resting", "retired"


@dataclass(slots=True)
class Pool:
    """A pool with resources or waiting claimers, and how many of each."""

    key: str
    size: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Resource:
    """A resource. `used` is the rank of its last use; `reason` belongs to its retirement, also while it is claimed."""

    key: str
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
class Claimer(Place):
    """A claimer, waiting or served. Its place in the line is its number, then the order of coming."""

    wanted: Metadata
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
    """The family of claims."""

    def __init__(self, state: State) -> None:
        super().__init__(state, "claims", CLAIMERS)
        self._pools: Table[Pool] = state.table(POOLS)
        self._resources: Table[Resource] = state.table(RESOURCES)

    def add_resource(self, op: AddResource) -> Reply:
        pool, resource = self._pool(op.key), self._resources.get(op.key, op.resource)
        if resource is None:
            resource = Resource(op.key, op.resource, op.metadata, -op.preference)
            self._resources.save(resource)
            pool.size += 1
            self._pools.save(pool)
        else:
            self._resources.move(resource, metadata=op.metadata, dislike=-op.preference, removed=False)
        if op.revive and resource.reason is not None:
            state = _FREE if resource.state == _RETIRED else resource.state
            self._resources.move(resource, reason=None, state=state)
        if resource.state == _FREE and pool.waiting:
            self._offer(pool, resource, resource.used)
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
        """The next free resource that matches, or a place in the line."""
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        claimer = self._places.get(op.key, op.holder)
        if claimer is not None:
            return self._status(claimer)
        free = (each for each in self._resources.each("free", op.key) if _matches(each, op.where))
        resource = next(free, None)
        if resource is None and not op.wait:
            return Reply.REFUSED
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

    def give_back(self, op: GiveBack) -> Reply:
        claimer = self._places.get(op.key, op.holder)
        if claimer is None:
            return Reply.UNKNOWN
        self._remove(claimer, 0.0)
        return Reply.LEFT if claimer.waits else Reply.RELEASED

    def drop(self, claimer: Claimer) -> None:
        """Remove a claimer whose session has ended."""
        self._remove(claimer, claimer.quarantine)

    def edit_claim(self, op: EditClaim) -> Reply:
        claimer = self._with_token(op.key, op.holder, op.token)
        if claimer is None:
            return Reply.REFUSED
        resource = self._resource_of(claimer)
        if op.metadata is not None:
            self._resources.move(resource, metadata=op.metadata)
        if op.cool_down is not None:
            self._resources.move(resource, rest_until=self._state.now + op.cool_down)
        if op.retire is not None:
            self._resources.move(resource, reason=op.retire)
        return Reply.OK

    def resources(self, op: Resources) -> ResourcePage:
        after = (op.after,) if op.after else ()
        rows = self._resources.some("name", op.key, limit=CAP + 1, after=after)
        shown = tuple(map(self._show, rows[:CAP]))
        return ResourcePage(shown, self._pool(op.key).waiting, shown[-1].resource if len(rows) > CAP else "")

    def clear_up(self) -> None:
        """Wake the resources that have rested enough, in the order of their time, pool and name."""
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

    def _status(self, claimer: Claimer) -> ClaimAnswer:
        if claimer.waits:
            return self._queued(self._pool(claimer.key))
        return _claimed(self._resource_of(claimer))

    def _queued(self, pool: Pool) -> Queued:
        return Queued(pool.waiting, self._state.ask_again_in(self._next_rested(pool.key)))

    def _remove(self, claimer: Claimer, quarantine: float) -> None:
        """Remove a claimer; its resource rests for the quarantine or its cool-down, or goes to the next claimer."""
        pool = self._pool(claimer.key)
        if claimer.waits:
            was_head = self._head(pool) == claimer
            self._places.remove(claimer)
            self._count_out(pool)
            if was_head:
                self._hint_head(pool)
            return
        state, resource = self._state, self._resource_of(claimer)
        self._places.remove(claimer)
        rest_until = resource.rest_until
        if quarantine > 0:
            rest_until = max(rest_until, state.now + quarantine)
        used = state.rank()
        if resource.removed:
            self._delete(pool, resource)
        elif resource.reason is not None:
            self._put_back(resource, _RETIRED, used)
        elif rest_until > state.now:
            soonest = self._next_rested(pool.key)
            self._put_back(resource, _RESTING, used, rest_until)
            state.wake_at("rest", rest_until)
            if soonest is None or rest_until < soonest:
                self._hint_head(pool)
        else:
            self._offer(pool, resource, used)

    def _offer(self, pool: Pool, resource: Resource, used: int) -> None:
        """Lend a resource to the first claimer in the line that it matches; it is free if there is none."""
        for place, claimer in enumerate(self._places.each("line", pool.key) if pool.waiting else ()):
            if _matches(resource, claimer.wanted):
                self._places.move(claimer, waits=False, resource=resource.name, token=self._state.token())
                self._count_out(pool)
                self._hint(claimer, self._lend(resource, claimer, used))
                if place == 0:
                    self._hint_head(pool)
                return
        self._put_back(resource, _FREE, used)

    def _lend(self, resource: Resource, claimer: Claimer, used: int) -> Claimed:
        session, token = claimer.session, claimer.token
        self._resources.move(
            resource, state=_CLAIMED, session=session, token=token, used=used, rest_until=-1.0
        )
        return _claimed(resource)

    def _put_back(self, resource: Resource, state: str, used: int, rest_until: float = -1.0) -> None:
        self._resources.move(resource, state=state, session=0, token=0, used=used, rest_until=rest_until)

    def _head(self, pool: Pool) -> Claimer | None:
        return self._places.first("line", pool.key)

    def _hint_head(self, pool: Pool) -> None:
        """While resources rest, one waiting claimer has to know when to ask again: the head of the line."""
        head = self._head(pool)
        if head is not None and self._next_rested(pool.key) is not None:
            self._hint(head, Notice.ASK)

    def _number(self, pool: str, group: bytes) -> int:
        """The number of a claimer that begins to wait: the numbers of a group follow one another."""
        head = self._places.first("line", pool)
        last = self._places.last("line_of_group", pool, group)
        return max(head.number if head else 0, last.number + 1 if last else 0)

    def _next_rested(self, pool: str) -> float | None:
        """The time when the next resource of the pool has rested enough."""
        resource = self._resources.first("rest_in_pool", pool)
        return resource and resource.rest_until

    def _show(self, resource: Resource) -> ShownResource:
        state = self._state
        rest = max(0.0, resource.rest_until - state.now) if resource.state == _RESTING else 0.0
        process = state.process(resource.session) if resource.state == _CLAIMED else ""
        return ShownResource(
            *(resource.name, resource.metadata, -resource.dislike, resource.state),
            *(process, resource.token, rest, resource.reason or ""),
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


def _claimed(resource: Resource) -> Claimed:
    return Claimed(resource.name, resource.metadata, resource.token)


def _matches(resource: Resource, where: Metadata) -> bool:
    return not where or set(where) <= set(resource.metadata)
