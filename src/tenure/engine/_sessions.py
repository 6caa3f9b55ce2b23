"""Sessions: registrations of processes."""

from __future__ import annotations

from dataclasses import field

from ._answers import Operation, Reply, Resting
from ._value import value


@value
class Ping(Operation[Reply]):
    """A round trip without effect. -> OK, MORE

    With `repair`, entries of indexes that no operation can read are deleted; `HEALTH` says whether there are any.
    """

    repair: bool = False
    key: str = field(default="", init=False, repr=False)


@value
class OpenSession(Operation[Reply]):
    """Begin a session of `process`, which ends `ttl` seconds after its last renewal. -> OK; opening again renews."""

    key: str
    process: str
    ttl: float


@value
class RenewSession(Operation[Reply | Resting]):
    """Push the end of the session to a ttl from now. -> OK, GONE, Resting. Never revives.

    A session that has nothing but idle takers and watches may `rest`, for so many seconds at most: it is not renewed
    before something becomes due. An engine may always answer OK instead.
    """

    key: str
    rest: float = 0.0


@value
class CloseSession(Operation[Reply]):
    """End the session and release all that it has. -> OK, GONE (nothing was left), MORE"""

    key: str
