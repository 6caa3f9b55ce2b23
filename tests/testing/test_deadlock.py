import asyncio
import re
import threading
import time
from contextlib import asynccontextmanager

import anyio
import pytest
import trio

from tenure.local import Threads
from tenure.testing import (
    DeadlockError,
    ScheduleFailed,
    VirtualClock,
    cancel_everywhere,
    cancellable,
    explore,
    run,
)
from tenure.testing._deadlock import no_thread_can_help
from tenure.waiting import Line

pytest_plugins = ("pytester",)

each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def deadlock(main, backend):
    with pytest.raises(DeadlockError) as caught:
        run(main, clock=VirtualClock(backend, deadlock_timeout=0.02))
    return caught.value


def waits(main, backend):
    """What each task waits for, and on whom, by its name."""
    return {wait.task: (wait.what, wait.on) for wait in deadlock(main, backend).waits}


async def embrace():
    first, second = anyio.Lock(), anyio.Lock()

    async def take(one, other):
        async with one:
            await anyio.sleep(1)
            async with other:
                pass

    async with anyio.create_task_group() as group:
        group.start_soon(take, first, second, name="A")
        group.start_soon(take, second, first, name="B")


@each_backend
def test_a_circle_of_two_locks_is_reported_with_their_holders(backend):
    error = deadlock(embrace, backend)
    found = re.search(
        r"in a circle: A waits for (<Lock #\d>) held by B, B waits for (<Lock #\d>) held by A$", str(error)
    )
    assert found, str(error)
    assert found[1] != found[2]
    assert error.circle == ("A", "B")
    by_name = {wait.task: wait for wait in error.waits}
    assert by_name["A"].on == ("B",)
    assert by_name["B"].on == ("A",)
    assert str(by_name["A"]) == f"A waits for {found[1]} held by B"
    assert by_name[f"{__name__}.embrace"].what == "the end of A and B"


@each_backend
def test_each_task_is_reported_with_the_lines_where_it_waits(backend):
    lines = str(deadlock(embrace, backend)).splitlines()
    assert lines[0] == "every task waits and no timer is set:"
    for name in "AB":
        (place,) = (place for place, line in enumerate(lines) if line.startswith(f"  {name} waits for"))
        assert re.fullmatch(r"    .*test_deadlock.py:\d+ in embrace.<locals>.take", lines[place + 1])


@each_backend
def test_an_exploration_reports_it_with_the_numbers_of_its_trace(backend):
    with pytest.raises(ScheduleFailed) as failure:
        explore(embrace, backends=[backend], cancel=False)
    error = failure.value.__cause__
    assert sorted(name.partition("#")[0] for name in error.circle) == ["A", "B"]
    for name in error.circle:
        assert f"{name} waits for <Lock" in str(failure.value)
        assert re.search(rf"{name} +waits in take", failure.value.trace)


@each_backend
def test_the_runner_does_not_show_its_own_calls(backend):
    with pytest.raises(ScheduleFailed) as failure:
        explore(embrace, backends=[backend], cancel=False)
    told = str(failure.value.__cause__)
    assert "embrace" in told
    assert "/tenure/testing/" not in told
    assert "/contextlib.py" not in told


@each_backend
def test_cancelling_everywhere_reports_it_too(backend):
    async def scenario():
        with cancellable():
            await anyio.Event().wait()

    with pytest.raises(ScheduleFailed, match="waits for <Event #1>"):
        cancel_everywhere(scenario, backends=[backend])


@each_backend
def test_a_parent_that_holds_what_its_child_wants_is_a_circle(backend):
    async def parent():
        lock = anyio.Lock()
        async with lock, anyio.create_task_group() as group:
            group.start_soon(lock.acquire, name="child")

    error = deadlock(parent, backend)
    assert sorted(error.circle) == ["child", "parent"]
    assert "parent waits for the end of child" in str(error)
    assert "child waits for <Lock #" in str(error)


@each_backend
def test_a_circle_of_three_is_found_among_others(backend):
    async def many():
        locks = [anyio.Lock() for _ in range(3)]

        async def take(place):
            async with locks[place]:
                await anyio.sleep(1)
                await locks[(place + 1) % 3].acquire()

        async with anyio.create_task_group() as group:
            for place in range(3):
                group.start_soon(take, place, name=f"T{place}")
                group.start_soon(anyio.sleep_forever)
            await anyio.sleep(2)
            group.start_soon(locks[0].acquire, name="late")

    error = deadlock(many, backend)
    assert sorted(error.circle) == ["T0", "T1", "T2"]
    for before, after in zip(error.circle, [*error.circle[1:], error.circle[0]], strict=True):
        assert re.search(rf"{before} waits for <Lock #\d> held by {after}", str(error))


@each_backend
def test_where_there_is_no_circle_the_longest_chain_is_reported(backend):
    async def main():
        lock = anyio.Lock()

        async def holder():
            async with lock:
                await anyio.Event().wait()

        async with anyio.create_task_group() as group:
            group.start_soon(holder)
            await anyio.sleep(1)
            group.start_soon(lock.acquire, name="wants")

    error = deadlock(main, backend)
    assert error.circle == ()
    last = str(error).splitlines()[-1]
    assert re.fullmatch(
        r"one after the other: main waits for the end of holder and wants, "
        r"wants waits for <Lock #\d> held by holder, holder waits for <Event #\d>",
        last,
    )


@each_backend
def test_a_single_task_makes_no_chain(backend):
    error = deadlock(anyio.sleep_forever, backend)
    assert [(wait.what, wait.on) for wait in error.waits] == [("", ())]
    assert len(str(error).splitlines()) == 2


@each_backend
def test_tasks_of_one_name_are_distinguished(backend):
    async def main():
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(anyio.sleep_forever, name="twin")

    found = waits(main, backend)
    assert {"twin", "twin (2)", "twin (3)"} < set(found)
    assert found["main"] == ("the end of twin, twin (2) and twin (3)", ("twin", "twin (2)", "twin (3)"))


@each_backend
def test_of_many_holders_a_few_are_named(backend):
    async def main():
        async with anyio.create_task_group() as group:
            for number in range(9):
                group.start_soon(anyio.sleep_forever, name=f"T{number}")

    what, on = waits(main, backend)["main"]
    assert what == "the end of T0, T1, T2, T3, T4, T5 and 3 more"
    assert len(on) == 9


@each_backend
class TestWhatIsWaitedFor:
    def wait_of(self, backend, prepare):
        """What "task" waits for, which calls what `prepare` returns, a second after "holder" called the other."""

        async def main():
            hold, wait = prepare()

            async def holder():
                await hold()
                await anyio.Event().wait()

            async def task():
                await wait()

            async with anyio.create_task_group() as group:
                group.start_soon(holder)
                await anyio.sleep(1)
                group.start_soon(task)

        what, on = waits(main, backend)["task"]
        return re.sub(r"#\d", "#n", what), on

    async def nothing(self):
        pass

    def test_a_capacity_limiter_is_held_by_its_borrowers(self, backend):
        def prepare():
            limiter = anyio.CapacityLimiter(1)
            return limiter.acquire, limiter.acquire

        assert self.wait_of(backend, prepare) == ("<CapacityLimiter #n> held by holder", ("holder",))

    def test_a_thread_waits_for_its_limiter(self, backend):
        def prepare():
            limiter = anyio.CapacityLimiter(1)
            return limiter.acquire, lambda: anyio.to_thread.run_sync(int, limiter=limiter)

        assert self.wait_of(backend, prepare) == ("<CapacityLimiter #n> held by holder", ("holder",))

    def test_a_borrower_that_is_no_task_is_counted(self, backend):
        def prepare():
            limiter = anyio.CapacityLimiter(1)
            return lambda: limiter.acquire_on_behalf_of("me"), limiter.acquire

        assert self.wait_of(backend, prepare) == ("<CapacityLimiter #n> held by 1 more", ())

    def test_a_lock_inside_of_an_async_generator(self, backend):
        def prepare():
            lock = anyio.Lock()

            @asynccontextmanager
            async def locked():
                async with lock:
                    yield

            return lock.acquire, locked().__aenter__

        assert self.wait_of(backend, prepare) == ("<Lock #n> held by holder", ("holder",))

    def test_a_lock_inside_of_an_awaitable(self, backend):
        class Taken:
            def __init__(self, lock):
                self.lock = lock

            def __await__(self):
                return self.lock.acquire().__await__()

        def prepare():
            lock = anyio.Lock()

            async def take():
                await Taken(lock)

            return lock.acquire, take

        assert self.wait_of(backend, prepare) == ("<Lock #n> held by holder", ("holder",))

    def test_the_lock_of_a_condition(self, backend):
        def prepare():
            condition = anyio.Condition()
            return condition.acquire, condition.acquire

        assert self.wait_of(backend, prepare) == ("<Lock #n> held by holder", ("holder",))

    def test_the_notice_of_a_condition(self, backend):
        async def wait():
            condition = anyio.Condition()
            async with condition:
                await condition.wait()

        assert self.wait_of(backend, lambda: (self.nothing, wait)) == ("<Condition #n>", ())

    def test_a_semaphore_of_which_nobody_knows_the_holders(self, backend):
        def prepare():
            semaphore = anyio.Semaphore(1)
            return semaphore.acquire, semaphore.acquire

        assert self.wait_of(backend, prepare) == ("<Semaphore #n, value 0>", ())

    def test_an_event(self, backend):
        assert self.wait_of(backend, lambda: (self.nothing, anyio.Event().wait)) == ("<Event #n>", ())

    def test_both_ends_of_a_memory_stream(self, backend):
        for end in (0, 1):
            streams = []

            def prepare(end=end, streams=streams):
                streams += anyio.create_memory_object_stream(0)
                return self.nothing, (lambda: streams[0].send(1)) if end == 0 else streams[1].receive

            told = self.wait_of(backend, prepare)
            for stream in streams:
                stream.close()
            assert told == (f"<MemoryObject{('Send', 'Receive')[end]}Stream #n>", ())

    def test_a_task_handle(self, backend):
        async def main():
            async with anyio.create_task_group() as group:
                handle = group.start_soon(anyio.sleep_forever, name="child")
                if handle is None:
                    pytest.skip("this anyio gives no handle")
                await handle

        assert waits(main, backend)["main"] == ("the end of child", ("child",))

    def test_a_child_that_has_not_started(self, backend):
        async def child(*, task_status):
            await anyio.Event().wait()
            task_status.started()

        async def main():
            async with anyio.create_task_group() as group:
                await group.start(child)

        assert waits(main, backend)["main"] == ("the start of child", ("child",))

    def test_a_pattern_of_this_library(self, backend):
        async def main():
            line = Line(owner="a line")
            await line.wait(line.join(1))

        assert waits(main, backend)["main"] == ("<Line #1>", ())

    def test_a_pattern_of_this_library_shows_its_state(self, backend):
        async def main():
            threads = Threads(1)
            threads._slots.take_nowait()
            await threads.run(int)

        assert waits(main, backend)["main"] == ("<Threads #1 1/1 busy, 0 abandoned, 1 waiting>", ())

    def test_a_read_write_lock_is_held_by_those_that_are_in(self, backend):
        rwlock = pytest.importorskip("tenure.local._rwlock")

        def prepare():
            lock = rwlock.RWLock()
            return lock.read().__aenter__, lock.write().__aenter__

        what, on = self.wait_of(backend, prepare)
        assert what.startswith("<RWLock #n ")
        assert what.endswith("held by holder")
        assert on == ("holder",)

    def test_what_is_not_known_is_not_said(self, backend):
        async def wait():
            await anyio.sleep(float("inf"))

        assert self.wait_of(backend, lambda: (self.nothing, wait)) == ("", ())


def test_a_lock_whose_holder_has_ended():
    """On trio the lock refuses to be waited for then."""

    async def main():
        lock = anyio.Lock()
        async with anyio.create_task_group() as group:
            group.start_soon(lock.acquire, name="gone")
            await anyio.sleep(1)
            group.start_soon(lock.acquire, name="waits")

    assert waits(main, "asyncio")["waits"] == ("<Lock #1> held by gone (ended)", ())


def test_a_lock_that_forgot_to_wake_a_waiter():
    async def main():
        lock = anyio.Lock()
        await lock.acquire()
        async with anyio.create_task_group() as group:
            group.start_soon(lock.acquire, name="waits")
            await anyio.sleep(1)
            lock._owner_task = None

    assert waits(main, "asyncio")["waits"] == ("<Lock #1> held by no task", ())


def test_tasks_and_locks_of_asyncios_own():
    async def main():
        lock = asyncio.Lock()
        await lock.acquire()
        await asyncio.create_task(lock.acquire(), name="child")

    found = waits(main, "asyncio")
    assert found["main"] == ("the end of child", ("child",))
    assert found["child"] == ("<Lock #1>", ())


def test_task_groups_of_asyncios_own():
    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="child")

    assert waits(main, "asyncio")["main"] == ("the end of child", ("child",))


def test_nurseries_and_locks_of_trios_own():
    trio = pytest.importorskip("trio")

    async def main():
        lock = trio.Lock()
        async with lock, trio.open_nursery() as nursery:
            nursery.start_soon(lock.acquire, name="child")

    error = deadlock(main, "trio")
    assert sorted(error.circle) == ["child", "main"]
    assert "child waits for <Lock #" in str(error)


def test_a_circle_of_a_thousand_is_found():
    async def main():
        locks = [anyio.Lock() for _ in range(1000)]

        async def take(place):
            async with locks[place]:
                await anyio.sleep(1)
                await locks[(place + 1) % 1000].acquire()

        async with anyio.create_task_group() as group:
            for place in range(1000):
                group.start_soon(take, place, name=f"T{place}")

    assert len(deadlock(main, "asyncio").circle) == 1000


def test_an_idle_thread_of_trio_cannot_help():
    trio.run(anyio.to_thread.run_sync, int)
    while not no_thread_can_help():  # the thread is on its way from the job to its next wait
        time.sleep(0.001)
    assert threading.active_count() > 1
    assert not trio.run(anyio.to_thread.run_sync, no_thread_can_help)


def test_an_idle_thread_of_anyio_cannot_help():
    async def main():
        await anyio.to_thread.run_sync(int)
        while not no_thread_can_help():  # threads of other tests come to their end
            await anyio.sleep(0.001)
        assert threading.active_count() > 1
        assert not await anyio.to_thread.run_sync(no_thread_can_help)

    anyio.run(main)


def test_a_thread_that_helps_as_the_clock_looks_at_the_threads_has_helped(monkeypatch):
    """It has told trio of its result, which trio takes in when it looks next, and is idle again."""
    go, looks = threading.Event(), []

    def look():
        looks.append(None)
        if len(looks) > 1 and not go.is_set():
            go.set()
            while not no_thread_can_help():
                time.sleep(0.001)
        return no_thread_can_help()

    async def scenario():
        assert await anyio.to_thread.run_sync(go.wait, 30)

    monkeypatch.setattr("tenure.testing._trio_time.no_thread_can_help", look)
    explore(scenario, backends=["trio"], seeds=[1], cancel=False)
    assert go.is_set()


STUCK_SUITE = """
import anyio, pytest
from tenure.testing import VirtualClock

@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param, VirtualClock(request.param, deadlock_timeout=0.05).backend_options

@pytest.mark.anyio
async def test_stuck(virtual_clock):
    await anyio.Event().wait()
"""


def test_in_a_test_the_tasks_of_pytests_plugin_are_not_reported(pytester):
    pytester.makepyfile(test_it=STUCK_SUITE)
    # of this process: it has one alarm and one watch for faults
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:timeout")
    said = str(pytester.runpytest_inprocess(*quiet).stdout)
    told = re.findall(
        r"^E +\S+DeadlockError: every task waits and no timer is set:\n(.*\n)(.*\n)", said, re.MULTILINE
    )
    assert len(told) == 2, said
    assert not re.search(r"Task-\d+ waits$", said, re.MULTILINE)
    for task, place in told:
        assert "waits for <Event #1>" in task
        assert "test_it.py:10 in test_stuck" in place
