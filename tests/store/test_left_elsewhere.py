"""A store that is left in another task than the one that entered it is closed, and says what to do."""

from __future__ import annotations

import asyncio

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
        RuntimeError, match=r"it is closed. Enter and leave it in one task.*threads-and-processes.md#"
    ):
        await store.__aexit__(None, None, None)
    statistics = await store.statistics()
    assert statistics.jobs == ()
    assert statistics.sessions == statistics.held == 0
    with pytest.raises(tenure.StoreClosed):
        await store.ping()
