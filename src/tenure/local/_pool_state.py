"""The state of a pool: which resources it has, idle or lent. Nothing here waits.

Slots are counted, not resources: one is in use from the moment a creation begins until the closing has ended,
so there are never more than `max_size` open at once, whatever is cancelled in between. A resource is either
idle or lent, and goes from one to the other in one step: an idle one has no borrower, and a lent one is not
closed.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from random import random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tenure.arguments import Seconds
from tenure.local._limits import seconds
from tenure.local._pool_entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("PoolState",)

E = TypeVar("E", bound=Entry[Any])
# HikariCP's: what was made together does not end together
JITTER = 0.025


class PoolState(Generic[E]):
    """The slots of one pool. All times are seconds; `inf` is never.


    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = (
        *("_check_every", "_idle_timeout", "_max_lifetime", "checking", "closing", "creating"),
        *("generation", "idle", "lent", "max_size", "min_size"),
    )

    def __init__(
        self,
        min_size: int,
        max_size: int,
        *,
        idle_timeout: Seconds | None,
        max_lifetime: Seconds | None,
        check_every: Seconds | None = None,
        checks: bool = False,
    ) -> None:
        self.min_size = min_size
        self.max_size = max_size
        self._idle_timeout = seconds("idle_timeout", idle_timeout)
        self._max_lifetime = seconds("max_lifetime", max_lifetime)
        check_period = seconds("check_every", check_every)
        self._check_every = check_period if checks else inf
        self.idle: OrderedDict[E, None] = OrderedDict()
        """The idle ones, the most recently used last."""
        self.lent: dict[E, None] = {}
        """The entries that a borrower has, checks, resets or is about to get."""
        self.checking = 0
        """The number of lent entries without a borrower: the pool itself checks them."""
        self.creating: int = 0
        self.closing: int = 0
        self.generation = 0

    @property
    def size(self) -> int:
        """The number of slots in use."""
        return len(self.idle) + len(self.lent) + self.creating + self.closing

    @property
    def full(self) -> bool:
        """No slot is free."""
        return self.size >= self.max_size

    @property
    def surplus(self) -> bool:
        """True if there are more than `max_size`, which was made smaller, even without the resources being
        closed.
        """
        return len(self.idle) + len(self.lent) + self.creating > self.max_size

    @property
    def short(self) -> bool:
        """True if there are, or will be, fewer than `min_size`."""
        return self.size - self.closing < self.min_size

    def expiry(self, now: float) -> float:
        """Return the time at which a resource that is created now has to end."""
        return now + self._max_lifetime * (1 - JITTER * random())

    def add(self, entry: E) -> None:
        """Put a new entry into the slot in which it was created; it is lent."""
        self.creating -= 1
        self.lent[entry] = None

    def lend(self, entry: E, now: float) -> None:
        """Lend an idle entry."""
        del self.idle[entry]
        entry.lent_at = now
        self.lent[entry] = None

    def return_idle(self, entry: E) -> None:
        """Make a lent entry idle."""
        del self.lent[entry]
        self.idle[entry] = None

    def take_for_check(self, now: float) -> list[E]:
        """Take the idle entries that are due for a check; they are lent then, as to any borrower."""
        entries = [entry for entry in self.idle if now >= entry.since + self._check_every]
        for entry in entries:
            self.lend(entry, now)
        return entries

    def return_unused(self, entry: E) -> None:
        """Make an unused entry idle: the last to be lent again."""
        self.return_idle(entry)
        self.idle.move_to_end(entry, last=False)

    def drop(self, entry: E) -> bool:
        """Take an entry out, to be closed; its slot is in use until `closing` is counted down. False if it was
        out.
        """
        for where in (self.lent, self.idle):
            if entry in where:
                del where[entry]
                self.closing += 1
                return True
        return False

    def worn(self, entry: E, now: float) -> str | None:
        """Return the reason why an entry must not be lent again; None if it may be."""
        if entry.generation != self.generation:
            return "reloaded"
        return "lifetime" if now >= entry.expires else None

    def overdue(self, now: float) -> Iterator[tuple[E, str]]:
        """Go through the idle entries that have to be closed, the least recently used first, keeping `min_size`.

        Dropping them on the way is expected.
        """
        for entry in list(self.idle):
            if reason := self.worn(entry, now):
                yield entry, reason
            elif self.size - self.closing > self.min_size and now >= entry.idle_from + self._idle_timeout:
                yield entry, "idle"

    def next_look(self, now: float) -> float:
        """Return when `overdue` or `take_for_check` can have more; `inf` for never.

        Whatever happens meanwhile: a resource that is made, lent or becomes idle later is due later than a limit from
        now, and a lent resource may be back, and idle, when its lifetime ends.
        """
        limits = (self._idle_timeout, self._max_lifetime * (1 - JITTER), self._check_every)
        due = now + min(limits)
        for entry in self.idle:
            due = min(due, entry.expires, entry.since + self._check_every)
            if now < (idle_until := entry.idle_from + self._idle_timeout):
                due = min(due, idle_until)
        for entry in self.lent:
            if entry.expires > now:
                due = min(due, entry.expires)
        return due
