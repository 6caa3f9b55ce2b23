"""Limits of durations: a long duration is clamped, a duration that is not a number is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isfinite, isnan
from operator import is_
from typing import Any, TypeVar, get_args

from tenure.arguments import LONGEST
from tenure.errors import EngineError

from ._claims import Claim, EditClaim
from ._counters import HoldOff, RateLimit, Refund, RefundRequest, Spend, SpendRequest
from ._enlisting import Complete, CompleteAll, PutOne
from ._families import PutChildren
from ._sessions import OpenSession, RenewSession
from ._settings import Configure, read
from ._tasks import Exchange, Move, NewTask, OnDuplicate, Put, PutRequest, SetPaused, Settle

T = TypeVar("T")


def clamp_durations(operation: T) -> T:
    """The operation with no duration longer than `LONGEST`. Raises `EngineError` for a duration of NaN."""
    bound = _BOUNDS.get(type(operation))
    return operation if bound is None else bound(operation)


def _seconds(operation: object, value: float) -> float:
    if -LONGEST <= value <= LONGEST:
        return value
    if isnan(value):
        raise EngineError(f"{type(operation).__name__} has a duration that is not a number")
    return LONGEST if value > 0 else -LONGEST


def _fields(*names: str) -> Callable[[Any], Any]:
    def bound(value: Any) -> Any:
        changed: dict[str, float] = {}
        for name in names:
            seconds = getattr(value, name)
            if seconds is not None and not -LONGEST <= seconds <= LONGEST:
                changed[name] = _seconds(value, seconds)
        return replace(value, **changed) if changed else value

    return bound


_ON_DUPLICATE = get_args(OnDuplicate)
_any_task: Callable[[NewTask], NewTask] = _fields("delay", "expires", "key_ttl", "max_wait", "deadline")
_settle: Callable[[Settle], Settle] = _fields("delay", "ttl")
_spending: Callable[[SpendRequest], SpendRequest] = _fields("max_wait")
_horizon: Callable[[Spend], Spend] = _fields("horizon")


def _each(bound: Callable[[T], T], values: tuple[T, ...]) -> tuple[T, ...]:
    bounded = tuple(map(bound, values))
    return values if all(map(is_, bounded, values)) else bounded


def _task(task: NewTask) -> NewTask:
    if task.key is task.expires is task.deadline is None and 0 <= task.delay <= LONGEST:
        return task
    if task.on_duplicate not in _ON_DUPLICATE:
        raise EngineError(f"NewTask has {task.on_duplicate!r} as its on_duplicate")
    return _any_task(task)


def _request(request: PutRequest) -> PutRequest:
    tasks = _each(_task, request.tasks)
    return request if tasks is request.tasks else replace(request, tasks=tasks)


def _put(operation: Put) -> Put:
    requests = _each(_request, operation.requests)
    return operation if requests is operation.requests else replace(operation, requests=requests)


def _put_children(operation: PutChildren) -> PutChildren:
    tasks = _each(_task, operation.tasks)
    return operation if tasks is operation.tasks else replace(operation, tasks=tasks)


def _exchange(operation: Exchange) -> Exchange:
    settle = _each(_settle, operation.settle)
    return operation if settle is operation.settle else replace(operation, settle=settle)


def _spend(operation: Spend) -> Spend:
    operation = _horizon(operation)
    limits = _limits(operation, operation.limits)
    last: SpendRequest | None = None
    within: SpendRequest | None = None

    def bound(request: SpendRequest) -> SpendRequest:
        nonlocal last, within
        if within is None or request is not last:  # most are alike
            costs = _amounts(operation, request.costs, limits)
            last, within = (
                request,
                _spending(request if costs is request.costs else replace(request, costs=costs)),
            )
        return within

    requests = _each(bound, operation.requests)
    if requests is operation.requests and limits is operation.limits:
        return operation
    return replace(operation, requests=requests, limits=limits)


def _refund(operation: Refund) -> Refund:
    limits = _limits(operation, operation.limits)

    def bound(request: RefundRequest) -> RefundRequest:
        if len(request.bookings) != len(limits):
            raise EngineError("Refund has not one booking for each limit")
        for booking in request.bookings:
            if not (isfinite(booking.end) and isfinite(booking.size)):
                raise EngineError("Refund has a booking that is not a number")
        amounts = request.amounts and _amounts(operation, request.amounts, limits)
        return request if amounts is request.amounts else replace(request, amounts=amounts)

    requests = _each(bound, operation.requests)
    if requests is operation.requests and limits is operation.limits:
        return operation
    return replace(operation, requests=requests, limits=limits)


def _limits(operation: object, limits: tuple[RateLimit, ...]) -> tuple[RateLimit, ...]:
    """The limits with no burst that lasts for longer than `LONGEST`."""
    long = False
    for limit in limits:
        if not 0 < limit.rate < inf or isnan(limit.burst):
            raise EngineError(f"{type(operation).__name__} has a limit that is not a number above zero")
        long = long or limit.burst > limit.rate * LONGEST
    if not long:
        return limits
    return tuple(replace(limit, burst=min(limit.burst, limit.rate * LONGEST)) for limit in limits)


def _amounts(
    operation: object, amounts: tuple[float, ...], limits: tuple[RateLimit, ...]
) -> tuple[float, ...]:
    """The amounts, of which none lasts for longer than `LONGEST`."""
    if len(amounts) != len(limits):
        raise EngineError(f"{type(operation).__name__} has not one amount for each limit")
    for amount, limit in zip(amounts, limits, strict=True):
        if not -LONGEST <= amount / limit.rate <= LONGEST:
            return tuple(
                _seconds(operation, amount / limit.rate) * limit.rate
                for amount, limit in zip(amounts, limits, strict=True)
            )
    return amounts


def _configure(operation: Configure) -> Configure:
    for name, text in operation.changes:
        read(name, text)
    return operation


def _complete(operation: Complete) -> Complete:
    settle = _settle(operation.settle)
    return operation if settle is operation.settle else replace(operation, settle=settle)


def _complete_all(operation: CompleteAll) -> CompleteAll:
    return replace(operation, settle=tuple(map(_settle, operation.settle)))


def _put_one(operation: PutOne) -> PutOne:
    task = _task(operation.task)
    return operation if task is operation.task else replace(operation, task=task)


CHECKS: Mapping[type, Callable[[Any], Any]] = {
    Put: _put,
    PutOne: _put_one,
    PutChildren: _put_children,
    Spend: _spend,
    Refund: _refund,
    Configure: _configure,
}
"""The checks of operations, by class, for an engine that bounds durations where it makes microseconds of them.

Only the other limits are checked here. Raises `EngineError` as `clamp_durations` does.
"""
_BOUNDS: Mapping[type, Callable[[Any], Any]] = {
    **CHECKS,
    OpenSession: _fields("ttl"),
    RenewSession: _fields("rest"),
    Claim: _fields("quarantine"),
    EditClaim: _fields("cool_down"),
    Move: _fields("ttl", "delay"),
    Exchange: _exchange,
    HoldOff: _fields("seconds"),
    SetPaused: _fields("seconds"),
    Complete: _complete,
    CompleteAll: _complete_all,
}
