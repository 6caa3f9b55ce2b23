"""`tenure queue requeue`, `cancel`, `purge`, `pause` and `resume`: queues changed by hand. Each says what it did."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tenure.cli._answer import answer
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import known, of_one, task_id
from tenure.cli._with_store import with_store
from tenure.observe import printable
from tenure.shared import QueueStatistics, WorkQueue
from tenure.store import Store
from tenure.web import together

_PURGEABLE = ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")
_DELETED = ("waiting", "delayed", "dead")
_MOST_IDS = 10_000
_SHOWN_IDS = 20


def requeue(words: Sequence[str]) -> int:
    """Run `tenure queue requeue`; return 1 if no named task was requeued. Raises `UsageError`, `TenureError`."""
    p = of_one("queue requeue", "Dead letters become ready again; their attempts start anew.")
    p.add_argument("ids", metavar="ID", nargs="*", type=task_id, help="of dead tasks")
    p.add_argument("--all", action="store_true", help="all dead tasks")
    given = p.parse_intermixed_args(words)
    if bool(given.ids) == given.all:
        raise UsageError("name the ids of dead tasks, or use --all")
    if given.all:
        return _all_requeued(given)

    async def change(queue: WorkQueue, one: int) -> bool:
        return await queue.requeue([one]) == 1

    return changed_each(given, change, "requeued", "not dead, or its key is in use again")


def _all_requeued(given: argparse.Namespace) -> int:
    async def task(store: Store) -> int:
        queue = WorkQueue(store, given.name)
        await known(queue, given.name)
        return await queue.requeue()

    number = with_store(given, task)
    if given.json:
        return answer({"name": given.name, "requeued": number, "unknown": []})
    return _say(given, f"{number:,} requeued" if number else "nothing requeued: no task is dead")


def cancel(words: Sequence[str]) -> int:
    """Run `tenure queue cancel`; return 1 if none was cancelled. Raises `UsageError`, `TenureError`."""
    p = of_one(
        "queue cancel", "Cancel tasks: at once if they wait; those that run have their block cancelled."
    )
    p.add_argument("ids", metavar="ID", nargs="+", type=task_id, help="of tasks that have not ended")
    given = p.parse_intermixed_args(words)
    return changed_each(given, WorkQueue.cancel, "cancelled", "no such task, or it has ended")


def changed_each(
    given: argparse.Namespace, change: Callable[[WorkQueue, int], Awaitable[bool]], word: str, otherwise: str
) -> int:
    """Change each of the tasks that are named, and say which were changed; return 1 if none was."""
    ids = list(dict.fromkeys(given.ids))
    if len(ids) > _MOST_IDS:
        raise UsageError(f"at most {_MOST_IDS:,} ids at a time")

    async def task(store: Store) -> list[bool]:
        queue = WorkQueue(store, given.name)
        await known(queue, given.name)
        return await together(*(partial(change, queue, one) for one in ids))

    changed = with_store(given, task)
    done = [one for one, was in zip(ids, changed, strict=True) if was]
    left = [one for one, was in zip(ids, changed, strict=True) if not was]
    code = 0 if done else 1
    if given.json:
        return answer({"name": given.name, word: len(done), "unknown": left}, code)
    if done:
        _say(given, f"{len(done):,} {word}: {_listed(done)}")
    if left:
        _say(given, f"{len(left):,} not {word}: {_listed(left)} ({otherwise})")
    return code


def _listed(ids: Sequence[int]) -> str:
    text = ", ".join(map(str, ids[:_SHOWN_IDS]))
    return text if len(ids) <= _SHOWN_IDS else f"{text} and {len(ids) - _SHOWN_IDS:,} more"


def purge(words: Sequence[str]) -> int:
    """Run `tenure queue purge`; return 1 if it was not confirmed. Raises `UsageError`, `TenureError`."""
    p = of_one("queue purge", "Delete waiting, delayed or dead tasks, or forget ended ones.")
    p.add_argument("states", metavar="STATE", nargs="+", choices=_PURGEABLE, help=", ".join(_PURGEABLE))
    p.add_argument(
        "--yes", action="store_true", help="do not ask for confirmation; needed without a terminal"
    )
    given = p.parse_intermixed_args(words)
    if not given.yes and not sys.stdin.isatty():
        raise UsageError("a purge cannot be undone: use --yes, since there is no terminal for a confirmation")
    statistics = with_store(given, partial(_statistics, given.name))
    if not given.yes:
        states = (
            f"{getattr(statistics, state):,} {state}" if state in _DELETED else f"all records of {state}"
            for state in dict.fromkeys(given.states)
        )
        if not _confirmed(printable(f"{given.name}: purge {', '.join(states)} tasks?")):
            print(printable(f"{given.name}: nothing purged"), file=sys.stderr)
            return 1

    async def task(store: Store) -> int:
        return await WorkQueue(store, given.name).purge(*given.states)

    number = with_store(given, task)
    if given.json:
        return answer({"name": given.name, "purged": number})
    return _say(given, f"{number:,} purged")


def _confirmed(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def set_paused(paused: bool, words: Sequence[str]) -> int:
    """Run `tenure queue pause` or `resume`. Raises `UsageError`, `TenureError`."""
    prog, meaning, word = (
        ("pause", "Hand out no more tasks, in any process.", "paused")
        if paused
        else ("resume", "Hand out tasks again.", "resumed")
    )
    given = of_one(f"queue {prog}", meaning).parse_args(words)

    async def task(store: Store) -> bool:
        queue = WorkQueue(store, given.name)
        before = (await known(queue, given.name)).paused
        await (queue.pause() if paused else queue.resume())
        return before != paused

    changed = with_store(given, task)
    if given.json:
        return answer({"name": given.name, "paused": paused, "changed": changed})
    if changed:
        return _say(given, word)
    return _say(
        given, "nothing changed: it was paused already" if paused else "nothing changed: it was not paused"
    )


async def _statistics(name: str, store: Store) -> QueueStatistics:
    return await known(WorkQueue(store, name), name)


def _say(given: argparse.Namespace, what: str) -> int:
    """Print what was done to the queue, and return the exit code of success."""
    print(printable(f"{given.name}: {what}"))
    return 0
