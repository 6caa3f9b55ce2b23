"""`tenure queue edit`: the change of one task that waits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from tenure.cli._answer import say
from tenure.cli._arguments import seconds
from tenure.cli._errors import Interrupted, UsageError
from tenure.cli._one_queue import of_one, task_id, with_queue
from tenure.cli._payload import read_payload
from tenure.errors import TaskNotWaiting
from tenure.shared import WorkQueue

from ._one_task import check_one
from ._put import group, name, priority


def edit(words: Sequence[str]) -> int:
    p = of_one("queue edit", "Change a task that is waiting or delayed; all else stays.")
    p.add_argument("id", metavar="ID", nargs="?", type=task_id, help="of the task")
    p.add_argument("--key", type=name, help="the task that has this key, in place of the ID")
    p.add_argument("--payload", metavar="JSON", help="a JSON value; - reads it")
    p.add_argument("--priority", metavar="N", type=priority, help="higher first")
    p.add_argument("--delay", metavar="S", type=seconds, help="ready after so many seconds from now")
    p.add_argument("--group", type=group, help="the tasks with which it takes turns; '' for no group")
    args = p.parse_intermixed_args(words)
    if not check_one(args):
        raise UsageError("name a task by its ID or by --key")
    changes: dict[str, Any] = {"priority": args.priority, "delay": args.delay, "group": args.group}
    changes = {option: value for option, value in changes.items() if value is not None}
    if args.group == "":
        changes["group"] = None
    if args.payload is not None:
        changes["payload"] = read_payload(args.payload)
    if not changes:
        raise UsageError("say what to change: --payload, --priority, --delay or --group")
    edited = with_queue(args, partial(_edit, args, changes))
    return say(args, {"name": args.name, "id": edited}, f"{args.name}: task {edited} changed")


async def _edit(args: argparse.Namespace, changes: dict[str, Any], queue: WorkQueue) -> int:
    try:
        return await queue.edit(args.id or 0, key=args.key, **changes)
    except TaskNotWaiting as refused:
        raise Interrupted(f"{args.name}: not changed: {refused.named} is {refused.state}") from None
    except ValueError as problem:  # the payload is nested too deeply
        raise UsageError(str(problem)) from problem
