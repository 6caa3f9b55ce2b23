"""Users' functions that are called again and again in one job run in contexts of their own."""

from __future__ import annotations

from contextvars import ContextVar

import anyio

from tenure.local import Coalescer, Pool, Router

variable = ContextVar("variable", default=0)


def look_and_set(seen):
    seen.append(variable.get())
    variable.set(1)


async def test_what_a_handler_of_a_router_sets_is_not_there_in_the_next_call():
    seen = []

    async def handler(kind, item):
        look_and_set(seen)
        await anyio.sleep(0)
        assert variable.get() == 1

    async with Router({"a": 1}, handler, max_size=9) as router:
        for _ in range(3):
            await router.put("a", 1)
    assert seen == [0, 0, 0]


async def test_what_a_flush_sets_is_not_there_in_the_next_flush():
    seen = []

    async def flush(_):
        look_and_set(seen)

    async with Coalescer(flush, window=0) as coalescer:
        for _ in range(3):
            await coalescer.put("k", 1)
    assert seen == [0, 0, 0]


async def test_what_the_creation_of_a_resource_sets_is_not_there_in_the_next_creation():
    seen = []

    async def create():
        look_and_set(seen)

    async with Pool(create, close=lambda _: None, min_size=3, max_size=3):
        await anyio.wait_all_tasks_blocked()
    assert seen == [0, 0, 0]
