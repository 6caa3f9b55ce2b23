"""The codecs of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import tenure.engine as e

from ._codec import Codecs, PostgresCodec, Row, answer_of, decoded
from ._values import Argument, Blobs, Columns, Floats, Ints, Texts, Value, microseconds, name, seconds, text

_NEVER = -1


def _or_null(word: str | None) -> bytes | None:
    return None if word is None else name(word)


def _unless_empty(values: Sequence[bytes]) -> Blobs | None:
    return Blobs(value or None for value in values) if any(values) else None


def _unless_never(values: Sequence[float | None]) -> Ints | None:
    return Ints([microseconds(each, _NEVER) for each in values]) if values.count(None) < len(values) else None


def _put(op: e.Put) -> tuple[Argument, ...]:
    requests = op.requests
    cursors = [request.cursor or (None, None) for request in requests]
    tasks = [task for request in requests for task in request.tasks]
    expected = [None if request.cursor is None else request.expected for request in requests]
    return (
        name(op.session),
        op.n,
        name(op.key),
        Columns(
            "put_requests",
            (
                Blobs(name(request.producer) for request in requests),
                Ints(int(request.wait) for request in requests),
                Blobs(_or_null(cursor) for cursor, _ in cursors),
                Blobs(value for _, value in cursors),
                Ints(len(request.tasks) for request in requests),
                Blobs(expected) if any(value is not None for value in expected) else None,
            ),
        ),
        new_tasks(tasks),
    )


def new_tasks(tasks: Sequence[e.NewTask]) -> Columns:
    keyed = any(task.key is not None for task in tasks)
    delays = [task.delay for task in tasks]
    groups = [task.group for task in tasks]
    return Columns(
        "new_tasks",
        (
            Blobs([task.payload for task in tasks]),
            Ints([task.priority for task in tasks]),
            Ints(map(microseconds, delays)) if any(delays) else None,
            Blobs([_or_null(task.key) for task in tasks]) if keyed else None,
            _unless_never([task.expires for task in tasks]),
            _unless_empty([task.meta for task in tasks]),
            Blobs(map(name, groups)) if any(groups) else None,
            Texts(map(about_key, tasks)) if keyed and any(map(_does_more, tasks)) else None,
            _unless_never([task.deadline for task in tasks]),
        ),
    )


def _does_more(task: e.NewTask) -> bool:
    return task.key is not None and (task.on_duplicate, task.key_ttl, task.max_wait) != ("refuse", None, None)


def about_key(task: e.NewTask) -> str:
    return f"{task.on_duplicate} {_at_least_none(task.key_ttl)} {_at_least_none(task.max_wait)}"


def _at_least_none(duration: float | None) -> int:
    return _NEVER if duration is None else max(0, microseconds(duration))


def _put_answer(row: Row) -> e.Accepted | e.Conflict | e.Queued | e.Reply:
    if row.word == "accepted":
        return e.Accepted(tuple(e.Duplicate(-number) if number < 0 else number for number in row.n))
    return e.Conflict(row.b[0]) if row.word == "conflict" else answer_of(row)


def _exchange(op: e.Exchange) -> tuple[Argument, ...]:
    settle = op.settle
    return (
        name(op.session),
        op.n,
        name(op.key),
        Columns(
            "settlements",
            (
                Ints([each.id for each in settle]),
                Ints([each.token for each in settle]),
                Texts([each.verdict.value for each in settle]),
                Blobs([each.result for each in settle]),
                Ints([microseconds(each.delay) for each in settle]),
                Ints([microseconds(each.ttl, _NEVER) for each in settle]),
                _unless_empty([each.failure for each in settle]),
            ),
        ),
        op.want,
        op.wait,
    )


def _taken(row: Row) -> e.Taken:
    task, token, priority, attempts, deliveries, waited, *more = row.n
    progress, payload, failure, meta, group = row.b
    return e.Taken(
        task,
        token,
        payload,
        priority,
        attempts,
        deliveries,
        seconds(waited),
        progress,
        failure or b"",
        meta or b"",
        text(group),
        *more[:1],
        *map(seconds, more[1:]),
    )


def _exchanged(rows: Sequence[Row]) -> e.Exchanged:
    (_, (paused, ask_again_in, revision), _), (_, refused, _), (_, stop, _), *tasks = rows
    return e.Exchanged(
        tuple(map(_taken, tasks)), tuple(refused), tuple(stop), bool(paused), seconds(ask_again_in), revision
    )


def _move(op: e.Move) -> tuple[Value, ...]:
    return (
        name(op.key),
        op.to,
        Ints(op.ids),
        microseconds(op.ttl, None),
        microseconds(op.delay, None),
        op.payload,
        op.priority,
        None if op.group is None else name(op.group),
        op.state,
    )


def _configure(op: e.Configure) -> tuple[Value, ...]:
    changes, costs = dict(op.changes), None
    if "weights" in changes:
        # beyond these a sum would be refused
        costs = {group: min(1 / weight, 1e300) for group, weight in e.read("weights", changes["weights"])}
    return (
        name(op.key),
        name(op.by),
        Texts(changes),
        Texts(changes.values()),
        op.missing,
        None if costs is None else Blobs(map(name, costs)),
        None if costs is None else Floats(costs.values()),
    )


def _configured(rows: Sequence[Row]) -> e.Configured:
    fields = [(text(it), value.decode(), seconds(n[0]), text(by)) for _, n, (it, value, by) in rows[1:]]
    return e.Configured(tuple(e.Setting(*field) for field in fields), rows[0].n[0])


def _counts(rows: Sequence[Row]) -> e.QueueCounts:
    cursors = tuple((text(cursor), value) for _, _, (cursor, value) in rows[1:])
    return decoded(e.QueueCounts, rows[0], cursors=cursors)


TASKS: Codecs = {
    e.Put: PostgresCodec(
        "put_tasks", _put, lambda rows: e.PutAnswer(tuple(map(_put_answer, rows[1:])), rows[0].n[0])
    ),
    e.Leave: PostgresCodec("leave"),
    e.Exchange: PostgresCodec("exchange", _exchange, _exchanged),
    e.Progress: PostgresCodec("progress"),
    e.GetResult: PostgresCodec("get_result"),
    e.Move: PostgresCodec("move", _move),
    e.SetPaused: PostgresCodec("set_paused"),
    e.Configure: PostgresCodec("configure", _configure, _configured),
    e.Count: PostgresCodec("count", answer=_counts),
}
