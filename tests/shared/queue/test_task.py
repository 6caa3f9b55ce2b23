"""A task that was taken: what its block's end means for it, and what becomes of one who came too late."""

from __future__ import annotations

import logging
from contextlib import suppress

import anyio
import pytest

import tenure
from tenure import AcquireTimeout, Discard, LeaseLost, Retry, RetryLater, TaskCancelled, TaskFailed, WorkQueue
from tenure.engine import Progress
from tenure.errors import PayloadTooLarge
from tenure.testing import Fault, FaultyEngine

SOON = Retry(attempts=3, backoff=1, factor=2, jitter=0)


async def state_of(queue):
    statistics = await queue.statistics()
    names = ("waiting", "delayed", "leased", "done", "dead", "cancelled", "expired", "discarded", "purged")
    return {name: getattr(statistics, name) for name in names if getattr(statistics, name)}


# how a block ends


async def test_leaving_completes_the_task(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put({"a": [1, None, "ü"]}, priority=7)
    async with queue.take() as task:
        assert (task.id, task.payload, task.priority) == (task_id, {"a": [1, None, "ü"]}, 7)
        assert (task.attempt, task.deliveries) == (1, 1)
        assert task.token > 0
        assert task.last_progress is None
        assert await state_of(queue) == {"leased": 1}
        assert "held" in repr(task)
        task.set_result("first")
        task.set_result({"n": 5})
    assert await state_of(queue) == {"done": 1}
    assert await queue.result(task_id) == {"n": 5}
    assert "settled" in repr(task)


async def test_without_a_result_it_is_none(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    async with queue.take():
        pass
    assert await queue.result(task_id) is None


async def test_an_exception_is_tried_again_after_the_backoff_and_then_buried(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=SOON)
    task_id = await queue.put("job")
    starts = []
    for attempt in (1, 2, 3):
        with pytest.raises(ZeroDivisionError):
            async with queue.take() as task:
                starts.append(virtual_clock.now())
                assert (task.attempt, task.deliveries) == (attempt, attempt)
                raise ZeroDivisionError("division by zero")
    assert starts[1] - starts[0] == pytest.approx(1.1, abs=0.11)
    assert starts[2] - starts[1] == pytest.approx(2.1, abs=0.11)
    assert await state_of(queue) == {"dead": 1}
    (dead,) = (await queue.tasks("dead").page()).records
    assert (dead.id, dead.payload, dead.error) == (task_id, "job", "ZeroDivisionError: division by zero")
    assert (dead.attempts, dead.deliveries) == (3, 3)
    with pytest.raises(TaskFailed, match="is dead: ZeroDivisionError") as failed:
        await queue.result(task_id)
    assert failed.value.state == "dead"


async def test_retry_later_says_when_and_uses_up_no_attempt(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as store, open_store_on(ttl=3) as other:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1, backoff=1000), max_deliveries=2)
        await queue.put(1)
        for _ in range(5):
            async with queue.take() as task:
                start = virtual_clock.now()
                assert (task.attempt, task.deliveries) == (1, 1)
                raise RetryLater(5, counts=False)
            assert await state_of(queue) == {"delayed": 1}
            async with queue.take():
                assert virtual_clock.now() - start == pytest.approx(5.1, abs=0.2)
                raise RetryLater(0, counts=False)
        # one who dies with it now is the first
        with pytest.raises(LeaseLost):
            async with WorkQueue(other, "jobs", max_deliveries=2).take():
                (await other._handle.session(3.0)).lose("expired")
                await anyio.sleep(1)
        await anyio.sleep(4)
        assert await state_of(queue) == {"waiting": 1}


async def test_discard_ends_it_with_a_reason(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    async with queue.take():
        raise Discard("spam")
    assert await state_of(queue) == {"discarded": 1}
    assert (await queue.tasks("dead").page()).records == []
    with pytest.raises(TaskFailed, match="is discarded: spam"):
        await queue.result(task_id)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 1988),
        (ValueError("\ud800"), "ValueError: ?"),
        (Unspeakable(), "Unspeakable"),
        (
            ExceptionGroup("both", [ValueError("a"), TypeError()]),
            "both (2 sub-exceptions) [ValueError: a; TypeError]",
        ),
    ],
)
async def test_the_error_on_record(store, error, text, monkeypatch):
    # xdist cannot pass on the record of an error whose text cannot be encoded
    monkeypatch.setattr(logging.getLogger("tenure"), "disabled", True)
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put(1)
    with suppress(type(error)):
        async with queue.take():
            raise error
    (dead,) = (await queue.tasks("dead").page()).records
    assert dead.error.endswith(text)


async def test_a_cancellation_from_outside_gives_it_back_without_counting(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put("first")
    await queue.put("second")
    for _ in range(5):
        with anyio.move_on_after(1) as scope:
            async with queue.take() as task:
                # it has kept its place
                assert (task.payload, task.attempt, task.deliveries) == ("first", 1, 1)
                await anyio.sleep(10)
        assert scope.cancelled_caught
        assert await state_of(queue) == {"waiting": 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_other_ends_of_the_world_fail_the_try_and_go_on(store, virtual_clock, error):
    """A program that ends at this task would end at it again and again."""
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=1))
    await queue.put(1)
    for _ in range(2):
        with pytest.raises(error):
            async with queue.take():
                raise error("no more")
    (record,) = (await queue.tasks("dead").page()).records
    assert (record.attempts, record.deliveries, record.error) == (2, 2, f"{error.__name__}: no more")


async def test_a_generator_that_is_closed_gives_it_back(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)

    async def tasks():
        while True:
            async with queue.take() as task:
                yield task

    each = tasks()
    assert (await anext(each)).payload == 1
    await each.aclose()
    (record,) = (await queue.tasks("waiting").page()).records
    assert (record.attempts, record.deliveries) == (0, 0)


async def test_one_use(store):
    queue = WorkQueue(store, "jobs")
    await queue.put_many([1, 2])
    taking = queue.take()
    with pytest.raises(RuntimeError, match="not entered"):
        await taking.__aexit__(None, None, None)
    async with taking:
        pass
    with pytest.raises(RuntimeError, match="was entered before"):
        await taking.__aenter__()
    with pytest.raises(ValueError, match="timeout"):
        queue.take(timeout=-1)


# fences


async def test_a_body_that_raises_in_spite_of_the_loss(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put(1)
    with pytest.raises(ZeroDivisionError) as raised:
        async with queue.take():
            faulty.pause()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(10)
            raise ZeroDivisionError
    assert "was lost meanwhile (expired)" in raised.value.__notes__[0]
    faulty.resume()
    # the failure of a stale taker is no attempt
    async with queue.take() as task:
        assert (task.attempt, task.deliveries) == (1, 2)


@pytest.mark.parametrize("message", [RetryLater(1, counts=False), Discard("no")])
async def test_what_a_handler_asks_for_too_late_is_not_swallowed(
    faulty, faulty_store, virtual_clock, message
):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put(1)
    with pytest.raises(LeaseLost):
        async with queue.take():
            faulty.pause()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(10)
            raise message
    faulty.resume()
    assert await state_of(queue) == {"waiting": 1}


async def test_the_acknowledgement_is_waited_for_until_the_session_ends(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put(1)
    start = virtual_clock.now()
    with pytest.raises(LeaseLost, match="unacknowledged"):
        async with queue.take():
            faulty.pause()
    assert 2 <= virtual_clock.now() - start <= 2.7
    faulty.resume()
    # it was applied: whoever asks will learn it
    assert await state_of(queue) == {"done": 1}


async def test_whose_completion_met_a_session_that_had_gone(engine, virtual_clock):
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        with pytest.raises(LeaseLost, match="gone"):
            async with queue.take():
                session = await store._handle.session(3.0)
                await store._handle.call(tenure.engine.CloseSession(session.id))
        async with queue.take() as task:
            assert task.deliveries == 2


# cancelling a task


async def test_cancelling_a_task_that_runs(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        task_id = await queue.put(1)
        start = virtual_clock.now()

        async def cancel():
            await anyio.sleep(1)
            assert await other.cancel(task_id)

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            with pytest.raises(TaskCancelled) as cancelled:
                async with queue.take() as task:
                    await anyio.sleep(100)
        assert task.cancelled
        assert cancelled.value.task_id == task_id
        assert virtual_clock.now() - start == pytest.approx(1, abs=0.1)
        assert await state_of(queue) == {"cancelled": 1}
        with pytest.raises(TaskCancelled):
            await other.result(task_id)


async def test_a_cancelled_task_that_ends_all_the_same_is_done(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    async with queue.take() as task:
        with anyio.CancelScope(shield=True):
            assert await queue.cancel(task_id)
            await virtual_clock.settle()
        assert task.cancelled
        task.set_result("done all the same")
    assert await queue.result(task_id) == "done all the same"


async def test_cancelled_from_outside_and_by_request(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    with anyio.CancelScope() as scope:
        async with queue.take():
            with anyio.CancelScope(shield=True):
                await queue.cancel(task_id)
            scope.cancel()
            await anyio.sleep(100)
    assert scope.cancelled_caught
    assert await state_of(queue) == {"cancelled": 1}


async def test_a_request_that_comes_before_the_task(engine, virtual_clock):
    """The hint overtakes the answer that brings the task."""
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=300) as a, tenure.open_store(engine, ttl=300) as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        with pytest.raises(AcquireTimeout):
            await queue.take(timeout=0).__aenter__()
        task_id = await other.put(1)
        start = virtual_clock.now()

        async def work():
            with pytest.raises(TaskCancelled):
                async with queue.take():
                    await anyio.sleep(100)

        async with anyio.create_task_group() as group:
            link.pause()
            group.start_soon(work)
            await virtual_clock.settle()
            await other.cancel(task_id)
            await virtual_clock.settle()
            link.resume()
        assert virtual_clock.now() - start < 1


async def test_progress_reports_a_request(engine, virtual_clock):
    link = FaultyEngine(engine, rates={Fault.LOST_HINT: 1})
    async with tenure.open_store(link, ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        task_id = await queue.put(1)
        start = virtual_clock.now()
        with pytest.raises(TaskCancelled):
            async with queue.take() as task:
                await queue.cancel(task_id)
                await task.progress("halfway")
                await anyio.sleep(100)
        assert virtual_clock.now() - start < 1


async def test_a_stale_taker_learns_it_from_what_it_reports(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        theirs, ours = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        await ours.put(1)
        with pytest.raises(LeaseLost):
            async with theirs.take() as stale:
                (await a._handle.session(3.0)).lose("expired")
                await anyio.sleep(1)
        async with ours.take():
            with pytest.raises(LeaseLost, match="expired"):
                await stale.progress(1)
        assert await state_of(ours) == {"done": 1}


async def test_after_a_freeze_check_says_so_before_anything_else_does(store, virtual_clock, freeze):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    with pytest.raises(LeaseLost):
        async with queue.take() as task:
            freeze(100)
            with pytest.raises(LeaseLost, match="expired"):
                task.check()


async def test_progress_is_there_for_the_next_delivery(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(backoff=0))
    await queue.put(1)
    with suppress(ZeroDivisionError):
        async with queue.take() as task:
            await task.progress({"line": 1})
            await task.progress({"line": 2})
            raise ZeroDivisionError
    async with queue.take() as task:
        assert task.last_progress == {"line": 2}


# what a task reports


async def test_max_payload_of_results_and_progress(recording):
    async with tenure.open_store(recording) as store:
        queue = WorkQueue(store, "jobs", max_payload=10)
        task_id = await queue.put(1)
        async with queue.take() as task:
            recording.take()
            with pytest.raises(PayloadTooLarge, match="the result has 12 bytes, max_payload is 10"):
                task.set_result("x" * 10)
            with pytest.raises(PayloadTooLarge, match="the progress has 13 bytes"):
                await task.progress("x" * 11)
            assert recording.take(Progress) == []
            task.set_result("x" * 8)
        assert await queue.result(task_id) == "x" * 8


async def test_what_the_codec_cannot_express(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:
        with pytest.raises(TypeError):
            task.set_result(object())
        with pytest.raises(TypeError):
            await task.progress(object())


async def test_waited_and_check(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    await anyio.sleep(2)
    async with queue.take() as task:
        assert task.waited == pytest.approx(2, abs=0.01)
        task.check()
    with pytest.raises(LeaseLost, match="released"):
        task.check()


# crashes


async def test_a_crash_counts_a_delivery_and_not_an_attempt(engine, virtual_clock):
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs", max_deliveries=3, retry=Retry(attempts=2))
        await queue.put("poison")
        for delivery in (1, 2, 3):
            with pytest.raises(LeaseLost):
                async with queue.take() as task:
                    assert (task.attempt, task.deliveries) == (1, delivery)
                    (await store._handle.session(3.0)).lose("expired")
                    await anyio.sleep(100)
        (dead,) = (await queue.tasks("dead").page()).records
        assert (dead.payload, dead.attempts, dead.deliveries) == ("poison", 0, 3)
        assert "delivered 3 times" in dead.error


async def test_a_body_that_completes_while_the_store_closes(engine, virtual_clock):
    async with tenure.open_store(engine, ttl=3) as other:

        async def work(queue):
            async with queue.take() as task:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(2)
                task.set_result("in time")

        async with anyio.create_task_group() as group:
            async with tenure.open_store(engine, ttl=3) as store:
                queue = WorkQueue(store, "jobs")
                task_id = await queue.put(1)
                group.start_soon(work, queue)
                await virtual_clock.settle()
        assert await WorkQueue(other, "jobs").result(task_id) == "in time"


@pytest.mark.parametrize("fails", [False, True])
async def test_leaving_waits_no_longer_than_the_session_lasts(faulty, virtual_clock, fails):
    async with tenure.open_store(faulty, ttl=0.5, settle_timeout=5) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put("job")
        with pytest.raises(ZeroDivisionError if fails else LeaseLost):
            async with queue.take():
                faulty.down = True
                began = virtual_clock.now()
                if fails:
                    raise ZeroDivisionError
        assert virtual_clock.now() - began <= 0.45
        faulty.down = False
