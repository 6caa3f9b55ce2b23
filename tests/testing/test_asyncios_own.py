"""Code that uses asyncio itself: which loops are explored, how it is cancelled, and what takes virtual time."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tenure.testing import (
    ScheduleFailed,
    VirtualClock,
    cancel_everywhere,
    cancellable,
    explore,
    explored,
    replay,
    run,
)

pytest_plugins = ("pytester",)
ALONE = "the scenario uses asyncio itself, so asyncio alone was explored"


async def locks():
    lock = asyncio.Lock()

    async def use():
        with cancellable():
            async with lock:
                await asyncio.sleep(0.1)

    await asyncio.gather(use(), use(), use())
    assert not lock.locked()


# the loops that are explored


def test_asyncio_alone_is_explored_and_it_says_so():
    found = explore(locks, seeds=20)
    assert (found.backends, found.note) == (("asyncio",), ALONE)
    assert found.runs == 20


def test_so_it_is_cancelled_everywhere_on_asyncio_alone():
    done = cancel_everywhere(locks)
    assert done == cancel_everywhere(locks, backends=("asyncio",))


def test_coroutines_that_trio_leaves_behind_give_no_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explore(locks, seeds=3)
        cancel_everywhere(locks)
    assert caught == []


@explored(seeds=5)
async def test_a_decorated_test_needs_no_backends():
    await locks()


def test_pytest_says_so_once_and_repeats_a_seed(pytester):
    pytester.makepyfile("""
        import asyncio
        from tenure.testing import explored

        @explored(seeds=3)
        async def test_one():
            await asyncio.sleep(1)
    """)
    quiet = ("-W", "error", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:timeout")
    result = pytester.runpytest_inprocess(*quiet)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"1 explorations: {ALONE}"])
    pytester.runpytest_inprocess(*quiet, "--explore-seed=2").assert_outcomes(passed=1)


def test_whoever_asks_for_trio_gets_it():
    async def naps():
        await asyncio.sleep(1)

    with pytest.raises(ScheduleFailed, match=re.escape("explore it with backends=('asyncio',)")):
        explore(naps, seeds=1, backends=("asyncio", "trio"))


def test_uvloop_is_refused_with_the_reason():
    for call in (explore, cancel_everywhere):
        with pytest.raises(ValueError, match="^backends: uvloop keeps its own time"):
            call(locks, backends=("uvloop",))
    with pytest.raises(ValueError, match="^backend: .* uvloop keeps its own time"):
        VirtualClock("uvloop")


# cancellation


def cancelled_by(messages):
    async def scenario():
        with cancellable():
            try:
                await anyio.sleep(1)
            except asyncio.CancelledError as error:
                messages.add("scope" if "scope" in str(error) else "native")
                raise

    return scenario


@pytest.mark.parametrize(
    ("cancel", "ways"),
    [(True, {"scope", "native"}), ("scope", {"scope"}), ("native", {"native"}), (False, set())],
)
def test_only_these_cancel(cancel, ways):
    messages = set()
    explore(cancelled_by(messages), backends=("asyncio",), cancel=cancel)
    assert messages == ways
    if cancel:
        messages.clear()
        cancel_everywhere(cancelled_by(messages), backends=("asyncio",), cancel=cancel)
        assert messages == ways


def test_native_cancellations_reach_the_scenario_as_a_whole_once():
    cancelled = []

    async def scenario():
        times = 0
        for _ in range(5):
            try:
                await checkpoint()
            except asyncio.CancelledError:
                times += 1
        # A scope would cancel again in each turn.
        assert times <= 1
        cancelled.append(times)

    assert explore(scenario, cancel="native").backends == ("asyncio",)
    assert set(cancelled) == {0, 1}


def test_a_group_that_cancels_a_block_is_not_swallowed_by_it():
    async def scenario():
        async def victim():
            with cancellable():
                await asyncio.sleep(1)
            await asyncio.Event().wait()

        async def fails():
            await asyncio.sleep(0.02)
            raise LookupError

        try:
            async with asyncio.TaskGroup() as group:
                for call in (victim, victim, fails):
                    group.create_task(call())
        except* LookupError:
            pass

    explore(scenario, backends=("asyncio",), cancel="native", seeds=400)


def test_what_repeats_a_failure_says_so():
    async def scenario():
        try:
            await checkpoint()
            await checkpoint()
        except asyncio.CancelledError:
            raise LookupError from None

    with pytest.raises(
        ScheduleFailed, match=r"replay\(scenario, \d+, 'asyncio', cancel='native'\)"
    ) as failure:
        explore(scenario, cancel="native")
    assert "the whole scenario is cancelled, natively" in failure.value.trace
    with pytest.raises(ScheduleFailed, match="LookupError"):
        replay(scenario, failure.value.schedule, "asyncio", cancel="native")


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="^cancel: trio has scopes alone"):
        explore(locks, backends=("trio",), cancel="native")
    with pytest.raises(ValueError, match="^cancel: True, False, 'scope' or 'native', not 'both'"):
        explore(locks, cancel="both")
    with pytest.raises(ValueError, match="^cancel: True, 'scope' or 'native', not False"):
        cancel_everywhere(locks, cancel=False)


# virtual time


async def timeouts():
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.sleep(7200)
    assert loop.time() - began == pytest.approx(3600)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 60)
    assert await asyncio.wait_for(asyncio.sleep(60, "done"), 3600) == "done"
    done, waiting = await asyncio.wait([asyncio.create_task(asyncio.sleep(60))], timeout=3600)
    assert done and not waiting


async def groups():
    order = []

    async def nap(seconds):
        await asyncio.sleep(seconds)
        order.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (300, 100, 200):
            group.create_task(nap(seconds))
    await asyncio.gather(nap(500), nap(400))
    assert order == [100, 200, 300, 400, 500]


async def callbacks():
    loop = asyncio.get_running_loop()
    called = []
    ended = loop.create_future()
    loop.call_later(3600, called.append, loop.time() + 3600)
    loop.call_at(loop.time() + 7200, ended.set_result, None)
    await ended
    assert loop.time() == pytest.approx(called[0] + 3600)


async def executors():
    def work():
        time.sleep(0.05)
        return threading.current_thread().name

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(1):
        names = await asyncio.gather(asyncio.to_thread(work), loop.run_in_executor(None, work))
        with ThreadPoolExecutor(1) as pool:
            names.append(await loop.run_in_executor(pool, work))
    assert threading.current_thread().name not in names
    assert loop.time() == began


async def programs():
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(1):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", "print(input())", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert await child.communicate(b"hello") == (b"hello\n", None)
        child = await asyncio.create_subprocess_shell("exit 3")
        assert await child.wait() == 3
    assert loop.time() == began


async def streams():
    async def echo(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "scenario", [timeouts, groups, callbacks, executors, programs, streams], ids=lambda each: each.__name__
)
def test_of_asyncio(scenario):
    run(scenario)
    # What asyncio does for programs relies on its own order.
    explore(scenario, backends=("asyncio",), seeds=3, cancel=False, strict=scenario is programs)


def test_a_runner_of_asyncios_own():
    with asyncio.Runner(**VirtualClock().backend_options) as runner:
        runner.run(timeouts())


def test_a_job_in_a_process_is_waited_for():
    async def scenario():
        # other ways leave a process of multiprocessing behind, for as long as the tests last
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            async with asyncio.timeout(1):
                assert await asyncio.get_running_loop().run_in_executor(pool, abs, -1) == 1

    run(scenario)


def test_a_job_that_waits_for_the_loop_is_not_waited_for_for_ever():
    async def scenario():
        loop = asyncio.get_running_loop()

        def work():
            return asyncio.run_coroutine_threadsafe(asyncio.sleep(3600, "done"), loop).result()

        assert await asyncio.to_thread(work) == "done"

    run(scenario, clock=VirtualClock(deadlock_timeout=0.05))
