"""Tasks, as calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.engine import (
    CAP,
    Accepted,
    Browse,
    CancelTask,
    Changed,
    Count,
    Duplicate,
    Exchange,
    Exchanged,
    GetResult,
    Leave,
    Outcome,
    Page,
    Progress,
    Purge,
    Put,
    PutAnswer,
    QueueCounts,
    Queued,
    Record,
    Reply,
    Requeue,
    SetPaused,
    Taken,
    Unfinished,
)
from tenure.errors import EngineError

from ._binary import Blobs, Ints, Texts, Value
from ._calls import Call, Calls, Row, microseconds, name, no_words, seconds, text

_NEVER = -1


def _or_nothing(duration: float | None) -> int | None:
    return None if duration is None else microseconds(duration)


def _or_never(duration: float | None) -> int:
    return _NEVER if duration is None else microseconds(duration)


def _or_null(word: str | None) -> bytes | None:
    return None if word is None else name(word)


def _put(op: Put) -> tuple[Value, ...]:
    requests = op.requests
    cursors = [request.cursor or (None, None) for request in requests]
    tasks = [task for request in requests for task in request.tasks]
    keyed = any(task.key is not None for task in tasks)
    return (
        name(op.session),
        op.n,
        name(op.queue),
        op.max_size,
        Blobs(name(request.producer) for request in requests),
        Ints(int(request.wait) for request in requests),
        Blobs(_or_null(cursor) for cursor, _ in cursors),
        Blobs(value for _, value in cursors),
        Ints(len(request.tasks) for request in requests),
        Blobs([task.payload for task in tasks]),
        Ints([task.priority for task in tasks]),
        Ints([microseconds(task.delay) for task in tasks]),
        Blobs([_or_null(task.key) for task in tasks]) if keyed else None,
        Ints([_or_never(task.expires) for task in tasks]),
    )


def _put_answer(row: Row) -> Accepted | Queued | Reply:
    match row.word, row.n:
        case "accepted", ids:
            return Accepted(tuple(Duplicate(-number) if number < 0 else number for number in ids))
        case "queued", [place, ask_again_in]:
            return Queued(place, seconds(ask_again_in))
        case word, _:
            return Reply(word)


def _exchange(op: Exchange) -> tuple[Value, ...]:
    settle = op.settle
    return (
        name(op.session),
        op.n,
        name(op.queue),
        Ints([one.id for one in settle]),
        Ints([one.token for one in settle]),
        Texts([one.verdict.value for one in settle]),
        Blobs([one.result for one in settle]),
        Ints([microseconds(one.delay) for one in settle]),
        Ints([_or_never(one.ttl) for one in settle]),
        op.want,
        op.wait,
        _or_nothing(op.aging),
        op.max_deliveries,
        op.keep,
    )


def _taken(row: Row) -> Taken:
    task, token, priority, attempts, deliveries, waited = row.n
    progress, payload = row.b
    return Taken(task, token, payload, priority, attempts, deliveries, seconds(waited), progress)


def _exchanged(rows: Sequence[Row]) -> Exchanged:
    (_, (paused, ask_again_in), _), (_, refused, _), (_, stop, _), *tasks = rows
    return Exchanged(
        tuple(map(_taken, tasks)), tuple(refused), tuple(stop), bool(paused), seconds(ask_again_in)
    )


def _result(rows: Sequence[Row]) -> Outcome | Unfinished:
    match rows[0]:
        case "outcome", [attempts], [state, result]:
            return Outcome(text(state), result, attempts)
        case _, [ask_again_in], [state, progress]:
            return Unfinished(text(state), progress, seconds(ask_again_in))
        case row:
            raise AssertionError(f"not an answer: {row!r}")


def _changed(rows: Sequence[Row]) -> Changed:
    count, more, after = rows[0].n
    return Changed(count, bool(more), after)


_PARTS = {"waiting": 3, "delayed": 2, "leased": 1, "dead": 1, "ended": 1}
"""Of how many numbers a place in a listing is made."""


def _place(op: Browse) -> list[int]:
    try:
        place = list(map(int, op.after.split()))
    except ValueError:
        place = [0, 0, 0, 0]
    if place and len(place) != _PARTS[op.state]:
        raise EngineError(f"no page of {op.state} tasks ended at {op.after!r}")
    return place


def _record(row: Row) -> Record:
    seq, task, priority, attempts, deliveries, age = row.n
    state, payload, key, result = row.b
    return Record(
        seq,
        task,
        text(state),
        payload,
        priority,
        None if key is None else text(key),
        attempts,
        deliveries,
        result,
        seconds(age),
    )


def _counts(rows: Sequence[Row]) -> QueueCounts:
    *numbers, paused, oldest, ask_again_in = rows[0].n
    cursors: list[Any] = [(text(cursor), value) for _, _, (cursor, value) in rows[1:]]
    return QueueCounts(
        *numbers,
        paused=bool(paused),
        oldest=seconds(oldest),
        cursors=tuple(cursors),
        ask_again_in=seconds(ask_again_in),
    )


TASKS: Calls = {
    Put: Call("put", _put, lambda rows: PutAnswer(tuple(map(_put_answer, rows[1:])))),
    Leave: Call("leave", lambda op: (name(op.queue), name(op.producer)), no_words),
    Exchange: Call("exchange", _exchange, _exchanged),
    Progress: Call("progress", lambda op: (name(op.queue), op.id, op.token, op.data), no_words),
    GetResult: Call("result", lambda op: (name(op.queue), op.id, name(op.watch)), _result),
    CancelTask: Call("cancel", lambda op: (name(op.queue), op.id, _or_nothing(op.ttl)), no_words),
    Requeue: Call(
        "requeue",
        lambda op: (name(op.queue), None if op.ids is None else Ints(op.ids), op.after),
        _changed,
    ),
    Purge: Call("purge", lambda op: (name(op.queue), Texts(op.in_order)), _changed),
    Browse: Call(
        "browse",
        lambda op: (name(op.queue), op.state, Ints(_place(op)), min(op.limit, CAP)),
        lambda rows: Page(tuple(map(_record, rows[1:])), " ".join(map(str, rows[0].n or ()))),
    ),
    SetPaused: Call("set_paused", lambda op: (name(op.queue), op.paused), no_words),
    Count: Call("count_tasks", lambda op: (name(op.queue), name(op.watch), op.recount), _counts),
}
