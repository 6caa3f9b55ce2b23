"""`serve`: signals drain, then cancel; what a service raises; what is left behind."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import tenure
from tenure import Processor, Worker, WorkQueue, serve


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


class Service:
    """Runs until it is drained, which takes `seconds`; or raises."""

    def __init__(self, seconds=0.0, problem=None):
        self.seconds = seconds
        self.problem = problem
        self.log = []
        self._drained = anyio.Event()

    async def run(self):
        self.log.append("runs")
        try:
            if self.problem is not None:
                await anyio.sleep(1)
                raise self.problem
            await self._drained.wait()
        except anyio.get_cancelled_exc_class():
            self.log.append("cancelled")
            raise
        self.log.append("ended")

    async def drain(self):
        self.log.append("drains")
        await anyio.sleep(self.seconds)
        self._drained.set()


class Endless:
    """Has no drain()."""

    async def run(self):
        await anyio.sleep_forever()


class Brief:
    """Is done at once."""

    async def run(self):
        await anyio.sleep(1)


class Serving:
    """`serve`, in a task of its own."""

    def __init__(self):
        self.outcome = None

    async def __call__(self, *services, **options):
        try:
            self.outcome = await serve(*services, **options)
        except Exception as problem:
            self.outcome = problem


@pytest.fixture
def serving():
    return Serving()


async def test_services_that_have_ended(virtual_clock, serving):
    async with anyio.create_task_group() as group:
        group.start_soon(serving, Brief(), Brief())
        await virtual_clock.advance(2)
        assert serving.outcome is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_drains_all_at_once(virtual_clock, serving, number):
    services = [Service(5), Service(5), Service(0)]
    async with anyio.create_task_group() as group:
        group.start_soon(serving, *services)
        await virtual_clock.advance(1)
        send(number)
        await virtual_clock.advance(4)
        assert [service.log[1:] for service in services] == [["drains"], ["drains"], ["drains", "ended"]]
        assert serving.outcome is None
        await virtual_clock.advance(1)
        assert serving.outcome is True


async def test_a_hangup_never_cancels(virtual_clock, serving):
    """A terminal and its shell both send it."""
    service = Service(5)
    async with anyio.create_task_group() as group:
        group.start_soon(serving, service)
        await virtual_clock.advance(1)
        for number in (signal.SIGHUP, signal.SIGHUP):
            send(number)
            await virtual_clock.advance(1)
        await virtual_clock.advance(5)
    assert serving.outcome is True and service.log == ["runs", "drains", "ended"]


async def test_a_second_signal_cancels_at_once(virtual_clock, serving):
    service = Service(1000)
    async with anyio.create_task_group() as group:
        group.start_soon(serving, service, Service(0))
        await virtual_clock.advance(1)
        send()
        await virtual_clock.advance(1)
        send()
        await virtual_clock.settle()
        assert serving.outcome is False
        assert service.log == ["runs", "drains", "cancelled"]


async def test_the_end_of_the_grace_cancels(virtual_clock, serving):
    service = Service(1000)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serving(service, grace=7))
        await virtual_clock.advance(1)
        send()
        await virtual_clock.advance(6.5)
        assert serving.outcome is None
        await virtual_clock.advance(1)
        assert serving.outcome is False


async def test_without_a_limit_it_waits(virtual_clock, serving):
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serving(Service(200), grace=None))
        await virtual_clock.advance(1)
        send()
        await virtual_clock.advance(198)
        assert serving.outcome is None
        await virtual_clock.advance(2)
        assert serving.outcome is True


async def test_what_cannot_drain_is_cancelled(virtual_clock, serving):
    other = Service(3)
    async with anyio.create_task_group() as group:
        group.start_soon(serving, Endless(), other)
        await virtual_clock.advance(1)
        send()
        await virtual_clock.advance(4)
        assert serving.outcome is True
        assert other.log == ["runs", "drains", "ended"]


async def test_a_service_that_raises_lets_the_others_drain(virtual_clock, serving):
    other = Service(3)
    async with anyio.create_task_group() as group:
        group.start_soon(serving, Service(problem=ValueError("mine")), other)
        await virtual_clock.advance(3.5)
        assert serving.outcome is None
        await virtual_clock.advance(1)
        assert isinstance(serving.outcome, ValueError)
        assert other.log == ["runs", "drains", "ended"]


async def test_several_that_raise(virtual_clock, serving):
    async with anyio.create_task_group() as group:
        group.start_soon(serving, Service(problem=ValueError("a")), Service(problem=KeyError("b")))
        await virtual_clock.advance(2)
        assert isinstance(serving.outcome, ExceptionGroup)
        assert {type(problem) for problem in serving.outcome.exceptions} == {ValueError, KeyError}


async def test_what_drain_raises_is_raised(virtual_clock, serving):
    class Stubborn(Service):
        async def drain(self):
            raise OSError("cannot")

    async with anyio.create_task_group() as group:
        group.start_soon(serving, Stubborn())
        await virtual_clock.advance(1)
        send()
        await virtual_clock.settle()
        assert isinstance(serving.outcome, OSError)


async def test_a_cancelled_one_cancels_its_services(virtual_clock):
    service = Service()
    async with anyio.create_task_group() as group:
        group.start_soon(serve, service)
        await virtual_clock.advance(1)
        group.cancel_scope.cancel()
    assert service.log == ["runs", "cancelled"]


@pytest.mark.parametrize("way", ["drained", "cancelled", "failed"])
async def test_signals_do_afterwards_what_they_did_before(virtual_clock, way, request):
    def mine(number, frame):
        pytest.fail("called")

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in numbers:
        request.addfinalizer(partial(signal.signal, number, signal.getsignal(number)))
        signal.signal(number, mine)
    outcome = Serving()
    problem = ValueError() if way == "failed" else None
    async with anyio.create_task_group() as group:
        group.start_soon(outcome, Service(problem=problem))
        await virtual_clock.advance(0.5)
        assert all(signal.getsignal(number) is not mine for number in numbers)
        if way == "drained":
            send()
        elif way == "cancelled":
            group.cancel_scope.cancel()
        await virtual_clock.advance(2)
    assert [signal.getsignal(number) for number in numbers] == [mine] * 3


async def test_only_the_main_thread_receives_signals(anyio_backend_name):
    found = []

    def elsewhere():
        for options in ({}, {"signals": False}):
            try:
                found.append(anyio.run(partial(serve, Quick(), **options), backend=anyio_backend_name))
            except RuntimeError as problem:
                found.append(str(problem))

    class Quick:
        async def run(self):
            pass

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert "pass signals=False" in found[0]
    assert found[1] is True


@pytest.mark.parametrize(
    ("services", "options", "error", "words"),
    [
        ((), {}, ValueError, "services must not be empty"),
        ((3,), {}, TypeError, "a service must have an async method run"),
        ((Brief(),), {"grace": -1}, ValueError, "grace must be"),
        ((Brief(),), {"stalled": 0}, ValueError, "stalled must be"),
        ((Brief(),), {"health": 8081}, TypeError, "health must be a str"),
        *(
            ((Brief(),), {"health": wrong}, ValueError, "health must be HOST:PORT")
            for wrong in ("", "8081", "localhost", "localhost:", "localhost:99999", "::1:80", "a:-1")
        ),
    ],
)
async def test_wrong_arguments(services, options, error, words):
    with pytest.raises(error, match=words):
        await serve(*services, **options)


# ------------------------------------------------------------------------------------------- workers and processors


@pytest.fixture
def handled():
    return []


@pytest.fixture
def handle(handled):
    async def handle(task: tenure.Task):
        await anyio.sleep(2)
        handled.append(task.payload)

    return handle


@pytest.mark.parametrize("kind", ["worker", "processor"])
async def test_what_has_begun_is_finished_and_the_rest_stays(virtual_clock, serving, handle, handled, kind):
    async with tenure.open_store("memory:") as store:
        if kind == "worker":
            queue = WorkQueue(store, "q")
            service = Worker(queue, handle, concurrency=2)
        else:
            service = Processor(store, "q", handle, workers=2)
            queue = service.queue()
        async with anyio.create_task_group() as group:
            await queue.put_many(range(10))
            group.start_soon(serving, service)
            await virtual_clock.advance(1)
            assert service.unready is None
            send()
            await virtual_clock.advance(2)
            assert serving.outcome is True
            assert sorted(handled) == [0, 1]
            counts = await queue.statistics()
            assert (counts.done, counts.leased, counts.waiting) == (2, 0, 8)


@pytest.mark.parametrize("kind", ["worker", "processor"])
async def test_what_is_cancelled_is_given_back_without_an_attempt(virtual_clock, serving, handle, kind):
    async with tenure.open_store("memory:") as store:
        if kind == "worker":
            queue = WorkQueue(store, "q")
            service = Worker(queue, handle, concurrency=2)
        else:
            service = Processor(store, "q", handle, workers=2)
            queue = service.queue()
        async with anyio.create_task_group() as group:
            await queue.put_many(range(10))
            group.start_soon(serving, service)
            await virtual_clock.advance(1)
            send()
            send()
            await virtual_clock.settle()
            assert serving.outcome is False
            counts = await queue.statistics()
            assert (counts.done, counts.leased, counts.waiting) == (0, 0, 10)
            async with queue.take() as task:
                assert (task.payload, task.attempt) == (0, 1)


async def test_a_signal_before_the_services_have_begun(virtual_clock, serving, handle):
    async with tenure.open_store("memory:") as store:
        services = [Processor(store, "p", handle), Worker(WorkQueue(store, "w"), handle), Service()]
        async with anyio.create_task_group() as group:
            group.start_soon(serving, *services)
            while signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, None):
                await anyio.lowlevel.checkpoint()
            send()
            await virtual_clock.advance(1)
            assert serving.outcome is True


async def test_a_worker_whose_store_closes(virtual_clock, handle):
    outcome = Serving()
    async with anyio.create_task_group() as group:
        async with tenure.open_store("memory:") as store:
            group.start_soon(outcome, Worker(WorkQueue(store, "q"), handle), Service())
            await virtual_clock.advance(1)
        await virtual_clock.advance(1)
        assert isinstance(outcome.outcome, tenure.StoreClosed)


async def test_it_says_that_it_drains_and_that_it_cancels(virtual_clock, serving, caplog):
    caplog.set_level("INFO", "tenure")
    async with anyio.create_task_group() as group:
        group.start_soon(serving, Service(1000))
        await virtual_clock.advance(1)
        send()
        await virtual_clock.advance(40)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        ("INFO", "SIGTERM: takes no more, finishes what has begun, for at most 30 s"),
        ("WARNING", "not done within 30 s: cancels what has not finished; its tasks are given back"),
    ]


async def test_two_that_overlap_leave_the_handlers_that_were_there_before(virtual_clock):
    before = signal.getsignal(signal.SIGTERM)
    first, second = Service(), Service()
    async with anyio.create_task_group() as group:
        group.start_soon(tenure.serve, first)
        await virtual_clock.advance(1)
        group.start_soon(tenure.serve, second)
        await virtual_clock.advance(1)
        await first.drain()
        await virtual_clock.advance(1)
        assert signal.getsignal(signal.SIGTERM) is not before
        await second.drain()
    assert signal.getsignal(signal.SIGTERM) is before
