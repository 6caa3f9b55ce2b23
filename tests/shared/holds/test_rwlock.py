from __future__ import annotations

import anyio
import pytest

import tenure
from tenure import AcquireTimeout, LeaseLost, RWLock
from tenure.testing import FaultyEngine

KEY = "tenure:rwlock:table"


async def test_readers_share(open_store_on):
    async with open_store_on() as a, open_store_on() as b:
        async with RWLock(a, "table").read() as one, RWLock(b, "table").read(timeout=0) as two:
            assert two.token > one.token
            assert [party.weight for party in (await RWLock(a, "table").holders()).holders] == [1, 1]


async def test_a_writer_is_alone(open_store_on):
    async with open_store_on() as a, open_store_on() as b:
        ours, theirs = RWLock(a, "table"), RWLock(b, "table")
        async with ours.write():
            for attempt in (theirs.read(timeout=0), theirs.write(timeout=0)):
                with pytest.raises(AcquireTimeout):
                    async with attempt:
                        pytest.fail("not alone")
        async with ours.read():
            with pytest.raises(AcquireTimeout):
                async with theirs.write(timeout=0):
                    pytest.fail("not alone")


async def test_neither_side_starves(store, virtual_clock):
    """Redisson lets any reader in while readers read, so that a steady stream of them keeps writers out."""
    lock = RWLock(store, "table")
    entered = []

    async def enter(mode):
        async with getattr(lock, mode)():
            entered.append(mode)
            await anyio.sleep(1)

    async with anyio.create_task_group() as group:
        for mode in ("read", "read", "write", "read", "read", "write", "read"):
            group.start_soon(enter, mode)
            await anyio.sleep(0.1)
        start = virtual_clock.now() - 0.7
    assert entered == ["read", "read", "write", "read", "read", "write", "read"]
    # those that stand together at the head go in together
    assert virtual_clock.now() - start == pytest.approx(5.1, abs=0.05)


async def test_a_writer_that_gives_up_lets_the_readers_behind_it_in(open_store_on, virtual_clock):
    """R10 of the in-process locks: the leaving of a waiter is an occasion to grant."""
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        entered = anyio.Event()

        async def read():
            async with RWLock(b, "table").read():
                entered.set()

        async with anyio.create_task_group() as group, RWLock(a, "table").read():
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(RWLock(b, "table").write().__aenter__)
                    await virtual_clock.settle()
                    group.start_soon(read)
                    await virtual_clock.settle()
                    assert not entered.is_set()
                    scope.cancel()
            with anyio.fail_after(0.1):
                await entered.wait()


@pytest.mark.parametrize("first", ["read", "write"])
@pytest.mark.parametrize("second", ["read", "write"])
async def test_holding_it_again_in_the_same_task(store, first, second):
    lock = RWLock(store, "table")
    async with getattr(lock, first)():
        with pytest.raises(RuntimeError, match="would wait for itself"):
            async with getattr(RWLock(store, "table"), second)():
                pytest.fail("entered")
    async with getattr(lock, second)():
        pass
    assert not store.entered


async def test_a_dead_reader_among_others_lets_the_writer_in(engine, virtual_clock):
    """redisson #1604, #7098, #7251: the dead reader's lock is renewed by the living ones."""
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=3) as dead, tenure.open_store(engine, ttl=3) as alive:
        with pytest.raises(LeaseLost):
            async with RWLock(dead, "table").read():
                async with RWLock(alive, "table").read():
                    link.pause()
                    died = virtual_clock.now()
                    await anyio.sleep(0.5)
                async with RWLock(alive, "table").write():
                    assert virtual_clock.now() - died <= 4
                link.resume()
                await anyio.sleep(10)


@pytest.mark.parametrize("mode", ["read", "write"])
async def test_nothing_is_left_wherever_it_is_cancelled(store, nothing_of, cancelled_at_every_step, mode):
    async def scenario():
        async with getattr(RWLock(store, "table"), mode)():
            await anyio.lowlevel.checkpoint()

    async for _ in cancelled_at_every_step(scenario):
        await nothing_of(store, KEY)
    assert not store.entered


@pytest.mark.backends("asyncio")
async def test_nothing_is_left_wherever_it_is_cancelled_natively(store, nothing_of, cancelled_at_every_step):
    async def scenario():
        async with RWLock(store, "table").write():
            await anyio.lowlevel.checkpoint()

    async for _ in cancelled_at_every_step(scenario, native=True):
        await nothing_of(store, KEY)


async def test_wrong_arguments(store):
    with pytest.raises(ValueError, match="timeout"):
        RWLock(store, "table").read(timeout=-1)
    with pytest.raises(ValueError, match="name"):
        RWLock(store, "")
    with pytest.raises(ValueError, match="ttl"):
        RWLock(store, "table", ttl=0)
