"""`tenure schedule`: schedules listed, their next ticks, and a task put by hand."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tenure.engine import Count, QueueCounts
from tenure.observe import printable
from tenure.shared import Schedule, ScheduleRecord, WorkQueue, schedules_in
from tenure.store import Store, names
from tenure.web import read_queues

from ._answer import answer
from ._arguments import whole_number
from ._commands import Commands, run_one
from ._errors import UsageError
from ._one_queue import name_of, queue_to_fill
from ._payload import read_payload
from ._table import columns_of_terminal, spoken, table
from ._with_store import parser, with_store

T = TypeVar("T")

_MOST_TICKS = 1000
_LATE = 60.0
"""Seconds: any process that runs the schedule would have put it by then."""

HELP = """\
usage: tenure schedule ls | next | run-now ...

  ls [QUEUE]              the schedules of a queue, or of all, with their last and next ticks
  next QUEUE NAME [-n N]  the next ticks
  run-now QUEUE NAME [--payload JSON]
                          put a task now, beside those of the ticks, and print its id

See also `tenure schedule COMMAND --help`."""


def schedule(words: Sequence[str]) -> int:
    """Run `tenure schedule`. Raises `UsageError`, `TenureError`."""
    return run_one("schedule", _COMMANDS, HELP, words)


def _ls(words: Sequence[str]) -> int:
    p = parser(
        "schedule ls", "All schedules that have run, as the last process that ran them described them."
    )
    p.add_argument("queue", metavar="QUEUE", nargs="?", type=name_of, help="only those of this queue")
    args = p.parse_args(words)
    records = with_store(args, partial(_all, args.queue))
    if args.json:
        return answer({"schedules": [_described(queue, record) for queue, record in records]})
    rows = [
        (
            queue,
            record.name,
            _said(record),
            record.tz,
            _time(_of(record.last)),
            _time(_of(record.coming)[0]),
            f"late by {spoken(late)}" if (late := _of(record.late)) > _LATE else "",
        )
        for queue, record in records
    ]
    header = ("queue", "schedule", "ticks", "tz", "last", "next", "")
    nothing = printable(f"queue {args.queue} has no schedule") if args.queue else "there is no schedule"
    print(table(header, rows, nothing=nothing, columns=columns_of_terminal()))
    return 0


def _next(words: Sequence[str]) -> int:
    p = _of_one("schedule next", "The next ticks of a schedule, in its time zone.")
    ticks = partial(whole_number, least=1, most=_MOST_TICKS)
    p.add_argument("-n", metavar="N", type=ticks, default=1, help="how many (default: %(default)s)")
    args = p.parse_intermixed_args(words)
    record = with_store(args, partial(_known, args))
    coming = [_time(tick) for tick in _of(partial(record.coming, args.n))]
    if args.json:
        return answer({"queue": args.queue, "name": args.name, "next": coming})
    print("\n".join(coming))
    return 0


def _run_now(words: Sequence[str]) -> int:
    p = _of_one(
        "schedule run-now",
        "Put a task of a schedule now, beside those of its ticks, and print its id. The payload, priority, key and"
        " group are in the program that runs the schedule, and not in the store.",
    )
    p.add_argument(
        "--payload", metavar="JSON", default="null", help="a JSON value (default: null); - reads it"
    )
    args = p.parse_intermixed_args(words)
    payload = read_payload(args.payload)

    async def put(store: Store) -> int:
        record = await _known(args, store)
        queue = await queue_to_fill(store, args.queue)
        return await _of(
            lambda: Schedule(
                queue, record.name, every=record.every, cron=record.cron, tz=record.tz, payload=payload
            )
        ).run_now()

    task_id = _of(lambda: with_store(args, put))
    if args.json:
        return answer({"queue": args.queue, "name": args.name, "id": task_id})
    print(task_id)
    return 0


def _of_one(prog: str, description: str) -> argparse.ArgumentParser:
    p = parser(prog, description)
    p.add_argument("queue", metavar="QUEUE", type=name_of, help="the queue into which it puts tasks")
    p.add_argument("name", metavar="NAME", type=name_of, help="the schedule")
    return p


async def _known(args: argparse.Namespace, store: Store) -> ScheduleRecord:
    counts = await store.call(Count(WorkQueue(store, args.queue).key))
    assert isinstance(counts, QueueCounts)
    for record in schedules_in(counts, store.codec):
        if record.name == args.name:
            return record
    raise UsageError(
        f"queue {args.queue} in namespace {store.namespace} has no schedule {args.name} that has run;"
        " tenure schedule ls lists those that there are"
    )


async def _all(queue: str | None, store: Store) -> list[tuple[str, ScheduleRecord]]:
    keys = await names(store, "queues") if queue is None else [WorkQueue(store, queue).key]
    queues = await read_queues(store, keys)
    return [(name, record) for name, counts in queues.items() for record in schedules_in(counts, store.codec)]


def _described(queue: str, record: ScheduleRecord) -> dict[str, Any]:
    last = _of(record.last)
    return {
        "queue": queue,
        "name": record.name,
        "every": record.every,
        "cron": record.cron,
        "tz": record.tz,
        "last": None if last is None else _time(last),
        "next": _time(_of(record.coming)[0]),
        "late": _of(record.late),
    }


def _said(record: ScheduleRecord) -> str:
    return record.cron if record.cron is not None else f"every {record.every:g} s"


def _time(tick: datetime | None) -> str:
    return "-" if tick is None else tick.isoformat(timespec="auto")


def _of(calculated: Callable[[], T]) -> T:
    """The result of `calculated`, which needs the ticks. Raises `UsageError` where they cannot be known here."""
    try:
        return calculated()
    except (ModuleNotFoundError, ValueError) as problem:  # no cronsim, or a time zone that only others know
        raise UsageError(str(problem)) from problem


_COMMANDS: Commands = {"ls": _ls, "next": _next, "run-now": _run_now}
