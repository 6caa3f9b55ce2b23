"""Completing many tasks at once in the user's transaction: one statement, which may refuse single tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from tenure.dbapi import Completed, run_enlisted
from tenure.engine import CAP, CompleteAll, Reply
from tenure.store import Store

from ._task import Task

P = TypeVar("P")


def complete_all(
    store: Store, key: str, connection: object, tasks: Iterable[Task[P]]
) -> Completed[list[Task[P]]] | Awaitable[list[Task[P]]]:
    """Complete the tasks that are still held, and return them. Raises what `WorkQueue.complete_in` raises."""
    listed = list(tasks)
    if len(listed) > CAP:
        raise ValueError(f"tasks must be at most {CAP}, not {len(listed)}")
    for task in listed:
        if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] users choose it
            raise TypeError(f"tasks must be tasks, not {task!r}")
    held = [(task, *completion) for task in listed if (completion := task.completion(key)) is not None]
    if not held:
        return Completed([])
    # a process has one session at a time for a queue
    session = held[-1][1]
    joined = [(task, settle) for task, its, settle in held if its is session]

    def judge(answer: tuple[int, ...] | Reply) -> list[Task[P]]:
        if isinstance(answer, Reply):
            return []
        done = [task for task, _ in joined if task.token not in answer]
        for task in done:
            task.on_completed()
        return done

    operation = CompleteAll(session.id, key, tuple(settle for _, settle in joined))
    return run_enlisted(connection, store.enlist(operation), judge)
