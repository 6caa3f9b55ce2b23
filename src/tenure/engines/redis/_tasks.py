"""Tasks that are put and exchanged, many at a time, as flat lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Any

from tenure.engine import (
    Accepted,
    Duplicate,
    Exchange,
    Exchanged,
    Move,
    Put,
    PutAnswer,
    Queued,
    Reply,
    Taken,
    Verdict,
)

from ._codec import Argument, microseconds, seconds

_SETTLEMENT = Struct(">QQqcI")
_LETTERS = {
    Verdict.DONE: b"o",
    Verdict.RETRY: b"r",
    Verdict.DEAD: b"d",
    Verdict.DISCARD: b"i",
    Verdict.GIVE_BACK: b"g",
    Verdict.POSTPONE: b"p",
    Verdict.CANCEL: b"c",
}
_NO_MORE = (b"", b"", b"")  # progress, failure and meta


def _or_nothing(duration: float | None) -> Argument:
    return "" if duration is None else microseconds(duration)


def move(op: Move) -> Iterable[Argument]:
    """The arguments of the operation in `records.lua`."""
    return ("move", op.key, op.to, op.after, _or_nothing(op.ttl), microseconds(op.delay), *op.ids, *op.states)


def put(op: Put) -> Iterator[Argument]:
    """The arguments of `put.lua`."""
    yield from (op.session, op.n, op.key, len(op.requests), op.max_size)
    for request in op.requests:
        yield from (request.producer, int(request.wait), *(request.cursor or ("", "")), len(request.tasks))
        for payload, priority, delay, key, expires, meta in request.tasks:
            if priority or delay or key is not None or expires is not None or meta:
                yield from (payload, "+", priority, microseconds(delay))
                yield from (int(key is not None), key or "", _or_nothing(expires), meta)
            else:
                yield from (payload, "")


def put_answer(raw: Sequence[Any]) -> PutAnswer:
    """What `put.lua` returns."""
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


def exchange(op: Exchange) -> Iterator[Argument]:
    """The arguments of `exchange.lua`."""
    yield from (op.session, op.n, op.key, op.want, int(op.wait), _or_nothing(op.aging))
    yield from (op.max_deliveries, _or_nothing(op.dead_ttl), int(op.keep))
    for task, token, verdict, result, delay, ttl, failure in op.settle:
        time = delay if verdict in (Verdict.RETRY, Verdict.POSTPONE) else ttl
        left = -1 if time is None else microseconds(time)
        yield _SETTLEMENT.pack(task, token, left, _LETTERS[verdict], len(failure)) + failure + result


def exchanged(raw: Sequence[Any]) -> Exchanged:
    """What `exchange.lua` returns."""
    _, tasks, refused, stop, paused, ask_again_in, now = raw
    now = int(now)
    return Exchanged(
        tuple(
            Taken(
                *(int(task), int(token), payload, int(priority), int(attempts), int(deliveries)),
                max(0, now - int(since)) / 1e6,
                *(more or _NO_MORE),
            )
            for task, token, payload, priority, attempts, deliveries, since, more in zip(
                *[iter(tasks)] * 8, strict=True
            )
        ),
        tuple(refused),
        tuple(stop),
        bool(paused),
        seconds(ask_again_in),
    )
