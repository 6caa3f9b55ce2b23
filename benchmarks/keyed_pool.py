"""The keyed pool: one key again and again, and a stream of keys that are never seen again.

Memory is in blocks that the interpreter has allocated beyond the start, where as many were idle as in the end. The
peer keeps a lock, a count and a deque for every endpoint it has ever seen.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

import anyio.lowlevel
from generic_connection_pool.asyncio import ConnectionPool

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from benchmarks.pools import CHECKPOINT, PEER, Connection, Manager, checkpoints, connect, disconnect
from tenure.local._keyed_pool import KeyedPool

SLOTS = 100
# caches of the loop and of the interpreter come and go; and a ratio needs something
NOISE = 500.0


def pool_of_ours() -> KeyedPool[int, Connection]:
    """Ours, with its defaults."""
    return KeyedPool(connect, close=disconnect, max_total=SLOTS)


async def one_key(calls: int) -> float:
    """Calls a second for a key that is there."""
    async with pool_of_ours() as pool:
        return await _called(pool.acquire, [1] * calls)


async def one_key_of_the_peer(calls: int) -> float:
    """The same for the peer."""
    return await _called_on_the_peer([1] * calls)


async def new_keys(calls: int) -> float:
    """Calls a second for keys that are not there: each is created, and evicts another."""
    async with pool_of_ours() as pool:
        return await _called(pool.acquire, range(calls))


async def new_keys_of_the_peer(calls: int) -> float:
    """The same for the peer."""
    return await _called_on_the_peer(range(calls))


async def left(calls: int) -> float:
    """Blocks that are left of so many keys when they have been used once each."""
    async with pool_of_ours() as pool:
        return await _left(pool.acquire, calls)


async def left_by_the_peer(calls: int) -> float:
    """The same for the peer."""
    pool = ConnectionPool(Manager(), max_size=10, total_max_size=SLOTS)
    try:
        return await _left(pool.connection, calls)
    finally:
        await pool.close()


async def _called_on_the_peer(keys: Any) -> float:
    pool = ConnectionPool(Manager(), max_size=10, total_max_size=SLOTS)
    try:
        return await _called(pool.connection, keys)
    finally:
        await pool.close()


async def _called(acquire: Any, keys: Any) -> float:
    async with acquire(-1):
        pass
    start = perf_counter()
    for key in keys:
        async with acquire(key):
            await anyio.lowlevel.checkpoint()
    return len(keys) / (perf_counter() - start)


async def _left(acquire: Any, calls: int) -> float:
    await _called(acquire, range(-2 * SLOTS, 0))
    gc.collect()
    before = sys.getallocatedblocks()
    await _called(acquire, range(calls))
    gc.collect()
    return max(sys.getallocatedblocks() - before, NOISE)


def run(size: Size) -> Iterator[Row]:
    calls = size.of(20, 2_000, 10_000)
    for work, mine, theirs in (
        ("one key", one_key, one_key_of_the_peer),
        ("keys that are new", new_keys, new_keys_of_the_peer),
    ):
        for loop in LOOPS:
            contestants = {"ours": partial(on_loop, loop, mine, calls)}
            if loop == "trio":
                contestants[CHECKPOINT] = partial(on_loop, loop, checkpoints, calls, 1)
            else:
                contestants[PEER] = partial(on_loop, loop, theirs, calls // 10)
            figures = interleaved(contestants, size)
            yield row(work, loop, figures, CHECKPOINT if loop == "trio" else PEER)
    keys, their_keys = size.of((50, 50), (5_000, 500), (50_000, 2_000))
    for loop in LOOPS:
        figures = interleaved(
            {
                "ours": partial(on_loop, loop, left, keys),
                f"{PEER}, {their_keys:,} keys": partial(on_loop, "asyncio", left_by_the_peer, their_keys),
            },
            size,
            rounds=1,
        )
        yield row(
            f"memory left of {keys:,} keys, or {NOISE:g}",
            loop,
            figures,
            f"{PEER}, {their_keys:,} keys",
            unit="blocks",
            less_is_better=True,
            goal="back to the start",
        )
