"""Operations in the user's transaction: one function call each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import tenure.engine as e

from ._tasks import about_key
from ._values import microseconds, name

_COMPLETE = (
    "SELECT word, n FROM {schema}.complete(CAST(:clock AS bigint), CAST(:session AS bytea), CAST(:queue AS bytea), "
    "CAST(:id AS bigint), CAST(:token AS bigint), CAST(:verdict AS text), CAST(:result AS bytea), "
    "CAST(:delay AS bigint), CAST(:ttl AS bigint), CAST(:failure AS bytea))"
)
_COMPLETE_ALL = (
    "SELECT word, n FROM {schema}.complete_all(CAST(:clock AS bigint), CAST(:session AS bytea), "
    "CAST(:queue AS bytea), CAST(:ids AS bigint[]), CAST(:tokens AS bigint[]), CAST(:results AS bytea[]), "
    "CAST(:ttl AS bigint))"
)
_PUT = (
    "SELECT word, n FROM {schema}.put_one(CAST(:clock AS bigint), CAST(:queue AS bytea), "
    "CAST(:payload AS bytea), CAST(:priority AS bigint), CAST(:delay AS bigint), CAST(:key AS bytea), "
    "CAST(:expires AS bigint), CAST(:meta AS bytea), "
    "CAST(:group AS bytea), CAST(:about AS text), CAST(:deadline AS bigint))"
)


def enlistment(
    schema: str, clock: Callable[[], float] | None, operation: e.Enlisted[e.A]
) -> e.Enlistment[e.A]:
    call, values = _CALLS[type(operation)](e.clamp_durations(operation))
    now = None if clock is None else round(clock() * 1e6)
    return cast(
        "e.Enlistment[e.A]", e.Enlistment(_answer, call.format(schema=schema), {"clock": now, **values})
    )


def _complete(op: e.Complete) -> tuple[str, dict[str, Any]]:
    settle = op.settle
    return _COMPLETE, {
        "session": name(op.session),
        "queue": name(op.key),
        "id": settle.id,
        "token": settle.token,
        "verdict": settle.verdict.value,
        "result": settle.result,
        "delay": microseconds(settle.delay),
        "ttl": None if settle.ttl is None else microseconds(settle.ttl),
        "failure": settle.failure or None,
    }


def _complete_all(op: e.CompleteAll) -> tuple[str, dict[str, Any]]:
    ttl = op.settle[0].ttl
    return _COMPLETE_ALL, {
        "session": name(op.session),
        "queue": name(op.key),
        "ids": [settle.id for settle in op.settle],
        "tokens": [settle.token for settle in op.settle],
        "results": [settle.result for settle in op.settle],
        "ttl": -1 if ttl is None else microseconds(ttl),
    }


def _put(op: e.PutOne) -> tuple[str, dict[str, Any]]:
    task = op.task
    return _PUT, {
        "queue": name(op.key),
        "payload": task.payload,
        "priority": task.priority,
        "delay": microseconds(task.delay),
        "key": None if task.key is None else name(task.key),
        "expires": -1 if task.expires is None else microseconds(task.expires),
        "meta": task.meta or None,
        "group": name(task.group),
        "about": about_key(task),
        "deadline": -1 if task.deadline is None else microseconds(task.deadline),
    }


_CALLS: dict[type[e.Enlisted[Any]], Callable[[Any], tuple[str, dict[str, Any]]]] = {
    e.Complete: _complete,
    e.CompleteAll: _complete_all,
    e.PutOne: _put,
}


def _answer(_: object, rows: list[Any]) -> int | e.Duplicate | tuple[int, ...] | e.Reply:
    word, n = rows[0]
    if word == "completed":
        return tuple(n)
    if word != "accepted":
        return e.Reply(word)
    return n[0] if n[0] > 0 else e.Duplicate(-n[0])
