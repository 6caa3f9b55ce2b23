"""Looking around: what there is, who has it, and how the engine itself is doing. For tools that see a whole store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ._answers import CAP, Operation, Reply

FAMILIES = ("holds", "claims", "arrivals", "producers", "tasks", "takers")
"""What a session may have, in the order in which one that ends gives it up."""


@dataclass(frozen=True, slots=True)
class Survey(Operation["Surveyed"]):
    """The names of what there is of a `kind`, a page at a time. -> Surveyed, MORE

    `kind` is "holds" (keys that somebody holds), "pools" (that have a resource), "queues" (into which a task was put
    and that are not forgotten) or "sessions" (that are open). Told are names that begin with `prefix`, at most `limit`
    and at most `CAP`, in an order of the engine's own; the first page has no `after`, each other one the `next` of the
    one before. A page may be empty and not the last. What comes or goes meanwhile may be missed; keys that are held and
    sessions may come more than once.
    """

    kind: str
    prefix: str = ""
    after: str = ""
    limit: int = CAP


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A page of names; `next` is empty after the last one."""

    names: tuple[str, ...]
    next: str


class Belonging(NamedTuple):
    """Something of a `family` that a session has at `key`, or waits for (`held` is False).

    `token` is that of what is held, if it has one, else 0.

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


@dataclass(frozen=True, slots=True)
class Inspected:
    """A page of what a session of `process` has; `next` is empty after the last one."""

    process: str
    belongings: tuple[Belonging, ...]
    next: str


@dataclass(frozen=True, slots=True)
class Inspect(Operation[Inspected | Reply]):
    """What does a session have, and what does it wait for? -> Inspected, UNKNOWN (it has ended), MORE

    Told are at most `limit` things a page, in the order of `FAMILIES`, within one in an order of the engine's own; the
    first page has no `after`, each other one the `next` of the one before. What is there from the first page to the
    last is told once; what comes or goes meanwhile may be missed.
    """

    session: str
    after: str = ""
    limit: int = CAP


@dataclass(frozen=True, slots=True)
class Examine(Operation["Examined"]):
    """How is the engine itself doing? -> Examined, MORE

    With `repair`, entries of indexes that no operation can read are deleted; the answer says what there was before.
    """

    repair: bool = False


@dataclass(frozen=True, slots=True)
class Examined:
    """What matters about the server or file, for people.

    `facts` are names and values; each of `problems` is one line that tells what is wrong and what to do. The engine's
    clock is `ahead` of this machine's by so many seconds, give or take the time of a round trip.
    """

    ahead: float
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
