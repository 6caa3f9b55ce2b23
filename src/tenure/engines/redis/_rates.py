"""The arguments of spendings and refunds: limits, and what there is of each limit."""

from __future__ import annotations

from tenure.engine import RateLimit, Refund, Spend

from ._codec import Argument, microseconds


def spend(op: Spend) -> list[Argument]:
    """The arguments of `Spend`: of each request the longest wait, and the cost in each limit."""
    arguments: list[Argument] = ["spend", op.key, op.session, op.n, *_limits(op.limits)]
    for costs, max_wait in op.requests:
        arguments += ("" if max_wait is None else microseconds(max_wait), *costs)
    return arguments


def refund(op: Refund) -> list[Argument]:
    """The arguments of `Refund`: of each limit the booking, and then the amounts."""
    bookings = [number for booking in op.bookings for number in booking]
    return ["refund", op.key, op.session, op.n, *_limits(op.limits), *bookings, *op.amounts]


def _limits(limits: tuple[RateLimit, ...]) -> list[Argument]:
    return [len(limits), *(field for limit in limits for field in limit)]
