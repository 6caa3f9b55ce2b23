"""`tenure queue`: queues listed, shown, and managed by hand."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from tenure.shared import QueueStatistics, TaskPage, WorkQueue
from tenure.store import Store
from tenure.web._view import look_at_queues, names

from ._answer import answer
from ._arguments import count
from ._misuse import Misuse
from ._table import short, spoken, table
from ._visit import parser, visit

_STATES = ("waiting", "delayed", "leased", "dead", "ended")
_PURGEABLE = ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")
_MOST_IDS = 10_000

HELP = """\
usage: tenure queue ls | show | dead | requeue | purge | pause | resume ...

  ls                      all queues, with their counts
  show NAME               a queue, and some of its tasks
  dead NAME               its dead letters
  requeue NAME ID... | --all
                          dead letters become ready again, with all their attempts
  purge NAME STATE...     delete waiting, delayed or dead tasks; forget done, discarded, cancelled or expired ones
  pause NAME, resume NAME give out no tasks, and give them out again

`tenure queue COMMAND --help` tells more."""


def queue(words: Sequence[str]) -> int:
    """Carry out `tenure queue`. Raises `Misuse`, `TenureError`."""
    match words:
        case ["--help" | "-h", *_]:
            print(HELP)
            return 0
        case [str(name), *rest] if name in _COMMANDS:
            return _COMMANDS[name](rest)
        case [str(name), *_]:
            raise Misuse(f"there is no command 'queue {name}'; there is {', '.join(_COMMANDS)}")
        case _:
            raise Misuse("a command is missing: tenure queue ls (see tenure queue --help)")


# ls and show


def _ls(words: Sequence[str]) -> int:
    given = parser("queue ls", "All queues into which a task was ever put.").parse_args(words)
    queues = visit(given, _all)
    if given.json:
        return answer({"queues": [_described(name, statistics) for name, statistics in queues.items()]})
    rows = [
        (
            name,
            *(getattr(s, column) for column in ("waiting", "delayed", "leased", "done", "dead")),
            spoken(s.oldest) if s.oldest else "-",
            _remark(s),
        )
        for name, s in queues.items()
    ]
    header = ("queue", "waiting", "delayed", "leased", "done", "dead", "oldest", "")
    print(table(header, rows, nothing="no queue has had a task yet"))
    return 0


async def _all(store: Store) -> dict[str, QueueStatistics]:
    queues = await look_at_queues(store, await names(store, "queues"))
    fields = QueueStatistics.__dataclass_fields__
    return {
        name: QueueStatistics(**{field: getattr(counts, field) for field in fields})
        for name, counts in queues.items()
    }


def _remark(s: QueueStatistics) -> str:
    return ", ".join(
        text
        for text, holds in (("paused", s.paused), (f"{s.producers:,} producers wait", s.producers))
        if holds
    )


def _described(name: str, statistics: QueueStatistics) -> dict[str, Any]:
    return {"name": name, "unfinished": statistics.unfinished, **asdict(statistics)}


def _show(words: Sequence[str]) -> int:
    p = _of_one("queue show", "The counts of a queue, and some of its tasks.")
    _paged(p)
    p.add_argument(
        "--state", choices=_STATES, default="waiting", help="of which tasks (default: %(default)s)"
    )
    given = p.parse_args(words)
    statistics, page = visit(given, partial(_look_into, given))
    if given.json:
        return answer({**_described(given.name, statistics), **_page(page)})
    rows = [
        (n, getattr(statistics, n))
        for n in QueueStatistics.__dataclass_fields__
        if n not in ("oldest", "paused")
    ]
    rows += [("oldest", spoken(statistics.oldest)), ("paused", "yes" if statistics.paused else "no")]
    print(
        "\n".join(
            f"{name:<10} {value if isinstance(value, str) else format(value, ',')}" for name, value in rows
        )
    )
    print(f"\n{_records(page, nothing=f'no task is {given.state}')}")
    return 0


def _dead(words: Sequence[str]) -> int:
    p = _of_one("queue dead", "The dead letters of a queue, in the order in which they died.")
    _paged(p)
    given = p.parse_args(words)
    given.state = "dead"
    _, page = visit(given, partial(_look_into, given))
    if given.json:
        return answer({"name": given.name, **_page(page)})
    print(_records(page, nothing="no task is dead"))
    return 0


async def _look_into(given: argparse.Namespace, store: Store) -> tuple[QueueStatistics, TaskPage]:
    of = WorkQueue(store, given.name)
    statistics = await of.statistics()
    _tell_if_unknown(given.name, statistics)
    return statistics, await of.browse(given.state, after=given.after, limit=given.limit)


def _page(page: TaskPage) -> dict[str, Any]:
    return {"tasks": [{**asdict(record), "rank": record.rank} for record in page.tasks], "next": page.next}


def _records(page: TaskPage, *, nothing: str) -> str:
    rows = [
        (
            str(r.id),
            r.state,
            r.priority,
            str(r.attempts),
            str(r.deliveries),
            spoken(r.age),
            short(r.key or ""),
            short("" if r.payload is None else r.payload),
            short(r.error),
        )
        for r in page.tasks
    ]
    header = ("id", "state", "priority", "attempts", "deliveries", "age", "key", "payload", "error")
    more = f"\nmore: --after {shlex.quote(page.next)}" if page.next else ""
    return table(header, rows, nothing=nothing) + more


# changing


def _requeue(words: Sequence[str]) -> int:
    p = _of_one("queue requeue", "Dead letters become ready again, with all their attempts.")
    p.add_argument("ids", metavar="ID", nargs="*", type=count, help="of dead tasks")
    p.add_argument("--all", action="store_true", help="all dead tasks")
    given = p.parse_intermixed_args(words)
    if bool(given.ids) == given.all:
        raise Misuse("name the ids of dead tasks, or give --all")
    if len(given.ids) > _MOST_IDS:
        raise Misuse(f"at most {_MOST_IDS:,} ids at a time")

    async def requeue(of: WorkQueue) -> int:
        return await of.requeue(None if given.all else given.ids)

    return _changed(given, requeue, "requeued")


def _purge(words: Sequence[str]) -> int:
    p = _of_one("queue purge", "Delete waiting, delayed or dead tasks, or forget ended ones.")
    p.add_argument("states", metavar="STATE", nargs="+", choices=_PURGEABLE, help=", ".join(_PURGEABLE))
    given = p.parse_args(words)

    async def purge(of: WorkQueue) -> int:
        return await of.purge(*given.states)

    return _changed(given, purge, "purged")


def _changed(given: argparse.Namespace, change: Callable[[WorkQueue], Awaitable[int]], word: str) -> int:
    async def task(store: Store) -> int:
        of = WorkQueue(store, given.name)
        _tell_if_unknown(given.name, await of.statistics())
        return await change(of)

    number = visit(given, task)
    if given.json:
        return answer({"name": given.name, word: number})
    print(f"{number:,} {word}")
    return 0


def _set_paused(paused: bool, words: Sequence[str]) -> int:
    word, meaning = (
        ("pause", "Give out no tasks, to anybody.") if paused else ("resume", "Give out tasks again.")
    )
    given = _of_one(f"queue {word}", meaning).parse_args(words)

    async def task(store: Store) -> None:
        of = WorkQueue(store, given.name)
        _tell_if_unknown(given.name, await of.statistics())
        await (of.pause() if paused else of.resume())

    visit(given, task)
    if given.json:
        return answer({"name": given.name, "paused": paused})
    print(f"{given.name} is {'paused' if paused else 'not paused'}")
    return 0


def _of_one(prog: str, description: str) -> argparse.ArgumentParser:
    p = parser(prog, description)
    p.add_argument("name", metavar="NAME", help="the queue")
    return p


def _paged(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--limit", metavar="N", type=count, default=20, help="at most so many (default: %(default)s)"
    )
    p.add_argument(
        "--after", metavar="PLACE", default="", help="go on where the page before told (of dead ones: a rank)"
    )


def _tell_if_unknown(name: str, statistics: QueueStatistics) -> None:
    if not statistics.put:
        print(f"tenure: no task was ever put into queue {name}", file=sys.stderr)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "ls": _ls,
    "show": _show,
    "dead": _dead,
    "requeue": _requeue,
    "purge": _purge,
    "pause": partial(_set_paused, True),
    "resume": partial(_set_paused, False),
}
