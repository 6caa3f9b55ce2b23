"""Families without the handlers that would raise them."""

from __future__ import annotations

import json

from tenure import WorkQueue
from tenure.engine import Accepted, NewTask, PutChildren


async def bear(home, task, queue, *names):
    """Put children of a task of the queue `home` into a queue, and return their ids; their payloads are their names."""
    tasks = tuple(NewTask(json.dumps(name).encode()) for name in names)
    entries = tuple(f"child/pages/{name}" for name in names)
    answer = await home.store._handle.call(
        PutChildren(home.key, task.id, task.token, queue.key, entries, tasks)
    )
    assert isinstance(answer, Accepted), answer
    return answer.ids


async def three_levels(store):
    """The ids of a task of "sites" that waits for "a" and "b" of "pages", of these, and of "c" of "images" below "b".

    "a" is done, "b" waits for "c", and nobody has taken "c".
    """
    sites, pages, images = (WorkQueue(store, name) for name in ("sites", "pages", "images"))
    root = await sites.put("root")
    async with sites.take() as task:
        a, b = await bear(sites, task, pages, "a", "b")
    async with pages.take():
        pass
    async with pages.take() as task:
        (c,) = await bear(pages, task, images, "c")
    return root, a, b, c
