"""Counters and barriers, as calls of scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tenure.engine import (
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

from ._calls import Argument, Call, Calls, no_words, seconds


def _spend(op: Spend) -> Iterator[Argument]:
    yield from ("spend", op.session, op.n, op.key, op.rate, op.burst)
    for cost, max_wait in op.requests:
        yield cost
        yield "" if max_wait is None else max_wait


def _spent(raw: Sequence[Any]) -> Spent:
    return Spent(
        tuple(Spending(bool(booked), float(delay), float(booking)) for booked, delay, booking in raw[1:])
    )


def _arrival(raw: Sequence[Any]) -> ArrivalAnswer:
    match raw:
        case [b"waiting", generation, ask_again_in]:
            return Waiting(generation, seconds(ask_again_in))
        case [b"tripped", generation, place]:
            return Tripped(generation, place)
        case [b"broken", generation]:
            return Broken(generation)
        case [b"mismatch", stored]:
            return Mismatch(stored)
        case _:
            raise AssertionError(f"not an answer: {raw!r}")


def _gathering(raw: Sequence[Any]) -> Gathering:
    _, parties, generation, waiting, broken = raw
    return Gathering(parties, generation, waiting, bool(broken))


COUNTERS: Calls = {
    Spend: Call("rates", _spend, _spent),
    Refund: Call(
        "rates",
        lambda op: ("refund", op.session, op.n, op.key, op.cost, op.booking, op.rate),
        no_words,
    ),
    Arrive: Call(
        "barriers",
        lambda op: ("arrive", op.key, op.session, op.participant, op.parties, op.on_departure),
        _arrival,
    ),
    Withdraw: Call("barriers", lambda op: ("withdraw", op.key, op.participant), _arrival),
    ResetBarrier: Call("barriers", lambda op: ("reset", op.key), no_words),
    Arrivals: Call("barriers", lambda op: ("arrivals", op.key), _gathering),
}
