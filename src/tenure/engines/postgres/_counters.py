"""The codecs of counters and barriers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tenure.engine import (
    LONGEST,
    Arrivals,
    Arrive,
    Gathering,
    Refund,
    ResetBarrier,
    Spend,
    Spending,
    Spent,
    Withdraw,
)

from ._binary import Floats
from ._codec import Codec, Codecs, Row, decoded
from ._values import name


def _lasting(amount: float, rate: float) -> float:
    """An amount that lasts for no longer than the longest time."""
    return float(min(amount, LONGEST * rate))


def _spent(rows: Sequence[Row]) -> Spent:
    return Spent(tuple(Spending(word == "booked", float(b[0]), float(b[1])) for word, _, b in rows[1:]))


COUNTERS: Codecs = {
    Spend: Codec(
        "spend",
        lambda op: (
            name(op.session),
            op.n,
            name(op.key),
            float(op.rate),
            _lasting(op.burst, op.rate),
            Floats(_lasting(cost, op.rate) for cost, _ in op.requests),
            Floats(inf if max_wait is None else max_wait for _, max_wait in op.requests),
        ),
        _spent,
    ),
    Refund: Codec(
        "refund",
        lambda op: (
            name(op.session),
            op.n,
            name(op.key),
            _lasting(op.cost, op.rate),
            float(op.booking),
            float(op.rate),
        ),
    ),
    Arrive: Codec(
        "arrive_at",
        lambda op: (name(op.session), name(op.key), name(op.participant), op.parties, op.on_departure),
    ),
    Withdraw: Codec("withdraw"),
    ResetBarrier: Codec("reset_barrier"),
    Arrivals: Codec("gathering", answer=lambda rows: decoded(Gathering, rows[0])),
}
