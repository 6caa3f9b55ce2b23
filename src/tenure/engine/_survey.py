"""Introspection: the stored objects, the sessions that have them, and the health of the engine. For tools."""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from ._answers import CAP, Operation, Reply
from ._value import value

FAMILIES = ("holds", "claims", "arrivals", "producers", "tasks", "takers")
"""The families of items that a session may have, in the order in which a session that ends gives them up."""


@value
class ListKeys(Operation["KeyPage"]):
    """Lists the names of one `kind`, a page at a time. -> KeyPage, MORE

    `kind` is "holds" (keys that somebody holds), "pools" (that have a resource), "queues" (into which a task was put
    and that are not forgotten) or "sessions" (that are open). Returns at most `limit` and at most `CAP` names that
    begin with `prefix`, in engine order. To page, pass the previous `next` as `after`. A page may be empty and not the
    last. What comes or goes meanwhile may be missed; keys that are held and sessions may come more than once.
    """

    kind: str
    prefix: str = ""
    after: str = ""
    limit: int = CAP
    key: str = field(default="", init=False, repr=False)


@value
class KeyPage:
    """A page of names; `next` is empty after the last one."""

    names: tuple[str, ...]
    next: str


class SessionItem(NamedTuple):
    """An item of a `family` that a session has at `key`, or waits for (`held` is False).

    `token` is the token of the hold, if it has one, else 0.

    `family` is "holds" or "claims"; "arrivals", of which those are held that have an outcome; "producers", of which
    those are held that have slots reserved; "tasks", all held; "takers", which wait while they are idle. `name` is that
    of the holder, claimer, participant or producer; of a task its id and its token, with a blank between; of an idle
    taker empty.
    """

    family: str
    key: str
    name: str
    held: bool
    token: int = 0


@value
class SessionPage:
    """A page of what a session of `process` has; `next` is empty after the last one."""

    process: str
    items: tuple[SessionItem, ...]
    next: str


@value
class DescribeSession(Operation[SessionPage | Reply]):
    """Lists the holds, items and waits of a session. -> SessionPage, UNKNOWN (it has ended), MORE

    Returns at most `limit` items a page, in the order of `FAMILIES`, within a family in engine order. To page, pass the
    previous `next` as `after`. What is there from the first page to the last is listed once; what comes or goes
    meanwhile may be missed.
    """

    key: str
    after: str = ""
    limit: int = CAP


@value
class CheckHealth(Operation["Health"]):
    """Returns the health of the engine itself. -> Health, MORE

    With `repair`, entries of indexes that no operation can read are deleted; the answer says what there was before.
    """

    repair: bool = False
    key: str = field(default="", init=False, repr=False)


@value
class Health:
    """The health of the server or file, for people.

    `facts` are names and values; each of `problems` is one line with a fault and its remedy. `clock_skew`
    is by how many seconds the engine's clock is ahead of this machine's, give or take the time of a round trip.
    """

    clock_skew: float
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
