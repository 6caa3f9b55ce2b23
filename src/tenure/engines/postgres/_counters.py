"""The codecs of counters and barriers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, nan

from tenure.engine import (
    Arrivals,
    Arrive,
    BarrierStatus,
    Booking,
    HoldOff,
    LimiterStatus,
    RateLimit,
    ReadLimiter,
    Refund,
    ResetBarrier,
    Spend,
    Spending,
    SpendResults,
    Withdraw,
)

from ._codec import Codec, Codecs, Row, decoded
from ._values import Blobs, Floats, name


def _names(limits: Iterable[RateLimit]) -> Blobs:
    return Blobs(name(limit.name) for limit in limits)


def _rates(limits: Iterable[RateLimit]) -> Floats:
    return Floats(float(limit.rate) for limit in limits)


def _spending(row: Row) -> Spending:
    delay, held, *bookings = map(float, row.b)
    return Spending(row.word == "booked", delay, held, tuple(map(Booking, bookings[::2], bookings[1::2])))


def _looked(rows: Sequence[Row]) -> LimiterStatus:
    held_off, held, *debts = map(float, rows[0].b)
    return LimiterStatus(held_off, held, tuple(debts))


COUNTERS: Codecs = {
    Spend: Codec(
        "spend",
        lambda op: (
            name(op.session),
            op.n,
            name(op.key),
            _names(op.limits),
            _rates(op.limits),
            Floats(float(limit.burst) for limit in op.limits),
            Floats(float(cost) for costs, _ in op.requests for cost in costs),
            Floats(inf if max_wait is None else max_wait for _, max_wait in op.requests),
        ),
        lambda rows: SpendResults(tuple(map(_spending, rows[1:]))),
    ),
    Refund: Codec(
        "refund",
        lambda op: (
            name(op.session),
            op.n,
            name(op.key),
            _names(op.limits),
            _rates(op.limits),
            Floats(float(booking.end) for request in op.requests for booking in request.bookings),
            Floats(float(booking.size) for request in op.requests for booking in request.bookings),
            Floats(
                float(amount)
                for request in op.requests
                for amount in request.amounts or [nan] * len(request.bookings)
            ),
        ),
    ),
    HoldOff: Codec("hold_off"),
    ReadLimiter: Codec(
        "read_limiter", lambda op: (name(op.key), _names(op.limits), _rates(op.limits)), _looked
    ),
    Arrive: Codec(
        "arrive",
        lambda op: (name(op.session), name(op.key), name(op.participant), op.parties, op.on_departure),
    ),
    Withdraw: Codec("withdraw"),
    ResetBarrier: Codec("reset_barrier"),
    Arrivals: Codec("arrivals", answer=lambda rows: decoded(BarrierStatus, rows[0])),
}
