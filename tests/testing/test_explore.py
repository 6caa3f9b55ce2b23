"""Schedules: what is broken is found, shortened, told and repeated; what is right passes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint

from tenure.testing import DeadlockError, ScheduleFailed, cancellable, explore, explored, replay

pytest_plugins = ("pytester",)
BACKENDS = ("asyncio", "trio")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


async def start_all(*calls):
    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(call)


async def lost_update():
    count = 0

    async def add():
        nonlocal count
        seen = count
        await checkpoint()
        count = seen + 1

    await start_all(add, add)
    assert count == 2, f"count is {count}"


async def guarded_update():
    count = 0
    lock = anyio.Lock()

    async def add():
        nonlocal count
        async with lock:
            seen = count
            await checkpoint()
            count = seen + 1

    await start_all(*[add] * 5)
    assert count == 5


async def order_matters():
    """Fails only if the second runs before the first, which asyncio never does."""
    seen = []

    async def say(what):
        seen.append(what)

    async with anyio.create_task_group() as group:
        group.start_soon(say, 1)
        group.start_soon(say, 2)
    assert seen == [1, 2]


async def embrace():
    one, other = anyio.Lock(), anyio.Lock()

    async def take(first, second):
        async with first:
            await checkpoint()
            async with second:
                pass

    async with anyio.create_task_group() as group:
        group.start_soon(take, one, other)
        group.start_soon(take, other, one)


@each_backend
def test_a_lost_update_is_found(backend):
    with pytest.raises(ScheduleFailed, match="count is 1") as failure:
        explore(lost_update, backends=[backend])
    assert failure.value.backend == backend
    assert isinstance(failure.value.__cause__, AssertionError)
    assert re.search(r"\bseed=\d+\b", str(failure.value))
    assert f"replay(scenario, {failure.value.seed}, {backend!r})" in str(failure.value)


def test_what_is_right_passes_on_both_loops():
    found = explore(guarded_update, seeds=50)
    assert found.runs == 100
    assert found.steps > 500


@each_backend
def test_a_failure_is_repeated_from_its_seed_and_from_its_schedule(backend):
    with pytest.raises(ScheduleFailed) as failure:
        explore(order_matters, backends=[backend])
    for seed in (failure.value.seed, failure.value.schedule):
        with pytest.raises(ScheduleFailed, match="AssertionError") as again:
            replay(order_matters, seed, backend)
        assert again.value.trace
    assert replay(order_matters, "AA", "asyncio")


@each_backend
def test_the_trace_shows_which_tasks_ran_and_where_each_waits(backend):
    with pytest.raises(ScheduleFailed) as failure:
        explore(lost_update, backends=[backend])
    lines = failure.value.trace.splitlines()
    assert any(
        re.search(r"add#\d+ +waits in add, test_explore.py:\d+: await checkpoint\(\)", line) for line in lines
    )
    assert any(re.search(r"add#\d+ +ends", line) for line in lines)
    assert str(failure.value).endswith(failure.value.trace)


@each_backend
def test_a_failure_is_shortened(backend):
    """Ten tasks run about, but only one change of the natural order matters."""

    async def scenario():
        async def busy():
            for _ in range(5):
                await checkpoint()

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(busy)
            await lost_update()

    with pytest.raises(ScheduleFailed) as failure:
        explore(scenario, backends=[backend])
    # The natural order fails as well, so nothing has to be drawn, and nothing cancelled.
    assert failure.value.schedule == "AA"
    assert "cancelled" not in failure.value.trace


@each_backend
def test_a_deadlock_is_reported_as_one(backend):
    with pytest.raises(ScheduleFailed, match="DeadlockError") as failure:
        explore(embrace, backends=[backend])
    assert isinstance(failure.value.__cause__, DeadlockError)
    assert "nothing can go on" in failure.value.trace


@each_backend
def test_a_deadlock_in_a_shielded_wait_ends_all_the_same(backend):
    async def scenario():
        with anyio.CancelScope(shield=True):
            await anyio.Event().wait()

    with pytest.raises(ScheduleFailed, match="DeadlockError"):
        explore(scenario, seeds=1, backends=[backend], cancel=False)


@each_backend
def test_a_scenario_that_does_not_end_is_reported(backend, monkeypatch):
    monkeypatch.setattr("tenure.testing._director.MAX_TURNS", 100)

    async def scenario():
        while True:
            await checkpoint()

    with pytest.raises(ScheduleFailed, match="does not end"):
        explore(scenario, seeds=1, backends=[backend], cancel=False)


def test_a_task_left_behind_is_reported():
    tasks = []

    async def scenario():
        tasks.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))

    with pytest.raises(ScheduleFailed, match="left behind: forgotten"):
        explore(scenario, seeds=1, backends=["asyncio"])


def test_a_task_that_ends_a_little_later_is_not_left_behind_and_nobody_cancels_the_wait_for_it():
    async def later():
        for _ in range(5):
            await checkpoint()

    async def scenario():
        kept.append(asyncio.create_task(later()))

    kept = []
    explore(scenario, seeds=50, backends=["asyncio"], cancel="native")


def test_an_error_that_only_the_loop_hears_of_is_reported():
    async def scenario():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await checkpoint()
        await checkpoint()

    with pytest.raises(ScheduleFailed, match="ZeroDivisionError"):
        explore(scenario, seeds=1, backends=["asyncio"], cancel=False)


def test_strict_keeps_the_order_of_asyncio():
    explore(order_matters, strict=True, backends=["asyncio"])
    with pytest.raises(ScheduleFailed, match="strict=True"):
        # trio keeps none
        explore(order_matters, strict=True, backends=["trio"])


@each_backend
@pytest.mark.parametrize("strict", [False, True])
def test_timers_that_are_close_come_together_or_one_by_one(backend, strict):
    seen = set()

    async def scenario():
        times = []

        async def nap(seconds):
            await anyio.sleep(seconds)
            times.append(anyio.current_time())

        async with anyio.create_task_group() as group:
            for seconds in (1, 1.05, 2):
                group.start_soon(nap, seconds)
        assert times == sorted(times)
        assert times[-1] == 2
        seen.add((times[0], times[1]))

    explore(scenario, seeds=40, backends=[backend], strict=strict, cancel=False)
    assert seen == {(1, 1.05), (1.05, 1.05)}


@each_backend
def test_the_scenario_as_a_whole_is_cancelled_in_some_runs(backend):
    ended = []

    async def scenario():
        try:
            for _ in range(5):
                await checkpoint()
        except BaseException:
            ended.append("cancelled")
            raise
        ended.append("done")

    explore(scenario, seeds=100, backends=[backend])
    assert {"cancelled", "done"} == set(ended)
    ended.clear()
    explore(scenario, seeds=100, backends=[backend], cancel=False)
    assert {"done"} == set(ended)


@each_backend
def test_cleaning_up_that_hangs_when_cancelled_is_found(backend):
    async def scenario():
        try:
            await anyio.sleep(1)
        finally:
            with anyio.CancelScope(shield=True):
                if anyio.current_time() < 1:
                    await anyio.Event().wait()

    with pytest.raises(ScheduleFailed, match="DeadlockError"):
        explore(scenario, backends=[backend])
    explore(scenario, seeds=20, backends=[backend], cancel=False)


@each_backend
def test_marked_blocks_are_cancelled_and_catch_it(backend):
    outcomes = set()

    async def scenario():
        with cancellable() as scope:
            await anyio.sleep(1)
        outcomes.add((scope.cancel_called, scope.cancelled_caught))

    explore(scenario, seeds=50, backends=[backend])
    # Cancelled too late, a block ends as it would.
    assert outcomes >= {(False, False), (True, True)}
    assert (False, True) not in outcomes


def test_on_asyncio_some_are_cancelled_natively_and_no_trace_of_it_stays():
    counts = set()

    async def scenario():
        with cancellable() as scope:
            try:
                await anyio.sleep(1)
            except asyncio.CancelledError as error:
                counts.add("anyio" if "scope" in str(error) else "native")
                raise
        assert asyncio.current_task().cancelling() == 0
        await checkpoint()
        assert scope.cancel_called or not scope.cancelled_caught

    explore(scenario, backends=["asyncio"])
    assert counts == {"anyio", "native"}


async def test_outside_of_an_exploration_nobody_cancels_a_marked_block():
    with cancellable() as scope:
        await checkpoint()
    assert not scope.cancel_called
    with cancellable() as scope:
        scope.cancel()
        await anyio.sleep(60)
    assert scope.cancelled_caught


@each_backend
def test_a_lock_that_forgets_to_hand_on_is_found(backend):
    """The waiter is woken, and cancelled in the same turn: what it was given is lost (W3)."""

    class Forgetful:
        def __init__(self):
            self.held = False
            self.line = []

        async def acquire(self):
            if not self.held:
                self.held = True
                return
            event = anyio.Event()
            self.line.append(event)
            try:
                await event.wait()
                await checkpoint()
            except BaseException:
                if event in self.line:
                    self.line.remove(event)
                raise

        def release(self):
            if self.line:
                self.line.pop(0).set()
            else:
                self.held = False

    async def scenario():
        lock = Forgetful()

        async def use():
            with cancellable():
                await lock.acquire()
                try:
                    await checkpoint()
                finally:
                    lock.release()

        await start_all(use, use, use)
        await lock.acquire()

    with pytest.raises(ScheduleFailed, match="Deadlock"):
        explore(scenario, backends=[backend])


PRINT_TRACES = """
import sys
sys.path.insert(0, {folder!r})
junk = [object() for _ in range({junk})]
import anyio
from tenure.testing import cancellable, replay

async def scenario():
    lock = anyio.Lock()
    async def use(n):
        with anyio.move_on_after(0.03 * n):
            with cancellable():
                async with lock:
                    await anyio.sleep(0.02)
    async with anyio.create_task_group() as group:
        for n in range(6):
            group.start_soon(use, n)

for strict in (False, True):
    for backend in ("asyncio", "trio"):
        for seed in range(25):
            print(replay(scenario, seed, backend, strict=strict))
"""


def test_the_same_seed_has_the_same_trace_in_every_process():
    traces = {
        subprocess.run(
            [sys.executable, "-c", PRINT_TRACES.format(folder=".", junk=junk)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for junk in (0, 12345)
    }
    assert len(traces) == 1
    assert traces.pop().count("cancelled") > 20


@explored(seeds=20)
async def test_a_decorated_test_is_explored(tmp_path):
    assert tmp_path.is_dir()
    await guarded_update()


@explored
async def test_a_bare_decorator_does():
    await checkpoint()


def test_the_options_of_pytest(pytester, monkeypatch):
    monkeypatch.setattr("_tenure_pytest.explore_options", {})
    pytester.makepyfile("""
        import anyio
        from tenure.testing import explored

        runs = []

        @explored(seeds=3)
        async def test_one():
            runs.append(1)
            await anyio.sleep(1)

        def test_how_many():
            print("runs:", len(runs))
    """)
    quiet = ("-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:timeout", "-s")
    for arguments, runs in (
        ((), 6),
        (("--explore-seeds=7",), 14),
        (("--explore-seconds=1e-9",), 2),
    ):
        result = pytester.runpytest_inprocess(*quiet, *arguments)
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines([f"*runs: {runs}*"])
    result = pytester.runpytest_inprocess(*quiet, "--explore-seed=5", "--explore-backend=trio")
    result.stdout.fnmatch_lines(["*runs: 1*"])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"seeds": 0}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"backends": "asyncio"}, "backends"),
        ({"backends": ()}, "backends"),
        ({"backends": ["uvloop"]}, "backends"),
    ],
)
def test_bad_arguments_are_refused(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        explore(guarded_update, **arguments)


def test_a_schedule_that_is_none_is_refused():
    with pytest.raises(ValueError, match="^seed: "):
        replay(guarded_update, "no schedule!", "asyncio")


async def test_inside_of_a_loop_it_is_refused():
    with pytest.raises(RuntimeError, match="sync function"):
        explore(guarded_update)


# what a failure says


@each_backend
def test_a_group_of_one_is_not_the_first_line(backend):
    async def fails():
        async def one():
            raise LookupError("the error")

        await start_all(one)

    with pytest.raises(ScheduleFailed) as failure:
        explore(fails, seeds=1, backends=(backend,))
    assert str(failure.value).splitlines()[0] == "LookupError: the error"
    assert isinstance(failure.value.__cause__, ExceptionGroup)
    with pytest.raises(ScheduleFailed, match="LookupError: the error"):
        replay(fails, 0, backend)


async def asyncio_lock():
    lock = asyncio.Lock()

    async def use():
        async with lock:
            await checkpoint()

    await start_all(use, use)


async def asyncio_future():
    loop = asyncio.new_event_loop()
    try:
        await loop.create_future()
    finally:
        loop.close()


async def asyncio_thread():
    await asyncio.to_thread(print)


async def asyncio_sleeps():
    async def sleep():
        await asyncio.sleep(1)

    await start_all(sleep, sleep)


async def asyncio_task_group():
    async with asyncio.TaskGroup():
        pass


@pytest.mark.parametrize(
    "scenario", [asyncio_lock, asyncio_future, asyncio_thread, asyncio_sleeps, asyncio_task_group]
)
def test_what_is_asyncios_own_gets_a_hint_on_trio(scenario):
    with pytest.raises(ScheduleFailed) as failure:
        explore(scenario, seeds=1, backends=("trio",))
    hint = "the scenario uses asyncio itself, not anyio: explore it with backends=('asyncio',)"
    assert str(failure.value).splitlines()[2] == hint


def test_what_is_trios_own_gets_a_hint_on_asyncio():
    async def sleeps():
        await trio.sleep(1)

    with pytest.raises(ScheduleFailed, match=re.escape("explore it with backends=('trio',)")):
        explore(sleeps, seeds=1)


def test_other_errors_get_no_hint():
    for backend in BACKENDS:
        with pytest.raises(ScheduleFailed) as failure:
            explore(embrace, backends=(backend,))
        assert "explore it with" not in str(failure.value)


def test_the_report_of_pytest_shows_the_test_and_none_of_our_frames(pytester, monkeypatch):
    monkeypatch.delenv("CI", raising=False)  # there, pytest prints each error twice
    pytester.makepyfile("""
        import anyio
        from anyio.lowlevel import checkpoint
        from tenure.testing import cancel_everywhere, cancellable, explored

        @explored
        async def test_one():
            await checkpoint()
            assert 1 + 1 == 3, "wrong sum"

        def test_everywhere():
            async def scenario():
                with cancellable():
                    await checkpoint()
                assert 1 + 1 == 3, "wrong sum"

            cancel_everywhere(scenario)
    """)
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:timeout"
    )
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "wrong sum" in text and "repeat it with" in text
    assert not re.search(r"_(explored?|runs|everywhere|asyncio_time|tenure_pytest)\.py", text)
    assert "anyio/_core" not in text
    assert len(result.outlines) < 75


@each_backend
def test_a_failure_is_told_in_few_lines(backend):
    """The error, the schedule with the fewest switches, how to repeat it, where each task stood, the last steps."""

    async def scenario():
        count = 0

        async def add():
            nonlocal count
            seen = count
            await checkpoint()
            assert count == seen, "overtaken"
            count = seen + 1

        async def bystander():
            await anyio.sleep(5)

        async with anyio.create_task_group() as group:
            for call in [bystander] * 12 + [add] * 3:
                group.start_soon(call)

    with pytest.raises(ScheduleFailed) as failure:
        explore(scenario, backends=[backend], cancel=False)
    first, schedule, repeat, found, *rest = str(failure.value).splitlines()
    assert first == "AssertionError: overtaken"
    assert re.fullmatch(rf"on {backend}, \d+ switches: .*add#\d+", schedule)
    assert (
        repeat == f"repeat it with: replay(scenario, {failure.value.schedule!r}, {backend!r}, cancel=False)"
    )
    assert found.startswith(f"found by seed={failure.value.seed}: ")
    assert "where each task stood:" in rest
    assert re.search(
        r"\n  add#\d+ +fails in add, test_explore.py:\d+: assert count == seen", str(failure.value)
    )
    # the failing step is the last; what came of it is not shown
    assert re.search(r"add#\d+ +fails in add", failure.value.trace.splitlines()[-1])
    assert len(str(failure.value).splitlines()) <= 27


@each_backend
def test_the_shortest_schedule_has_the_fewest_switches(backend):
    """Two steps of one task between two of another are enough, whatever the seed has done besides."""
    for seed in range(3):
        with pytest.raises(ScheduleFailed) as failure:
            explore(order_matters, seeds=range(seed * 100, 2000), backends=[backend])
        assert f"on {backend}, 3 switches: main#0, say#2, say#1, main#0" in str(failure.value)


# how much is explored


def test_the_coverage_of_schedules_is_told_for_each_loop():
    found = explore(start_nothing, seeds=10, cancel=False)
    assert found.interleavings == {"asyncio": 1, "trio": 1}
    assert found.newest == {"asyncio": 1, "trio": 1}
    found = explore(guarded_update, seeds=50)
    for backend in BACKENDS:
        assert 20 < found.interleavings[backend] <= 50
        assert found.interleavings[backend] <= found.newest[backend] <= 50


async def start_nothing():
    await checkpoint()


def test_a_budget_of_time_ends_an_exploration(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tenure.testing._explore.monotonic", lambda: now[0])

    async def a_second():
        now[0] += 1
        await checkpoint()

    found = explore(a_second, seconds=20, cancel=False)
    assert found.runs == 22  # the run in which the time is up is finished
    assert set(found.interleavings) == set(BACKENDS)
    assert explore(a_second, seconds=1e-9).runs == 2
    assert explore(a_second, seconds=20, seeds=3).runs == 6


def test_without_a_budget_200_seeds_are_tried():
    assert explore(start_nothing, backends=["asyncio"]).runs == 200


# without trio

WITHOUT_TRIO = """
import sys
sys.modules["trio"] = None
import asyncio
import anyio
from tenure.testing import VirtualClock, cancel_everywhere, cancellable, explore, run

async def right():
    with cancellable():
        await anyio.sleep(1)

async def wrong():
    assert False

def error_of(call, *args, **options):
    try:
        call(*args, **options)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"

"""
MISSING = "ModuleNotFoundError: trio is missing: pip install 'tenure[trio]'"


def without_trio(program):
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_TRIO + program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_without_trio_asyncio_alone_is_explored():
    said = without_trio(
        "print(explore(right, seeds=3)); cancel_everywhere(right); print(error_of(explore, wrong, seeds=1))"
    )
    assert said.startswith("Exploration(runs=3, steps=")
    assert "backends=('asyncio',)" in said.splitlines()[0]
    assert said.splitlines()[1] == "ScheduleFailed: AssertionError"
    assert (
        "trio is not installed, so asyncio alone was explored: pip install 'tenure[trio]'"
        in said.splitlines()
    )


def test_without_trio_whoever_asks_for_it_is_told_the_extra():
    calls = (
        "explore, right, backends=['asyncio', 'trio']",
        "cancel_everywhere, right, backends=['trio']",
        "VirtualClock, 'trio'",
        "run, right, backend='trio'",
    )
    assert without_trio("\n".join(f"print(error_of({call}))" for call in calls)) == f"{MISSING}\n" * 4


def test_without_trio_the_report_of_pytest_says_so_once(pytester):
    pytester.makeconftest("import sys; sys.modules['trio'] = None")
    pytester.makepyfile("""
        import anyio
        from tenure.testing import explored

        @explored(seeds=3)
        async def test_one():
            await anyio.sleep(1)

        @explored(seeds=3)
        async def test_two():
            await anyio.sleep(1)
    """)
    result = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    lines = [line for line in result.outlines if "trio is not installed" in line]
    assert lines == [
        "2 explorations: trio is not installed, so asyncio alone was explored: pip install 'tenure[trio]'"
    ]
