"""`tenure queue requeue`, `cancel`, `purge`, `pause` and `resume`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from tenure.cli._answer import answer, say
from tenure.cli._arguments import seconds
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import known, of_one, task_id, with_queue
from tenure.cli._table import spoken
from tenure.cli._with_store import with_store
from tenure.observe import printable
from tenure.shared import QueueStatistics, WorkQueue
from tenure.store import Store, together

from ._put import name
from ._selected import add_selection, change_selected, is_selected

_PURGEABLE = ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")
_DELETED = ("waiting", "delayed", "dead")
_CANCELLABLE = ("waiting", "delayed", "leased", "suspended", "ending")
_MOST_IDS = 10_000
_SHOWN_IDS = 20


def requeue(words: Sequence[str]) -> int:
    """Return 1 if no named task was requeued."""
    p = of_one("queue requeue", "Dead letters become ready again; their attempts start anew.")
    p.add_argument("ids", metavar="ID", nargs="*", type=task_id, help="of dead tasks")
    _add_yes(p)
    add_selection(p, changes=True)
    args = p.parse_intermixed_args(words)
    if args.ids and (is_selected(args) or args.yes):
        raise UsageError("name the ids of dead tasks, or select them")
    if is_selected(args):
        return change_selected(args, lambda queue, options: queue.requeue(**options), "requeued")
    if not args.ids:
        if not _confirmed(args, "all dead tasks become ready again", "requeue all dead tasks?"):
            return _nothing(args, "requeued")
        number = with_queue(args, WorkQueue.requeue)
        text = f"{number:,} requeued" if number else "nothing requeued: no task is dead"
        return _say(args, {"requeued": number, "unknown": []}, text)

    async def change(queue: WorkQueue, task_id: int) -> bool:
        return await queue.requeue([task_id]) == 1

    return changed_each(args, change, "requeued", "not dead, or its key is in use again")


def cancel(words: Sequence[str]) -> int:
    """Return 1 if no task was cancelled."""
    p = of_one(
        "queue cancel", "Cancel tasks: at once if they wait; those that run have their block cancelled."
    )
    p.add_argument("ids", metavar="ID", nargs="*", type=task_id, help="of tasks that have not ended")
    p.add_argument(
        "--state", choices=_CANCELLABLE, help="all tasks in this state, or those that are selected"
    )
    add_selection(p, changes=True)
    args = p.parse_intermixed_args(words)
    if bool(args.ids) == (args.state is not None):
        raise UsageError("name the ids of tasks, or the --state of the tasks to select")
    if args.state is not None:
        return change_selected(
            args, lambda queue, options: queue.cancel(state=args.state, **options), "cancelled"
        )
    if is_selected(args):
        raise UsageError("tasks are selected by their --state first")
    return changed_each(args, WorkQueue.cancel, "cancelled", "no such task, or it has ended")


def changed_each(
    args: argparse.Namespace, change: Callable[[WorkQueue, int], Awaitable[bool]], word: str, otherwise: str
) -> int:
    ids = list(dict.fromkeys(args.ids))
    if len(ids) > _MOST_IDS:
        raise UsageError(f"at most {_MOST_IDS:,} ids at a time")
    changed = with_queue(args, lambda queue: together(*(partial(change, queue, task_id) for task_id in ids)))
    done = [task_id for task_id, was in zip(ids, changed, strict=True) if was]
    left = [task_id for task_id, was in zip(ids, changed, strict=True) if not was]
    code = 0 if done else 1
    if args.json:
        return answer({"name": args.name, word: len(done), "unknown": left}, code)
    if done:
        print(printable(f"{args.name}: {len(done):,} {word}: {_listed(done)}"))
    if left:
        print(printable(f"{args.name}: {len(left):,} not {word}: {_listed(left)} ({otherwise})"))
    return code


def _listed(ids: Sequence[int]) -> str:
    text = ", ".join(map(str, ids[:_SHOWN_IDS]))
    return text if len(ids) <= _SHOWN_IDS else f"{text} and {len(ids) - _SHOWN_IDS:,} more"


def purge(words: Sequence[str]) -> int:
    """Return 1 if the purge was not confirmed."""
    p = of_one("queue purge", "Delete waiting, delayed or dead tasks, or forget ended ones.")
    p.add_argument("states", metavar="STATE", nargs="+", choices=_PURGEABLE, help=", ".join(_PURGEABLE))
    _add_yes(p)
    add_selection(p, changes=True)
    args = p.parse_intermixed_args(words)

    def purge_selected(queue: WorkQueue, options: dict[str, Any]) -> Awaitable[int]:
        return queue.purge(*args.states, **options)

    if args.dry_run:
        return change_selected(args, purge_selected, "purged")
    _check_yes(args, "a purge cannot be undone")
    statistics = with_store(args, lambda store: known(WorkQueue(store, args.name)))
    states = (
        f"{getattr(statistics, state):,} {state}" if state in _DELETED else f"all records of {state}"
        for state in dict.fromkeys(args.states)
    )
    which = "the selected of " if is_selected(args) else ""
    if not _confirmed(args, "a purge cannot be undone", f"purge {which}{', '.join(states)} tasks?"):
        return _nothing(args, "purged")
    if is_selected(args):
        return change_selected(args, purge_selected, "purged")
    number = with_store(args, lambda store: WorkQueue(store, args.name).purge(*args.states))
    return _say(args, {"purged": number}, f"{number:,} purged")


def _add_yes(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--yes", action="store_true", help="do not ask for confirmation; needed without a terminal"
    )


def _check_yes(args: argparse.Namespace, warning: str) -> None:
    if not args.yes and not sys.stdin.isatty():
        raise UsageError(f"{warning}: use --yes, since there is no terminal for a confirmation")


def _confirmed(args: argparse.Namespace, warning: str, question: str) -> bool:
    _check_yes(args, warning)
    if args.yes:
        return True
    print(printable(f"{args.name}: {question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _nothing(args: argparse.Namespace, what: str) -> int:
    print(printable(f"{args.name}: nothing {what}"), file=sys.stderr)
    return 1


def set_paused(paused: bool, words: Sequence[str]) -> int:
    prog, meaning, word = (
        ("pause", "Hand out no more tasks, in any process.", "paused")
        if paused
        else ("resume", "Hand out tasks again, and end a hold of the queue.", "resumed")
    )
    p = of_one(f"queue {prog}", meaning)
    if paused:
        p.add_argument(
            "seconds",
            nargs="?",
            type=seconds,
            metavar="S",
            help="start no task for so many seconds, and then go on at the rate; the queue is not paused",
        )
    of_group = "only of this group; with S" if paused else "end a hold of this group instead"
    p.add_argument("--group", metavar="GROUP", type=name, help=of_group)
    args = p.parse_args(words)
    if paused and args.seconds is None and args.group is not None:
        raise UsageError("--group needs a number of seconds")

    async def task(store: Store) -> QueueStatistics:
        queue = WorkQueue(store, args.name)
        before = await known(queue)
        await (queue.pause() if paused else queue.resume())
        return before

    if paused and args.seconds is not None:
        with_queue(args, lambda queue: queue.hold_off(args.seconds, group=args.group))
        document = {"group": args.group, "held_off": args.seconds}
        return _say(args, document, f"held off for {args.seconds:g} s")
    if args.group is not None:
        with_queue(args, lambda queue: queue.hold_off(0, group=args.group))
        return _say(
            args, {"group": args.group, "held_off": 0}, f"the group {args.group} is held off no longer"
        )
    before = with_store(args, task)
    held_off = 0.0 if paused else before.held_off
    changed = before.paused != paused or held_off > 0
    if held_off:
        word = f"{'resumed, and ' if before.paused else ''}held off no longer: {spoken(held_off)} were left"
    elif not changed:
        word = "nothing changed: it was paused already" if paused else "nothing changed: it was not paused"
    return _say(args, {"paused": paused, "changed": changed}, word)


def _say(args: argparse.Namespace, document: dict[str, Any], what: str) -> int:
    return say(args, {"name": args.name, **document}, f"{args.name}: {what}")
