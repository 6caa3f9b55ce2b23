"""Bounded threads: what runs, what waits, what is abandoned, and what never starts."""

import threading
import time
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from decimal import Decimal

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from callers import EVERY_WAY, Caller

from tenure.errors import BulkheadFull
from tenure.local import Finished, Threads
from tenure.local._threads import Done, _inside
from tenure.testing import assert_checkpoints
from tenure.waiting import this_task


class Blocker:
    """A function that says when it has started and returns when it is let go."""

    def __init__(self):
        self.started = threading.Event()
        self.go = threading.Event()
        self.calls = []

    def __call__(self, value=None):
        self.calls.append(value)
        self.started.set()
        assert self.go.wait(30)
        return value


@contextmanager
def blocker():
    block = Blocker()
    try:
        yield block
    finally:
        block.go.set()


@asynccontextmanager
async def running(threads, block, how="scope"):
    """One call that has started and blocks its thread."""
    async with anyio.create_task_group() as group:
        caller = Caller(how)
        group.start_soon(caller.run, threads.run, block, "first")
        await until(block.started.is_set)
        try:
            yield group, caller
        finally:
            block.go.set()


async def until(condition):
    while not condition():  # keeps the loop busy, so that a virtual clock stands still
        await anyio.lowlevel.checkpoint()


async def idle(threads):
    """Wait until each thread, the abandoned too, has given its slot back: by taking them all."""
    slots = threads._slots
    await slots.take(slots.limit)
    slots.give_back(slots.limit)


async def test_it_returns_what_the_function_returns():
    threads = Threads(2)
    assert await threads.run(divmod, 7, 2) == (3, 1)
    assert await threads.run(threading.get_ident) != threading.get_ident()
    assert threads.statistics().busy == 0


async def test_it_raises_what_the_function_raises():
    threads = Threads(1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)
    with pytest.raises(TimeoutError, match="its own"):
        await threads.run(raise_timeout, timeout=5)
    assert threads.statistics().busy == 0
    assert threads.statistics().abandoned == 0


def raise_timeout():
    raise TimeoutError("its own")


async def test_the_function_sees_the_context_of_its_caller():
    variable = ContextVar("variable")
    variable.set("seen")
    assert await Threads(1).run(variable.get) == "seen"


async def test_statistics_and_repr_are_live():
    threads = Threads(1, max_waiting=5)
    assert repr(threads) == "<Threads 0/1 busy, 0 abandoned, 0 waiting>"
    with blocker() as block:
        async with running(threads, block) as (group, _):
            group.start_soon(threads.run, abs, 1)
            await anyio.wait_all_tasks_blocked()
            state = threads.statistics()
            assert (state.max_workers, state.max_waiting) == (1, 5)
            assert (state.busy, state.abandoned, state.tasks_waiting) == (1, 0, 1)
            assert repr(threads) == "<Threads 1/1 busy, 0 abandoned, 1 waiting>"


async def test_a_run_that_takes_too_long_is_abandoned_and_keeps_its_slot(virtual_clock):
    threads = Threads(1, max_waiting=0)
    with blocker() as block:
        async with anyio.create_task_group() as group:
            group.start_soon(until, block.started.is_set)
            with pytest.raises(TimeoutError, match=r"Blocker.* timeout=3 s"):
                await threads.run(block, timeout=3)
        assert anyio.current_time() == 3
        state = threads.statistics()
        assert (state.busy, state.abandoned) == (1, 1)
        with pytest.raises(BulkheadFull):
            await threads.run(abs, 1)
        block.go.set()
        await idle(threads)
    state = threads.statistics()
    assert (state.busy, state.abandoned) == (0, 0)
    assert await threads.run(abs, -1) == 1


@EVERY_WAY
async def test_cancelled_as_it_begins_the_function_never_runs_and_no_slot_is_lost(how):
    threads, ran = Threads(1), []
    caller = Caller(how)
    caller.task = this_task()
    caller.cancel()
    await caller.run(threads.run, ran.append, "never")
    assert caller.outcome[0] == "cancelled"
    assert ran == []
    assert threads.statistics().busy == 0


@pytest.mark.parametrize("failing", [True, False])
async def test_a_thread_that_cannot_be_started_loses_no_slot(monkeypatch, failing):
    async def run_sync(*args, **options):
        if failing:
            raise RuntimeError("can't start new thread")
        await anyio.sleep_forever()  # handed over, and never begun by a thread

    threads = Threads(1)
    monkeypatch.setattr("anyio.to_thread.run_sync", run_sync)
    if failing:
        with pytest.raises(RuntimeError, match="start new thread"):
            await threads.run(abs, 1)
    else:
        with anyio.move_on_after(0):
            await threads.run(abs, 1)
    state = threads.statistics()
    assert (state.busy, state.abandoned) == (0, 0)


async def test_what_was_claimed_back_before_its_thread_began_never_runs(monkeypatch):
    threads, handed_over, ran = Threads(1), [], []

    async def run_sync(*args, **options):
        handed_over.append(args)
        await anyio.sleep_forever()

    monkeypatch.setattr("anyio.to_thread.run_sync", run_sync)
    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, ran.append, "never")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    ((late, *args),) = handed_over
    with pytest.raises(RuntimeError, match="cancelled before"):
        late(*args)
    assert ran == []
    assert threads.statistics().busy == 0


async def test_the_line_is_bounded():
    threads = Threads(1, max_waiting=1)
    with blocker() as block:
        async with running(threads, block) as (group, _):
            group.start_soon(threads.run, abs, 1)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(BulkheadFull, match="1 calls wait") as caught:
                await threads.run(abs, 1)
            assert (caught.value.limit, caught.value.waiting) == (1, 1)
            with pytest.raises(BulkheadFull):
                await threads.map(abs, [1])
            assert threads.statistics().refused == 2
            with assert_checkpoints(), pytest.raises(BulkheadFull):
                await threads.run(abs, 1)
    assert await threads.run(abs, -1) == 1


class Failing(Blocker):
    def __call__(self, value=None):
        super().__call__(value)
        raise KeyError("nobody waits for me")


@EVERY_WAY
async def test_what_an_abandoned_function_raises_is_logged(how, caplog):
    threads, block = Threads(1), Failing()
    async with running(threads, block, how) as (_, caller):
        caller.cancel()
        await until(lambda: threads.statistics().abandoned)
        block.go.set()
        await idle(threads)
    (record,) = caplog.records
    assert record.message.startswith("threads.abandoned_failed function=")
    assert (record.name, record.levelname, record.exc_info[0]) == ("tenure", "WARNING", KeyError)


@EVERY_WAY
async def test_what_a_function_raises_just_before_its_caller_gives_up_is_logged(how, caplog):
    """The thread has ended, but the loop has not taken its outcome in when the caller is cancelled."""
    threads, block = Threads(1), Failing()
    async with running(threads, block, how) as (_, caller):
        block.go.set()
        while not threads._returned:
            time.sleep(0.001)  # not a turn of the loop
        caller.cancel()
    assert caller.cancelled
    (record,) = caplog.records
    assert record.message.startswith("threads.abandoned_failed function=")
    assert record.exc_info[0] is KeyError


@pytest.mark.parametrize("late", [False, True])
async def test_what_an_abandoned_item_raises_is_logged(late, caplog):
    threads, block = Threads(1), Failing()
    async with anyio.create_task_group() as group:
        caller = Caller()
        group.start_soon(caller.run, threads.map, block, ["item"])
        await until(block.started.is_set)
        if late:
            caller.cancel()
            await until(lambda: threads.statistics().abandoned)
            block.go.set()
        else:
            block.go.set()
            while not threads._returned:
                time.sleep(0.001)
            caller.cancel()
    await idle(threads)
    (record,) = caplog.records
    assert record.message.startswith("threads.abandoned_failed function=<")
    assert "Failing object" in record.message
    assert record.exc_info[0] is KeyError


async def test_a_failure_that_its_caller_gets_is_not_logged(caplog):
    def stop():
        raise StopIteration

    threads = Threads(1)
    with pytest.raises(RuntimeError) as caught:
        await threads.run(stop)
    assert isinstance(caught.value.__cause__, StopIteration)
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "x", timeout=30)
    assert len((await threads.map(int, ["x"])).done) == 1
    assert caplog.records == []


async def test_a_function_that_asks_may_end_once_its_caller_has_given_up_and_nothing_is_logged(caplog):
    threads, block = Threads(1), Blocker()

    def asking():
        block()
        anyio.from_thread.check_cancelled()
        pytest.fail("it was cancelled")

    async with anyio.create_task_group() as group:
        caller = Caller()
        group.start_soon(caller.run, threads.run, asking)
        await until(block.started.is_set)
        caller.cancel()
        await until(lambda: threads.statistics().abandoned)
        block.go.set()
        await idle(threads)
    assert caplog.records == []


async def test_a_call_from_inside_one_of_the_own_threads_is_refused():
    threads, other = Threads(1), Threads(1)

    def inside(target):
        return anyio.from_thread.run(target.run, abs, -1)

    def inside_other():
        return anyio.from_thread.run(other.run, inside, threads)

    def inside_map():
        return anyio.from_thread.run(threads.map, abs, [-1])

    for fn, *args in ((inside, threads), (inside_other,), (inside_map,)):
        with pytest.raises(RuntimeError, match="inside one of its own threads"):
            await threads.run(fn, *args)
    assert await threads.run(inside, other) == 1
    assert await threads.run(abs, -1) == 1
    assert threads.statistics().busy == other.statistics().busy == 0


async def test_what_a_thread_has_started_may_call_once_the_thread_has_ended():
    threads, results, ended = Threads(1), [], anyio.Event()

    async def later():
        await ended.wait()
        results.append(await threads.run(abs, -1))

    async with anyio.create_task_group() as group:
        await threads.run(anyio.from_thread.run_sync, group.start_soon, later)
        ended.set()
    assert results == [1]


async def test_calls_each_of_which_was_started_from_the_one_before_are_not_kept():
    threads, around, over = Threads(1), [], anyio.Event()

    def step():
        call, calls = _inside.get().outer, 0
        while call is not None:
            call, calls = call.outer, calls + 1
        around.append(calls)
        anyio.from_thread.run_sync(go_on)

    def go_on():
        if len(around) < 20:
            group.start_soon(later)
        else:
            over.set()

    async def later():
        await until(lambda: threads.statistics().busy == 0)
        await threads.run(step)

    async with anyio.create_task_group() as group:
        group.start_soon(later)
        await over.wait()
    assert max(around) <= 1


async def test_map_returns_results_and_errors_in_the_order_of_the_items():
    finished = await Threads(3).map(lambda item: 12 // item, [3, 0, 2, 1])
    assert finished.unfinished == ()
    assert [record.item for record in finished.done] == [3, 0, 2, 1]
    assert [record.value for record in finished.done] == [4, None, 6, 12]
    assert finished.done[0].result() == 4
    with pytest.raises(ZeroDivisionError):
        finished.done[1].result()


async def test_map_of_nothing_is_still_a_checkpoint():
    assert await Threads(3).map(abs, []) == Finished((), ())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Threads(3).map(abs, [])
    assert scope.cancelled_caught


async def test_map_with_one_worker_goes_strictly_in_order():
    order = []
    finished = await Threads(1).map(order.append, range(50))
    assert order == list(range(50))
    assert finished.done == tuple(Done(number, None, None) for number in range(50))


async def test_map_takes_no_more_places_than_there_are_workers():
    threads, order = Threads(1), []
    with blocker() as block:
        async with running(threads, block) as (group, _):
            group.start_soon(threads.map, order.append, ["a", "b", "c"])
            await anyio.wait_all_tasks_blocked()
            group.start_soon(threads.run, order.append, "other")
            await anyio.wait_all_tasks_blocked()
            assert threads.statistics().tasks_waiting == 2
    assert order == ["a", "other", "b", "c"]


async def test_a_map_that_cannot_start_a_thread_raises_that_alone(monkeypatch):
    async def run_sync(*args, **options):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("anyio.to_thread.run_sync", run_sync)
    threads = Threads(2)
    with pytest.raises(RuntimeError, match="start new thread"):
        await threads.map(abs, [1, 2, 3])
    assert threads.statistics().busy == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_abandoned_in_a_run_that_has_ended_gives_its_slot_to_the_next_run(backend):
    threads = Threads(1)
    with blocker() as block:

        async def first():
            async with anyio.create_task_group() as group:
                group.start_soon(threads.run, block)
                await until(block.started.is_set)
                group.cancel_scope.cancel()

        async def second():
            assert threads.statistics().abandoned == 1
            async with anyio.create_task_group() as group:
                group.start_soon(threads.run, abs, -1)
                await anyio.wait_all_tasks_blocked()
                assert threads.statistics().tasks_waiting == 1
                block.go.set()
            assert threads.statistics() == Threads(1).statistics()

        anyio.run(first, backend=backend)
        anyio.run(second, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_that_ends_when_no_loop_runs_gives_its_slot_to_the_next_run(backend):
    told = threading.Event()

    class Told(deque):
        def append(self, call):
            super().append(call)
            told.set()

    threads = Threads(1, max_waiting=0)
    threads._returned = Told()
    with blocker() as block:

        async def first():
            async with anyio.create_task_group() as group:
                group.start_soon(threads.run, block)
                await until(block.started.is_set)
                group.cancel_scope.cancel()

        anyio.run(first, backend=backend)
        block.go.set()
        assert told.wait(30)
    assert anyio.run(threads.run, abs, -1, backend=backend) == 1


async def test_a_thread_has_the_loop_called_only_when_its_caller_has_given_up(monkeypatch):
    called = []
    monkeypatch.setattr("tenure.local._threads.loop_caller", lambda: called.append)
    threads = Threads(1)
    for _ in range(3):
        await threads.run(abs, -1)
    assert not called, "the caller collects the call itself"
    with blocker() as block:
        with anyio.move_on_after(0.01):
            await threads.run(block)
        assert threads.statistics().abandoned == 1
        block.go.set()
        await until(lambda: called)
    called.pop()()
    assert threads.statistics() == Threads(1).statistics()


def test_it_may_be_used_on_one_kind_of_loop_after_the_other():
    threads = Threads(1)
    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(threads.run, abs, -1, backend=backend) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_workers": 0}, ValueError),
        ({"max_workers": 1.5}, TypeError),
        ({"max_workers": 1, "max_waiting": -1}, ValueError),
        ({"max_workers": 1, "max_waiting": "1"}, TypeError),
    ],
)
def test_arguments_are_checked_by_name(arguments, error):
    with pytest.raises(error, match=f"^{list(arguments)[-1]} must be"):
        Threads(**arguments)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
async def test_the_timeout_is_checked_by_name(timeout):
    with pytest.raises(ValueError, match="^timeout must be"):
        await Threads(1).run(abs, 1, timeout=timeout)
    with pytest.raises(ValueError, match="^timeout must be"):
        await Threads(1).map(abs, [1], timeout=timeout)


@pytest.mark.parametrize("timeout", ["5", True, Decimal("0.01")])
async def test_a_timeout_that_is_no_number_is_refused(timeout):
    with pytest.raises(TypeError, match="^timeout must be a number of seconds"):
        await Threads(1).run(abs, 1, timeout=timeout)
    with pytest.raises(TypeError, match="^timeout must be a number of seconds"):
        await Threads(1).map(abs, [1], timeout=timeout)
