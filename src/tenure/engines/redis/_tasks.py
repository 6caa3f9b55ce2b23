"""Tasks that are put and exchanged, many at a time, as flat lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Any, cast

import tenure.engine as e

from ._codec import Argument, microseconds, seconds, text

_SETTLEMENT = Struct(">QQqcI")
_LETTERS = {
    e.Verdict.DONE: b"o",
    e.Verdict.RETRY: b"r",
    e.Verdict.DEAD: b"d",
    e.Verdict.DISCARD: b"i",
    e.Verdict.GIVE_BACK: b"g",
    e.Verdict.POSTPONE: b"p",
    e.Verdict.CANCEL: b"c",
    e.Verdict.WAIT: b"w",
    e.Verdict.WAIT_FOR: b"f",
    e.Verdict.WAIT_FOR_END: b"e",
    e.Verdict.NOTE: b"n",
    e.Verdict.ALONE: b"a",
}
_DELAYED = (e.Verdict.RETRY, e.Verdict.POSTPONE, e.Verdict.WAIT_FOR)


def _or_nothing(duration: float | None) -> Argument:
    return "" if duration is None else microseconds(duration)


def move(op: e.Move) -> Iterable[Argument]:
    return (
        *("move", op.key, op.to, _or_nothing(op.ttl), _or_nothing(op.delay)),
        "" if op.payload is None else b"=" + op.payload,
        "" if op.priority is None else op.priority,
        "" if op.group is None else "=" + op.group,
        *(op.state, *op.ids),
    )


def configure(op: e.Configure) -> Iterator[Argument]:
    weights = next((e.read(name, value) for name, value in op.changes[::-1] if name == "weights"), ())
    yield from ("configure", op.key, op.by, int(op.missing), len(weights))
    for group, weight in weights:
        yield from (group, repr(weight))
    for change in op.changes:
        yield from change


def configured(raw: Sequence[Any]) -> e.Configured:
    fields = zip(*[iter(raw[1])] * 4, strict=True)
    return e.Configured(
        tuple(
            sorted(
                (
                    e.Setting(text(it), value.decode(), seconds(age), text(by))
                    for it, value, age, by in fields
                ),
                key=lambda setting: setting.name,
            )
        ),
        int(raw[2]),
    )


def put(op: e.Put) -> Iterator[Argument]:
    yield from (op.session, op.n, op.key, len(op.requests))
    for request in op.requests:
        yield from (request.producer, int(request.wait), *(request.cursor or ("", "")))
        yield b"" if request.expected is None or request.cursor is None else b"=" + request.expected
        yield from (_groups(request.tasks), len(request.tasks))
        for task in request.tasks:
            looks = task.expires is not None or task.deadline is not None
            if task.priority or task.delay or task.key is not None or looks or task.meta:
                yield from (task.payload, "+", task.priority, microseconds(task.delay), _about_key(task))
                yield from (task.key or "", _when_looked_at(task) if looks else "", task.meta, task.group)
            else:
                yield from (task.payload, task.group and "=" + task.group)


def _about_key(task: e.NewTask) -> Argument:
    if task.key is None:
        return 0
    if task.on_duplicate == "refuse" and task.key_ttl is task.max_wait is None:
        return 1
    return f"{task.on_duplicate} {_or_nothing(task.key_ttl)} {_or_nothing(task.max_wait)}"


def _when_looked_at(task: e.NewTask) -> Argument:
    deadline = task.deadline
    if deadline is None:
        return _or_nothing(task.expires)
    first = deadline if task.expires is None else min(task.expires, deadline)
    return f"{microseconds(first)} {microseconds(deadline)}"


def _groups(tasks: Sequence[e.NewTask]) -> str:
    groups = {task.group for task in tasks}
    if len(groups) > 1:
        return "+"
    group = "".join(groups)
    return group and "=" + group


def put_children(op: e.PutChildren) -> Iterator[Argument]:
    yield from ("put_children", op.key, op.id, op.token, op.to, op.most, op.held, int(op.together))
    for name, task in zip(op.names, op.tasks, strict=True):
        yield from (name, task.payload, task.priority, microseconds(task.delay), task.meta, task.group)
        yield _or_nothing(task.deadline)


def put_answer(raw: Sequence[Any]) -> e.PutAnswer:
    answers: list[e.Accepted | e.Conflict | e.Queued | e.Reply] = []
    rest = iter(raw[2:])
    for answer in rest:
        match answer:
            case int(count):
                ids = islice(rest, count)
                answers.append(
                    e.Accepted(tuple(item if isinstance(item, int) else e.Duplicate(*item) for item in ids))
                )
            case [value]:
                answers.append(e.Conflict(value))
            case [place, ask_again_in]:
                answers.append(e.Queued(place, seconds(ask_again_in)))
            case _:
                answers.append(e.Reply(answer.decode()))
    return e.PutAnswer(tuple(answers), int(raw[1]))


def exchange(op: e.Exchange) -> Iterator[Argument]:
    yield from (op.session, op.n, op.key, op.want, int(op.wait))
    for each in op.settle:
        time = each.delay if each.verdict in _DELAYED else each.ttl
        left = -1 if time is None else microseconds(time)
        letter, failure = _LETTERS[each.verdict], each.failure
        yield _SETTLEMENT.pack(each.id, each.token, left, letter, len(failure)) + failure + each.result


def _more(more: Any, now: int) -> tuple[bytes, bytes, bytes, str, int, float | None]:
    if not isinstance(more, list):
        return b"", b"", b"", text(more), 0, None
    progress, failure, meta, group, entries, deadline = cast("list[Any]", more)
    left = max(0, int(deadline) - now) / 1e6 if deadline else None
    return progress, failure, meta, text(group), int(entries), left


def exchanged(raw: Sequence[Any]) -> e.Exchanged:
    _, tasks, refused, stop, paused, ask_again_in, now, revision = raw
    now = int(now)
    return e.Exchanged(
        tuple(
            e.Taken(
                *(int(task, 16), int(token), payload, int(priority), int(attempts), int(deliveries)),
                max(0, now - int(since)) / 1e6,
                *_more(more, now),
            )
            for task, token, payload, priority, attempts, deliveries, since, more in zip(
                *[iter(tasks)] * 8, strict=True
            )
        ),
        tuple(refused),
        tuple(stop),
        bool(paused),
        seconds(ask_again_in),
        int(revision),
    )
