"""Counters: spending at a rate."""

from __future__ import annotations

from ._answers import Operation, Reply
from ._scan import Index, Page
from ._value import value


@value
class RateLimit:
    """A limit of a limiter: `rate` per second, with bursts up to `burst`. Its `name` is unique there."""

    name: str
    rate: float
    burst: float


@value
class SpendRequest:
    """A request to spend a cost for each limit, in all or none; refused if its wait would exceed `max_wait` seconds."""

    costs: tuple[float, ...]
    max_wait: float | None = None


@value
class Booking:
    """A booking in one limit: `size` seconds at its rate, up to the time `end` of the limiter's own clock."""

    end: float
    size: float


@value
class Spending:
    """Booked: act after `delay` seconds. Not booked: `delay` is the delay of a booking, and there are no `bookings`.

    `held` is the sum of the seconds of all hold-offs, past and present. If `LimiterStatus` later shows another number,
    everyone that waits goes that much later, or sooner.
    """

    booked: bool
    delay: float
    held: float
    bookings: tuple[Booking, ...]


@value
class Spend(Operation["SpendResults | Reply"]):
    """Book spendings in the order given, each in all limits at once (GCRA). -> SpendResults, GONE, MORE

    A request that has to wait is refused if a limit was booked for more than `horizon` seconds ahead before this
    operation, up to the time at which an amount above zero is there.

    A cost or a burst lasts no longer than `LONGEST` at its rate. The engine keeps each limit by its name. If its rate
    has changed, the debt stays the same amount. The last booking of a limit ends with its session, unless it is due
    already.
    """

    session: str
    n: int
    key: str
    requests: tuple[SpendRequest, ...]
    limits: tuple[RateLimit, ...]
    horizon: float | None = None


@value
class SpendResults:
    """The answers to a `Spend`, one for each request."""

    answers: tuple[Spending, ...]


@value
class RefundRequest:
    """A request to give back the bookings of one spending, which has a booking for each limit.

    Without `amounts` the caller never went: the last booking of a limit goes back, if this session made it. An earlier
    booking stays, because the caller of the later one may have counted on it. Else an amount for each limit goes back,
    as far as time has not brought it back already; an amount below zero is booked in addition at once.
    """

    bookings: tuple[Booking, ...]
    amounts: tuple[float, ...] = ()


@value
class Refund(Operation[Reply]):
    """Give back bookings in the order given, or change how much is booked; numbered as `Spend`. -> OK, GONE, MORE"""

    session: str
    n: int
    key: str
    requests: tuple[RefundRequest, ...]
    limits: tuple[RateLimit, ...]


@value
class HoldOff(Operation[Reply]):
    """Let no caller act for `seconds`, unless it is held off for longer; numbered as `Spend`. -> OK, GONE, MORE

    0 seconds end a hold-off at once. All bookings are due that much later, or sooner. The processes that wait are
    hinted (HELD), and find out by `LIMITER`.
    """

    session: str
    n: int
    key: str
    seconds: float


@value
class Debt:
    """The amount that is booked in the limit of that name, and not back yet."""

    name: str
    amount: float


@value
class LimiterStatus:
    """The state of a limiter: the seconds for which it is held off, `held` as in `Spending`, and the debts by name.

    The last caller that waits is due after `waits` seconds, unless it has given up; 0 if no caller waits.
    """

    held_off: float
    held: float
    debts: tuple[Debt, ...]
    waits: float = 0.0


LIMITER = Index("limiter", "limiter", LimiterStatus, Page[LimiterStatus])
"""The state of a limiter, in one row."""
