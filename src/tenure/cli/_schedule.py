"""`tenure schedule`: schedules listed, set, paused and removed, their ticks, and a task put by hand."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tenure.observe import printable
from tenure.shared import Key, Schedule, WorkQueue, schedules_in
from tenure.store import Store, handle_of, names, read_counts
from tenure.web import read_queues

from ._answer import answer, say
from ._arguments import seconds, whole_number
from ._commands import Commands, run_one
from ._errors import UsageError
from ._one_queue import name_of
from ._payload import read_payload
from ._table import columns_of_terminal, spoken, table
from ._with_store import parser, with_store

T = TypeVar("T")

_MOST_TICKS = 1000
_LATE = 60.0
"""Seconds after which any process that runs the schedule would have put the task."""

HELP = """\
usage: tenure schedule ls | next | run-now | set | pause | resume | remove ...

  ls [QUEUE]              the schedules of a queue, or of all, with their last and next ticks
  next QUEUE NAME [--limit N]
                          the next ticks
  run-now QUEUE NAME [--payload JSON]
                          put a task now, beside the tasks of the ticks, and print its id
  set QUEUE NAME (--every S | --cron EXPRESSION) [--payload JSON] ...
                          keep a schedule in the store, or change it; `tenure work` puts its tasks
  pause QUEUE NAME, resume QUEUE NAME
                          put nothing at its ticks; put tasks again, from now on
  remove QUEUE NAME       forget it

See also `tenure schedule COMMAND --help`."""


def schedule(words: Sequence[str]) -> int:
    return run_one("schedule", _COMMANDS, HELP, words)


def _ls(words: Sequence[str]) -> int:
    p = parser(
        "schedule ls", "All schedules that have run, as the last process that ran them described them."
    )
    p.add_argument("queue", metavar="QUEUE", nargs="?", type=name_of, help="only the schedules of this queue")
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
            _time(_first(_of(record.coming))),
            "paused"
            if record.paused
            else f"late by {spoken(late)}"
            if (late := _of(record.late)) > _LATE
            else "",
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
    p.add_argument("--limit", metavar="N", type=ticks, default=1, help="how many (default: %(default)s)")
    args = p.parse_intermixed_args(words)
    record = with_store(args, partial(_known, args))
    coming = [_time(tick) for tick in _of(partial(record.coming, args.limit))]
    if args.json:
        return answer({"queue": args.queue, "name": args.name, "next": coming})
    print("\n".join(coming))
    return 0


def _run_now(words: Sequence[str]) -> int:
    p = _of_one(
        "schedule run-now",
        "Put a task of a schedule now, beside the tasks of its ticks, and print its id.",
    )
    p.add_argument(
        "--payload", metavar="JSON", help="a JSON value (default: the payload of the schedule); - reads it"
    )
    args = p.parse_intermixed_args(words)
    payload = None if args.payload is None else read_payload(args.payload)

    async def put(store: Store) -> int:
        await _known(args, store)
        queue = WorkQueue[Any](store, args.queue)
        (schedule,) = [each async for each in queue.schedules.list() if each.name == args.name]
        schedule.payload = schedule.payload if payload is None else payload
        return await schedule.run_now()

    task_id = _of(lambda: with_store(args, put))
    return say(args, {"queue": args.queue, "name": args.name, "id": task_id}, str(task_id))


def _set(words: Sequence[str]) -> int:
    p = _of_one("schedule set", "Keep a schedule in the store, or change it. tenure work puts its tasks.")
    ticks = p.add_mutually_exclusive_group(required=True)
    ticks.add_argument("--every", metavar="S", type=seconds, help="a tick every so many seconds")
    ticks.add_argument("--cron", metavar="EXPRESSION", help="ticks at these times: '30 2 * * *' or @daily")
    p.add_argument("--tz", metavar="ZONE", default="UTC", help="the time zone of --cron, --start and --end")
    p.add_argument("--missed", choices=("one", "all", "skip"), default="one", help="default: %(default)s")
    p.add_argument(
        "--payload", metavar="JSON", default="null", help="a JSON value (default: null); - reads it"
    )
    p.add_argument("--start", metavar="TIME", type=_moment, help="no ticks before: 2026-12-01T09:00")
    p.add_argument("--end", metavar="TIME", type=_moment, help="no ticks after; then it is removed")
    p.add_argument(
        "--jitter", metavar="S", type=seconds, default=0.0, help="delay each task by up to so much"
    )
    p.add_argument("--key", metavar="K", help="no task while the task of an earlier tick is unfinished")
    p.add_argument("--group", metavar="G", help="the group of its tasks")
    p.add_argument("--priority", metavar="N", type=int, default=0, help="default: %(default)s")
    args = p.parse_intermixed_args(words)
    payload = read_payload(args.payload)
    names = ("every", "cron", "tz", "missed", "start", "end", "jitter", "key", "group", "priority")
    options: Any = {name: value for name in names if (value := getattr(args, name)) not in (None, 0)}

    async def keep(store: Store) -> None:
        await WorkQueue[Any](store, args.queue).schedules.set(args.name, payload=payload, **options)

    _of(lambda: with_store(args, keep, may_make=True))
    return _said_of(args, "set")


def _change(done: str, words: Sequence[str]) -> int:
    command = {"paused": "pause", "resumed": "resume", "removed": "remove"}[done]
    args = _of_one(f"schedule {command}", f"Have a schedule {done}.").parse_intermixed_args(words)

    async def change(store: Store) -> None:
        queue = WorkQueue[Any](store, args.queue)
        if not await getattr(queue.schedules, command)(args.name):
            raise _unknown(args, store)

    with_store(args, change)
    return _said_of(args, done)


def _said_of(args: argparse.Namespace, done: str) -> int:
    document = {"queue": args.queue, "name": args.name, "done": done}
    return say(args, document, f"{args.queue}: schedule {args.name} {done}")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-12-01T09:00") from None


def _of_one(prog: str, description: str) -> argparse.ArgumentParser:
    p = parser(prog, description)
    p.add_argument("queue", metavar="QUEUE", type=name_of, help="the queue into which it puts tasks")
    p.add_argument("name", metavar="NAME", type=name_of, help="the schedule")
    return p


async def _known(args: argparse.Namespace, store: Store) -> Schedule[Any]:
    handle = handle_of(store)
    counts = await read_counts(handle, handle.key("queue", args.queue))
    for record in schedules_in(counts, store.codec):
        if record.name == args.name:
            return record
    raise _unknown(args, store)


def _unknown(args: argparse.Namespace, store: Store) -> UsageError:
    return UsageError(
        f"queue {args.queue} in namespace {store.namespace} has no schedule {args.name} that has run or was set;"
        " tenure schedule ls lists those that there are"
    )


async def _all(queue: str | None, store: Store) -> list[tuple[str, Schedule[Any]]]:
    handle = handle_of(store)
    keys = await names(handle, "queues") if queue is None else [WorkQueue(store, queue).key]
    queues = await read_queues(handle, keys)
    return [(name, record) for name, counts in queues.items() for record in schedules_in(counts, store.codec)]


def _described(queue: str, record: Schedule[Any]) -> dict[str, Any]:
    last = _of(record.last)
    return {
        "queue": queue,
        "name": record.name,
        "every": record.every,
        "cron": record.cron,
        "tz": record.tz,
        "last": None if last is None else _time(last),
        "next": _time(_first(_of(record.coming))),
        "late": _of(record.late),
        "paused": record.paused,
        "kept_in_store": record.kept_in_store,
        "missed": record.missed,
        "start": None if record.start is None else record.start.timestamp(),
        "end": None if record.end is None else record.end.timestamp(),
        "jitter": record.jitter,
        "payload": record.payload,
        "options": {name: asdict(o) if isinstance(o, Key) else o for name, o in record.options.items()},
    }


def _said(record: Schedule[Any]) -> str:
    return record.cron if record.cron is not None else f"every {record.every:g} s"


def _first(coming: list[datetime]) -> datetime | None:
    return coming[0] if coming else None


def _time(tick: datetime | None) -> str:
    return "-" if tick is None else tick.isoformat(timespec="auto")


def _of(calculated: Callable[[], T]) -> T:
    """The result of `calculated`, which needs the ticks. Raises `UsageError` where they cannot be known here."""
    try:
        return calculated()
    except (ModuleNotFoundError, ValueError, TypeError) as problem:
        # no cronsim, a time zone that only others know, or a wrong argument
        raise UsageError(str(problem)) from problem


_COMMANDS: Commands = {
    "ls": _ls,
    "next": _next,
    "run-now": _run_now,
    "set": _set,
    "pause": partial(_change, "paused"),
    "resume": partial(_change, "resumed"),
    "remove": partial(_change, "removed"),
}
