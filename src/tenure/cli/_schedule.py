"""`tenure schedule`: schedules listed, their next ticks, and a task of one put by hand."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tenure.engine import Count, QueueCounts
from tenure.observe import printable
from tenure.shared import Schedule, ScheduleRecord, WorkQueue, schedules_in
from tenure.store import Store
from tenure.web import names, read_queues

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
    given = p.parse_args(words)
    found = with_store(given, partial(_all, given.queue))
    if given.json:
        return answer({"schedules": [_described(queue, one) for queue, one in found]})
    rows = [
        (
            queue,
            one.name,
            _said(one),
            one.tz,
            _time(_of(one.last)),
            _time(_of(one.coming)[0]),
            f"late by {spoken(late)}" if (late := _of(one.late)) > _LATE else "",
        )
        for queue, one in found
    ]
    header = ("queue", "schedule", "ticks", "tz", "last", "next", "")
    nothing = printable(f"queue {given.queue} has no schedule") if given.queue else "there is no schedule"
    print(table(header, rows, nothing=nothing, columns=columns_of_terminal()))
    return 0


def _next(words: Sequence[str]) -> int:
    p = _of_one("schedule next", "The next ticks of a schedule, in its time zone.")
    ticks = partial(whole_number, least=1, most=_MOST_TICKS)
    p.add_argument("-n", metavar="N", type=ticks, default=1, help="how many (default: %(default)s)")
    given = p.parse_intermixed_args(words)
    one = with_store(given, partial(_known, given))
    coming = [_time(tick) for tick in _of(partial(one.coming, given.n))]
    if given.json:
        return answer({"queue": given.queue, "name": given.name, "next": coming})
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
    given = p.parse_intermixed_args(words)
    payload = read_payload(given.payload)

    async def put(store: Store) -> int:
        one = await _known(given, store)
        queue = await queue_to_fill(store, given.queue)
        return await _of(
            lambda: Schedule(queue, one.name, every=one.every, cron=one.cron, tz=one.tz, payload=payload)
        ).run_now()

    task_id = _of(lambda: with_store(given, put))
    if given.json:
        return answer({"queue": given.queue, "name": given.name, "id": task_id})
    print(task_id)
    return 0


def _of_one(prog: str, description: str) -> argparse.ArgumentParser:
    p = parser(prog, description)
    p.add_argument("queue", metavar="QUEUE", type=name_of, help="the queue into which it puts tasks")
    p.add_argument("name", metavar="NAME", type=name_of, help="the schedule")
    return p


async def _known(given: argparse.Namespace, store: Store) -> ScheduleRecord:
    counts = await store.call(Count(WorkQueue(store, given.queue).key))
    assert isinstance(counts, QueueCounts)
    for one in schedules_in(counts, store.codec):
        if one.name == given.name:
            return one
    raise UsageError(
        f"queue {given.queue} in namespace {store.namespace} has no schedule {given.name} that has run;"
        " tenure schedule ls lists those that there are"
    )


async def _all(queue: str | None, store: Store) -> list[tuple[str, ScheduleRecord]]:
    keys = await names(store, "queues") if queue is None else [WorkQueue(store, queue).key]
    queues = await read_queues(store, keys)
    return [(name, one) for name, counts in queues.items() for one in schedules_in(counts, store.codec)]


def _described(queue: str, one: ScheduleRecord) -> dict[str, Any]:
    last = _of(one.last)
    return {
        "queue": queue,
        "name": one.name,
        "every": one.every,
        "cron": one.cron,
        "tz": one.tz,
        "last": None if last is None else _time(last),
        "next": _time(_of(one.coming)[0]),
        "late": _of(one.late),
    }


def _said(one: ScheduleRecord) -> str:
    return one.cron if one.cron is not None else f"every {one.every:g} s"


def _time(tick: datetime | None) -> str:
    return "-" if tick is None else tick.isoformat(timespec="auto")


def _of(calculated: Callable[[], T]) -> T:
    """The result of `calculated`, which needs the ticks. Raises `UsageError` where they cannot be known here."""
    try:
        return calculated()
    except (ModuleNotFoundError, ValueError) as problem:  # no cronsim, or a time zone that only others know
        raise UsageError(str(problem)) from problem


_COMMANDS: Commands = {"ls": _ls, "next": _next, "run-now": _run_now}
