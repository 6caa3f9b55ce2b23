"""Holds: a weighted share of a capacity, with a queue of waiters."""

from __future__ import annotations

from ._answers import CAP, Granted, HoldAnswer, Operation, Reply
from ._scan import Index, Page
from ._value import value

BROKEN = -1
"""The capacity of a barrier that is broken."""

DROP = b"drop"
"""The value of an arrival that leaves a barrier whole when it leaves."""


@value
class Acquire(Operation[HoldAnswer]):
    """Take `weight` of the `capacity` of `key`, or join the queue for it.

    -> Granted, Queued, REFUSED (not `wait` and not free at once), Mismatch, GONE, MORE. The first holder of a key sets
    its capacity, which is forgotten with the last, unless `Resize` has set it. Sent again, the answer is the holder's
    present state.

    `weight` 0 is an arrival at a barrier: it waits until `capacity` arrivals wait. All are granted then in one step,
    with tokens that follow one another from a multiple of the capacity. An arrival that leaves earlier breaks the
    barrier, as `Resize` to `BROKEN` does, unless its value is `DROP`. The first that waits sets the capacity.
    """

    session: str
    key: str
    holder: str
    capacity: int
    weight: int = 1
    value: bytes = b""
    wait: bool = True


@value
class Ask(Operation["HoldStatuses | Reply"]):
    """Returns the present state of these holders of one session. -> HoldStatuses, GONE, MORE

    Raises `ValueError` for more than `CAP` holders.
    """

    session: str
    key: str
    holders: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.holders) > CAP:
            raise ValueError(f"holders must hold at most {CAP} names, not {len(self.holders)}")


@value
class HoldStatuses:
    """The answers, one for each holder asked for: Granted, Queued, or UNKNOWN."""

    answers: tuple[HoldAnswer, ...]


@value
class Release(Operation[Granted | Reply]):
    """Release a hold, or leave the queue. -> RELEASED, LEFT, UNKNOWN, Granted (an arrival was), MORE.

    Needs no live session.
    """

    key: str
    holder: str


@value
class SetValue(Operation[Reply]):
    """Change the value that others see beside the holder. -> OK, REFUSED (not the holder with this token)"""

    key: str
    holder: str
    token: int
    value: bytes


@value
class BreakHold(Operation[Reply]):
    """Take a hold from its holder. -> OK, REFUSED (not the holder with this token), MORE

    The holder's process is hinted BROKEN. The hold is granted to waiters, as if it had been released.
    """

    key: str
    holder: str
    token: int


@value
class Resize(Operation[Reply]):
    """Set the capacity of `key` for good; more is granted at once, less by attrition. -> OK, REFUSED, MORE

    A waiter that asks for more than the new capacity leaves the queue and is hinted ASK (the answer is `Mismatch`); all
    arrivals do for a capacity of `BROKEN`. 0 ends that: the next holder sets the capacity (REFUSED: a weight is held,
    or somebody waits).
    """

    key: str
    capacity: int


@value
class Holder:
    """A holder (`token` above 0, `age` since the grant) or a waiter (`token` 0, `age` since it came)."""

    process: str
    holder: str
    token: int
    weight: int
    value: bytes
    age: float


@value
class Holdings(Page[Holder]):
    """The holders of a key, in the order of their tokens, and then its waiters, in the order of the queue.

    `capacity` 0 means that the key is not in use; `used` is the weight of all holders. `meeting` is as in `Queued`.
    """

    capacity: int = 0
    used: int = 0
    meeting: int = 0

    @property
    def holders(self) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.rows if holder.token)

    @property
    def waiting(self) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.rows if not holder.token)


HOLDERS = Index("holders", "hold", Holder, Holdings, watchable=True)
"""The holders and the waiters of a key."""
