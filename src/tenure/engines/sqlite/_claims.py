"""Claims: a pool of named resources, matched by metadata, least recently used first, with a line of claimers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

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

from ._clock import micros, seconds
from ._records import encoded_name
from ._sql import CLAIMS
from ._state import State


class Item(NamedTuple):
    """One resource, as it is stored."""

    id: int
    name: str
    metadata: str
    preference: int
    rests: int
    rest_until: int | None
    claim: int | None
    token: int
    retired: str | None
    removed: int

    def is_free(self) -> bool:
        return self.claim is None and not self.rests and self.retired is None


class Claimer(NamedTuple):
    """One claimer, waiting or served, as it is stored."""

    id: int
    quarantine: int
    number: int
    ordinal: int
    resource: int | None


@dataclass(slots=True)
class Pool:
    """The state of one pool; written back by `_save`."""

    name: str
    ordinal: int = 0
    waiting: int = 0


class Claims:
    """The family of claims."""

    def __init__(self, state: State) -> None:
        self._state = state

    def add_resource(self, op: AddResource) -> Reply:
        run, metadata = self._state.run, encode(op.metadata)
        item = self._item(op.key, op.resource)
        if item is None:
            run(CLAIMS.add, pool=op.key, name=op.resource, metadata=metadata, preference=op.preference)
            item = self._item(op.key, op.resource)
            assert item is not None
        else:
            run(CLAIMS.change, id=item.id, metadata=metadata, preference=op.preference, revive=op.revive)
        self._offer(self._pool(op.key), item.id)
        return Reply.OK

    def remove_resource(self, op: RemoveResource) -> Reply:
        item = self._item(op.key, op.resource)
        if item is None:
            return Reply.UNKNOWN
        self._state.run(CLAIMS.delete if item.claim is None else CLAIMS.remove_later, id=item.id)
        self._tidy(self._pool(op.key))
        return Reply.OK

    def claim(self, op: Claim) -> ClaimAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        pool = self._pool(op.key)
        claimer = self._claimer(op.key, op.holder)
        if claimer is not None and claimer.resource is not None:
            item = self._item_by_id(claimer.resource)
            return Claimed(item.name, decode(item.metadata), item.token)
        if claimer is None:
            free = self._best(pool, op.where)
            if free is None and not op.wait:
                return Reply.REFUSED
            pool.ordinal += 1
            group = encoded_name(op.group)
            claim = state.run(
                CLAIMS.new_claim,
                pool=op.key,
                holder=op.holder,
                session=session.id,
                wanted=encode(op.where),
                quarantine=micros(op.quarantine),
                group=group,
                number=self._number(pool, group) if free is None else 0,
                ordinal=pool.ordinal,
            ).lastrowid
            assert claim is not None
            pool.waiting += free is None
            self._save(pool)
            if free is not None:
                return self._serve(free, claim)
        return Queued(pool.waiting, state.ask_again_in(self._next_rested(op.key)))

    def give_back(self, op: GiveBack) -> Reply:
        claimer = self._claimer(op.key, op.holder)
        return Reply.UNKNOWN if claimer is None else self._remove(op.key, claimer, 0)

    def drop(self, thing: Any) -> None:
        """The session of a claimer has ended."""
        pool, holder = thing
        claimer = self._claimer(pool, holder)
        assert claimer is not None
        self._remove(pool, claimer, claimer.quarantine)

    def edit_claim(self, op: EditClaim) -> Reply:
        state = self._state
        claimer = self._claimer(op.key, op.holder)
        if claimer is None or claimer.resource is None:
            return Reply.REFUSED
        item = self._item_by_id(claimer.resource)
        if item.token != op.token:
            return Reply.REFUSED
        state.run(
            CLAIMS.edit,
            id=item.id,
            metadata=item.metadata if op.metadata is None else encode(op.metadata),
            rest_until=item.rest_until if op.cool_down is None else state.wall + micros(op.cool_down),
            retired=item.retired if op.retire is None else op.retire,
        )
        return Reply.OK

    def resources(self, op: Resources) -> ResourcePage:
        rows = self._state.all(CLAIMS.list, pool=op.key, after=op.after, limit=CAP + 1)
        shown = tuple(self._show(*row) for row in rows[:CAP])
        last = shown[-1].resource if len(rows) > CAP else ""
        return ResourcePage(shown, self._pool(op.key).waiting, last)

    def clear_up(self) -> None:
        """Wake the resources that have rested enough, in the order of their time, pool and name."""
        state = self._state
        while (rested := state.one(CLAIMS.rested, now=state.wall)) is not None:
            if not state.step():
                return
            item, pool = rested
            state.run(CLAIMS.wake, id=item)
            self._offer(self._pool(pool), item)
        state.soonest.rest = state.one(CLAIMS.soonest)[0]

    def _remove(self, name: str, claimer: Claimer, quarantine: int) -> Reply:
        """The claimer goes; what it had rests for the quarantine or its cool-down, or goes to the next."""
        state = self._state
        state.run(CLAIMS.delete_claim, id=claimer.id)
        pool = self._pool(name)
        if claimer.resource is None:
            pool.waiting -= 1
            self._save(pool)
            self._tidy(pool)
            if pool.waiting and state.one(CLAIMS.head, pool=name) > (claimer.number, claimer.ordinal):
                self._hint_head(pool)
            return Reply.LEFT
        item = self._item_by_id(claimer.resource)
        until = item.rest_until
        if quarantine > 0:
            until = max(until or 0, state.wall + quarantine)
        rests = not item.removed and item.retired is None and until is not None and until > state.wall
        soonest = self._next_rested(name)
        state.run(CLAIMS.give_back, id=item.id, used=state.rank(), rests=rests, rest_until=until)
        if item.removed:
            state.run(CLAIMS.delete, id=item.id)
            self._tidy(pool)
        elif rests and until is not None:
            state.soonest.rest = min(until, until if state.soonest.rest is None else state.soonest.rest)
            if soonest is None or until < soonest:
                self._hint_head(pool)
        else:
            self._offer(pool, item.id)
        return Reply.RELEASED

    def _offer(self, pool: Pool, resource: int) -> None:
        """Grant a free resource to the first claimer in the line that it matches."""
        if not pool.waiting:
            return
        state, item = self._state, self._item_by_id(resource)
        if not item.is_free():
            return
        metadata = decode(item.metadata)
        line = state.all(CLAIMS.waiting, pool=pool.name)
        for claim, holder, process, wanted in line:
            if _suits(metadata, decode(wanted)):
                pool.waiting -= 1
                self._save(pool)
                state.hint(process, pool.name, holder, self._serve((item.id, item.name, metadata), claim))
                if claim == line[0][0]:
                    self._hint_head(pool)
                return

    def _hint_head(self, pool: Pool) -> None:
        """While resources rest, one waiting claimer has to know when to ask again: the head of the line."""
        if pool.waiting and self._next_rested(pool.name) is not None:
            _, holder, process, _ = self._state.one(CLAIMS.waiting, pool=pool.name)
            self._state.hint(process, pool.name, holder, Notice.ASK)

    def _number(self, pool: Pool, group: bytes) -> int:
        """The number of a claimer that begins to wait: those of a group come one after the other."""
        least, last = self._state.one(CLAIMS.numbers, pool=pool.name, group=group)
        return max(least or 0, 0 if last is None else last + 1)

    def _next_rested(self, pool: str) -> int | None:
        return self._state.one(CLAIMS.rest_in_pool, pool=pool)[0]

    def _best(self, pool: Pool, where: Metadata) -> tuple[int, str, Metadata] | None:
        """The next free resource that matches `where`."""
        for item, name, stored in self._state.run(CLAIMS.free, pool=pool.name):
            metadata = decode(stored)
            if _suits(metadata, where):
                return item, name, metadata
        return None

    def _serve(self, free: tuple[int, str, Metadata], claim: int) -> Claimed:
        item, name, metadata = free
        token = self._state.token()
        self._state.run(CLAIMS.take, id=item, claim=claim, token=token)
        self._state.run(CLAIMS.serve, id=claim, resource=item)
        return Claimed(name, metadata, token)

    def _show(
        self,
        name: str,
        metadata: str,
        preference: int,
        rests: int,
        rest_until: int,
        token: int,
        retired: str | None,
        process: str | None,
    ) -> Resource:
        state = "retired" if retired is not None else "resting" if rests else "free"
        rest = seconds(rest_until - self._state.wall) if rests else 0.0
        if process is not None:
            state = "claimed"
        return Resource(name, decode(metadata), preference, state, process or "", token, rest, retired or "")

    def _pool(self, name: str) -> Pool:
        row = self._state.one(CLAIMS.pool, name=name)
        return Pool(name, *row) if row else Pool(name)

    def _save(self, pool: Pool) -> None:
        self._state.run(CLAIMS.save_pool, name=pool.name, ordinal=pool.ordinal, waiting=pool.waiting)

    def _tidy(self, pool: Pool) -> None:
        if not pool.waiting:
            self._state.run(CLAIMS.delete_pool, name=pool.name)

    def _item(self, pool: str, name: str) -> Item | None:
        row = self._state.one(CLAIMS.resource, pool=pool, name=name)
        return row and Item(*row)

    def _item_by_id(self, item: int) -> Item:
        return Item(*self._state.one(CLAIMS.resource_by_id, id=item))

    def _claimer(self, pool: str, holder: str) -> Claimer | None:
        row = self._state.one(CLAIMS.claim, pool=pool, holder=holder)
        return row and Claimer(*row)


def encode(metadata: Metadata) -> str:
    """Metadata as JSON text; a byte becomes the character of the same number."""
    return json.dumps([(name, value.decode("latin-1")) for name, value in metadata])


def decode(text: str) -> Metadata:
    """Metadata of its JSON text."""
    return tuple((name, value.encode("latin-1")) for name, value in json.loads(text))


def _suits(metadata: Metadata, where: Metadata) -> bool:
    return not where or set(where) <= set(metadata)
