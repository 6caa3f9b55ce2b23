from __future__ import annotations

import anyio
import pytest

import tenure
from tenure import AcquireTimeout, CapacityMismatch, Semaphore
from tenure.engine import Acquire, Release


async def test_it_is_held_for_the_block(store):
    semaphore = Semaphore(store, "api", 3)
    async with semaphore as lease, semaphore.hold(2) as other:
        assert other.token > lease.token
        assert [party.weight async for party in semaphore.holders()] == [1, 2]
        with pytest.raises(AcquireTimeout):
            async with semaphore.hold(timeout=0):
                pytest.fail("above the limit")
    assert (await semaphore.holders().page()).records == []


async def test_another_number_of_permits_is_refused(store):
    async with Semaphore(store, "api", 2):
        with pytest.raises(CapacityMismatch) as refused:
            async with Semaphore(store, "api", 3):
                pytest.fail("held")
    assert (refused.value.asked, refused.value.stored) == (3, 2)
    async with Semaphore(store, "api", 3):
        pass


async def test_a_waiter_that_is_too_heavy_after_a_resize_is_reported(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        semaphore = Semaphore(a, "api", 3)

        async def wait():
            with pytest.raises(CapacityMismatch) as refused:
                async with Semaphore(b, "api", 3).hold(3):
                    pytest.fail("held")
            assert refused.value.stored == 2

        async with anyio.create_task_group() as group, semaphore.hold(2):
            group.start_soon(wait)
            await virtual_clock.settle()
            with anyio.fail_after(0.5):
                await semaphore.resize(2)
        assert (await semaphore.waiters().page()).records == []


async def test_one_command_to_acquire_and_one_to_release(recording):
    async with tenure.open_store(recording) as store:
        semaphore = Semaphore(store, "api", 2)
        async with semaphore:
            pass
        recording.take()
        async with semaphore:
            pass
        assert [type(operation) for operation in recording.take()] == [Acquire, Release]


async def test_left_without_being_entered(store):
    semaphore = Semaphore(store, "api", 2)
    with pytest.raises(RuntimeError, match="not held by this task"):
        await semaphore.__aexit__(None, None, None)
    assert not store._handle.entered


@pytest.mark.parametrize("permits", [0, -1, 2**31, 3])
async def test_wrong_numbers_of_permits_to_hold(store, permits):
    with pytest.raises(ValueError, match=r"permits must be at (least 1|most 2)"):
        Semaphore(store, "api", 2).hold(permits)


async def test_wrong_arguments(store):
    with pytest.raises(ValueError, match="permits"):
        Semaphore(store, "api", 0)
    with pytest.raises(TypeError, match="permits"):
        Semaphore(store, "api", 1.5)
    with pytest.raises(TypeError, match="permits"):
        Semaphore(store, "api", True)
    with pytest.raises(ValueError, match="ttl"):
        Semaphore(store, "api", 1, ttl=0.1)
    with pytest.raises(ValueError, match="permits"):
        await Semaphore(store, "api", 1).resize(0)
