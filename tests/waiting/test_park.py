"""Parking, waking, checkpoints, the end of tasks and calls from other threads: the same on every loop."""

import asyncio
import socket
import subprocess
import sys
import threading
from contextvars import Context, ContextVar
from time import monotonic

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio

from tenure.testing import assert_no_checkpoints
from tenure.waiting import (
    NOTHING,
    _trio_readers,
    checkpoint,
    loop_caller,
    loop_time,
    now,
    on_readable,
    park,
    steady_clock,
    this_task,
    this_task_end,
    wake,
    within,
)

pytestmark = pytest.mark.backends("asyncio", "uvloop", "trio")


async def test_nothing_may_be_awaited_often_and_is_no_checkpoint():
    with assert_no_checkpoints():
        for _ in range(3):
            assert await NOTHING is None


async def test_the_steady_clock_is_the_machines():
    time = steady_clock()
    assert monotonic() - 0.002 <= time() <= monotonic()
    assert abs(loop_time(time() + 1) - now() - 1) < 0.5


@pytest.mark.backends("asyncio", "trio")
async def test_in_virtual_time_the_steady_clock_is_that_of_the_loop(virtual_clock):
    assert steady_clock()() == now() == loop_time(now())


async def test_a_parked_task_sleeps_until_it_is_woken():
    parked, log = park(), []

    async def sleeper():
        await parked
        log.append("woken")

    async with anyio.create_task_group() as group:
        parked = park()
        group.start_soon(sleeper)
        await anyio.wait_all_tasks_blocked()
        assert not parked.done()
        assert wake(parked)
        assert parked.done()
        assert not parked.cancelled()
        assert log == [], "waking is synchronous, but the task runs later"
    assert log == ["woken"]


async def test_waking_twice_does_nothing_the_second_time():
    parked = park()
    assert wake(parked)
    assert not wake(parked)
    await parked  # woken before it was awaited: goes through at once


async def test_w1_a_cancelled_sleeper_raises():
    with anyio.move_on_after(0) as scope:
        await park()
    assert scope.cancelled_caught


async def test_w2_a_cancelled_sleeper_shows_before_it_runs():
    parked, ran = park(), []

    async def sleeper():
        try:
            await parked
        finally:
            ran.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        assert not ran
        assert parked.cancelled()
        assert not wake(parked)
    assert ran


async def test_w3_a_scope_does_not_take_a_wake_up_back():
    parked, log = park(), []

    async def sleeper():
        await parked
        log.append("woken")
        await anyio.lowlevel.checkpoint()
        log.append("never")

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper)
        await anyio.wait_all_tasks_blocked()
        wake(parked)
        group.cancel_scope.cancel()
        assert not parked.cancelled()
    assert log == ["woken"]


@pytest.mark.backends("asyncio", "uvloop")
async def test_w3_a_native_cancel_raises_although_the_berth_was_woken():
    parked = park()

    async def sleeper():
        await parked

    task = asyncio.create_task(sleeper())
    await anyio.wait_all_tasks_blocked()
    wake(parked)
    task.cancel("because")
    assert not parked.cancelled()
    with pytest.raises(asyncio.CancelledError, match="because"):
        await task


async def test_a_checkpoint_lets_others_run():
    turns = []

    async def spinner():
        while True:
            turns.append(True)
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(spinner)
        for _ in range(10):
            await checkpoint()
        assert len(turns) >= 9, "trio shuffles who runs first in a turn"
        group.cancel_scope.cancel()


async def test_a_checkpoint_notices_a_cancellation():
    with anyio.CancelScope() as scope:
        scope.cancel()
        await checkpoint()
    assert scope.cancelled_caught


async def test_a_task_is_always_the_same_object():
    tasks = []

    async def other():
        tasks.append(this_task())
        await checkpoint()
        tasks.append(this_task())

    async with anyio.create_task_group() as group:
        group.start_soon(other)
    assert tasks[0] is tasks[1]
    assert tasks[0] is not this_task()


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_the_end_of_a_task_is_reported_however_it_ends(how):
    ended = []

    async def child():
        this_task_end().watch("first", lambda: ended.append(1))
        this_task_end().watch("second", lambda: ended.append(2))
        await checkpoint()
        assert ended == []
        if how == "raises":
            raise KeyError
        if how == "is cancelled":
            group.cancel_scope.cancel()
            await anyio.sleep_forever()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(child)
    except* KeyError:
        assert how == "raises"
    await anyio.wait_all_tasks_blocked()
    assert ended == [1, 2]


async def test_who_no_longer_watches_is_not_called():
    ended = []

    async def child():
        end = this_task_end()
        end.watch("first", lambda: ended.append(1))
        end.watch("second", lambda: ended.append(2))
        end.callbacks.pop("first", None)
        end.callbacks.pop("first", None)

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    await anyio.wait_all_tasks_blocked()
    assert ended == [2]


async def test_watching_may_stop_while_the_end_is_reported_and_after():
    ended, ends = [], []

    def stop_all():
        ended.append(True)
        for watcher in range(3):
            ends[0].callbacks.pop(watcher, None)

    async def child():
        ends.append(this_task_end())
        for watcher in range(3):
            ends[0].watch(watcher, stop_all)

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    await anyio.wait_all_tasks_blocked()
    assert ended == [True], "the first to be told has stopped the others"
    ends[0].callbacks.pop(0, None)


async def test_the_end_of_a_task_that_has_ended_is_reported_too():
    ended, ends = [], []

    async def child():
        ends.append(this_task_end())

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    await anyio.wait_all_tasks_blocked()
    ends[0].watch("first", lambda: ended.append(1))
    ends[0].watch("second", lambda: ended.append(2))
    ends[0].callbacks.pop("second", None)
    await anyio.wait_all_tasks_blocked()
    assert ended == [1]


async def test_a_thread_has_functions_called_on_the_loop_in_order():
    call, home, seen = loop_caller(), threading.get_ident(), []
    parked = park()

    def in_thread():
        for number in range(3):
            call(lambda number=number: seen.append((number, threading.get_ident())))
        call(lambda: wake(parked))

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, in_thread)
        await parked
    assert seen == [(number, home) for number in range(3)]


@pytest.mark.parametrize("backend", [("asyncio", {}), ("asyncio", {"use_uvloop": True}), ("trio", {})])
def test_calling_on_a_loop_that_is_gone_raises(backend):
    async def main():
        return loop_caller()

    if backend[1]:
        pytest.importorskip("uvloop")
    call = anyio.run(main, backend=backend[0], backend_options=backend[1])
    with pytest.raises(RuntimeError):
        call(lambda: None)


def test_trio_as_a_guest_of_asyncio_is_reported_apart():
    async def in_trio():
        with trio.CancelScope() as scope:
            scope.cancel()
            await park()
        await checkpoint()
        return this_task() is trio.lowlevel.current_task()

    async def main():
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        trio.lowlevel.start_guest_run(
            in_trio, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        outcome = await done
        await checkpoint()
        return outcome.unwrap() and this_task() is asyncio.current_task()

    assert asyncio.run(main())


def test_it_works_where_trio_is_not_installed():
    code = """
import sys
sys.modules.update(trio=None, sniffio=None)
import anyio
from tenure.local import Threads
async def main():
    assert await Threads(1).run(abs, -1) == 1
anyio.run(main)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_trio_is_not_imported_before_it_runs():
    code = "import sys, tenure.local; assert 'trio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_callback_gets_what_can_be_read_and_may_use_anyio_until_the_wait_is_cancelled():
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        heard, times = [], []

        def callback():
            heard.append(near.recv(9))
            times.append(anyio.current_time())

        async with anyio.create_task_group() as group:
            group.start_soon(on_readable, near, callback)
            for number, sent in enumerate([b"one", b"two"], 1):
                far.send(sent)
                while len(heard) < number:
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        far.send(b"three")
        for _ in range(9):
            await anyio.lowlevel.checkpoint()
        assert heard == [b"one", b"two"]
        assert times == sorted(times)


async def test_a_callback_that_raises_is_called_no_more():
    near, far = socket.socketpair()
    with near, far:
        far.send(b"one")
        calls = []

        def callback():
            calls.append(None)
            raise OSError("broken")

        with pytest.raises(OSError, match="broken"):
            await on_readable(near, callback)
        for _ in range(9):
            await anyio.lowlevel.checkpoint()
        assert len(calls) == 1


async def test_a_coroutine_runs_within_another_context_and_in_this_task():
    number, seen = ContextVar("number", default=0), []

    async def work():
        seen.append((number.get(), this_task() is task, this_task_end() is end))
        number.set(number.get() + 1)
        await anyio.sleep(0)
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return number.get()

    task, end = this_task(), this_task_end()
    context = Context()
    assert await within(context, work()) == 1
    assert await within(context, work()) == 2
    assert seen == [(0, True, True), (1, True, True)]
    assert number.get() == 0
    assert context[number] == 2


async def test_what_is_raised_on_either_side_goes_through_another_context():
    async def work():
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("7")

    with anyio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(KeyError, match="7") as raised:
            await within(Context(), work())
    assert isinstance(raised.value.__context__, anyio.get_cancelled_exc_class())
    assert not scope.cancelled_caught


async def test_a_callback_runs_in_the_context_of_the_task_that_waits():
    near, far = socket.socketpair()
    variable = ContextVar("variable")
    with near, far:
        far.send(b"one")

        def callback():
            raise OSError(variable.get())

        variable.set("here")
        with pytest.raises(OSError, match="here"):
            await on_readable(near, callback)


@pytest.mark.backends("trio")
async def test_a_task_that_a_callback_wakes_runs_in_the_same_turn_of_trio():
    class Turns(trio.abc.Instrument):
        number = 0

        def before_io_wait(self, timeout):
            self.number += 1

    near, far = socket.socketpair()
    turns, parked = Turns(), park()
    trio.lowlevel.add_instrument(turns)
    with near, far:
        near.setblocking(False)

        def callback():
            near.recv(9)
            read.append(turns.number)
            wake(parked)

        read = []
        async with anyio.create_task_group() as group:
            group.start_soon(on_readable, near, callback)
            await anyio.lowlevel.checkpoint()
            far.send(b"one")
            await parked
            assert read == [turns.number]
            group.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(turns)


@pytest.mark.backends("trio")
async def test_sockets_are_read_although_trio_has_removed_the_instrument():
    """As trio does after an exception in it, such as that of a signal's handler: it logs that, and goes on without."""
    near, far = socket.socketpair()
    other, far_other = socket.socketpair()
    turns, heard = 0, []

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout):
            nonlocal turns
            turns += 1

    async def hear(number):
        while len(heard) < number:
            await anyio.lowlevel.checkpoint()

    counter = Turns()
    with near, far, other, far_other:
        async with anyio.create_task_group() as group:
            group.start_soon(on_readable, near, lambda: heard.append(near.recv(9)))
            await anyio.wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(_trio_readers._of_a_run.get())
            far.send(b"one")
            with anyio.fail_after(5):
                await hear(1)
            trio.lowlevel.add_instrument(counter)
            await anyio.wait_all_tasks_blocked()
            assert turns < 9, "it waits for what comes next"
            trio.lowlevel.remove_instrument(counter)
            group.start_soon(on_readable, other, lambda: heard.append(other.recv(9)))
            await anyio.wait_all_tasks_blocked()
            assert _trio_readers._of_a_run.get() in current_instruments()
            far.send(b"two")
            far_other.send(b"three")
            with anyio.fail_after(5):
                await hear(3)
            trio.lowlevel.remove_instrument(_trio_readers._of_a_run.get())
            group.cancel_scope.cancel()
    assert heard[0] == b"one"
    assert sorted(heard[1:]) == [b"three", b"two"]


def current_instruments():
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner.instruments["_all"]
