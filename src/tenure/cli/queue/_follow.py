"""`tenure queue follow NAME ID`: a line for each change of a task, until it has ended."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tenure.cli._answer import as_json
from tenure.cli._one_queue import of_one, task_id, with_queue
from tenure.cli._table import one_line
from tenure.errors import ResultUnavailable
from tenure.observe import printable
from tenure.shared import TaskRecord, WorkQueue

from ._one_task import described


def follow(words: Sequence[str]) -> int:
    """Return 1 unless the task is done."""
    p = of_one("queue follow", "A line for each change of a task, until it has ended.")
    p.add_argument("id", metavar="ID", type=task_id, help="of the task")
    args = p.parse_args(words)
    return with_queue(args, partial(_follow, args))


async def _follow(args: argparse.Namespace, queue: WorkQueue) -> int:
    state = ""
    try:
        async with queue.follow(args.id) as changes:
            async for record in changes:
                state = record.state
                _print(args, described(record), ", ".join(_parts(record)))
    except ResultUnavailable:
        _print(args, None, f"{args.name}: no such task, or its record has been forgotten")
    return 0 if state == "done" else 1


def _print(args: argparse.Namespace, task: dict[str, Any] | None, text: str) -> None:
    print(as_json({"name": args.name, "task": task}) if args.json else printable(text), flush=True)


def _parts(record: TaskRecord) -> Iterator[str]:
    yield record.state
    if record.attempts:
        yield f"attempts {record.attempts:,}"
    if record.children:
        yield f"{record.children:,} unfinished children" if record.children > 1 else "1 unfinished child"
    if (child := record.unfinished_child) is not None:
        yield f"such as {child.name}: task {child.id} of {child.queue}"
    for name in ("progress", "result", "error"):
        if (value := getattr(record, name)) is not None:
            yield f"{name} {one_line(value)}"
