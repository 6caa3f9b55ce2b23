# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import tenure.engine as e
from tenure.store import StoreHandle

from ._task import Task

P = TypeVar("P")


def completing(
    store: StoreHandle, key: str, tasks: Iterable[Task[P]]
) -> (
    tuple[e.Enlistment[tuple[int, ...] | e.Reply], Callable[[tuple[int, ...] | e.Reply], list[Task[P]]]]
    | None
):
    listed = list(tasks)
    if len(listed) > e.CAP:
        raise ValueError(f"tasks must be at most {e.CAP}, not {len(listed)}")
    for task in listed:
        if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] users choose it
            raise TypeError(f"tasks must be tasks, not {task!r}")
    held = [(task, *completion) for task in listed if (completion := task._completion(key)) is not None]
    if not held:
        return None
    # a process has one session at a time for a queue
    session = held[-1][1]
    joined = [(task, settle) for task, its, settle in held if its is session]

    def judge(answer: tuple[int, ...] | e.Reply) -> list[Task[P]]:
        if isinstance(answer, e.Reply):
            return []
        done = [task for task, _ in joined if task.token not in answer]
        for task in done:
            task._on_completed()
        return done

    operation = e.CompleteAll(session.id, key, tuple(settle for _, settle in joined))
    return store.enlist(operation), judge
