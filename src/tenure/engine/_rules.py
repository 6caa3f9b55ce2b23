"""The rules and constants that all engines share: plain functions without state or clock.

`redis/lua` and `postgres/sql` spell the rules out in their languages; the contract's tests compare all of them.
"""

from __future__ import annotations

from ._tasks import ANEW, Settle, Verdict
from ._value import value

EXPIRED_TTL = 3600.0
"""Seconds for which the record of an expired task is kept: no settlement has set a ttl for it."""

A_FEW = 16
"""The number of outdated names or records that an operation checks, even if it leaves none itself."""


def how_many_to_forget(made: int) -> int:
    """The number of outdated objects to forget after making some: more than were made, so that they never pile up."""
    return A_FEW + 2 * made


# tasks: what follows a delivery


@value
class Ends:
    """The task ends in `state`; its record is kept for `ttl` seconds (None: for good)."""

    state: str
    attempts: int
    result: bytes
    ttl: float | None


def as_letter(ends: Ends) -> Ends:
    """The end of a release that is not done: a dead letter, for good unless a verdict says how long."""
    if ends.state == "dead":
        return ends
    reasons = {"cancelled": b"cancelled by an operator", "expired": b"its deadline has passed"}
    return Ends("dead", ends.attempts, reasons.get(ends.state) or ends.result, None)


@value
class GoesBack:
    """The task returns to the order: ready after `delay` seconds, or at its old place (None)."""

    attempts: int
    deliveries: int
    delay: float | None


@value
class Waits:
    """The task is suspended for an entry, or until at most `rest` children are unfinished; it returns at its old place.

    `prefix`: a failed child whose name begins with it cancels the others whose names do.
    """

    entry: str = ""
    prefix: str = ""
    timeout: float = 0.0
    rest: int = 0


def after_verdict(
    settle: Settle,
    attempts: int,
    deliveries: int,
    *,
    stop: bool,
    stop_ttl: float | None,
    unfinished: int = 0,
    late: bool = False,
) -> Ends | GoesBack | Waits:
    """The outcome of a verdict on a task that failed `attempts` times and was delivered `deliveries` times.

    `stop`: its cancellation was requested. It then ends instead of going back, and its record has the ttl `stop_ttl`.
    With `unfinished` children, `Ends` and the `GoesBack` of a RETRY are stored, and not applied. `late`: its deadline
    has passed.
    """
    if late and (unfinished or settle.verdict is not Verdict.DONE):
        return Ends("expired", attempts, b"", EXPIRED_TTL)
    match settle.verdict:
        case Verdict.DONE | Verdict.DISCARD | Verdict.CANCEL:
            if unfinished and settle.verdict is Verdict.DONE:
                return Ends("cancelled", attempts, b"", stop_ttl) if stop else Waits()
            return Ends(settle.verdict.value, attempts, settle.result, settle.ttl)
        case Verdict.DEAD:
            return Ends("dead", attempts + 1, settle.result, settle.ttl)
        case _ if stop:
            return Ends("cancelled", attempts, b"", stop_ttl)
        case Verdict.RETRY:
            return GoesBack(attempts + 1, attempts + 1, settle.delay)
        case Verdict.GIVE_BACK:
            return GoesBack(attempts, deliveries - 1, None)
        case Verdict.POSTPONE if settle.result == ANEW:
            return GoesBack(0, 0, settle.delay)
        case Verdict.POSTPONE:
            return GoesBack(attempts, deliveries - 1 if settle.result else attempts, settle.delay)
        case Verdict.WAIT:
            return Waits(prefix=settle.result.decode())
        case Verdict.WAIT_FOR:
            return Waits(settle.result.decode(), timeout=settle.delay)
        case Verdict.WAIT_FOR_END:
            return Waits(rest=int(settle.result))
        case Verdict.NOTE | Verdict.ALONE:
            raise ValueError(f"{settle.verdict.name} ends no delivery")


def without_verdict(
    attempts: int,
    deliveries: int,
    max_deliveries: int,
    process: str,
    *,
    stop: bool,
    stop_ttl: float | None,
    dead_ttl: float | None,
    late: bool = False,
) -> Ends | GoesBack:
    """The outcome for a task when the session of `process`, which had taken it, ends before any verdict.

    `max_deliveries` is 0 once the task has run alone.
    """
    if late:
        return Ends("expired", attempts, b"", EXPIRED_TTL)
    if stop:
        return Ends("cancelled", attempts, b"", stop_ttl)
    silent = deliveries - attempts
    if silent >= max_deliveries:
        where = "" if max_deliveries else " while the task ran alone in it"
        times = "once" if silent == 1 else f"{silent} times"
        error = f"delivered {times} without a verdict: process {process} died or lost its session{where}"
        return Ends("dead", attempts, error.encode(), dead_ttl)
    return GoesBack(attempts, deliveries, None)
