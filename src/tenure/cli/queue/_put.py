"""`tenure queue put`: one task, from a shell or from cron."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, get_args

import tenure.engine as e
from tenure.arguments import LARGEST, check_name
from tenure.cli._answer import answer
from tenure.cli._arguments import checked, count, seconds
from tenure.cli._errors import Interrupted, UsageError
from tenure.cli._one_queue import of_one
from tenure.cli._payload import read_payloads
from tenure.cli._with_store import with_store
from tenure.errors import DuplicateTask
from tenure.shared import Item, Key, PutOptions, Retry, WorkQueue
from tenure.store import Store


def put(words: Sequence[str]) -> int:
    p = of_one(
        "queue put", "Put a task or more into a queue, and print the ids. Waits while the queue is full."
    )
    p.add_argument(
        "payload",
        metavar="JSON",
        nargs="?",
        default="null",
        help="a JSON value (default: null); - reads standard input: a value, or a value on each line",
    )
    p.add_argument("--key", type=name, help="only one task of the queue has this key while it is unfinished")
    p.add_argument(
        "--on-duplicate",
        choices=get_args(e.OnDuplicate),
        default="refuse",
        help="if a task has the key: refuse this one (default), keep that one, or replace it",
    )
    when = p.add_mutually_exclusive_group()
    when.add_argument(
        "--delay", metavar="S", type=seconds, default=0.0, help="seconds before it may be taken"
    )
    when.add_argument(
        "--at", metavar="T", type=time, help="the time, such as 2027-01-31T17:00+01:00, in its place"
    )
    p.add_argument("--priority", metavar="N", type=priority, default=0, help="higher first (default: 0)")
    p.add_argument("--group", type=name, help="the tasks with which it takes turns: a tenant, an account")
    p.add_argument(
        "--timeout", metavar="S", type=seconds, help="seconds that a try may take (default: the worker's)"
    )
    p.add_argument(
        "--deadline",
        metavar="S",
        type=seconds,
        help="seconds after which it ends as expired, also while it runs",
    )
    p.add_argument(
        "--expires",
        metavar="S",
        type=seconds,
        help="seconds after which it is dropped if no worker has taken it",
    )
    p.add_argument("--retries", metavar="N", type=count, help="tries in all (default: the worker's)")
    args = p.parse_intermixed_args(words)
    if args.key is None and args.on_duplicate != "refuse":
        raise UsageError("--on-duplicate needs --key")
    payloads = read_payloads(args.payload)
    if len(payloads) > 1 and args.key is not None:
        raise UsageError("--key is for one task, and standard input has more")
    ids = with_store(args, partial(_put, args, payloads), may_make=True)
    if args.json:
        return answer({"name": args.name, **({"id": ids[0]} if len(ids) == 1 else {"ids": ids})})
    print("\n".join(map(str, ids)))
    return 0


async def _put(args: argparse.Namespace, payloads: list[Any], store: Store) -> list[int]:
    queue = WorkQueue[Any](store, args.name)
    options: PutOptions = {
        "priority": args.priority,
        "delay": args.delay,
        "at": args.at,
        "key": None if args.key is None else Key(args.key, args.on_duplicate),
        "group": args.group,
        "expires": args.expires,
        "deadline": args.deadline,
        "timeout": args.timeout,
        "retry": None if args.retries is None else Retry(attempts=args.retries),
    }
    try:
        if len(payloads) == 1:
            return [await queue.put(payloads[0], **options)]
        items = [Item(payload, **options) for payload in payloads]
        return await queue.put_many(items, on_duplicate="keep")
    except DuplicateTask as refused:
        raise Interrupted(
            f"{args.name}: not put: task {refused.task_id} has the key {refused.key!r}; --on-duplicate keep prints"
            " its id, --on-duplicate replace puts this task in its place"
        ) from None
    except ValueError as problem:  # such as a payload that is nested too deeply
        raise UsageError(str(problem)) from problem


name = checked(partial(check_name, "it"))


def group(text: str) -> str:
    return name(text) if text else ""


def time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2027-01-31T17:00+01:00") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no offset from UTC: write {text}+01:00, or {text}Z for UTC"
        )
    return moment


def priority(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = LARGEST + 1
    if abs(number) > LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {-LARGEST:,} to {LARGEST:,}")
    return number
