"""The read-write lock: who goes in with whom and before whom, in every window of cancellation, and who starves not."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import depth
import pytest
from callers import ON_UVLOOP_TOO, Cancellable, start_in_turn
from hypothesis import given, settings, strategies as st

from tenure.local._rwlock import RWLock, RWLockStatistics
from tenure.testing import (
    assert_checkpoints,
    assert_no_checkpoints,
)
from tenure.waiting import this_task, this_task_end

POLICIES = ("fair", "readers", "writers")
ALL_POLICIES = pytest.mark.parametrize("policy", POLICIES)


class Task(Cancellable):
    """One that holds the lock until `leaving` is set."""

    def __init__(self, lock, mode, how="scope"):
        super().__init__(how)
        self.lock = lock
        self.mode = mode
        self.leaving = anyio.Event()

    async def do(self):
        try:
            async with self.lock.read() if self.mode == "r" else self.lock.write():
                self.outcome = "in"
                await self.leaving.wait()
            self.outcome = "done"
        except anyio.BrokenResourceError:
            self.outcome = "broken"

    async def leave(self):
        self.leaving.set()
        await anyio.wait_all_tasks_blocked()


async def line_up(group, lock, modes, how="scope"):
    return await start_in_turn(group, [Task(lock, mode, how) for mode in modes])


def who_is_in(tasks):
    return [number for number, task in enumerate(tasks) if task.outcome == "in"]


def leave_all(tasks):
    for task in tasks:
        task.leaving.set()


# ---------------------------------------------------------------------------------------------------------- holding


@ALL_POLICIES
async def test_readers_share_it_and_a_writer_has_it_alone(policy):
    lock = RWLock(policy)
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "rrw")
        assert who_is_in(tasks) == [0, 1]
        await tasks[0].leave()
        assert who_is_in(tasks) == [1]
        await tasks[1].leave()
        assert who_is_in(tasks) == [2]
        tasks += await line_up(group, lock, "rw")
        assert who_is_in(tasks) == [2]
        leave_all(tasks)
    assert lock.statistics() == RWLockStatistics(policy, 0, 0, 0, 0, broken=False)


async def test_entering_gives_way_to_others_and_leaving_does_not():
    lock = RWLock()
    for block in (lock.read(), lock.write()):
        with assert_checkpoints():
            await block.__aenter__()
        with assert_no_checkpoints():
            await block.__aexit__(None, None, None)


@pytest.mark.parametrize("mode", "rw")
@ON_UVLOOP_TOO
async def test_cancelled_in_the_checkpoint_of_a_free_lock_it_holds_nothing(how, mode):
    lock = RWLock()
    task = Task(lock, mode, how)
    task.task = this_task()
    task.cancel()
    await task.run()
    assert task.outcome == "cancelled"
    lock.write_nowait().release()


async def test_leaving_works_in_a_cancelled_scope():
    lock = RWLock()
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with lock.write():
                tasks = await line_up(group, lock, "rr")
                scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert who_is_in(tasks) == [0, 1]
        leave_all(tasks)


@pytest.mark.parametrize("first", "rw")
@pytest.mark.parametrize("second", "rw")
async def test_a_task_that_asks_again_is_refused_instead_of_waiting_for_itself(first, second):
    lock = RWLock()
    blocks = {"r": (lock.read, lock.read_nowait), "w": (lock.write, lock.write_nowait)}
    async with blocks[first][0]():
        with pytest.raises(RuntimeError, match="this task holds the lock already"):
            async with blocks[second][0]():
                pass
        with pytest.raises(RuntimeError, match="this task holds the lock already"):
            blocks[second][1]()
        assert lock.statistics().readers + lock.statistics().writers == 1
    lock.write_nowait().release()


async def test_a_block_is_for_one_use():
    lock = RWLock()
    block = lock.read()
    async with block:
        pass
    with pytest.raises(RuntimeError, match="for one use"):
        async with block:
            pass
    taken = lock.write_nowait()
    taken.release()
    with pytest.raises(RuntimeError, match="not held by this block"):
        taken.release()


def test_made_outside_of_a_loop_it_serves_one_loop_after_the_other():
    lock = RWLock()

    async def use():
        async with anyio.create_task_group() as group:
            leave_all(await line_up(group, lock, "wrrw"))

    for backend in ("asyncio", "trio"):
        anyio.run(use, backend=backend)


# ------------------------------------------------------------------------------------------------------- not waiting


async def test_taking_it_without_waiting():
    lock = RWLock()
    with assert_no_checkpoints():
        with lock.read_nowait():
            assert lock.statistics().readers == 1
        with lock.write_nowait():
            assert lock.statistics().writers == 1
        async with lock.read_nowait():
            assert lock.statistics().readers == 1
        taken = lock.write_nowait()
        taken.release()
    assert lock.statistics() == RWLockStatistics("fair", 0, 0, 0, 0, broken=False)


@ALL_POLICIES
async def test_what_would_have_to_wait_is_refused(policy):
    lock = RWLock(policy)
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "r")
        lock.read_nowait().release()
        with pytest.raises(anyio.WouldBlock):
            lock.write_nowait()
        tasks += await line_up(group, lock, "w")
        if policy == "readers":
            lock.read_nowait().release()
        else:
            with pytest.raises(anyio.WouldBlock):
                lock.read_nowait()
        await tasks[0].leave()
        with pytest.raises(anyio.WouldBlock):
            lock.read_nowait()
        leave_all(tasks)


@pytest.mark.backends("asyncio")
async def test_outside_of_a_task_nobody_could_hold_it():
    lock, caught = RWLock(), []

    def callback():
        with pytest.raises(RuntimeError, match="no task is running"):
            lock.read_nowait()
        caught.append(True)

    __import__("asyncio").get_running_loop().call_soon(callback)
    await anyio.sleep(0.01)
    assert caught


# ------------------------------------------------------------------------------------------------------- downgrading


async def test_a_writer_becomes_a_reader_without_another_writer_in_between():
    lock = RWLock()
    async with anyio.create_task_group() as group:
        async with lock.write():
            tasks = await line_up(group, lock, "rrwr")
            with assert_no_checkpoints():
                lock.downgrade()
            await anyio.wait_all_tasks_blocked()
            assert who_is_in(tasks) == [0, 1]
            assert lock.statistics() == RWLockStatistics("fair", 3, 0, 1, 1, broken=False)
            with pytest.raises(RuntimeError, match="not held by this task to write"):
                lock.downgrade()
        await tasks[0].leave()
        await tasks[1].leave()
        assert who_is_in(tasks) == [2]
        leave_all(tasks)


async def test_one_that_is_not_the_writer_cannot_downgrade():
    lock = RWLock()
    with pytest.raises(RuntimeError, match="not held by this task to write"):
        lock.downgrade()
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "w")
        with pytest.raises(RuntimeError, match="not held by this task to write"):
            lock.downgrade()
        leave_all(tasks)


@ALL_POLICIES
async def test_downgraded_it_keeps_writers_out_until_it_leaves(policy):
    lock = RWLock(policy)
    async with anyio.create_task_group() as group:
        with lock.write_nowait():
            tasks = await line_up(group, lock, "w")
            lock.downgrade()
            await anyio.wait_all_tasks_blocked()
            assert who_is_in(tasks) == []
        await anyio.wait_all_tasks_blocked()
        assert who_is_in(tasks) == [0]
        leave_all(tasks)


# ---------------------------------------------------------------------------------------------------------- policies


async def test_writers_overtake_readers_but_for_those_that_have_waited_for_a_write():
    lock = RWLock("writers")
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "wrwrww")
        for expected in ([0], [2], [1, 3], [4], [5]):
            assert who_is_in(tasks) == expected
            for number in expected:
                await tasks[number].leave()


async def test_readers_overtake_writers_as_long_as_one_is_in_that_was_there_before():
    lock = RWLock("readers")
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "rwrr")
        assert who_is_in(tasks) == [0, 2, 3]
        await tasks[2].leave()
        tasks += await line_up(group, lock, "r")
        assert who_is_in(tasks) == [0, 3, 4]
        await tasks[0].leave()
        tasks += await line_up(group, lock, "r")
        assert who_is_in(tasks) == [3, 4], "the writer would have to wait for the newcomer alone"
        await tasks[3].leave()
        await tasks[4].leave()
        assert who_is_in(tasks) == [1]
        leave_all(tasks)


async def test_readers_that_waited_for_a_write_go_before_the_next():
    lock = RWLock("readers")
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "wwrr")
        await tasks[0].leave()
        assert who_is_in(tasks) == [2, 3]
        tasks += await line_up(group, lock, "r")
        assert who_is_in(tasks) == [2, 3, 4]
        await tasks[2].leave()
        await tasks[3].leave()
        tasks += await line_up(group, lock, "r")
        assert who_is_in(tasks) == [4]
        await tasks[4].leave()
        assert who_is_in(tasks) == [1]
        leave_all(tasks)


# ----------------------------------------------------------------------------------------------------------- leaving


@ALL_POLICIES
@ON_UVLOOP_TOO
async def test_r10_the_readers_behind_a_writer_that_gives_up_go_in(how, policy):
    """aiorwlock and tricycle: they stayed parked until the first reader left."""
    lock = RWLock(policy)
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "rwrr", how)
        tasks[1].cancel()
        await anyio.wait_all_tasks_blocked()
        assert who_is_in(tasks) == [0, 2, 3]
        leave_all(tasks)


@ON_UVLOOP_TOO
async def test_the_readers_behind_the_second_writer_wait_on_when_the_first_gives_up(how):
    lock = RWLock()
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "rwrwr", how)
        tasks[1].cancel()
        await anyio.wait_all_tasks_blocked()
        assert who_is_in(tasks) == [0, 2]
        leave_all(tasks)


@ON_UVLOOP_TOO
async def test_w2n_readers_go_in_together_when_the_writer_before_them_was_just_cancelled(how):
    lock = RWLock()
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "rwr", how)
        tasks[1].cancel()
        with lock.read_nowait():
            async with anyio.create_task_group() as newcomers:
                tasks += await line_up(newcomers, lock, "r", how)
                assert who_is_in(tasks) == [0, 2, 3]
                leave_all(tasks)


@pytest.mark.parametrize("mode", "rw")
@ON_UVLOOP_TOO
async def test_w3_given_and_then_cancelled(how, mode):
    lock = RWLock()
    async with anyio.create_task_group() as group:
        held = lock.write_nowait()
        tasks = await line_up(group, lock, [mode, "w"], how)
        held.release()
        tasks[0].cancel()
        await anyio.wait_all_tasks_blocked()
        assert [task.outcome for task in tasks] == ["cancelled", "in"]
        leave_all(tasks)


# ------------------------------------------------------------------------------------------------- holders that die


async def forgetful(lock, mode, done=None):
    lock.read_nowait() if mode == "r" else lock.write_nowait()
    if done is not None:
        await done.wait()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(("dead", "waiting"), [("w", "r"), ("w", "w"), ("r", "w")])
async def test_r13_a_task_that_ends_while_it_holds_the_lock_breaks_it(virtual_clock, dead, waiting, early):
    """anyio.Lock: for ever on asyncio, BrokenResourceError on trio."""
    lock, done = RWLock(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(forgetful, lock, dead, done)
        await virtual_clock.settle()
        if early:
            done.set()
            await virtual_clock.settle()
        tasks = [Task(lock, waiting), Task(lock, waiting)]
        for task in tasks:
            group.start_soon(task.run)
        await virtual_clock.settle()
        done.set()
    assert [task.outcome for task in tasks] == ["broken", "broken"]
    assert lock.statistics().broken
    with pytest.raises(
        anyio.BrokenResourceError, match="a task that held it has ended without giving it back"
    ):
        async with lock.write():
            pass
    with assert_checkpoints(), pytest.raises(anyio.BrokenResourceError):
        async with lock.write():
            pass
    assert lock.statistics().tasks_waiting == 0


async def test_when_a_reader_died_those_that_wait_go_on_to_read_but_not_to_write(virtual_clock):
    lock, done = RWLock(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(forgetful, lock, "r", done)
        await virtual_clock.settle()
        tasks = [Task(lock, mode) for mode in "wr"]
        for task in tasks:
            group.start_soon(task.run)
            await virtual_clock.settle()
        done.set()
        await virtual_clock.settle()
        assert [task.outcome for task in tasks] == ["broken", "in"]
        leave_all(tasks)
    async with lock.read():
        pass


async def test_one_that_overtook_a_writer_and_died_breaks_it_too(virtual_clock):
    lock = RWLock("readers")
    async with anyio.create_task_group() as group:
        tasks = [Task(lock, mode) for mode in "rw"]
        for task in tasks:
            group.start_soon(task.run)
            await virtual_clock.settle()
        group.start_soon(forgetful, lock, "r")
        await virtual_clock.settle()
        assert [task.outcome for task in tasks] == ["in", "broken"]
        leave_all(tasks)


@pytest.mark.parametrize("gives_up", [True, False])
async def test_a_task_that_has_given_it_back_may_end(virtual_clock, gives_up):
    lock = RWLock()
    async with anyio.create_task_group() as group:
        tasks = [Task(lock, mode) for mode in "rw"]
        for task in tasks:
            group.start_soon(task.run)
            await virtual_clock.settle()
        if gives_up:
            tasks[1].cancel()
            await virtual_clock.settle()
        tasks[0].leaving.set()
        await virtual_clock.settle()
        assert [task.outcome for task in tasks] == ["done", "cancelled" if gives_up else "in"]
        tasks[1].leaving.set()
    assert not lock.statistics().broken
    assert not lock._holders, "the ended tasks are not kept"


async def test_a_task_that_goes_on_keeps_nothing_of_the_locks_it_held():
    lock, ends = RWLock(), set()

    async def often(number):
        for turn in range(50):
            async with (lock.write if (number + turn) % 10 == 0 else lock.read)():
                ends.add(this_task_end())
                await anyio.lowlevel.checkpoint()
        assert not this_task_end().callbacks

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(often, number)
    assert len(ends) == 20, "a task's end is registered with the loop once"


# --------------------------------------------------------------------------------------------------------- schedules


class Model:
    """What a fair lock means, on lists: who is in, and who waits, in one line."""

    def __init__(self):
        self.holding, self.waiting = [], []

    def may_enter(self, mode):
        return not self.holding or (mode == "r" and all(task.mode == "r" for task in self.holding))

    def come(self, task):
        self.waiting.append(task)
        self.let_in()

    def let_in(self):
        while self.waiting and self.may_enter(self.waiting[0].mode):
            self.holding.append(self.waiting.pop(0))

    def leave(self, task):
        (self.holding if task in self.holding else self.waiting).remove(task)
        self.let_in()


STEP = st.one_of(
    st.tuples(st.sampled_from(["r", "w", "leave", "cancel", "cancel"]), st.integers(0, 20)),
    st.just(("turn", 0)),
)


@pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", "scope"), ("trio", "scope"), ("asyncio", "native")],
    indirect=["anyio_backend"],
)
@settings(max_examples=depth.share(60))
@given(steps=st.lists(STEP, min_size=5, max_size=40))
async def test_any_mixture_within_one_turn_does_as_the_model_does(how, virtual_clock, steps):
    lock, model = RWLock(), Model()
    async with anyio.create_task_group() as group:
        for step, number in [*steps, ("turn", 0)]:
            match step:
                case "r" | "w":
                    (task,) = await line_up(group, lock, step, how)
                    model.come(task)
                case "leave" if there := [task for task in model.holding if task.outcome == "in"]:
                    task = there[number % len(there)]
                    await task.leave()
                    model.leave(task)
                case "cancel" if model.waiting:
                    task = model.waiting[number % len(model.waiting)]
                    task.cancel()
                    model.leave(task)
                case "turn":
                    await anyio.wait_all_tasks_blocked()
                    assert all(task.outcome == "in" for task in model.holding)
                    assert all(task.outcome is None for task in model.waiting)
                    seen = lock.statistics()
                    assert seen.readers + seen.writers == len(model.holding)
                    assert seen.tasks_waiting == len(model.waiting)
        group.cancel_scope.cancel()
    assert lock.statistics() == RWLockStatistics("fair", 0, 0, 0, 0, broken=False)


# -------------------------------------------------------------------------------------------------- what it tells


async def test_it_shows_its_state():
    lock = RWLock("readers")
    async with anyio.create_task_group() as group:
        tasks = await line_up(group, lock, "rrww")
        assert lock.statistics() == RWLockStatistics("readers", 2, 0, 0, 2, broken=False)
        assert lock.statistics().tasks_waiting == 2
        assert repr(lock) == "<RWLock readers, 2 reading; waiting: 0 to read, 2 to write>"
        leave_all(tasks)


@pytest.mark.parametrize("policy", ["", "Fair", None, 1])
def test_the_policy_is_checked(policy):
    with pytest.raises(ValueError, match=r"policy must be .*, not "):
        RWLock(policy)


async def test_whether_it_is_locked():
    lock = RWLock()
    assert not lock.locked()
    async with lock.read():
        assert lock.locked()
    with lock.write_nowait():
        assert lock.locked()
    assert not lock.locked()
