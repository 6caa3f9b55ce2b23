from __future__ import annotations

import asyncio
import gc
import math

import anyio
import pytest

import tenure
from tenure.testing import cancellable, explore
from tenure.testing._race import race


def giving(value, after=0):
    async def call():
        await anyio.sleep(after)
        return value

    return call


def raising(error, after=0):
    async def call():
        await anyio.sleep(after)
        raise error

    return call


async def test_outcomes_come_in_the_order_of_the_calls(virtual_clock):
    problem = ValueError("no")
    outcomes = await race(giving("late", after=2), raising(problem, after=1), giving(None))
    assert outcomes == ["late", problem, None]
    assert virtual_clock.now() == 2


async def test_nobody_to_race():
    assert await race() == []


async def test_none_runs_before_all_have_been_started():
    async def started():
        return sum(task.name.startswith("race call ") for task in anyio.get_running_tasks())

    assert max(await race(*[started] * 5)) == 5


def test_they_meet_in_every_order():
    orders = set()

    async def scenario():
        order = []

        async def call(name):
            order.append(name)

        await race(lambda: call("a"), lambda: call("b"), lambda: call("c"))
        orders.add("".join(order))

    explore(scenario, seeds=60, cancel=False)
    assert len(orders) == 6


def test_a_lock_is_had_by_one_and_the_others_run_out_of_time():
    async def scenario():
        async with tenure.open_store("memory:") as store:

            async def hold():
                async with tenure.Lock(store, "report").hold(timeout=1):
                    await anyio.sleep(5)
                return "held"

            outcomes = await race(hold, hold, hold)
            assert outcomes.count("held") == 1
            assert sum(isinstance(outcome, tenure.AcquireTimeout) for outcome in outcomes) == 2

    explore(scenario, seeds=10, cancel=False)


# ------------------------------------------------------------------------------------------------------- cancellation


async def test_a_cancelled_race_ends_its_calls_first(virtual_clock):
    ended = []

    async def call():
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            ended.append(virtual_clock.now())

    with anyio.move_on_after(3) as scope:
        await race(call, giving("there"), call)
    assert scope.cancelled_caught
    assert ended == [4, 4]


def test_a_race_may_be_cancelled_at_any_moment():
    async def scenario():
        with cancellable() as scope:
            outcomes = await race(giving(1, after=1), giving(2))
        assert scope.cancelled_caught or outcomes == [1, 2]

    explore(scenario, seeds=60)


async def test_what_a_call_raises_while_it_is_cancelled_does_not_stop_the_cancellation():
    async def call():
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    with anyio.CancelScope() as scope:
        scope.cancel()
        await race(call)
    assert scope.cancelled_caught


async def test_a_scope_inside_of_a_call_is_the_calls_own_business(virtual_clock):
    async def call():
        with anyio.move_on_after(1):
            await anyio.sleep_forever()
        return "in time"

    assert await race(call, giving(2, after=2)) == ["in time", 2]


@pytest.mark.backends("asyncio")
async def test_a_call_that_is_cancelled_natively_is_one_outcome(virtual_clock):
    tasks = []

    async def victim():
        tasks.append(asyncio.current_task())
        await asyncio.sleep(math.inf)

    async def killer():
        await anyio.sleep(1)
        tasks[0].cancel("mine")

    cancelled, nothing, late = await race(victim, killer, giving("late", after=2))
    assert isinstance(cancelled, asyncio.CancelledError) and cancelled.args == ("mine",)
    assert (nothing, late) == (None, "late")


@pytest.mark.backends("asyncio")
async def test_a_race_whose_task_is_cancelled_natively(virtual_clock):
    task = asyncio.get_running_loop().create_task(race(giving(1, after=9), giving(2)))
    await anyio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert virtual_clock.now() == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
async def test_what_is_no_exception_passes_through_and_cancels_the_others(error, virtual_clock):
    ended = []

    async def other():
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(virtual_clock.now())

    with pytest.raises(type(error)) as caught:
        await race(other, raising(error, after=1), giving(1))
    assert caught.value is error
    assert ended == [1]


async def test_several_that_are_no_exceptions_come_as_a_group():
    async def exits_when_cancelled():
        try:
            await anyio.sleep_forever()
        finally:
            raise SystemExit

    with pytest.raises(BaseExceptionGroup) as caught:
        await race(raising(KeyboardInterrupt()), exits_when_cancelled)
    assert {type(error) for error in caught.value.exceptions} == {KeyboardInterrupt, SystemExit}


# ---------------------------------------------------------------------------------------------------------- arguments


async def test_a_coroutine_in_place_of_a_function_is_named_and_closed():
    async def fetch():
        await anyio.sleep(0)

    begun = False

    async def good():
        nonlocal begun
        begun = True

    with pytest.raises(TypeError, match=r"^calls: .*coroutine object.*fetch.*brackets"):
        await race(good, fetch(), fetch())
    gc.collect()  # a coroutine that was never awaited would be told of here
    assert not begun


async def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="^calls: .*not 5$"):
        await race(giving(1), 5)
