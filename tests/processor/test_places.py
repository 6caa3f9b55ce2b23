"""Lending: idle places of one kind go to tasks of another, and come back with the end of one task."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest

from tenure import ResourcePool, Task
from tenure.local import CircuitBreaker
from tenure.processor import Adaptive, Context, Preset, Processor

SIX = Preset(workers=6, connections=1, rate=float("inf"), queue_size=1000)
KINDS = {"search": 4, "checkout": 2}


class Shop:
    """Runs tasks of two kinds, each for as many seconds as its payload says, and knows how many run at once."""

    def __init__(self):
        self.running = Counter()
        self.most = Counter()
        self.started = []

    async def __call__(self, task: Task, context: Context):
        self.running[context.kind] += 1
        self.most[context.kind] = max(self.most[context.kind], self.running[context.kind])
        assert self.running.total() <= 6
        self.started.append((context.kind, anyio.current_time()))
        try:
            await anyio.sleep(task.payload)
        finally:
            self.running[context.kind] -= 1

    def processor(self, store, **options):
        return Processor(store, "shop", self, **{"preset": SIX, "kinds": KINDS, "lend": True, **options})

    def starts(self, kind, since):
        return sorted(round(time - since, 3) for each, time in self.started if each == kind)


async def test_a_kind_alone_has_all_places(store, virtual_clock):
    shop = Shop()
    async with shop.processor(store) as processor:
        await processor.submit_many([1.0] * 12, kind="checkout")
        await anyio.sleep(0.5)
        metrics = processor.metrics()
        assert (metrics.busy, metrics.limit, metrics.workers) == (6, 6, 6)
        assert (metrics.kinds["checkout"].busy, metrics.kinds["checkout"].workers) == (6, 2)
        await processor.join()
    assert shop.most == {"checkout": 6}


async def test_without_lending_shares_are_strict(memory):
    shop = Shop()
    async with shop.processor(memory, lend=False) as processor:
        await processor.submit_many([1.0] * 12, kind="checkout")
        await processor.join()
    assert shop.most == {"checkout": 2}


async def test_what_was_lent_comes_back_with_the_end_of_one_task_for_each(store, virtual_clock):
    shop = Shop()
    async with shop.processor(store) as processor:
        # they end one after the other, ten seconds after they began
        for _ in range(6):
            await processor.submit(10.0, kind="checkout")
            await anyio.sleep(0.1)
        await processor.submit_many([10.0] * 20, kind="checkout")
        since = anyio.current_time()
        await processor.submit_many([30.0] * 8, kind="search")
        await anyio.sleep(10)
        starts = shop.starts("search", since)
        assert len(starts) == 4 and starts[-1] < 10, "each began with the end of one task of the borrower"
        assert shop.running == {"search": 4, "checkout": 2}
        waits = processor.metrics().kinds["search"].waits.place
        assert waits.count == 4 and 9 < waits.greatest < 10
        await anyio.sleep(15)
        assert shop.running == {"search": 4, "checkout": 2}, "both have work: each has its share"


async def test_all_that_end_at_once_go_to_the_owner_first(memory):
    shop = Shop()
    async with shop.processor(memory) as processor:
        await processor.submit_many([10.0] * 30, kind="checkout")
        await anyio.sleep(1)
        since = anyio.current_time()
        await processor.submit_many([10.0] * 30, kind="search")
        await anyio.sleep(10)
        assert shop.starts("search", since) == [9.0] * 4
        assert shop.running == {"search": 4, "checkout": 2}


async def test_three_kinds_lend_too_and_tasks_of_no_kind(memory):
    shop = Shop()
    async with shop.processor(memory, kinds={"a": 1, "b": 2}) as processor:
        await processor.submit_many([1.0] * 40)
        await processor.submit_many([1.0] * 40, kind="b")
        await anyio.sleep(5.5)
        assert shop.running in ({None: 4, "b": 2}, {None: 3, "b": 3})
        await processor.submit_many([1.0] * 40, kind="a")
        await anyio.sleep(2)
        assert +shop.running == {None: 3, "b": 2, "a": 1}


async def test_a_task_that_waits_for_the_breaker_has_no_place(memory):
    async def handler(task: Task, context: Context):
        if context.kind == "search":
            raise OSError
        await shop(task, context)

    shop = Shop()
    breaker = partial(CircuitBreaker, min_calls=1, window=1, open_seconds=1000)
    async with Processor(
        memory, "p", handler, preset=SIX, kinds=KINDS, lend=True, breaker=breaker
    ) as processor:
        await processor.submit_many([1.0] * 10, kind="search")
        await anyio.sleep(1)
        await processor.submit_many([1.0] * 20, kind="checkout")
        await anyio.sleep(1.5)
        assert shop.running == {"checkout": 6}
        await processor.drain()


async def test_each_kind_has_its_own_adaptive_limit(memory):
    async def handler(task: Task, context: Context):
        busy[context.kind] += 1
        most[context.kind] = max(most[context.kind], busy[context.kind])
        # one kind becomes slow
        slow = context.kind == "search" and anyio.current_time() > begun + 10
        await anyio.sleep(3 if slow else 0.3)
        busy[context.kind] -= 1

    busy, most, begun = Counter(), Counter(), anyio.current_time()
    adaptive = Adaptive(window=1, samples=3)
    async with Processor(
        memory, "p", handler, preset=SIX, kinds=KINDS, lend=True, adaptive=adaptive
    ) as processor:
        await processor.submit_many(range(500), kind="checkout")
        await processor.submit_many(range(500), kind="search")
        await anyio.sleep(50)
        kinds = processor.metrics().kinds
        assert kinds["search"].limit < 3 and most["checkout"] > 3
        assert kinds["checkout"].busy + kinds["search"].busy <= 6
        await processor.drain()


async def test_the_place_comes_before_the_claim(memory):
    keys = ResourcePool(memory, "keys")
    for name in range(6):
        await keys.add(str(name))
    shop = Shop()
    async with shop.processor(memory, claims=keys) as processor:
        await processor.submit_many([10.0] * 6, kind="checkout")
        await anyio.sleep(1)
        await processor.submit_many([10.0] * 4, kind="search")
        await anyio.sleep(1)
        assert (await keys.statistics()).waiting == 0
        await processor.join()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lend": 1, "kinds": KINDS}, TypeError, "lend must be True or False, not 1"),
        ({"lend": True}, ValueError, "lend needs kinds="),
    ],
)
async def test_settings_that_make_no_sense(memory, options, error, message):
    with pytest.raises(error, match=message):
        Processor(memory, "p", Shop(), preset=SIX, **options)
