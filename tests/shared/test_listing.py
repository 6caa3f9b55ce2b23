"""Listings: iterated in few round trips and little memory, and read page by page to the same end."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

import tenure
from tenure import EngineError, Item, Lock, ResourcePool, Retry, Selection, WorkQueue
from tenure.engine import CAP, Scan
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine
from tenure.types import Page


class Counting(FaultyEngine):
    """Memory behind a wire, which keeps what was read."""

    def __init__(self):
        super().__init__(MemoryEngine())
        self.scans = []

    async def execute(self, operations):
        self.scans += [operation for operation in operations if isinstance(operation, Scan)]
        return await super().execute(operations)


async def paged(listing, limit):
    """All records, page by page."""
    records, page = [], None
    while page is None or page.next is not None:
        page = await listing.page(None if page is None else page.next, limit)
        assert len(page.records) <= limit
        records += page.records
    return records


async def test_a_listing_costs_what_is_read_of_it():
    engine = Counting()
    async with tenure.open_store(engine) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put_many(range(2 * CAP + 10))
        for limit, expected in ((10, [10]), (CAP + 5, [CAP, 5]), (None, [CAP, CAP, CAP])):
            engine.scans.clear()
            listing = queue.tasks("waiting", limit=limit)
            for _ in range(2):  # it begins anew each time
                numbers = [record.payload async for record in listing]
                assert numbers == list(range(2 * CAP + 10 if limit is None else limit))
            assert [scan.limit for scan in engine.scans] == 2 * expected
        engine.scans.clear()
        async for _ in queue.tasks("waiting"):
            break
        await queue.tasks("waiting").page(limit=10)
        assert [scan.limit for scan in engine.scans] == [CAP, 10]


async def test_all_tasks_of_a_queue_come_once_whatever_their_state(store):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put_many([Item(n, group="ab"[n % 2]) for n in range(6)])
    await queue.put("later", delay=1000)
    async with queue.take():
        pass
    with suppress(KeyError):
        async with queue.take():
            raise KeyError
    async with queue.take():
        found = [record async for record in queue.tasks()]
        states = [record.state for record in found]
        assert states == ["waiting"] * 3 + ["delayed", "leased", "done", "dead"]
        for limit in (1, 2, 3, 100):
            assert [record.id for record in await paged(queue.tasks(), limit)] == [r.id for r in found]
            of_a = await paged(queue.tasks(where=Selection(group="a")), limit)
            assert [record.id for record in of_a] == [r.id for r in found if r.group == "a"]
        assert [r.state async for r in queue.tasks("done")] == ["done"]
        assert [r.state async for r in queue.tasks("ended")] == ["done", "dead"]
        assert [r async for r in queue.tasks("expired")] == []
        with pytest.raises(
            ValueError, match="after must be the next of a page of the same listing, not 'odd'"
        ):
            await queue.tasks().page("odd")
        with pytest.raises(EngineError):
            await queue.tasks().page("ended:x")


async def test_holders_and_waiters_are_listed_apart(store):
    lock = Lock(store, "report")
    entered = []

    async def wait():
        async with lock:
            entered.append(1)

    async with anyio.create_task_group() as group:
        async with lock as lease:
            for _ in range(3):
                group.start_soon(wait)
            with anyio.fail_after(50):
                while len(waiters := await paged(lock.waiters(), 1)) < 3:
                    await anyio.sleep(0.01)
            assert [holder.token for holder in await paged(lock.holders(), 1)] == [lease.token]
            assert [waiter.token for waiter in waiters] == [0, 0, 0]
            assert [waiter async for waiter in lock.waiters()] != []
    assert await lock.holders().page() == Page([], None) == await lock.waiters().page()


async def test_groups_and_resources_come_in_pages(store):
    queue, pool = WorkQueue(store, "jobs"), ResourcePool(store, "keys")
    await queue.put_many([Item(n, group=f"g{n}") for n in range(5)] + [Item(5, group="g3")])
    for n in range(5):
        await pool.add(f"key{n}", {"n": n})
    for limit in (1, 2, 100):
        assert [group.group for group in await paged(queue.groups(), limit)] == ["g3", "g0", "g1", "g2", "g4"]
        assert [one.metadata["n"] for one in await paged(pool.resources(), limit)] == [0, 1, 2, 3, 4]
    assert [resource.resource async for resource in pool.resources()] == [f"key{n}" for n in range(5)]
