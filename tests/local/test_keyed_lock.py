"""A lock for each key: one task a key, first come first served, and nothing kept for a key that is free."""

from __future__ import annotations

import weakref
from contextlib import AsyncExitStack

import anyio
import pytest
from callers import EVERY_WAY, Cancellable, start_in_turn

from tenure import AcquireTimeout
from tenure.local import KeyedLock
from tenure.testing import assert_checkpoints


class Holder(Cancellable):
    """Holds a key until `leave` is set."""

    def __init__(self, lock, key="a", how="scope"):
        super().__init__(how)
        self.lock, self.key, self.leave = lock, key, anyio.Event()

    async def do(self):
        async with self.lock.hold(self.key):
            self.outcome = "holds"
            await self.leave.wait()
        self.outcome = "left"


async def come(group, lock, *keys, how="scope"):
    return await start_in_turn(group, [Holder(lock, key, how) for key in keys])


async def go(holder):
    holder.leave.set()
    await anyio.wait_all_tasks_blocked()


def outcomes(holders):
    return [holder.outcome for holder in holders]


def is_free(lock):
    return (lock.statistics().keys, lock.statistics().tasks_waiting, lock._lines) == (0, 0, {})


async def test_one_task_a_key_first_come_first_served():
    lock = KeyedLock()
    async with anyio.create_task_group() as group:
        holders = await come(group, lock, "a", "a", "b", "a")
        assert outcomes(holders) == ["holds", None, "holds", None]
        assert repr(lock) == "<KeyedLock 2 keys held, 2 tasks waiting>"
        await go(holders[0])
        assert outcomes(holders) == ["left", "holds", "holds", None]
        await go(holders[1])
        assert outcomes(holders) == ["left", "left", "holds", "holds"]
        await go(holders[2])
        await go(holders[3])
    assert is_free(lock)


class Key:
    pass


async def test_nothing_is_kept_for_a_key_that_is_free():
    lock, key = KeyedLock(), Key()
    kept = weakref.ref(key)
    async with anyio.create_task_group() as group:
        first, second = await come(group, lock, key, key)
        second.cancel()
        await anyio.wait_all_tasks_blocked()
        await go(first)
    del key, first, second
    assert kept() is None
    assert is_free(lock)


async def test_a_task_that_holds_a_key_is_refused_and_may_hold_another():
    lock = KeyedLock()
    async with lock.hold(1), lock.hold(2):
        with pytest.raises(RuntimeError, match="this task holds it already and would wait for itself"):
            async with lock.hold(1.0):
                pytest.fail("held")
        assert lock.statistics().keys == 2
    assert is_free(lock)


async def test_a_block_is_for_one_use():
    lock = KeyedLock()
    block = lock.hold("a")
    async with block:
        pass
    with pytest.raises(RuntimeError, match="for one block"):
        await block.__aenter__()
    with pytest.raises(RuntimeError, match="left already"):
        await block.__aexit__(None, None, None)
    assert is_free(lock)


async def test_a_timeout_ends_the_wait_alone(virtual_clock):
    lock = KeyedLock()
    async with anyio.create_task_group() as group:
        (holder,) = [Holder(lock)]
        group.start_soon(holder.run)
        await virtual_clock.settle()
        for timeout in (0, 2):
            began = virtual_clock.now()
            with assert_checkpoints(), pytest.raises(AcquireTimeout, match="^'a': not acquired") as late:
                async with lock.hold("a", timeout=timeout):
                    pytest.fail("held")
            assert virtual_clock.now() - began == pytest.approx(timeout, abs=1e-3)
            assert (late.value.key, late.value.seconds, late.value.reason) == ("'a'", timeout, "held")
        holder.leave.set()
    async with lock.hold("a", timeout=0):
        await anyio.sleep(5)
    assert is_free(lock)


async def test_entering_is_a_checkpoint_and_leaving_is_none():
    lock = KeyedLock()
    with assert_checkpoints():
        async with lock.hold("a"):
            pass
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lock.hold("a"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stack.aclose()
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with lock.hold("a"):
            pytest.fail("held")
    assert is_free(lock)


@EVERY_WAY
async def test_a_key_that_was_handed_to_a_task_and_cancelled_goes_to_the_next(how):
    lock = KeyedLock()
    async with anyio.create_task_group() as group:
        holder, victim = await come(group, lock, "a", "a", how=how)
        (heir,) = await come(group, lock, "a")
        holder.leave.set()
        await anyio.lowlevel.checkpoint()
        victim.cancel()
        await anyio.wait_all_tasks_blocked()
        assert victim.outcome == "cancelled"
        assert heir.outcome == "holds"
        await go(heir)
    assert is_free(lock)


@EVERY_WAY
async def test_a_task_that_is_cancelled_in_line_gets_nothing(how):
    lock = KeyedLock()
    async with anyio.create_task_group() as group:
        holder, victim = await come(group, lock, "a", "a", how=how)
        (heir,) = await come(group, lock, "a")
        victim.cancel()
        await go(holder)
        assert outcomes([holder, victim, heir]) == ["left", "cancelled", "holds"]
        await go(heir)
    assert is_free(lock)


def test_one_lock_may_serve_one_loop_after_the_other():
    lock = KeyedLock()

    async def crowd():
        async with anyio.create_task_group() as group:
            for holder in [Holder(lock) for _ in range(3)]:
                holder.leave.set()
                group.start_soon(holder.run)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(crowd, backend=backend)
    assert is_free(lock)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), TypeError, "key must be hashable"),
        (("a", -1), ValueError, "timeout must be 0 or more"),
        (("a", "1"), TypeError, "timeout must be a number"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_by_name(arguments, error, message):
    key, *timeout = arguments
    with pytest.raises(error, match=message):
        KeyedLock().hold(key, **dict(zip(["timeout"], timeout, strict=False)))
