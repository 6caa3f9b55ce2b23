"""Looking around: what there is, who has it, and how the engine itself is doing. For tools that see a whole store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ._answers import CAP, Operation, Reply


@dataclass(frozen=True, slots=True)
class Survey(Operation["Surveyed"]):
    """The names of what there is of a `kind`, a page at a time. -> Surveyed, MORE

    `kind` is "holds" (keys that somebody holds), "pools" (that have a resource), "queues" (into which a task was ever
    put) or "sessions" (that are open). Told are names that begin with `prefix`, at most `limit`, in an order of the
    engine's own; the first page has no `after`, each other one the `next` of the one before. A page may be empty and
    not the last. What comes or goes meanwhile may be missed; sessions may come more than once.
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


class Belongings(NamedTuple):
    """How often a session has one object of a family (`held`), and in how many places it waits for it (`waiting`).

    `family` is "holds" or "claims"; "arrivals", where those are held that have an outcome; "producers", where those are
    held that have slots reserved; "tasks", all held; "takers", which wait while they are idle.
    """

    family: str
    key: str
    held: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a session of `process` has: families in the order in which an ending session gives them up, then by key."""

    process: str
    belongings: tuple[Belongings, ...]


@dataclass(frozen=True, slots=True)
class Inspect(Operation[Inspected | Reply]):
    """What does a session have, and what does it wait for? -> Inspected, UNKNOWN (it has ended), MORE

    Of each family the first `limit` count, in the order in which they were made.
    """

    session: str
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Examine(Operation["Examined"]):
    """How is the engine itself doing? -> Examined, MORE"""


@dataclass(frozen=True, slots=True)
class Examined:
    """What matters about the server or file, for people.

    `facts` are names and values; each of `problems` is one line that tells what is wrong and what to do. The engine's
    clock is `ahead` of this machine's by so many seconds, give or take the time of a round trip.
    """

    ahead: float
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
