from __future__ import annotations

import anyio
import pytest

from tenure.upkeep import Upkeep, unwrapped_task_group


@pytest.fixture
async def upkeep():
    async with anyio.create_task_group() as group:
        upkeep = Upkeep(group)
        try:
            yield upkeep
        finally:
            upkeep.cancel()


async def test_jobs_are_known_by_name_while_they_run(upkeep):
    first = upkeep.start("first", anyio.sleep_forever)
    second = upkeep.start("second", anyio.sleep_forever)
    assert upkeep.names == ("first", "second")
    assert not first.ended
    await first.end()
    assert first.ended
    assert upkeep.names == ("second",)
    await second.end()
    await second.end()
    assert upkeep.names == ()


async def test_a_job_that_returns_is_forgotten(upkeep):
    got = []

    async def work(one, two):
        await anyio.lowlevel.checkpoint()
        got.append((one, two))

    job = upkeep.start("short", work, 1, 2)
    while not job.ended:
        await anyio.lowlevel.checkpoint()
    assert got == [(1, 2)]
    assert upkeep.names == ()


async def test_ending_waits_for_the_cleaning_up(upkeep, virtual_clock):
    async def work():
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)

    job = upkeep.start("thorough", work)
    await virtual_clock.settle()
    await job.end()
    assert virtual_clock.now() == 3


async def test_a_job_ended_before_its_first_step_gets_no_further_than_that(upkeep):
    steps = []

    async def work():
        steps.append("first")
        await anyio.lowlevel.checkpoint()
        steps.append("second")

    await upkeep.start("early", work).end()
    assert steps == ["first"]


@pytest.mark.parametrize("opened", [False, True])
async def test_a_cancelled_program_does_not_end_it(virtual_clock, opened):
    beats = []

    async def beat(*, task_status=anyio.TASK_STATUS_IGNORED):
        task_status.started()
        while True:
            await anyio.sleep(1)
            beats.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        upkeep = Upkeep(group)
        if opened:
            job = await upkeep.open("beat", beat)
        else:
            job = upkeep.start("beat", beat)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3.5)
            await job.end()
    assert beats == [1, 2, 3]


async def test_all_are_cancelled_at_once(virtual_clock):
    async with anyio.create_task_group() as group:
        upkeep = Upkeep(group)
        jobs = [upkeep.start(f"job {number}", anyio.sleep_forever) for number in range(5)]
        await virtual_clock.settle()
        upkeep.cancel()
    assert all(job.ended for job in jobs)


async def test_what_fails_on_opening_is_raised_there(upkeep):
    async def fail(*, task_status):
        await anyio.lowlevel.checkpoint()
        raise KeyError("early")

    with pytest.raises(KeyError, match="early"):
        await upkeep.open("failing", fail)
    assert upkeep.names == ()


async def test_opening_is_cancelled_with_its_caller(upkeep, virtual_clock):
    ended = []

    async def slow(*, task_status):
        try:
            await anyio.sleep(10)
        finally:
            ended.append(virtual_clock.now())

    with anyio.move_on_after(1) as scope:
        await upkeep.open("slow", slow)
    assert scope.cancelled_caught
    assert ended == [1]
    assert upkeep.names == ()


async def test_a_crash_leaves_through_the_group():
    async def crash():
        await anyio.lowlevel.checkpoint()
        raise KeyError("crash")

    with pytest.RaisesGroup(pytest.RaisesExc(KeyError, match="crash")):
        async with anyio.create_task_group() as group:
            upkeep = Upkeep(group)
            upkeep.start("crashing", crash)
            other = upkeep.start("other", anyio.sleep_forever)
            try:
                await anyio.sleep_forever()
            finally:
                other.cancel()
    assert upkeep.names == ()


# the task group


async def test_the_bodys_error_leaves_as_it_was_raised():
    error = KeyError("mine")
    error.__cause__ = cause = ValueError("why")
    with pytest.raises(KeyError) as caught:
        async with unwrapped_task_group():
            raise error
    assert caught.value is error
    assert error.__cause__ is cause


async def test_one_level_is_taken_off_and_no_more():
    with pytest.raises(ExceptionGroup, match="theirs") as caught:
        async with unwrapped_task_group():
            raise ExceptionGroup("theirs", [KeyError("a")])
    assert [type(error) for error in caught.value.exceptions] == [KeyError]


async def test_several_errors_stay_a_group():
    async def crash():
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("child")

    with pytest.RaisesGroup(KeyError, ValueError):
        async with unwrapped_task_group() as group:
            group.start_soon(crash)
            await anyio.lowlevel.checkpoint()
            raise KeyError("body")


async def test_a_cancellation_is_a_cancellation():
    with anyio.CancelScope() as scope:
        async with unwrapped_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
