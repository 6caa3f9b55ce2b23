"""A queue and workers for each kind."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.world import pause

from tenure.local import Router
from tenure.testing import cancellable, newcomer


@scenario("local.Router.put", "local.Router.join", "local.Router.__asynccontextmanager__")
async def what_was_put_is_handled_once():
    put, handled, busy = [], [], {"a": 0, "b": 0}

    async def handle(kind, item):
        busy[kind] += 1
        assert busy[kind] <= {"a": 1, "b": 2}[kind]
        try:
            await pause()
            handled.append(item)
        finally:
            busy[kind] -= 1

    async def producer(kind, items, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        for item in items:
            await router.put(kind, item)
            put.append(item)

    async def victim(call, *args):
        with cancellable():
            await call(*args)

    async with Router({"a": 1, "b": 2}, handle, max_size=1) as router:
        async with anyio.create_task_group() as group:
            group.start_soon(producer, "a", ["a1", "a2", "a3"])
            group.start_soon(victim, producer, "a", ["v1", "v2"])
            group.start_soon(producer, "b", ["b1", "b2"])
            group.start_soon(producer, "b", ["b3"], newcomer)
            group.start_soon(victim, router.join)
        await router.join()
        assert sorted(handled) == sorted(put)
        await router.put("a", "last")
    assert handled[-1] == "last" and len(put) >= 6
    mine = [item for item in handled if item in ("a1", "a2", "a3")]
    assert mine == ["a1", "a2", "a3"], "one worker, in order"
    kinds = router.statistics().kinds.values()
    assert all((kind.busy, kind.unfinished) == (0, 0) for kind in kinds)


@scenario("local.Router.__asynccontextmanager__")
async def a_router_that_is_cancelled_stops_its_workers():
    begun, ended = [], []

    async def handle(kind, item):
        begun.append(item)
        try:
            await pause()
        finally:
            ended.append(item)

    with cancellable():
        async with Router({"a": 2}, handle, max_size=5) as router:
            for item in range(4):
                await router.put("a", item)
    assert sorted(begun) == sorted(ended)
