"""`tenure queue show NAME ID`: one task and its tree; and `tenure queue reschedule`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from tenure.cli._answer import answer, say
from tenure.cli._arguments import seconds
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import of_one, task_id, with_queue
from tenure.cli._table import one_line, spoken
from tenure.observe import printable_lines
from tenure.shared import ChildRecord, TaskRecord, WorkQueue
from tenure.store import handle_of
from tenure.web import SeenChild, described_child, flat, read_tree, waits_for

from ._manage import changed_each


def show_task(args: argparse.Namespace) -> int:
    found = with_queue(args, partial(_get, args))
    if found is None:
        text = f"{args.name}: no such task, or its record has been forgotten"
        return say(args, {"name": args.name, "task": None}, text, 1)
    record, path, tree, more = found
    children = list(flat(tree))
    if args.json:
        return answer(
            {
                "name": args.name,
                "task": described(record),
                "waits_for": [described_child(child) for child in path],
                "tree": [{"depth": depth, **described_child(child)} for depth, child in children],
                "more": more,
            }
        )
    print("\n".join(f"{name:<10} {value}" for name, value in _facts(record, path)))
    if children:
        print("\nchildren:")
        print("\n".join(f"{'  ' * depth}{_of_child(child)}" for depth, child in children))
    if more:
        print("  ... and more")
    if record.failed_tries:
        print("\ntries that failed:")
        print("\n".join(f"  {one_line(line)}" for line in record.failed_tries))
    if record.traceback:
        print(f"\ntraceback:\n{printable_lines(record.traceback)}")
    return 0


async def _get(
    args: argparse.Namespace, queue: WorkQueue
) -> tuple[TaskRecord, list[SeenChild], list[SeenChild], bool] | None:
    record = await (queue.get(args.id) if args.key is None else queue.get(key=args.key))
    if record is None:
        return None
    return (
        record,
        await waits_for(handle_of(queue.store), record.unfinished_child),
        *await read_tree(handle_of(queue.store), args.name, record.id),
    )


def described(record: TaskRecord[Any]) -> dict[str, Any]:
    # not asdict, which copies every payload, and fails for a payload that is nested deeply
    fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
    child = record.unfinished_child
    shown = child and _named(child)
    releases = [_named(release) | {"error": release.error} for release in record.releases]
    undecoded = {name: data.decode("utf-8", "backslashreplace") for name, data in record.undecoded.items()}
    retry = None if record.retry is None else repr(record.retry)
    return fields | {"undecoded": undecoded, "unfinished_child": shown, "releases": releases, "retry": retry}


def _named(child: ChildRecord) -> dict[str, Any]:
    return {name: getattr(child, name) for name in ("name", "id", "queue", "state")}


def _facts(record: TaskRecord, path: Sequence[SeenChild]) -> list[tuple[str, str]]:
    facts = [
        ("id", str(record.id)),
        ("state", record.state),
        ("age", spoken(record.age)),
        ("ran", "" if record.ran is None else spoken(record.ran)),
        ("priority", str(record.priority)),
        ("attempts", str(record.attempts)),
        ("deliveries", str(record.deliveries)),
        ("key", record.key or ""),
        ("group", record.group or ""),
        ("deadline", "" if record.deadline is None else f"in {spoken(record.deadline)}"),
        ("timeout", "" if record.timeout is None else f"{spoken(record.timeout)} for each try"),
        ("retry", "" if record.retry is None else repr(record.retry)),
        ("parent", f"task {record.parent} of {record.parent_queue}" if record.parent else ""),
        ("children", f"{record.children:,} unfinished" if record.children else ""),
        ("waits for", " > ".join(map(_of_child, path))),
        ("release", f"{record.release}, not undone" if is_left(record) else record.release),
        ("releases", ", ".join(_counted(record.releases))),
        *(("not undone", _undone_not(release)) for release in record.releases if release.state == "dead"),
        *((f"meta {name}", value) for name, value in record.meta.items()),
        *((name, getattr(record, name)) for name in ("payload", "progress", "result", "error")),
    ]
    return [(one_line(name), one_line(value)) for name, value in facts if value not in (None, "")]


def is_left(record: TaskRecord) -> bool:
    return record.release is not None and record.state == "dead"


def _counted(releases: Sequence[ChildRecord]) -> list[str]:
    counts = Counter(release.state for release in releases)
    words = {
        "held": "held",
        "unfinished": "under way",
        "done": "undone",
        "dead": "not undone",
        "kept": "kept",
    }
    return [f"{counts[state]:,} {word}" for state, word in words.items() if counts[state]]


def _undone_not(release: ChildRecord) -> str:
    why = f" ({release.error})" if release.error else ""
    return f"{release.name}{why}: task {release.id} of {release.queue}"


def _of_child(child: SeenChild) -> str:
    more = f", {child.unfinished:,} unfinished" if child.unfinished else ""
    return one_line(f"{child.name}: task {child.id} of {child.queue}, {child.state}{more}")


def reschedule(words: Sequence[str]) -> int:
    """Return 1 if no task was rescheduled."""
    p = of_one("queue reschedule", "Make tasks that wait or are delayed ready now, or after a delay.")
    p.add_argument("ids", metavar="ID", nargs="+", type=task_id, help="of tasks that wait or are delayed")
    p.add_argument(
        "--delay", metavar="SECONDS", type=seconds, default=0.0, help="ready after so long (default: now)"
    )
    args = p.parse_intermixed_args(words)

    async def change(queue: WorkQueue, task_id: int) -> bool:
        return await queue.reschedule(task_id, args.delay)

    return changed_each(args, change, "rescheduled", "no such task, or it is leased or has ended")


def check_one(args: argparse.Namespace) -> bool:
    if args.id is not None and args.key is not None:
        raise UsageError("name a task by its ID or by --key, not by both")
    return args.id is not None or args.key is not None
