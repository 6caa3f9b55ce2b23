"""The options by which commands select tasks, and the changes of the tasks that are selected."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tenure.arguments import LONGEST_NAME, check_text
from tenure.cli._answer import say
from tenure.cli._arguments import checked, count, seconds
from tenure.cli._one_queue import with_queue
from tenure.shared import Selection, WorkQueue

from ._put import name

_OPTIONS = tuple(Selection.__dataclass_fields__)
_text = checked(partial(check_text, "it", most=LONGEST_NAME))


def add_selection(p: argparse.ArgumentParser, *, changes: bool) -> None:
    """Add the options of a selection; if it `changes` the tasks, also the limit and the trial."""
    options = p.add_argument_group("select (each option narrows the choice)")
    one_of, add = options.add_mutually_exclusive_group().add_argument, options.add_argument
    add("--older-than", metavar="S", type=seconds, help="in their state for more than so many seconds")
    one_of("--group", type=name, help="the tasks of this group")
    one_of("--no-group", action="store_true", help="the tasks without a group")
    add("--key-prefix", metavar="PREFIX", type=_text, help="the tasks whose keys begin with it")
    add(
        "--error",
        metavar="TYPE",
        type=_text,
        help="the last try ended with this exception, such as TimeoutError",
    )
    add("--meta", metavar="NAME=TEXT", type=_pair, action="append", help="the meta has this text; repeatable")
    if changes:
        add("--limit", metavar="N", type=count, help="at most so many tasks")
        add("--dry-run", action="store_true", help="change nothing, and print how many would be changed")


def selection_of(args: argparse.Namespace) -> Selection:
    """The selection that the options describe; it selects all without any."""
    given = {"group": "" if args.no_group else args.group, "meta": dict(args.meta) if args.meta else None}
    given |= {option: getattr(args, option) for option in _OPTIONS if option not in given}
    return Selection(**given)


def is_selected(args: argparse.Namespace) -> bool:
    """True if an option of a selection is given, or the limit or the trial."""
    return selection_of(args) != Selection() or args.limit is not None or args.dry_run


def change_selected(
    args: argparse.Namespace, change: Callable[[WorkQueue, dict[str, Any]], Awaitable[int]], word: str
) -> int:
    """Change the tasks that the options select, and say how many. Raises `UsageError`, `TenureError`."""
    options: dict[str, Any] = {"where": selection_of(args), "limit": args.limit, "dry_run": args.dry_run}
    number = with_queue(args, lambda queue: change(queue, options))
    document = {"name": args.name, word: number, "dry_run": args.dry_run}
    return say(args, document, f"{args.name}: {number:,} {'would be ' if args.dry_run else ''}{word}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=TEXT")
    return key, value
