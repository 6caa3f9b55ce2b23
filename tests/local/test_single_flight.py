"""Single flight: one call for all who ask, owned by all of them, whoever is cancelled."""

import asyncio
import gc
import traceback
import weakref
from contextlib import nullcontext

import anyio
import anyio.lowlevel
import pytest
from callers import EVERY_WAY

from tenure.local._single_flight import SingleFlight
from tenure.testing import assert_checkpoints
from tenure.waiting import this_task

HOSTS = pytest.mark.parametrize("entered", [False, True])


class Load:
    """A slow load that counts its calls, and sees that never two run at once."""

    def __init__(self, seconds=1.0, error=None, cleanup=0.0):
        self.seconds, self.error, self.cleanup = seconds, error, cleanup
        self.calls = self.inside = self.cancelled = 0

    async def __call__(self, *args):
        assert not self.inside, "two at once"
        self.calls += 1
        self.inside += 1
        try:
            await anyio.sleep(self.seconds)
            if self.error is not None:
                raise self.error
            return [self.calls, *args]
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.cleanup)
            raise
        finally:
            self.inside -= 1


class Caller:
    """A task that asks, and can be cancelled by its scope or, on asyncio, natively."""

    def __init__(self, flight, load, key="key", *, how="scope"):
        self.call = (key, load)
        self.flight, self.how = flight, how
        self.scope = anyio.CancelScope()
        self.outcome = self.left = None

    async def run(self):
        self.task = this_task()
        with self.scope:
            try:
                self.outcome = await self.flight.run(*self.call)
            except anyio.get_cancelled_exc_class():
                self.outcome = "cancelled"
                if self.how == "scope":
                    raise
            except Exception as error:
                self.outcome = error
            finally:
                self.left = anyio.current_time()

    def cancel(self):
        if self.how == "native":
            self.task.cancel()
        else:
            self.scope.cancel()


def hosted(flight, entered):
    return flight if entered else nullcontext()


async def start(group, clock, *callers):
    for caller in callers:
        group.start_soon(caller.run)
        await clock.settle()


async def test_a_call_after_the_end_starts_anew(virtual_clock):
    flight, load = SingleFlight(), Load()
    assert await flight.run("key", load, "a") == [1, "a"]
    assert await flight.run("key", load, "b") == [2, "b"]


async def test_keys_do_not_wait_for_each_other(virtual_clock):
    flight = SingleFlight()
    async with anyio.create_task_group() as group:
        callers = [Caller(flight, Load(key), key) for key in (1, 2, 3)]
        await start(group, virtual_clock, *callers)
    assert [caller.left for caller in callers] == [1, 2, 3]


@HOSTS
async def test_a_failing_load_is_called_once_for_ten_waiters_and_its_error_goes_to_all(
    entered, virtual_clock
):
    """R15: anyio.functools.lru_cache calls a failing load once for each waiter."""
    flight, load = SingleFlight(), Load(error=KeyError("no such"))
    async with hosted(flight, entered), anyio.create_task_group() as group:
        callers = [Caller(flight, load) for _ in range(10)]
        await start(group, virtual_clock, *callers)
    assert load.calls == 1
    assert {caller.outcome for caller in callers} == {load.error}
    # each has seen the traceback of the call and its own, not those of the nine others
    assert [frame.name for frame in traceback.extract_tb(load.error.__traceback__)].count("result") == 1
    load.error = None
    assert await SingleFlight().run("key", load) == [2]


@HOSTS
@EVERY_WAY
async def test_the_first_caller_is_cancelled_and_its_call_goes_on_for_the_second(entered, how, virtual_clock):
    """A call in the first caller's own task would end here: nothing shields from a native cancellation."""
    flight, load = SingleFlight(), Load()
    async with hosted(flight, entered), anyio.create_task_group() as group:
        first, second = Caller(flight, load, how=how), Caller(flight, load)
        await start(group, virtual_clock, first, second)
        first.cancel()
    assert (load.calls, load.cancelled) == (1, 0)
    assert (first.outcome, second.outcome) == ("cancelled", [1])
    assert (first.left, second.left) == (0 if entered else 1, 1)


@HOSTS
@EVERY_WAY
async def test_an_error_in_the_clean_up_of_a_call_that_all_have_left_is_logged(
    entered, how, virtual_clock, caplog
):
    async def load():
        try:
            await anyio.sleep(10)
        finally:
            raise KeyError("nobody waits for me")

    flight = SingleFlight()
    async with hosted(flight, entered), anyio.create_task_group() as group:
        caller = Caller(flight, load, how=how)
        await start(group, virtual_clock, caller)
        caller.cancel()
    assert caller.outcome == "cancelled"
    (record,) = caplog.records
    assert record.message == "single_flight.call_failed key=key error=KeyError('nobody waits for me')"
    assert (record.name, record.levelname, record.exc_info[0]) == ("tenure", "WARNING", KeyError)


@pytest.mark.backends("asyncio")  # trio's own frames make circles
@HOSTS
async def test_an_error_does_not_wait_for_the_garbage_collector(entered, virtual_clock):
    class Big(KeyError):
        pass

    async def load():
        raise Big

    gc.collect()
    gc.disable()
    try:
        flight = SingleFlight()
        async with hosted(flight, entered):
            try:
                await flight.run("key", load)
            except Big as error:
                gone = weakref.ref(error)
        assert gone() is None
    finally:
        gc.enable()


@HOSTS
async def test_one_that_comes_while_a_deserted_call_cleans_up_waits_for_its_end(entered, virtual_clock):
    flight, load = SingleFlight(), Load(cleanup=5)
    async with hosted(flight, entered), anyio.create_task_group() as group:
        first, second, third = callers = [Caller(flight, load) for _ in range(3)]
        for caller in callers[:2]:
            await start(group, virtual_clock, caller)
            caller.cancel()  # the second before its call has begun
            await virtual_clock.settle()
        await start(group, virtual_clock, third)
        assert flight.statistics().tasks_waiting == 1
    assert third.outcome == [2]
    assert load.cancelled == 1
    assert third.left == 6
    assert (first.left, second.left) == ((0, 0) if entered else (5, 5))


@HOSTS
async def test_the_end_of_a_deserted_call_does_not_part_those_that_come_after(entered, virtual_clock):
    flight, load = SingleFlight(), Load(cleanup=5)
    async with hosted(flight, entered), anyio.create_task_group() as group:
        first, second, third = (Caller(flight, load) for _ in range(3))
        await start(group, virtual_clock, first)
        first.cancel()
        await virtual_clock.settle()
        await start(group, virtual_clock, second)
        await anyio.sleep(5.5)
        await start(group, virtual_clock, third)
    assert second.outcome is third.outcome
    assert (second.outcome, third.left) == ([2], 6)


async def test_one_that_comes_in_the_turn_in_which_the_last_was_cancelled_keeps_the_call_going(virtual_clock):
    flight, load = SingleFlight(), Load()
    async with flight, anyio.create_task_group() as group:
        first, second = Caller(flight, load), Caller(flight, load)
        await start(group, virtual_clock, first)
        group.start_soon(second.run)
        first.cancel()
    assert load.calls <= 2
    assert second.outcome == [load.calls]


async def test_asking_from_inside_of_the_call_is_refused(virtual_clock):
    flight = SingleFlight()

    async def other():
        return await flight.run("key", other)

    async def load():
        with pytest.raises(RuntimeError, match="'key' was asked for from inside of itself"):
            await flight.run("key", load)
        with pytest.raises(RuntimeError, match="inside of itself"):
            await flight.run("other", other)
        return "loaded"

    assert await flight.run("key", load) == "loaded"


async def test_what_a_call_has_started_may_ask_once_the_call_has_ended(virtual_clock):
    flight, results = SingleFlight(), []

    async with anyio.create_task_group() as group:

        async def later():
            await anyio.sleep(1)
            results.append(await flight.run("key", Load()))

        async def load():
            group.start_soon(later)

        await flight.run("key", load)
    assert results == [[1]]


async def test_leaving_the_block_refuses_newcomers_and_waits_for_the_calls(virtual_clock):
    flight, load = SingleFlight(), Load()
    async with anyio.create_task_group() as group:
        outside = Caller(flight, load)
        async with flight:
            await start(group, virtual_clock, outside)
        assert anyio.current_time() == 1
        with pytest.raises(anyio.ClosedResourceError):
            await flight.run("key", load)
    assert outside.outcome == [1]
    async with flight:
        assert await flight.run("key", load) == [2]


async def test_a_call_that_all_have_left_does_not_hold_up_the_block(virtual_clock):
    flight, load = SingleFlight(), Load(100)
    async with anyio.create_task_group() as group:
        outside = Caller(flight, load)
        async with flight:
            await start(group, virtual_clock, outside)
            group.start_soon(lambda: cancel_after(outside, 2))
    assert anyio.current_time() == 2
    assert load.cancelled == 1


async def cancel_after(caller, seconds):
    await anyio.sleep(seconds)
    caller.cancel()


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_cancelled_block_cancels_the_calls_and_callers_outside_get_an_error(leaving, virtual_clock):
    flight, load = SingleFlight(), Load(100)
    async with anyio.create_task_group() as group:
        outside = Caller(flight, load)
        with anyio.move_on_after(1) as scope:
            async with flight:
                await start(group, virtual_clock, outside)
                if not leaving:
                    await anyio.sleep_forever()
        assert scope.cancelled_caught
    assert anyio.current_time() == 1
    assert isinstance(outside.outcome, anyio.BrokenResourceError)
    assert load.cancelled == 1


async def test_an_error_of_the_body_leaves_the_block_as_it_is(virtual_clock):
    with pytest.raises(KeyError):
        async with SingleFlight():
            raise KeyError


@pytest.mark.backends("asyncio")
@HOSTS
async def test_a_call_that_something_of_its_own_cancels_breaks_for_all(entered):
    flight = SingleFlight()

    async def load():
        await anyio.lowlevel.checkpoint()
        raise asyncio.CancelledError

    async with hosted(flight, entered), anyio.create_task_group() as group:
        callers = [Caller(flight, load) for _ in range(3)]
        for caller in callers:
            group.start_soon(caller.run)
    assert [type(caller.outcome) for caller in callers] == [anyio.BrokenResourceError] * 3


@HOSTS
async def test_an_exit_of_the_program_inside_of_the_call_leaves_by_the_caller(entered):
    flight = SingleFlight()

    async def load():
        await anyio.lowlevel.checkpoint()
        raise SystemExit(3)

    async with hosted(flight, entered):
        with pytest.raises(SystemExit):
            await flight.run("key", load)


@HOSTS
async def test_it_is_a_checkpoint_even_if_the_call_is_none(entered):
    flight = SingleFlight()

    async def load():
        return 1

    async with hosted(flight, entered):
        with assert_checkpoints():
            assert await flight.run("key", load) == 1


async def test_the_call_has_no_deadline_of_its_callers(virtual_clock):
    flight, seen = SingleFlight(), []

    async def load():
        seen.append(anyio.current_effective_deadline())

    with anyio.fail_after(5):
        await flight.run("key", load)
    assert seen == [float("inf")]


async def test_what_is_no_function_is_refused_by_name():
    with pytest.raises(TypeError, match="^fn must be an async function, not 3"):
        await SingleFlight().run("key", 3)


def test_it_may_be_used_on_one_kind_of_loop_after_the_other():
    flight, load = SingleFlight(), Load(0)
    for number, backend in enumerate(("asyncio", "trio", "asyncio"), 1):
        assert anyio.run(flight.run, "key", load, backend=backend) == [number]
