import math
import subprocess
import sys
import threading
import time

import anyio
import pytest

from tenure.testing import DeadlockError, VirtualClock, run, virtual_backend_options

pytest_plugins = ("pytester",)


async def test_hours_pass_in_no_time(virtual_clock):
    await anyio.sleep(7200)
    assert virtual_clock.now() == anyio.current_time() == 7200


async def test_a_timeout_fires_at_its_exact_time(virtual_clock):
    with pytest.raises(TimeoutError):
        with anyio.fail_after(12.25):
            await anyio.sleep_forever()
    assert virtual_clock.now() == 12.25


async def test_timers_fire_in_their_order(virtual_clock):
    seen = []

    async def sleeper(seconds):
        await anyio.sleep(seconds)
        seen.append((seconds, anyio.current_time()))

    async with anyio.create_task_group() as group:
        for seconds in (3, 0.1, 2, 100_000, 0.2):
            group.start_soon(sleeper, seconds)
    assert seen == [(s, pytest.approx(s, rel=1e-12)) for s in (0.1, 0.2, 2, 3, 100_000)]


async def test_time_stands_still_while_anything_runs(virtual_clock):
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 1)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert virtual_clock.now() == 0
    assert virtual_clock.now() == 1


async def test_settle_waits_for_the_others_without_moving_time(virtual_clock):
    steps = 0

    async def worker():
        nonlocal steps
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
            steps += 1
        await anyio.sleep(1)

    async with anyio.create_task_group() as group:
        group.start_soon(worker)
        await virtual_clock.settle()
        assert (steps, virtual_clock.now()) == (50, 0)


async def test_settle_can_be_cancelled_and_called_by_many(virtual_clock):
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(virtual_clock.settle)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await virtual_clock.settle()
        assert scope.cancelled_caught
        await virtual_clock.settle()
    assert virtual_clock.now() == 0


async def test_advance_lets_happen_what_is_due(virtual_clock):
    seen = []

    async def ticker():
        for tick in range(4):
            await anyio.sleep(1)
            seen.append(tick)

    async with anyio.create_task_group() as group:
        group.start_soon(ticker)
        await virtual_clock.advance(2)
        assert seen == [0, 1]
        assert virtual_clock.now() == 2
        await virtual_clock.advance(0.5)
        assert seen == [0, 1]


async def test_sleeping_for_ever_is_no_timer(virtual_clock):
    with anyio.move_on_after(5) as scope:
        await anyio.sleep(math.inf)
    assert scope.cancelled_caught
    assert virtual_clock.now() == 5


async def test_a_thread_wakes_the_loop(virtual_clock):
    """There is no timer, but a thread that will call: no deadlock."""
    assert await anyio.to_thread.run_sync(lambda: time.sleep(0.05) or 7) == 7
    assert virtual_clock.now() == 0


async def test_a_socket_pair_needs_no_timer(virtual_clock):
    async def answer(stream):
        async with stream:
            await stream.send(await stream.receive())

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, answer)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"hello")
                assert await stream.receive() == b"hello"
            group.cancel_scope.cancel()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
class TestDeadlock:
    def test_it_is_reported_with_the_places_where_all_wait(self, backend):
        async def waits_for_nothing():
            await anyio.Event().wait()

        async def main():
            async with anyio.create_task_group() as group:
                group.start_soon(waits_for_nothing, name="the-stuck-one")

        clock = VirtualClock(backend, deadlock_timeout=0.1)
        with pytest.raises(DeadlockError, match="no timer is set") as caught:
            run(main, clock=clock)
        assert "the-stuck-one" in str(caught.value)
        assert "waits_for_nothing" in str(caught.value)
        assert clock.deadlock is caught.value

    def test_a_thread_has_the_clocks_deadlock_timeout(self, backend):
        async def main():
            return await anyio.to_thread.run_sync(lambda: time.sleep(0.2) or "woken")

        assert run(main, clock=VirtualClock(backend, deadlock_timeout=2)) == "woken"

    def test_a_busy_loop_of_threads_is_none(self, backend):
        async def main():
            for _ in range(30):
                await anyio.to_thread.run_sync(time.sleep, 0.01)

        run(main, clock=VirtualClock(backend, deadlock_timeout=0.15))

    def test_the_clock_goes_on_afterwards(self, backend):
        clock = VirtualClock(backend, deadlock_timeout=0.05)
        with pytest.raises(DeadlockError):
            run(anyio.sleep_forever, clock=clock)
        run(anyio.sleep, 3, clock=clock)
        assert clock.now() == 3
        assert clock.deadlock is None


async def test_settle_seconds_keep_time_from_overtaking_a_thread(anyio_backend_name):
    """Run in a thread, since a run inside a run is refused."""

    def other_run():
        async def main():
            with anyio.fail_after(60):
                for _ in range(3):
                    await anyio.to_thread.run_sync(time.sleep, 0.02)
            await anyio.sleep(100)

        clock = VirtualClock(anyio_backend_name, settle=0.2)
        run(main, clock=clock)
        return clock.now()

    assert await anyio.to_thread.run_sync(other_run) == 100


def test_run_returns_the_value():
    async def add(one, two):
        await anyio.sleep(10)
        return one + two

    assert run(add, 1, 2) == run(add, 1, 2, backend="trio") == 3


def test_options_lead_back_to_their_clock():
    for backend in ("asyncio", "trio"):
        clock = VirtualClock(backend)
        found = VirtualClock.of(clock.backend_options)
        assert found.backend == backend
        run(anyio.sleep, 5, clock=clock)
        assert found.now() == 5
        assert VirtualClock.of(virtual_backend_options(backend)).now() == 0
    assert VirtualClock.of({}) is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"backend": "uvloop"}, "backend"),
        ({"settle": -1}, "settle"),
        ({"settle": math.nan}, "settle"),
        ({"deadlock_timeout": 0}, "deadlock_timeout"),
    ],
)
def test_arguments_are_checked(arguments, named):
    with pytest.raises(ValueError, match=f"^{named}:"):
        VirtualClock(**arguments)


async def test_advance_refuses_to_go_back(virtual_clock):
    with pytest.raises(ValueError, match="^seconds:"):
        await virtual_clock.advance(-1)


def test_now_may_be_read_in_other_threads():
    clock = VirtualClock()
    run(anyio.sleep, 4, clock=clock)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(clock.now()))
    thread.start()
    thread.join()
    assert seen == [4]
    assert "4" in repr(clock)


PLAIN_SUITE = """
import anyio, pytest
from tenure.testing import VirtualClock

@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param, VirtualClock(request.param, deadlock_timeout=0.1).backend_options

@pytest.mark.anyio
async def test_stuck(virtual_clock):
    await anyio.sleep_forever()

@pytest.mark.anyio
async def test_fine(virtual_clock):
    await anyio.sleep(1e6)
    assert virtual_clock.now() == 1e6
"""


@pytest.mark.parametrize("options", [[], ["-p", "tenure.testing.plugin"]])
def test_the_plugin_in_somebody_elses_suite(pytester, options):
    pytester.makepyfile(PLAIN_SUITE)
    # of this process: it has one alarm and one watch for faults
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:timeout")
    done = pytester.runpytest_inprocess(*quiet, *options)
    done.assert_outcomes(failed=2, passed=2)
    assert str(done.stdout).count("DeadlockError: every task waits") >= 2


def test_the_plugin_module_does_not_import_the_package():
    code = "import sys, _tenure_pytest; sys.exit('tenure' in sys.modules or 'anyio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
