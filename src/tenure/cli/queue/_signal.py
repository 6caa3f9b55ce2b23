"""`tenure queue signal`: a signal for a task that waits for it, from a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from tenure.cli._answer import say
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import of_one, task_id, with_queue
from tenure.cli._payload import read_payload
from tenure.shared import WorkQueue


def signal(words: Sequence[str]) -> int:
    """Return 1 if the signal was not accepted."""
    p = of_one("queue signal", "Send a task the signal for which its handler waits with task.wait_for.")
    p.add_argument(
        "words",
        metavar="[ID] SIGNAL [JSON]",
        nargs="+",
        help="the task, the name of the signal, and its value (default: null); - reads it",
    )
    p.add_argument("--key", help="the task that has this key, in place of an ID")
    args = p.parse_intermixed_args(words)
    rest = list(args.words)
    args.id = 0 if args.key is not None else _id(p, rest.pop(0))
    if not 1 <= len(rest) <= 2:
        raise UsageError("name the task by its ID or by --key, then the signal, and its value if it has any")
    value = read_payload(rest[1] if len(rest) == 2 else "null")
    sent = with_queue(args, partial(_send, args, rest[0], value))
    what = "sent" if sent else "not sent: no such task, it has ended, has another value, or waits no longer"
    document = {"name": args.name, "signal": rest[0], "sent": sent}
    return say(args, document, f"{args.name}: {rest[0]} {what}", not sent)


def _id(p: argparse.ArgumentParser, word: str) -> int:
    try:
        return task_id(word)
    except argparse.ArgumentTypeError as problem:
        p.error(f"argument ID: {problem}")


async def _send(args: argparse.Namespace, name: str, value: Any, queue: WorkQueue) -> bool:
    try:
        return await queue.signal(args.id, name, value, key=args.key)
    except ValueError as problem:  # a name that is too long, or a value that is nested too deeply
        raise UsageError(str(problem)) from problem
