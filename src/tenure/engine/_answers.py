"""The answers and the hints of an engine."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from tenure.errors import StoreUnavailable

from ._value import value

CAP = 256
"""The largest number of steps of a loop inside one operation, before the answer is `Reply.MORE`."""

RESPONSE_TIMEOUT = 5.0
"""Seconds after which a server that does not answer counts as gone, by default."""

IN_USE = 15.0
"""Seconds after a command in which the engine asks the server often for signs of life."""

SILENCE = 600.0
"""Seconds between signs of life of a connection that is not in use, and of a session that rests."""

A = TypeVar("A")


class Operation(Generic[A]):
    """An atomic step on an engine; `A` is the type of its answer.

    `key` names the object or the session that it concerns; it is empty if it concerns neither.
    Thread safety: any; operations never change.
    """

    __slots__ = ()

    key: str


class NotSent(StoreUnavailable):
    """The operation has certainly not been sent, and has no effect."""


class Reply(Enum):
    """Answers that need no further words."""

    OK = "ok"
    GONE = "gone"  # the session is unknown or has ended; nothing was done
    MORE = "more"  # expiry is unfinished: send the same operation again
    REFUSED = "refused"  # not now (would have to wait), or not with this token
    RELEASED = "released"  # what was held or reserved is given back
    LEFT = "left"  # the place in the queue is given up
    UNKNOWN = "unknown"  # nothing of that name is known
    REQUESTED = "requested"  # the task runs; its holder is asked to cancel it
    CHILDREN = "children"  # the task has unfinished children; nothing was done


class Notice(Enum):
    """The news of a hint that carries no answer."""

    ASK = "ask"  # your place changed; only asking shows how
    READY = "ready"  # tasks may be there for an idle taker
    ROOM = "room"  # slots of a full queue are reserved for a producer
    STOP = "stop"  # the cancellation of a task that you hold was requested; `name` is its token
    FINISHED = "finished"  # a task that you watch has ended; `name` is its id
    DRAINED = "drained"  # a queue that you watch has no unfinished task
    CHANGED = (
        "changed"  # a holder of a key that you watch, or its value, changed; or the task whose id is `name`
    )
    BROKEN = "broken"  # a hold was taken from you; `name` is its holder
    HELD = "held"  # a limiter for which you wait is held off; `LIMITER` says for how long
    WAKE = "wake"  # the session `name` rests, and another session is awake: renew it
    MISSED = "missed"  # hints may have been lost, and what was acknowledged: ask for everything again
    LOST = "lost"  # a connection to the engine was lost: `Engine.unreachable` says why


@value
class Resting:
    """The session need not be renewed for so many seconds, and ends a ttl later.

    `seconds` is 0 if an idle taker has to ask now. A hint with WAKE, or READY for such a taker, ends the rest.
    """

    seconds: float


@value
class Granted:
    """The hold is granted, fenced by `token`."""

    token: int


@value
class Queued:
    """The holder is in the queue, at `place` or before; ask again after `ask_again_in` seconds without a hint.

    Arrivals at a barrier wait for a `meeting`: the token of the first. It changes when they are granted.
    """

    place: int
    ask_again_in: float
    meeting: int = 0


@value
class Mismatch:
    """The capacity in force is `stored`; nothing was done."""

    stored: int


@value
class Claimed:
    """The resource is yours, fenced by `token`."""

    resource: str
    metadata: Metadata
    token: int


Metadata = tuple[tuple[str, bytes], ...]
"""Fields of a resource, sorted by name; a `where` matches when all its fields are there with equal bytes."""

HoldAnswer = Granted | Queued | Mismatch | Reply
ClaimAnswer = Claimed | Queued | Reply


@value
class Hint:
    """A message from the engine to one process; `name` is the holder, producer, task or token meant."""

    process: str
    key: str
    name: str
    news: Granted | Claimed | Notice
