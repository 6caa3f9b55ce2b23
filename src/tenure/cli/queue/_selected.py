"""The options that select tasks, and changes of the selected tasks."""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tenure.arguments import LONGEST_NAME, check_text
from tenure.cli._answer import say
from tenure.cli._arguments import checked, count, seconds
from tenure.cli._one_queue import with_queue
from tenure.shared import Selection, WorkQueue

from ._put import group

_text = checked(partial(check_text, "it", most=LONGEST_NAME))
_WHERE: dict[str, Callable[[str], Any]] = {"older_than": seconds, "key_prefix": _text, "error": _text}
"""The fields of a selection that have no option of their own."""


def add_selection(p: argparse.ArgumentParser, *, changes: bool) -> None:
    options = p.add_argument_group("select (each option narrows the choice)")
    options.add_argument(
        "--group", metavar="GROUP", type=group, help="the tasks of this group; '' for those without a group"
    )
    options.add_argument(
        "--where",
        metavar="FIELD=VALUE",
        type=_field,
        action="append",
        default=[],
        help="repeatable: older_than=SECONDS in their state, key_prefix=PREFIX, error=TYPE of the last try such as"
        " TimeoutError, meta.NAME=TEXT",
    )
    if changes:
        options.add_argument("--limit", metavar="N", type=count, help="at most so many tasks")
        options.add_argument(
            "--dry-run", action="store_true", help="change nothing, and print how many would be changed"
        )


def selection_of(args: argparse.Namespace) -> Selection:
    given: dict[str, Any] = {} if args.group is None else {"group": args.group}
    for field, value in args.where:
        kind, _, name = field.partition(".")
        given[kind] = {**given.get(kind, {}), name: value} if name else value
    return Selection(**given)


def is_selected(args: argparse.Namespace) -> bool:
    return selection_of(args) != Selection() or args.limit is not None or args.dry_run


def change_selected(
    args: argparse.Namespace, change: Callable[[WorkQueue, dict[str, Any]], Awaitable[int]], word: str
) -> int:
    options: dict[str, Any] = {"where": selection_of(args), "limit": args.limit, "dry_run": args.dry_run}
    number = with_queue(args, lambda queue: change(queue, options))
    document = {"name": args.name, word: number, "dry_run": args.dry_run}
    return say(args, document, f"{args.name}: {number:,} {'would be ' if args.dry_run else ''}{word}")


def _field(text: str) -> tuple[str, Any]:
    field, equals, value = text.partition("=")
    if not equals or not (field in _WHERE or re.fullmatch("meta[.].+", field)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(_WHERE)} or meta.NAME, with =VALUE"
        )
    return field, _WHERE.get(field, str)(value)
