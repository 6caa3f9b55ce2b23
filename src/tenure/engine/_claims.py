"""Claims: named resources, matched by metadata, lent to one holder each."""

from __future__ import annotations

from ._answers import ClaimAnswer, Metadata, Operation, Reply
from ._scan import Index, Page
from ._value import value


@value
class AddResource(Operation[Reply]):
    """Put a resource into the pool, or change its metadata and preference (also while it is claimed). -> OK, MORE

    A retired resource stays retired; with `revive` it can be claimed again.
    """

    key: str
    resource: str
    metadata: Metadata
    preference: int = 0
    revive: bool = False


@value
class RemoveResource(Operation[Reply]):
    """Take a resource out of the pool; a claimed resource leaves when given back. -> OK, UNKNOWN, MORE"""

    key: str
    resource: str


@value
class Claim(Operation[ClaimAnswer]):
    """Take a free resource that matches `where`: higher preference first, then the least recently used.

    -> Claimed, Queued, REFUSED, GONE, MORE. Waiters are served in the order of the line among those that match. One
    that begins to wait gets a number: that of the head of the line (0 without waiters), or one more than the highest of
    the waiters of its `group`, whichever is greater. The line is in the order of the numbers, and of equal ones, in
    that of coming. So the waiters of one group, "" too, are served first come, first served, and groups take turns.
    `place` is how many wait. What a dead claimer held rests for `quarantine` seconds before it can be claimed again.
    While resources rest, the head of the queue is hinted ASK when it becomes the head, and when one begins to rest that
    is due before the others: so some waiter knows when to ask.
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
    reason, once it is given back; `metadata` replaces what is stored. None leaves things as they are.
    """

    key: str
    holder: str
    token: int
    metadata: Metadata | None = None
    cool_down: float | None = None
    retire: str | None = None


@value
class Resource:
    """`state` is free, claimed, resting (cooling down or in quarantine, `rest` seconds left) or retired."""

    resource: str
    metadata: Metadata
    preference: int
    state: str
    process: str
    token: int
    rest: float
    reason: str


@value
class ResourcePage(Page[Resource]):
    """The resources of a pool, in the order of their names, for one of which `waiting` claimers wait."""

    waiting: int = 0


RESOURCES = Index("resources", "pool", Resource, ResourcePage)
"""The resources of a pool."""
