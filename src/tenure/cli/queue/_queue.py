"""`tenure queue`: queues listed and shown."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from shutil import get_terminal_size
from typing import Any

import tenure.engine as e
from tenure.cli._answer import answer
from tenure.cli._arguments import count, whole_number
from tenure.cli._commands import Commands, run_one
from tenure.cli._one_queue import known, of_one, task_id, with_queue
from tenure.cli._table import columns_of_terminal, many, one_line, short, spoken, table, width
from tenure.cli._with_store import parser, with_store
from tenure.shared import (
    GroupStatistics,
    Page,
    QueueFigures,
    QueueSettings,
    QueueStatistics,
    QueueWorker,
    TaskRecord,
    WorkQueue,
)
from tenure.store import Store

from ._edit import edit
from ._follow import follow
from ._manage import cancel, purge, requeue, set_paused
from ._one_task import check_one, described, is_left, reschedule, show_task
from ._put import put
from ._selected import add_selection, selection_of
from ._settings import document, set_settings, shown
from ._signal import signal

_STATES = tuple(e.TASKS)
_LEAST_ERROR = 60
_SHOWN_IN_WORDS = (*("max_size", "oldest", "paused", "starts_in", "held_off", "rate", "group_rate"),)

HELP = """\
usage: tenure queue COMMAND ...

  ls                      all queues, with their counts
  show NAME               a queue, its settings, and some of its tasks
  show NAME ID            one task, with its error, traceback, progress, meta and children
  follow NAME ID          a line for each change of a task, until it has ended
  put NAME [JSON]         put a task, and print its id
  dead NAME               its dead letters
  groups NAME             the groups with the most unfinished tasks
  workers NAME            the live processes that work on it, and the tasks that they have
  set NAME --max-size N --group-limit N ...
                          change settings of a queue, for all processes at once
  requeue NAME [ID...] [SELECTION] [--yes]
                          make dead letters ready again; their attempts start anew
  reschedule NAME ID... [--delay S]
                          make tasks that wait or are delayed ready now, or after a delay
  edit NAME ID            change the payload, priority, delay or group of a task that waits
  signal NAME ID SIGNAL [JSON]
                          send a task the signal that its handler waits for
  cancel NAME ID... | --state STATE [SELECTION]
                          cancel tasks that have not ended
  purge NAME STATE... [SELECTION]
                          delete waiting, delayed or dead tasks; forget done, discarded, cancelled or expired ones
  pause NAME [S], resume NAME
                          stop and resume handing out tasks; with S hold the queue for so many seconds, which
                          resume ends too

SELECTION: --group G, --where FIELD=VALUE (older_than, key_prefix, error, meta.NAME), --limit N, --dry-run

See also `tenure queue COMMAND --help`."""


def queue(words: Sequence[str]) -> int:
    return run_one("queue", _COMMANDS, HELP, words)


# ls and show


def _ls(words: Sequence[str]) -> int:
    args = parser("queue ls", "All queues that have had a task and are not forgotten.").parse_args(words)
    queues = with_store(args, lambda store: QueueFigures(store).statistics())
    if args.json:
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
    print(table(header, rows, nothing="there is no queue", columns=columns_of_terminal()))
    return 0


def _remark(s: QueueStatistics) -> str:
    return ", ".join(
        text
        for text, holds in (
            ("paused", s.paused),
            (f"{s.suspended:,} suspended", s.suspended),
            (f"{s.held:,} held", s.held),
            (f"{s.ending:,} ending", s.ending),
            (many(s.producers, "producer waits", "producers wait"), s.producers),
            (_next_start(s), s.starts_in >= 1),
        )
        if holds
    )


def _next_start(s: QueueStatistics) -> str:
    return f"held off for {spoken(s.held_off)}" if s.held_off else f"next task in {spoken(s.starts_in)}"


def _pace(s: QueueStatistics) -> str:
    parts = [_per_second(s.rate)] if s.rate else []
    if s.group_rate:
        parts.append(f"{_per_second(s.group_rate)} of each group")
    if s.starts_in:
        parts.append(_next_start(s))
    return ", ".join(parts)


def _per_second(rate: float) -> str:
    return f"{rate:.3g} a second" if rate >= 1 else f"1 in {spoken(1 / rate)}"


def _described(name: str, statistics: QueueStatistics) -> dict[str, Any]:
    return {"name": name, "unfinished": statistics.unfinished, **asdict(statistics)}


def _show(words: Sequence[str]) -> int:
    p = of_one("queue show", "The counts of a queue and some of its tasks, or all that is known of one task.")
    p.add_argument("id", metavar="ID", nargs="?", type=task_id, help="only this task, with its traceback")
    p.add_argument("--key", help="only the unfinished task with this key")
    _paged(p)
    p.add_argument(
        "--state", choices=_STATES, default="waiting", help="of which tasks (default: %(default)s)"
    )
    add_selection(p, changes=False)
    args = p.parse_intermixed_args(words)
    if check_one(args):
        return show_task(args)
    statistics, page, settings = with_store(args, partial(_show_all, args))
    if args.json:
        its = {"settings": document(settings)}
        return answer({**_described(args.name, statistics), **its, **_page(page)})
    rows = [
        (n, getattr(statistics, n)) for n in QueueStatistics.__dataclass_fields__ if n not in _SHOWN_IN_WORDS
    ]
    rows += [
        ("oldest", spoken(statistics.oldest) if statistics.oldest else "-"),
        ("paused", "yes" if statistics.paused else "no"),
    ]
    if pace := _pace(statistics):
        rows.append(("rate", pace))
    print(
        "\n".join(
            f"{name:<10} {value if isinstance(value, str) else format(value, ',')}" for name, value in rows
        )
    )
    print(f"\n{shown(settings)}")
    print(f"\n{_records(page, nothing=f'no task is {args.state}')}")
    return 0


async def _show_all(
    args: argparse.Namespace, store: Store
) -> tuple[QueueStatistics, Page[TaskRecord], QueueSettings]:
    return *await _look_into(args, store), await WorkQueue(store, args.name).settings()


def _dead(words: Sequence[str]) -> int:
    p = of_one("queue dead", "The dead letters of a queue, in the order in which they died.")
    _paged(p)
    add_selection(p, changes=False)
    args = p.parse_args(words)
    args.state = "dead"
    _, page = with_store(args, partial(_look_into, args))
    if args.json:
        return answer({"name": args.name, **_page(page)})
    print(_records(page, nothing="no task is dead"))
    return 0


def _groups(words: Sequence[str]) -> int:
    p = of_one("queue groups", "The groups of a queue with the most unfinished tasks.")
    p.add_argument(
        "--limit",
        metavar="N",
        type=partial(whole_number, least=1, most=e.CAP),
        default=20,
        help=f"limit of groups shown, at most {e.CAP} (default: %(default)s)",
    )
    args = p.parse_args(words)
    groups = with_queue(args, lambda queue: queue.groups().page(limit=args.limit)).records
    if args.json:
        return answer({"name": args.name, "groups": [asdict(group) for group in groups]})
    rows = [
        (
            short(g.group) + (" (children)" if g.children else ""),
            *(g.waiting, g.delayed, g.leased),
            _remark_of_group(g),
        )
        for g in groups
    ]
    print(table(("group", "waiting", "delayed", "leased", ""), rows, nothing="no task has a group"))
    return 0


def _remark_of_group(g: GroupStatistics) -> str:
    start = f"held off for {spoken(g.held_off)}" if g.held_off else f"next task in {spoken(g.starts_in)}"
    parts = ((start, g.starts_in), (f"weight {g.weight:g}", g.weight != 1))
    return ", ".join(text for text, holds in parts if holds)


def _workers(words: Sequence[str]) -> int:
    args = of_one("queue workers", "The live processes that work on a queue.").parse_args(words)

    async def read(store: Store) -> list[QueueWorker]:
        return [worker async for worker in WorkQueue[Any](store, args.name).workers()]

    found = with_store(args, read)
    if args.json:
        return answer({"name": args.name, "workers": [asdict(worker) for worker in found]})
    rows = [
        (
            worker.process,
            len(worker.tasks),
            ", ".join(str(task.id) for task in worker.tasks[:3]) + (" ..." if worker.tasks[3:] else ""),
            spoken(worker.tasks[0].seconds) if worker.tasks else "-",
            "waits for tasks" if worker.waits else "",
        )
        for worker in found
    ]
    nothing = "no process works on it"
    header = ("process", "leased", "tasks", "longest", "")
    print(table(header, rows, nothing=nothing, columns=columns_of_terminal()))
    return 0


async def _look_into(args: argparse.Namespace, store: Store) -> tuple[QueueStatistics, Page[TaskRecord]]:
    of = WorkQueue(store, args.name)
    statistics = await known(of)
    tasks = of.tasks(args.state, where=selection_of(args))
    return statistics, await tasks.page(limit=args.limit)


def _page(page: Page[TaskRecord]) -> dict[str, Any]:
    return {"tasks": [described(record) for record in page.records], "more": bool(page.next)}


def _records(page: Page[TaskRecord], *, nothing: str) -> str:
    wide = columns_of_terminal() is None
    show = one_line if wide else short
    rows = [
        (
            str(r.id),
            r.state,
            r.priority,
            str(r.attempts),
            str(r.deliveries),
            spoken(r.age),
            show(r.key or ""),
            show("" if r.payload is None else r.payload),
        )
        for r in page.records
    ]
    header = ("id", "state", "priority", "attempts", "deliveries", "age", "key", "payload", "error")
    # errors get the rest of the terminal's width
    taken = max(map(width, table(header[:-1], rows, nothing="").splitlines()), default=0) + 2
    left = max(_LEAST_ERROR, get_terminal_size().columns - taken)
    errors = (one_line(_error(r)) if wide else short(_error(r), left) for r in page.records)
    rows = [(*row, error) for row, error in zip(rows, errors, strict=True)]
    more = "\nand more: see --limit" if page.next else ""
    return table(header, rows, nothing=nothing) + more


def _error(r: TaskRecord) -> str:
    owner = f"{r.release} of task {r.parent} of {r.parent_queue} is not undone: " if is_left(r) else ""
    return owner + (r.error or "")


def _paged(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--limit", metavar="N", type=count, default=20, help="limit of tasks shown (default: %(default)s)"
    )


_COMMANDS: Commands = {
    "ls": _ls,
    "show": _show,
    "follow": follow,
    "put": put,
    "dead": _dead,
    "groups": _groups,
    "workers": _workers,
    "set": set_settings,
    "requeue": requeue,
    "reschedule": reschedule,
    "edit": edit,
    "signal": signal,
    "cancel": cancel,
    "purge": purge,
    "pause": partial(set_paused, True),
    "resume": partial(set_paused, False),
}
