"""Names: whatever they look like, no two objects meet that differ in namespace, kind or name."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest

import tenure
from tenure import Barrier, Election, Limit, Lock, RateLimiter, ResourcePool, RWLock, Semaphore, WorkQueue

KINDS = ("lock", "semaphore", "rwlock", "queue", "rate", "barrier", "election", "pool")
# with a colon in them, as if they began with a kind, or with a namespace and a kind
NAMES = ("x", ":", "x:x", *(f"{kind}:x" for kind in KINDS), "b:lock:x", "{b}", "\0", "é")


async def use_alone(store, name, stack):
    """Every kind of object: held, taken or filled, and nobody else was there before."""
    for hold in (
        Lock(store, name).hold(timeout=0),
        Semaphore(store, name, 1).hold(timeout=0),
        RWLock(store, name).write(timeout=0),
        Election(store, name).term(timeout=0),
    ):
        await stack.enter_async_context(hold)
    pool = ResourcePool(store, name)
    await pool.add(f"{store.namespace} {name}")
    claim = await stack.enter_async_context(pool.claim(timeout=0))
    assert claim.resource == f"{store.namespace} {name}"
    queue = WorkQueue(store, name)
    await queue.put([store.namespace, name])
    task = await stack.enter_async_context(queue.take(timeout=0))
    assert task.payload == [store.namespace, name]
    assert (await queue.statistics()).put == 1
    assert await RateLimiter(store, name, Limit(0.001)).try_acquire()
    assert (await Barrier(store, name, 1).wait()).place == 0


@pytest.mark.parametrize("name_of_the_other", ["b", "a-lock", "a.lock", "lock"])
async def test_nothing_meets(open_store_on, name_of_the_other):
    with anyio.fail_after(50):
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(open_store_on(namespace=namespace))
                for namespace in ("a", name_of_the_other)
            ]
            for store in stores:
                for name in NAMES:
                    await use_alone(store, name, stack)


@pytest.mark.parametrize("namespace", ["a:lock", ":", "a:"])
def test_a_namespace_with_a_colon_is_refused(namespace):
    with pytest.raises(ValueError, match="^namespace must not have a colon"):
        tenure.open_store("memory:", namespace=namespace)
