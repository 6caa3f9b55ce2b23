"""The arguments and answers of spendings and refunds."""

from __future__ import annotations

from typing import Any

from tenure.engine import Booking, RateLimit, Refund, Spend, Spending, SpendResults

from ._codec import Argument, microseconds


def spend(op: Spend) -> list[Argument]:
    """The arguments of `Spend`: of each request the longest wait, and the cost in each limit."""
    arguments: list[Argument] = ["spend", op.key, op.session, op.n, *_limits(op.limits)]
    for costs, max_wait in op.requests:
        arguments += ("" if max_wait is None else microseconds(max_wait), *[cost or 0 for cost in costs])
    return arguments


def spent(raw: list[Any]) -> SpendResults:
    """The answer to `Spend`."""
    held = raw[1] / 1e9
    return SpendResults(tuple([_spending(held, result) for result in raw[2:]]))


def _spending(held: float, raw: list[int]) -> Spending:
    bookings = tuple([Booking(raw[i] / 1e9, raw[i + 1] / 1e9) for i in range(1, len(raw), 2)])
    return Spending(bool(bookings), raw[0] / 1e9, held, bookings)


def refund(op: Refund) -> list[Argument]:
    """The arguments of `Refund`: of each request the booking and the amount in each limit."""
    arguments: list[Argument] = ["refund", op.key, op.session, op.n, *_limits(op.limits)]
    for bookings, amounts in op.requests:
        for (end, size), amount in zip(bookings, amounts or [""] * len(bookings), strict=True):
            arguments += (end * 1e6, size, amount)
    return arguments


def _limits(limits: tuple[RateLimit, ...]) -> list[Argument]:
    return [len(limits), *(field for limit in limits for field in limit)]
