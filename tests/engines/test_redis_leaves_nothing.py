"""A name that was used once leaves nothing on the server, neither while the session lives nor after its end."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import anyio
import depth
import pytest

import tenure
from tenure import (
    Barrier,
    Election,
    Groups,
    Item,
    Keep,
    Limit,
    Lock,
    RateLimiter,
    ResourcePool,
    Retry,
    RWLock,
    Semaphore,
    WorkQueue,
)
from tenure.engine import RECORD_TTL

NAMES = 300 if depth.full else 20
TTL = 2.0
STATE, SESSIONS, RESTING = (b"tenure:{0}:" + key for key in (b"state", b"sessions", b"resting"))


async def lock(store, name):
    async with Lock(store, name):
        pass


async def lock_in_line(store, name):
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(lock, store, name)


async def semaphore(store, name):
    async with Semaphore(store, name, 3).hold(2):
        pass


async def rwlock(store, name):
    async with RWLock(store, name).read():
        pass
    async with RWLock(store, name).write():
        pass


async def election(store, name):
    of = Election(store, name, node="n")
    async with of.watch() as changes, of.term():
        async for leader in changes:
            if leader == "n":
                break


async def limiter(store, name):
    of = RateLimiter(store, name, Limit(100, burst=2))
    await of.hold_off(0.01)
    for _ in range(3):
        await of.acquire()
    async with of.spend() as spending:
        spending.correct(2)


async def barrier(store, name):
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(Barrier(store, name, 2).wait)


async def pool(store, name):
    of = ResourcePool(store, name)
    await of.add("it", {"color": "red"})
    async with of.claim(where={"color": "red"}):
        pass
    await of.remove("it")


async def queue(store, name):
    of = WorkQueue(store, name, keep=Keep(results=0.2))
    await of.put("task")
    async with of.take() as task:
        task.set_result("well")
    await of.join()


async def queue_with_all_kinds_of_tasks(store, name):
    of = WorkQueue(store, name, keep=Keep(results=1), max_size=2)
    async with anyio.create_task_group() as group:
        for options in ({"priority": 1}, {"key": "one"}, {"delay": 0.01}, {"expires": 60}):
            group.start_soon(partial(of.put, "task", **options))
        for _ in range(4):
            async with of.take() as task:
                group.start_soon(of.result, task.id)


async def queue_of_a_dead_letter(store, name):
    of = WorkQueue(store, name, retry=Retry(attempts=1), keep=Keep(dead=0.2))
    await of.put("task")
    await take_and_fail(of)
    if await of.requeue():  # on a slow machine the dead letter is forgotten before
        await take_and_fail(of)
    await of.purge("dead")


async def take_and_fail(queue):
    with suppress(RuntimeError):
        async with queue.take():
            raise RuntimeError


async def queue_of_what_nobody_took(store, name):
    of = WorkQueue(store, name, keep=Keep(results=0.2))
    ids = await of.put_many(["task"] * 3)
    await of.put("task", expires=60)
    await of.cancel(ids[0])
    await of.purge("waiting")


async def queue_with_rates(store, name):
    of = WorkQueue(store, name, keep=Keep(results=0.2), groups=Groups(rate=Limit(10, burst=2)))
    await of.hold_off(0.1, group="h")
    await of.put("task", group="h")
    await of.put_many([Item("task", group="g"), Item("task", group="i")])
    for _ in range(3):
        async with of.take():
            pass
    await of.hold_off(0.3, group="j")
    await of.configure(keep=None, groups=None)


async def paused_queue(store, name):
    of = WorkQueue(store, name)
    await of.pause()
    await of.resume()
    await of.statistics()


def names(server):
    """The keys, but for those of the settings of queues, which expire when their time has passed."""
    keys = {name: server("PTTL", name) / 1000 for name in server("KEYS", "*") if name != STATE}
    found = {name for name, seconds in keys.items() if not RECORD_TTL < seconds <= 2 * RECORD_TTL}
    return found - {RESTING} if SESSIONS in found else found


async def become(expected, look):
    with anyio.move_on_after(10):
        while look() != expected:
            await anyio.sleep(0.05)
    assert look() == expected


@pytest.mark.one_loop
@pytest.mark.parametrize(
    "use",
    [
        *(lock, lock_in_line, semaphore, rwlock, election, limiter, barrier, pool),
        *(
            queue,
            queue_with_all_kinds_of_tasks,
            queue_of_a_dead_letter,
            queue_of_what_nobody_took,
            queue_with_rates,
            paused_queue,
        ),
    ],
    ids=lambda use: use.__name__,
)
async def test_names_that_were_used_once_leave_nothing(redis_server, use):
    async with tenure.open_store(redis_server.url, ttl=TTL) as store:

        async def use_some(some):
            for n in some:
                await use(store, f"name {n}")

        async with anyio.create_task_group() as group:
            for start in range(10):
                group.start_soon(use_some, range(start, NAMES, 10))
        sessions = {f"tenure:{{0}}:{one.id}:session".encode() for one in store._handle.sessions}
        await become(sessions | ({SESSIONS} if sessions else set()), partial(names, redis_server))
    await become(set(), partial(names, redis_server))


@pytest.mark.one_loop
async def test_a_group_with_a_task_does_not_expire_with_the_idle_groups_beside_it(redis_server):
    async with tenure.open_store(redis_server.url) as store:
        of = WorkQueue(store, "q")

        def expires():
            return int(redis_server("PTTL", f"tenure:{{0}}:{of.key}:groups")) > 0

        await of.hold_off(60, group="idle")
        assert expires()
        await of.put("task", group="g")
        assert not expires()
        async with of.take():
            pass
        assert expires()
