"""Tasks, as calls of scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Any

from tenure.engine import (
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
    Verdict,
)

from ._calls import Argument, Call, Calls, microseconds, no_words, seconds, text

_SETTLEMENT = Struct(">QQqc")
_LETTERS = {
    Verdict.DONE: b"o",
    Verdict.RETRY: b"r",
    Verdict.DEAD: b"d",
    Verdict.DISCARD: b"i",
    Verdict.GIVE_BACK: b"g",
    Verdict.POSTPONE: b"p",
    Verdict.CANCEL: b"c",
}


def _or_nothing(duration: float | None) -> Argument:
    return "" if duration is None else microseconds(duration)


def _digits(task: int) -> str:
    return f"{task:012}"


def _put(op: Put) -> Iterator[Argument]:
    yield from (op.session, op.n, op.queue, len(op.requests), op.max_size)
    for request in op.requests:
        yield from (request.producer, int(request.wait), *(request.cursor or ("", "")), len(request.tasks))
        for payload, priority, delay, key, expires in request.tasks:
            if priority or delay or key is not None or expires is not None:
                yield from (payload, "+", priority, microseconds(delay))
                yield from (int(key is not None), key or "", _or_nothing(expires))
            else:
                yield from (payload, "")


def _put_answer(raw: Sequence[Any]) -> PutAnswer:
    answers: list[Accepted | Queued | Reply] = []
    rest = iter(raw[1:])
    for answer in rest:
        match answer:
            case int(count):
                ids = islice(rest, count)
                answers.append(Accepted(tuple(it if isinstance(it, int) else Duplicate(*it) for it in ids)))
            case [place, ask_again_in]:
                answers.append(Queued(place, seconds(ask_again_in)))
            case _:
                answers.append(Reply(answer.decode()))
    return PutAnswer(tuple(answers))


def _exchange(op: Exchange) -> Iterator[Argument]:
    yield from (op.session, op.n, op.queue, op.want, int(op.wait), _or_nothing(op.aging))
    yield from (op.max_deliveries, int(op.keep))
    for task, token, verdict, result, delay, ttl in op.settle:
        time = delay if verdict in (Verdict.RETRY, Verdict.POSTPONE) else ttl
        left = -1 if time is None else microseconds(time)
        yield _SETTLEMENT.pack(task, token, left, _LETTERS[verdict]) + result


def _exchanged(raw: Sequence[Any]) -> Exchanged:
    _, tasks, refused, stop, paused, ask_again_in, now = raw
    now = int(now)
    return Exchanged(
        tuple(
            Taken(
                *(int(task), int(token), payload, int(priority), int(attempts), int(deliveries)),
                max(0, now - int(since)) / 1e6,
                progress,
            )
            for task, token, payload, priority, attempts, deliveries, since, progress in zip(
                *[iter(tasks)] * 8, strict=True
            )
        ),
        tuple(refused),
        tuple(stop),
        bool(paused),
        seconds(ask_again_in),
    )


def _result(raw: Sequence[Any]) -> Outcome | Unfinished:
    match raw:
        case [b"outcome", state, result, attempts]:
            return Outcome(text(state), result, attempts)
        case [b"unfinished", state, progress, ask_again_in]:
            return Unfinished(text(state), progress, seconds(ask_again_in))
        case _:
            raise AssertionError(f"not an answer: {raw!r}")


def _changed(raw: Sequence[Any]) -> Changed:
    _, count, more, after = raw
    return Changed(count, bool(more), after)


def _page(raw: Sequence[Any]) -> Page:
    return Page(
        tuple(
            Record(
                seq,
                task,
                text(state),
                payload,
                priority,
                text(key) if keyed else None,
                attempts,
                deliveries,
                result,
                seconds(age),
            )
            for seq, task, state, payload, priority, keyed, key, attempts, deliveries, result, age in raw[1]
        ),
        text(raw[2]),
    )


def _counts(raw: Sequence[Any]) -> QueueCounts:
    _, *numbers, paused, oldest, cursors, ask_again_in = raw
    return QueueCounts(
        *numbers,
        paused=bool(paused),
        oldest=seconds(oldest),
        cursors=tuple(sorted((text(name), value) for name, value in cursors)),
        ask_again_in=seconds(ask_again_in),
    )


TASKS: Calls = {
    Put: Call("put", _put, _put_answer),
    Leave: Call("records", lambda op: ("leave", op.queue, op.producer), no_words),
    Exchange: Call("exchange", _exchange, _exchanged),
    Progress: Call("records", lambda op: ("progress", op.queue, _digits(op.id), op.token, op.data), no_words),
    GetResult: Call("records", lambda op: ("result", op.queue, _digits(op.id), op.watch), _result),
    CancelTask: Call(
        "records", lambda op: ("cancel", op.queue, _digits(op.id), _or_nothing(op.ttl)), no_words
    ),
    Requeue: Call(
        "records",
        lambda op: (
            *("requeue", op.queue, op.after, int(op.ids is not None)),
            *map(_digits, op.ids or ()),
        ),
        _changed,
    ),
    Purge: Call(
        "records",
        lambda op: ("purge", op.queue, *op.in_order),
        _changed,
    ),
    Browse: Call("records", lambda op: ("browse", op.queue, op.state, op.after, op.limit), _page),
    SetPaused: Call("records", lambda op: ("set_paused", op.queue, int(op.paused)), no_words),
    Count: Call("records", lambda op: ("count", op.queue, op.watch, int(op.recount)), _counts),
}
