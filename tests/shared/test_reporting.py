"""Nothing fails silently: each try that did not end well has one event with its exception, and losses are logged."""

from __future__ import annotations

import logging
import threading
import traceback
from contextlib import suppress

import anyio
import pytest

import tenure
from tenure import Lock, Retry, Task, Worker, WorkQueue
from tenure.engine import CloseSession, Put
from tenure.errors import LeaseLost, TenureError
from tenure.local import Threads
from tenure.shared import QueueFigures
from tenure.testing import Fault


class Seen:
    def __init__(self):
        self.events = []

    def notice(self, event, /, **fields):
        self.events.append((event, fields))

    def of_tasks(self):
        return [(event, fields) for event, fields in self.events if event.startswith("task.")]


@pytest.fixture
def seen():
    return Seen()


class Trouble(Exception):
    pass


def warnings_in(caplog):
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", ["worker", "block"])
async def test_a_dead_task_is_logged_with_its_traceback(store, caplog, how):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put("x")

    async def fails(task: Task):
        raise ExceptionGroup("both", [Trouble("here"), KeyError("there")])

    if how == "worker":
        worker = Worker(queue, fails)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
    else:
        with pytest.raises(ExceptionGroup):
            async with queue.take() as task:
                await fails(task)
    (record,) = warnings_in(caplog)
    assert record.message.startswith("task.dead queue=jobs id=")
    assert " attempt=1" in record.message
    shown = "".join(traceback.format_exception(record.exc_info[1]))
    assert "in fails" in shown
    assert "Trouble: here" in shown
    assert "KeyError: 'there'" in shown


async def test_a_timeout_says_where_the_handler_was(open_store_on, virtual_clock, seen, caplog):
    async def too_slow(task: Task):
        await anyio.sleep(60)

    async with open_store_on(observer=seen) as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        await queue.put("x")
        worker = Worker(queue, too_slow, timeout=5)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
    ((event, fields),) = seen.of_tasks()
    assert event == "task.dead"
    assert isinstance(fields["error"], TimeoutError)
    (record,) = warnings_in(caplog)
    assert "in too_slow" in "".join(traceback.format_exception(record.exc_info[1]))


@pytest.mark.parametrize("how", ["worker", "threads"])
async def test_a_timeout_says_where_the_abandoned_thread_is(store, caplog, how):
    go_on = threading.Event()

    def stuck(_):
        waits_for_ever()

    def waits_for_ever():
        go_on.wait()

    try:
        if how == "worker":
            queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
            await queue.put("x")
            worker = Worker(queue, stuck, timeout=0.5, concurrency=1)
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await queue.join()
                go_on.set()
                await worker.drain()
            (record,) = warnings_in(caplog)
            error = record.exc_info[1]
        else:
            with pytest.raises(TimeoutError) as caught:
                await Threads(1).run(stuck, 1, timeout=0.5)
            error = caught.value
    finally:
        go_on.set()
    shown = "".join(traceback.format_exception(error))
    assert "in waits_for_ever\n" in shown
    assert "in stuck\n" in shown
    # from the user's function on
    assert "in _in_thread" not in shown
    assert "in boxed" not in shown


async def test_a_function_that_raises_says_nothing_of_threads():
    def fails():
        raise Trouble

    with pytest.raises(Trouble) as caught:
        await Threads(1).run(fails, timeout=50)
    assert not hasattr(caught.value, "__notes__")


async def test_the_traceback_begins_with_the_users_frames(store, caplog):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put("x")

    def fails(task: Task):
        raise Trouble

    worker = Worker(queue, fails)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()
    (record,) = warnings_in(caplog)
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])] == ["fails"]


async def test_many_that_die_at_once_are_counted_and_seen_by_the_observer(
    open_store_on, virtual_clock, seen, caplog
):
    async def fails(task: Task):
        raise Trouble

    async with open_store_on(observer=seen) as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        await queue.put_many(range(50))
        worker = Worker(queue, fails)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
        await virtual_clock.advance(2)
        left_out = [r.tenure_left_out for r in warnings_in(caplog) if hasattr(r, "tenure_left_out")]
        assert len(warnings_in(caplog)) - len(left_out) + sum(left_out) == 50
        assert left_out
    assert len(seen.of_tasks()) == 50


async def test_a_filter_that_raises_stops_nothing(store, capsys):
    def spoilt(record):
        raise Trouble("the filter")

    async def fails(task: Task):
        raise KeyError

    logging.getLogger("tenure").addFilter(spoilt)
    try:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        await queue.put_many(range(3))
        worker = Worker(queue, fails)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
        assert worker.statistics().dead == 3
    finally:
        logging.getLogger("tenure").removeFilter(spoilt)
    assert capsys.readouterr().err.count("Trouble: the filter") == 3


@pytest.mark.parametrize("seconds", [0.2, 5])
async def test_a_body_that_outlasts_its_lease_is_logged_once(faulty, virtual_clock, caplog, seconds):
    async with tenure.open_store(faulty, ttl=3.0) as store:
        with pytest.raises(LeaseLost):
            async with Lock(store, "report"):
                faulty.down = True
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(seconds)
                    faulty.down = False
    overran = [record.message for record in warnings_in(caplog) if "lease.overran" in record.message]
    # lost 0.3 s before the engine may grant it to others
    assert len(overran) == (seconds > 0.3)
    assert all("seconds=4.7" in message for message in overran)


async def test_a_lost_lease_is_logged_when_it_is_lost(open_store_on, virtual_clock, seen, caplog):
    async with open_store_on(observer=seen) as store:
        with pytest.raises(LeaseLost):
            async with Lock(store, "report") as lease:
                store_session = lease._session
                store_session.lose("expired")
                assert [event for event, _ in seen.events][-2:] == ["session.lost", "lease.lost"]
                (record,) = warnings_in(caplog)
                assert "reason=expired" in record.message
                await anyio.sleep(1)
    assert [event for event, _ in seen.events].count("lease.lost") == 1
    assert "lease.released" not in [event for event, _ in seen.events]
    assert len(warnings_in(caplog)) == 1


async def test_a_lost_task_is_logged_with_the_reason(open_store_on, virtual_clock, seen, caplog):
    async with open_store_on(observer=seen) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put("x")
        with pytest.raises(LeaseLost):
            async with queue.take() as task:
                task._session.lose("expired")
                await anyio.sleep(1)
    ((event, fields),) = seen.of_tasks()
    assert (event, fields["reason"]) == ("task.lost", "expired")
    assert isinstance(fields["error"], LeaseLost)
    (record,) = [record for record in warnings_in(caplog) if "task.lost" in record.message]
    assert "reason=expired" in record.message


async def test_the_tasks_of_a_session_that_the_server_has_forgotten_are_one_warning(
    open_store_on, virtual_clock, seen, caplog
):
    working = []

    async def work(task: Task):
        working.append(task)
        await anyio.sleep(60)

    async with open_store_on(observer=seen) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put_many(range(3))
        worker = Worker(queue, work)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            while len(working) < 3:
                await anyio.sleep(0.1)
            await store._handle.call(CloseSession(working[0]._session.id))
            await anyio.sleep(store.ttl)
            group.cancel_scope.cancel()
    (record,) = warnings_in(caplog)
    assert "session.lost" in record.message and "holds=3" in record.message
    assert [event for event, _ in seen.events].count("task.lost") == 3


async def test_closing_a_store_warns_of_nothing(open_store_on, virtual_clock, caplog):
    async with anyio.create_task_group() as group:
        async with open_store_on() as store:

            async def holds():
                with pytest.raises(LeaseLost):
                    async with Lock(store, "report"):
                        await anyio.sleep(60)

            group.start_soon(holds)
            await anyio.sleep(1)
    assert warnings_in(caplog) == []


async def test_an_observer_that_fails_is_logged_and_stops_nothing(open_store_on, virtual_clock, caplog):
    class Broken:
        def notice(self, event, /, **fields):
            raise Trouble(event)

    async with open_store_on(observer=Broken()) as store:
        async with Lock(store, "report") as lease:
            lease.check()
        queue = WorkQueue(store, "jobs")
        await queue.put("x")
        async with queue.take():
            pass
        assert (await queue.statistics()).done == 1
    failed = [record.message for record in warnings_in(caplog)]
    assert all(message.startswith("the observer failed at ") for message in failed)
    assert {message.split()[4] for message in failed} >= {"lease.acquired", "lease.released", "task.done"}


async def test_an_exception_that_cannot_say_what_it_is_is_logged(store, caplog):
    class Mute(Exception):
        def __repr__(self):
            raise Trouble

    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put("x")
    with pytest.raises(Mute):
        async with queue.take():
            raise Mute
    (record,) = warnings_in(caplog)
    assert record.message.endswith("error=Mute")


async def test_a_lost_link_is_logged_once_and_when_it_is_back(faulty, faulty_store, virtual_clock, caplog):
    caplog.set_level(logging.INFO, "tenure")
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put("x")
    caplog.clear()
    for _ in range(2):
        faulty.plan(Fault.LOST_REPLY, on=Put)
    await queue.put("y")
    await queue.put("z")
    found = [(record.levelno, record.message.split()[0]) for record in caplog.records]
    assert found.count((logging.WARNING, "link.lost")) == 1
    assert found.count((logging.INFO, "link.back")) == 1
    assert (logging.INFO, "operation.resent") in found
    assert found.index((logging.WARNING, "link.lost")) < found.index((logging.INFO, "link.back"))


async def test_an_hour_without_the_server_is_at_most_sixty_lines(faulty, virtual_clock, caplog):
    caplog.set_level(logging.INFO, "tenure")

    async def again_and_again(call):
        while True:
            with suppress(TenureError):
                await call()
            await anyio.sleep(1)

    async def hold():
        async with Lock(queue.store, "report").hold(timeout=1):
            await anyio.sleep(0.1)

    async def work(payload):
        await anyio.sleep(5)

    async with tenure.open_store(faulty, ttl=3.0) as store, anyio.create_task_group() as group:
        queue = WorkQueue(store, "q")
        await queue.put_many(range(100))
        figures, schedule = QueueFigures(store), tenure.Schedule(queue, "s", every=1)
        for run in (Worker(queue, work).run, schedule.run, queue.schedules.run, figures.run):
            group.start_soon(run)
        await anyio.sleep(12)
        faulty.down = True
        for call in (lambda: queue.put(1), hold, queue.statistics):
            group.start_soon(again_and_again, call)
        await anyio.sleep(3600)
        faulty.down = False
        await anyio.sleep(10)
        group.cancel_scope.cancel()
    text = caplog.text
    assert text.count("link.lost") == text.count("link.back") == 1
    assert len(caplog.records) <= 60
