from __future__ import annotations

from random import Random

import anyio
import pytest

import tenure
from tenure import AcquireTimeout, CapacityMismatch, LeaseLost, Semaphore
from tenure.engine import Acquire, Release
from tenure.testing import FaultyEngine


async def test_it_is_held_for_the_block(store):
    semaphore = Semaphore(store, "api", 3)
    async with semaphore as lease, semaphore.hold(2) as other:
        assert other.token > lease.token
        who = await semaphore.holders()
        assert [party.weight for party in who.holders] == [1, 2]
        with pytest.raises(AcquireTimeout):
            async with semaphore.hold(timeout=0):
                pytest.fail("above the limit")
    assert (await semaphore.holders()).holders == ()


async def test_never_above_the_limit(open_store_on, virtual_clock):
    # the sketch counts and then adds, so that two callers pass at once
    inside = most = 0
    random = Random(4)

    async def work(semaphore, permits, seconds):
        nonlocal inside, most
        async with semaphore.hold(permits):
            inside += permits
            most = max(most, inside)
            await anyio.sleep(seconds)
            inside -= permits

    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        async with anyio.create_task_group() as group:
            for n in range(100):
                semaphore = Semaphore((a, b)[n % 2], "api", 5)
                group.start_soon(work, semaphore, random.randint(1, 5), random.random())
    assert most == 5


async def test_the_permits_of_a_dead_holder_come_back(engine, virtual_clock):
    # redisson #2045, #2213, #4462, #5066; the sketch keeps them for an hour
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=3) as dead, tenure.open_store(engine, ttl=3) as alive:
        with pytest.raises(LeaseLost) as lost:
            async with Semaphore(dead, "api", 2).hold(2):
                link.pause()
                died = virtual_clock.now()
                async with Semaphore(alive, "api", 2).hold(2):
                    assert virtual_clock.now() - died <= 4
                link.resume()
                await anyio.sleep(10)
        assert lost.value.reason == "expired"
        # neither the late release of the dead nor anything else has added a permit
        async with Semaphore(alive, "api", 2).hold(2):
            with pytest.raises(AcquireTimeout):
                async with Semaphore(dead, "api", 2).hold(timeout=1):
                    pytest.fail("above the limit")


async def test_each_hold_has_an_identity_of_its_own(store):
    # in the sketch two users of one object share an id, and one releases the other's permits
    semaphore = Semaphore(store, "api", 2)
    async with semaphore as first:
        async with semaphore.hold() as second:
            assert first.token != second.token
        assert [party.token for party in (await semaphore.holders()).holders] == [first.token]
        first.check()


async def test_another_number_of_permits_is_refused(store):
    async with Semaphore(store, "api", 2):
        with pytest.raises(CapacityMismatch) as refused:
            async with Semaphore(store, "api", 3):
                pytest.fail("held")
    assert (refused.value.asked, refused.value.stored) == (3, 2)
    async with Semaphore(store, "api", 3):
        pass


async def test_resizing_up_lets_waiters_in_at_once(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        semaphore = Semaphore(a, "api", 1)
        entered = anyio.Event()

        async def wait():
            async with Semaphore(b, "api", 1):
                entered.set()

        async with anyio.create_task_group() as group, semaphore:
            group.start_soon(wait)
            await virtual_clock.settle()
            await semaphore.resize(2)
            with anyio.fail_after(0.5):
                await entered.wait()
        assert semaphore.permits == 2
        async with semaphore.hold(2):
            pass
        with pytest.raises(CapacityMismatch):
            async with Semaphore(b, "api", 1):
                pytest.fail("the new number is for good")


async def test_resizing_down_takes_effect_as_holders_leave(store, virtual_clock):
    semaphore = Semaphore(store, "api", 3)
    async with semaphore.hold(2) as held:
        await semaphore.resize(1)
        held.check()
        with pytest.raises(AcquireTimeout):
            async with semaphore.hold(timeout=1):
                pytest.fail("above the limit")
    async with semaphore.hold(timeout=0):
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
        assert (await semaphore.holders()).waiting == ()


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
    assert not store.entered


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
