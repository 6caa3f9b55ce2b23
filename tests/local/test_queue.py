"""Queues inside a process: first in first out, by priority, closed, aborted, and under every schedule."""

from __future__ import annotations

import asyncio
import gc
import math
from weakref import ref

import anyio
import pytest
from anyio import ClosedResourceError, EndOfStream, WouldBlock

from tenure.local import PriorityQueue, Queue
from tenure.testing import (
    assert_checkpoints,
)

QUEUES = [Queue, PriorityQueue]
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
either = pytest.mark.parametrize("make", QUEUES)


def drained(queue):
    items = []
    while len(queue):
        items.append(queue.get_nowait())
    return items


# ------------------------------------------------------------------------------------------------------ what it does


@either
async def test_a_full_queue_makes_putters_wait_in_line(make):
    queue = make(2)
    done = []

    async def put(n):
        await queue.put(n)
        done.append(n)

    async with anyio.create_task_group() as group:
        for n in range(6):
            group.start_soon(put, n)
            await anyio.wait_all_tasks_blocked()
        assert done == [0, 1]
        assert queue.statistics().tasks_waiting_put == 4
        with pytest.raises(WouldBlock):
            queue.put_nowait(9)
        for n in range(6):
            assert await queue.get() == n
            await anyio.wait_all_tasks_blocked()
        assert done == [0, 1, 2, 3, 4, 5]


async def test_higher_priority_comes_first_and_items_are_never_compared():
    queue = PriorityQueue(20)
    items = [object() for _ in range(6)]
    for priority, item in zip((0, 5, -1, 5, 0, 9), items, strict=True):
        await queue.put(item, priority)
    assert drained(queue) == [items[n] for n in (5, 1, 3, 0, 4, 2)]


async def test_a_blocked_putter_of_high_priority_is_let_in_first():
    """asyncio lets them in as they came."""
    queue = PriorityQueue(1)
    await queue.put("first")
    async with anyio.create_task_group() as group:
        for item, priority in (("low", 0), ("high", 9), ("middle", 5), ("high too", 9)):
            group.start_soon(queue.put, item, priority)
            await anyio.wait_all_tasks_blocked()
        got = []
        for _ in range(5):
            got.append(await queue.get())
            await anyio.wait_all_tasks_blocked()
    assert got == ["first", "high", "high too", "middle", "low"]


async def test_aging_bounds_the_wait(virtual_clock):
    queue = PriorityQueue(100, aging=10)
    await queue.put("old", 0)
    await anyio.sleep(8)
    await queue.put("younger", 1)
    await anyio.sleep(2)
    await queue.put("important", 100)
    assert await queue.get() == "important"
    await queue.put("important", 100)
    await anyio.sleep(0.5)
    assert [await queue.get() for _ in range(3)] == ["old", "important", "younger"]


async def test_the_time_in_front_of_a_full_queue_counts_for_aging(virtual_clock):
    queue = PriorityQueue(1, aging=10)
    await queue.put("first", 0)
    async with anyio.create_task_group() as group:
        group.start_soon(queue.put, "blocked", 0)
        await anyio.sleep(11)
        group.start_soon(queue.put, "important", 9)
        await anyio.sleep(1)
        assert await queue.get() == "first"
        await anyio.sleep(0)
        assert await queue.get() == "blocked"
        assert await queue.get() == "important"


async def test_the_oldest_comes_first_though_it_was_let_in_last(virtual_clock):
    queue = PriorityQueue(2, aging=10)
    await queue.put("first", 5)
    await queue.put("second", 5)
    async with anyio.create_task_group() as group:
        group.start_soon(queue.put, "old", 0)
        await virtual_clock.settle()
        group.start_soon(queue.put, "important", 9)
        await virtual_clock.settle()
        assert await queue.get() == "first"
        await anyio.sleep(9)
        assert await queue.get() == "important"
        await queue.get()
        await queue.put("young", 7)
        await anyio.sleep(2)
        assert [await queue.get() for _ in range(2)] == ["old", "young"]


@on_asyncio
@either
async def test_items_go_back_to_their_places_when_their_takers_are_cancelled(make):
    """W3, of several in one turn: asyncio's own cancellation reaches those who were handed something."""
    queue = make(5)
    takers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await anyio.wait_all_tasks_blocked()
    for n in range(5):
        queue.put_nowait(n)
    for taker in takers:
        taker.cancel()
    await asyncio.wait(takers)
    assert drained(queue) == [0, 1, 2, 3, 4]
    assert queue.statistics().unfinished == 5


@on_asyncio
async def test_an_old_item_goes_back_to_its_place_too(virtual_clock):
    queue = PriorityQueue(5, aging=10)
    takers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await virtual_clock.settle()
    for n in range(4):
        queue.put_nowait(n, priority=n)
    for taker in takers:
        taker.cancel()
    await asyncio.wait(takers)
    await anyio.sleep(11)
    assert drained(queue) == [0, 1, 2, 3]


@either
async def test_every_call_is_a_checkpoint(make):
    queue = make(3)
    with assert_checkpoints():
        await queue.put(1)
    with assert_checkpoints():
        await queue.get()
    queue.task_done()
    with assert_checkpoints():
        await queue.join()


@pytest.mark.parametrize("size", [0, -1, 0.5, "3", None, True])
@either
def test_a_wrong_size_is_refused(make, size):
    with pytest.raises((ValueError, TypeError), match="max_size must be"):
        make(size)


def test_a_wrong_aging_is_refused():
    with pytest.raises(ValueError, match="aging must be"):
        PriorityQueue(1, aging=-1)
    with pytest.raises(TypeError, match="aging must be"):
        PriorityQueue(1, aging="1")


@pytest.mark.parametrize("priority", ["high", None, 1.5])
async def test_a_wrong_priority_is_refused(priority):
    queue = PriorityQueue(1)
    with pytest.raises(TypeError, match="priority must be an int"):
        queue.put_nowait(1, priority)
    with pytest.raises(TypeError, match="priority must be an int"):
        await queue.put(1, priority)
    assert queue.statistics() == PriorityQueue(1).statistics()


@either
async def test_without_a_bound(make):
    queue = make(math.inf)
    for n in range(1000):
        queue.put_nowait(n)
    assert len(queue) == 1000
    assert queue


@either
async def test_what_it_shows(make):
    queue = make(2)
    await queue.put(1)
    assert repr(queue) == f"<{make.__name__} 1/2, 1 unfinished, 0 putting, 0 getting>"
    queue.close()
    assert " closed " in repr(queue)
    assert queue.statistics().closed


# ------------------------------------------------------------------------------------------------- being done, closing


@either
async def test_join_waits_until_all_is_done(make):
    queue = make(10)
    done = []

    async def work():
        async for item in queue:
            await anyio.sleep(0)
            done.append(item)
            queue.task_done()

    async with anyio.create_task_group() as group:
        for n in range(5):
            await queue.put(n)
        group.start_soon(work)
        await queue.join()
        assert done == [0, 1, 2, 3, 4]
        queue.close()
    with pytest.raises(ValueError, match="more often"):
        queue.task_done()


@either
async def test_a_block_reports_its_item_however_it_ends(make):
    queue = make(10)
    for n in range(3):
        await queue.put(n)
    async with queue.take() as item:
        assert item == 0
    with pytest.raises(ZeroDivisionError):
        async with queue.take():
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with queue.take():
            scope.cancel()
            await anyio.sleep(1)
    await queue.join()


@either
async def test_a_closed_queue_is_drained(make):
    queue = make(10)
    for n in range(3):
        await queue.put(n)
    queue.close()
    queue.close()
    with pytest.raises(ClosedResourceError):
        queue.put_nowait(4)
    with pytest.raises(ClosedResourceError):
        await queue.put(4)
    assert [item async for item in queue] == [0, 1, 2]
    with pytest.raises(EndOfStream):
        queue.get_nowait()
    with pytest.raises(EndOfStream):
        await queue.get()


@either
async def test_closing_wakes_all_waiters(make):
    full, empty = make(1), make(1)
    await full.put(1)
    errors = []

    async def attempt(function, *args):
        try:
            await function(*args)
        except (ClosedResourceError, EndOfStream) as error:
            errors.append(type(error))

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(attempt, full.put, 2)
            group.start_soon(attempt, empty.get)
        await anyio.wait_all_tasks_blocked()
        full.close()
        empty.close()
    assert sorted(errors, key=str) == [ClosedResourceError] * 2 + [EndOfStream] * 2
    assert drained(full) == [1]


@either
async def test_a_closed_queue_keeps_no_item_of_those_it_refused(make):
    class Item:
        pass

    queue = make(1)
    await queue.put(None)
    refused = Item()
    seen = ref(refused)

    async def put(item):
        with pytest.raises(ClosedResourceError):
            await queue.put(item)

    async with anyio.create_task_group() as group:
        group.start_soon(put, refused)
        await anyio.wait_all_tasks_blocked()
        queue.close()
    del refused
    gc.collect()
    assert seen() is None


@either
async def test_abort_returns_what_it_dropped(make):
    queue = make(3)
    for n in range(3):
        await queue.put(n)
    assert await queue.get() == 0
    queue.task_done()
    assert queue.abort() == [1, 2]
    await queue.join()
    with pytest.raises(EndOfStream):
        await queue.get()
    assert queue.abort() == []


# ------------------------------------------------------------------------------------------- cancellation and schedules


# what users of asyncio know


@pytest.mark.parametrize("kind", [Queue, PriorityQueue])
def test_the_names_of_asyncio(kind):
    queue = kind(2)
    assert (queue.maxsize, queue.qsize(), queue.empty(), queue.full()) == (2, 0, True, False)
    queue.put_nowait("a")
    assert (queue.qsize(), queue.empty(), queue.full()) == (1, False, False)
    queue.put_nowait("b")
    assert (queue.qsize(), queue.empty(), queue.full()) == (2, False, True)
    assert kind(math.inf).maxsize == math.inf
    assert not kind(math.inf).full()


@pytest.mark.parametrize("item", [(5, "job"), (0.5, 1, "job"), (1,)])
async def test_a_priority_inside_of_the_item_is_warned_of(item):
    queue = PriorityQueue(10)
    with pytest.warns(UserWarning, match="is put with priority 0: write put") as caught:
        await queue.put(item)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="is put with priority 0") as caught:
        queue.put_nowait(item)
    assert caught[0].filename == __file__
    assert [queue.get_nowait(), queue.get_nowait()] == [item, item]


async def test_other_items_and_priorities_that_were_said_are_not_warned_of():
    queue = PriorityQueue(10)
    await queue.put((5, "job"), priority=0)
    queue.put_nowait((5, "job"), 1)
    for item in ((), ("job", 5), [5, "job"], 5, None):
        await queue.put(item)
    assert queue.qsize() == 7
    assert queue.get_nowait() == (5, "job")
