"""The parts that commands about one queue share."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tenure.arguments import check_name
from tenure.shared import QueueStatistics, WorkQueue, statistics_of
from tenure.store import Store, handle_of, read_counts

from ._arguments import checked, whole_number
from ._errors import UsageError
from ._with_store import parser, with_store

T = TypeVar("T")

MOST = 2**53 - 1
"""The largest id that every engine can compare."""


def of_one(prog: str, description: str) -> argparse.ArgumentParser:
    p = parser(prog, description)
    p.add_argument("name", metavar="NAME", type=name_of, help="the queue")
    return p


name_of = checked(partial(check_name, "a name"))
task_id = partial(whole_number, least=1, most=MOST)


def with_queue(args: argparse.Namespace, task: Callable[[WorkQueue], Awaitable[T]]) -> T:
    """Carry out the task on the queue that the options name. Raises `UsageError` if there is none, `TenureError`."""

    async def on_queue(store: Store) -> T:
        queue = WorkQueue(store, args.name)
        await known(queue)
        return await task(queue)

    return with_store(args, on_queue)


async def known(queue: WorkQueue) -> QueueStatistics:
    counts = await read_counts(handle_of(queue.store), queue.key)
    if not counts.known:
        raise UsageError(
            f"there is no queue {queue.name} in namespace {queue.store.namespace};"
            " tenure queue ls lists those that there are"
        )
    return statistics_of(counts)
