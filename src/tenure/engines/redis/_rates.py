"""The arguments and answers of spendings and refunds."""

from __future__ import annotations

from typing import Any

import tenure.engine as e

from ._codec import Argument, microseconds


def spend(op: e.Spend) -> list[Argument]:
    arguments: list[Argument] = ["spend", op.key, op.session, op.n, *_limits(op.limits), _wait(op.horizon)]
    last, part = None, []
    for request in op.requests:
        if request is not last:  # most are alike
            last, part = request, [_wait(request.max_wait), *[cost or 0 for cost in request.costs]]
        arguments += part
    return arguments


def _wait(seconds: float | None) -> Argument:
    return "" if seconds is None else microseconds(seconds)


def spent(raw: list[Any]) -> e.SpendResults:
    held = raw[1] / 1e9
    return e.SpendResults(tuple([_spending(held, result) for result in raw[2:]]))


def _spending(held: float, raw: list[int]) -> e.Spending:
    bookings = tuple([e.Booking(raw[i] / 1e9, raw[i + 1] / 1e9) for i in range(1, len(raw), 2)])
    return e.Spending(bool(bookings), raw[0] / 1e9, held, bookings)


def refund(op: e.Refund) -> list[Argument]:
    arguments: list[Argument] = ["refund", op.key, op.session, op.n, *_limits(op.limits)]
    for request in op.requests:
        amounts = request.amounts or [""] * len(request.bookings)
        for booking, amount in zip(request.bookings, amounts, strict=True):
            arguments += (booking.end * 1e6, booking.size, amount)
    return arguments


def _limits(limits: tuple[e.RateLimit, ...]) -> list[Argument]:
    return [len(limits), *(part for limit in limits for part in (limit.name, limit.rate, limit.burst))]
