"""The endings of a queue are read from the newest on, whatever gaps there are between their ranks."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

import tenure
from tenure.web._newest import Newest


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store):
        self.store, self.asked = store, 0

    async def call(self, operation, **how):
        self.asked += 1
        return await self.store.call(operation, **how)


@contextlib.asynccontextmanager
async def ended(outcomes):
    """A queue in which a task is done at each False and dies at each True; its dead tasks, and all."""
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(
            store,
            "mails",
            max_size=100_000,
            retry=tenure.Retry(attempts=1),
            keep=tenure.Keep(tracebacks=False),
        )
        ids = await queue.put_many(list(outcomes))
        for dies in outcomes:
            with contextlib.suppress(KeyError):
                async with queue.take():
                    if dies:
                        raise KeyError("city")
        yield queue, [task for task, dies in zip(ids, outcomes, strict=True) if dies], ids


async def read(queue, state, limit):
    """The ids of all tasks in the state, and how many operations it took to read them."""
    store = Counting(queue.store._handle)
    newest = Newest(store, queue.key, state)
    records, after = await newest.page("", limit)
    found = [record.id for record in records]
    while after:
        records, after = await newest.page(after, limit)
        assert 0 < len(records) <= limit or not after
        found += [record.id for record in records]
    return found, store.asked


@given(outcomes=st.lists(st.booleans(), max_size=80), limit=st.integers(1, 20))
@example(outcomes=[True] * 20 + [False] * 60 + [True], limit=5)
async def test_every_ending_comes_once_the_newest_first(outcomes, limit):
    async with ended(outcomes) as (queue, dead, ids):
        assert (await read(queue, "dead", limit))[0] == dead[::-1]
        assert (await read(queue, "ended", limit))[0] == ids[::-1]


@pytest.mark.parametrize("every", [1, 2, 50])
async def test_a_page_costs_few_operations_however_rare_dead_tasks_are(every):
    async with ended([n % every == 0 for n in range(600)]) as (queue, dead, _):
        found, asked = await read(queue, "dead", 20)
    assert found == dead[::-1]
    assert asked <= len(dead) // 20 * 2 + 15


async def test_tasks_that_were_requeued_have_higher_ranks_than_endings_are_counted():
    async with ended([True] * 3) as (queue, _, ids):
        for _ in range(200):
            await queue.requeue()
            for _ in range(3):
                with contextlib.suppress(KeyError):
                    async with queue.take():
                        raise KeyError("city")
        assert (await queue.tasks("dead").page()).records[0].rank > 500
        found, asked = await read(queue, "dead", 20)
    assert found == ids[::-1]
    assert asked <= 30
