"""A store that is left in another task than the one that entered it is closed, and says what to do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import anyio
import pytest

import tenure
from tenure import Lock


@pytest.mark.backends("asyncio")
async def test_left_in_another_task():
    """As by fixtures and hooks that run in tasks of their own."""
    store = tenure.open_store("memory:")
    await asyncio.create_task(store.__aenter__())
    hold = Lock(store, "x").hold()
    await asyncio.create_task(hold.__aenter__())
    with pytest.raises(RuntimeError, match="it has been given back. Keep its `async with` in one task"):
        await hold.__aexit__(None, None, None)
    with pytest.raises(
        RuntimeError,
        match=r"it is closed. Enter and leave it in one task.*https://\S+/how-to/threads-and-processes\S*#a-store",
    ):
        await store.__aexit__(None, None, None)
    statistics = await store.statistics()
    assert statistics.jobs == ()
    assert statistics.sessions == statistics.held == 0
    with pytest.raises(tenure.StoreClosed):
        await store.ping()


@pytest.mark.backends("asyncio")
async def test_a_stack_that_is_filled_in_one_cell_of_a_notebook_and_closed_in_another():
    stack = AsyncExitStack()

    async def first():
        store = await stack.enter_async_context(tenure.open_store("memory:"))
        await stack.enter_async_context(Lock(store, "x").hold())
        return store

    store = await asyncio.create_task(first())
    await asyncio.create_task(Lock(store, "y").holders().page())
    with pytest.raises(
        RuntimeError, match=r"the store was left in another task.*Enter and leave it in one task"
    ):
        await asyncio.create_task(stack.aclose())
    assert (await store.statistics()).held == 0


async def test_left_while_the_task_that_entered_it_still_runs():
    store = tenure.open_store("memory:")
    entered, left = anyio.Event(), anyio.Event()

    async def enter():
        await store.__aenter__()
        entered.set()
        await left.wait()

    with pytest.raises(BaseExceptionGroup):  # the loop's own, about the scopes of that task
        async with anyio.create_task_group() as group:
            group.start_soon(enter)
            await entered.wait()
            with pytest.raises(RuntimeError, match="the store was left in another task"):
                await store.__aexit__(None, None, None)
            left.set()
    assert (await store.statistics()).jobs == ()
