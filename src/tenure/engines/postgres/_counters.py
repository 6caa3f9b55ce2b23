"""The codecs of counters."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, nan

import tenure.engine as e

from ._codec import Codecs, PostgresCodec, Row
from ._values import Blobs, Floats, name


def _names(limits: Iterable[e.RateLimit]) -> Blobs:
    return Blobs(name(limit.name) for limit in limits)


def _rates(limits: Iterable[e.RateLimit]) -> Floats:
    return Floats(float(limit.rate) for limit in limits)


def _spending(row: Row) -> e.Spending:
    delay, held, *bookings = map(float, row.b)
    return e.Spending(row.word == "booked", delay, held, tuple(map(e.Booking, bookings[::2], bookings[1::2])))


COUNTERS: Codecs = {
    e.Spend: PostgresCodec(
        "spend",
        lambda op: (
            name(op.session),
            op.n,
            name(op.key),
            _names(op.limits),
            _rates(op.limits),
            Floats(float(limit.burst) for limit in op.limits),
            Floats(float(cost) for request in op.requests for cost in request.costs),
            Floats(inf if request.max_wait is None else request.max_wait for request in op.requests),
            inf if op.horizon is None else float(op.horizon),
        ),
        lambda rows: e.SpendResults(tuple(map(_spending, rows[1:]))),
    ),
    e.Refund: PostgresCodec(
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
    e.HoldOff: PostgresCodec("hold_off"),
}
