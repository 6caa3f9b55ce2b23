"""Claims: named resources, matched by metadata, each with slots, of which a claimer has one."""

from __future__ import annotations

from ._answers import CAP, ClaimAnswer, Metadata, Operation, Reply
from ._scan import Index, Page
from ._value import value


@value
class AddResource(Operation[Reply]):
    """Put a resource into the pool, or change its metadata, preference and slots (also while claimed). -> OK, MORE

    A retired resource stays retired; with `revive` it can be claimed again. As many claimers as it has `slots`, up to
    `CAP`, can have it at once. More slots serve waiters; with fewer, the claims stay, and no slot is lent until fewer
    claims than slots are left. Raises `ValueError` for other numbers of slots.
    """

    key: str
    resource: str
    metadata: Metadata
    preference: int = 0
    revive: bool = False
    slots: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= CAP:
            raise ValueError(f"slots must be between 1 and {CAP}, not {self.slots}")


@value
class RemoveResource(Operation[Reply]):
    """Take a resource out of the pool; if it is claimed, it leaves with its last claim. -> OK, UNKNOWN, MORE"""

    key: str
    resource: str


@value
class Claim(Operation[ClaimAnswer]):
    """Take a slot of a free resource that matches `where`: higher preference first, then the least recently used.

    -> Claimed, Queued, REFUSED, GONE, MORE

    A resource is used when a claim returns, and when a claim leaves it a free slot, which spreads the claims. Waiters
    are served in the order of the line among those that match. A new waiter gets the number of the head of the line (0
    without waiters), or one more than the highest of the waiters of its `group`, whichever is greater. The line is in
    the order of the numbers, then of coming. So the waiters of a group, "" too, are served first come, first served,
    and groups take turns. `place` is how many wait.

    The resource of a dead claimer rests for `quarantine` seconds with all its slots: none is lent, and other claims of
    it stay. While resources rest, the head of the queue is hinted ASK when a waiter leaves or is served, and when a
    resource begins to rest that is due before the others: so some waiter knows when to ask.
    """

    session: str
    key: str
    holder: str
    where: Metadata = ()
    quarantine: float = 0.0
    wait: bool = True
    group: str = ""


@value
class GiveBack(Operation[Reply]):
    """Give the claimed resource back, or leave the queue. -> RELEASED, LEFT, UNKNOWN, MORE; needs no live session."""

    key: str
    holder: str


@value
class EditClaim(Operation[Reply]):
    """Change the claimed resource, by its claimer. -> OK, REFUSED (not the claimer with this token), MORE

    `cool_down` seconds (from now) must pass before it can be claimed again; `retire` takes it out of the pool with a
    reason, once it is given back; `metadata` replaces what is stored. None changes nothing. A change counts for the
    resource with all its slots: it takes effect on free slots at once, and other claims stay.
    """

    key: str
    holder: str
    token: int
    metadata: Metadata | None = None
    cool_down: float | None = None
    retire: str | None = None


@value
class Resource:
    """A resource, with the fields of `tenure.types.PooledResource`. It rests as well while it is in quarantine."""

    resource: str
    metadata: Metadata
    preference: int
    state: str
    process: str
    token: int
    rest: float
    reason: str
    slots: int = 1
    claimed: int = 0


@value
class ResourcePage(Page[Resource]):
    """The resources of a pool, in the order of their names, and the number of `waiting` claimers."""

    waiting: int = 0

    def slots(self) -> dict[str, int]:
        """The number of slots in each state; those that are not claimed are in the state of their resource."""
        counts: dict[str, int] = {"free": 0, "claimed": 0, "resting": 0, "retired": 0}
        for resource in self.rows:
            counts["claimed"] += resource.claimed
            if resource.state != "claimed":
                counts[resource.state] += resource.slots - resource.claimed
        return counts


RESOURCES = Index("resources", "pool", Resource, ResourcePage)
"""The resources of a pool."""
