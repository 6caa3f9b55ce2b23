"""Counters and barriers, as calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tenure.engine import (
    LONGEST,
    ArrivalAnswer,
    Arrivals,
    Arrive,
    Broken,
    Gathering,
    Mismatch,
    Refund,
    ResetBarrier,
    Spend,
    Spending,
    Spent,
    Tripped,
    Waiting,
    Withdraw,
)

from ._binary import Floats
from ._calls import Call, Calls, Row, name, no_words, seconds


def _lasting(amount: float, rate: float) -> float:
    """An amount that lasts for no longer than the longest time."""
    return float(min(amount, LONGEST * rate))


def _spent(rows: Sequence[Row]) -> Spent:
    return Spent(tuple(Spending(word == "booked", float(b[0]), float(b[1])) for word, _, b in rows[1:]))


def _arrival(rows: Sequence[Row]) -> ArrivalAnswer:
    match rows[0].word, rows[0].n:
        case "waiting", [generation, ask_again_in]:
            return Waiting(generation, seconds(ask_again_in))
        case "tripped", [generation, place]:
            return Tripped(generation, place)
        case "broken", [generation]:
            return Broken(generation)
        case "mismatch", [stored]:
            return Mismatch(stored)
        case answer:
            raise AssertionError(f"not an answer: {answer!r}")


def _gathering(rows: Sequence[Row]) -> Gathering:
    parties, generation, waiting, broken = rows[0].n
    return Gathering(parties, generation, waiting, bool(broken))


COUNTERS: Calls = {
    Spend: Call(
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
    Refund: Call(
        "refund",
        lambda op: (
            name(op.session),
            op.n,
            name(op.key),
            _lasting(op.cost, op.rate),
            float(op.booking),
            float(op.rate),
        ),
        no_words,
    ),
    Arrive: Call(
        "arrive",
        lambda op: (name(op.session), name(op.key), name(op.participant), op.parties, op.on_departure),
        _arrival,
    ),
    Withdraw: Call("withdraw", lambda op: (name(op.key), name(op.participant)), _arrival),
    ResetBarrier: Call("reset_barrier", lambda op: (name(op.key),), no_words),
    Arrivals: Call("arrivals", lambda op: (name(op.key),), _gathering),
}
