"""Introspection, for tools: the stored names, the items of sessions, and the health of the engine."""

from __future__ import annotations

from ._scan import Index, Page
from ._value import value

FAMILIES = ("holds", "claims", "producers", "tasks", "takers")
"""The families of items that a session may have, in the order in which a session that ends gives them up."""


@value
class SessionItem:
    """An item of a `family` that a session has at `key`, or waits for (`held` is False).

    `token` is the token of the hold, if it has one, else 0.

    `family` is "holds" or "claims"; "producers", of which those are held that have slots reserved; "tasks", all held;
    "takers", which wait while they are idle. `name` is that of the holder, claimer or producer; of a task its id and
    its token, with a blank between; of an idle taker empty.
    """

    family: str
    key: str
    name: str
    held: bool
    token: int = 0


@value
class SessionPage(Page[SessionItem]):
    """The items of a session of `process`."""

    process: str = ""


@value
class Health:
    """The health of the server or file, for people.

    `facts` are names and values; each of `problems` is one line with a fault and its remedy. The engine's clock is
    `clock_skew` seconds ahead of this machine's, give or take the time of a round trip.
    """

    clock_skew: float
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


_KINDS = ("holds", "limiters", "pools", "queues", "sessions")
NAMES = {kind: Index(kind, "", str, Page[str]) for kind in _KINDS}
"""The names of one kind; `only` is what they begin with.

A queue has a name while its counts are remembered, or while something is kept for it: a cursor, a limit, a pause.
"""

SESSION = Index("session", "session", SessionItem, SessionPage)
"""The items of a session."""

HEALTH = Index("health", "", Health, Page[Health])
"""The health of the server or file: a row for each server of a cluster."""
