"""What is around a handler: entered for each task, left however it ends, and handed over by annotation."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio
import pytest
from workers import work_off, working

import tenure
from tenure import (
    AcquireTimeout,
    CircuitOpen,
    Dead,
    Job,
    Lock,
    OutcomeUnknown,
    ResourcePool,
    Retry,
    Semaphore,
    Task,
    Worker,
    WorkQueue,
)
from tenure.local import CircuitBreaker, Pool

if TYPE_CHECKING:
    from elsewhere import Session as Elsewhere

ONCE = Retry(attempts=1)


@dataclass
class Session:
    """A session of a database that notes what becomes of it."""

    name: object
    ended: str = ""


class Span:
    pass


class Around:
    """Managers that note in `log` what happens."""

    def __init__(self):
        self.log = []
        self.sessions = []

    @asynccontextmanager
    async def session(self, task: Task) -> AsyncGenerator[Session]:
        session = Session(task.payload)
        self.sessions.append(session)
        self.log.append("session")
        try:
            yield session
        except BaseException as error:
            session.ended = type(error).__name__
            raise
        else:
            session.ended = "committed"
        finally:
            self.log.append("no session")

    @asynccontextmanager
    async def span(self, task: Task) -> AsyncGenerator[Span]:
        self.log.append("span")
        yield Span()
        self.log.append("no span")


async def run(queue, handler, payloads=(1,), **options):
    """The records of the tasks after a worker has done them."""
    ids = await queue.put_many(payloads)
    await work_off(queue, Worker(queue, handler, **options))
    return [await queue.get(task) for task in ids]


# what a handler gets


async def test_managers_are_entered_in_order_and_left_in_the_opposite_order(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs"), Around()

    async def handler(number: int, session: Session) -> int:
        around.log.append(session.name)
        return number + 1

    [record] = await run(queue, handler, around=[around.span, around.session])
    assert around.log == ["span", "session", 1, "no session", "no span"]
    assert record.result == 2 and around.sessions == [Session(1, "committed")]


async def test_a_sync_handler_gets_the_values_in_its_thread(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs"), Around()

    def handler(task: Task[int], *, span: Span, session: Session) -> str:
        return f"{type(span).__name__} {session.name} {task.payload}"

    [record] = await run(queue, handler, around=[around.session, around.span])
    assert record.result == "Span 1 1" and around.sessions[0].ended == "committed"


class Base: ...


class Derived(Base): ...


class Named(Protocol):
    name: str


def by_class(word: str, a: Derived): ...
def by_base(word: str, a: Base): ...
def by_union(word: str, a: int | Derived): ...
def optional(word: str, a: Derived | None = None): ...
def elsewhere(word: str, a: Elsewhere): ...
def elsewhere_or_none(word: str, a: Elsewhere | None): ...
def defaulted(word: str, a: Base = 1): ...


def constantly(*values):
    @asynccontextmanager
    async def manager(value, task):
        yield value

    return [functools.partial(manager, value) for value in values]


class _Elsewhere:
    """Named as the class that `Elsewhere` may be."""


_Elsewhere.__name__ = "Elsewhere"


@pytest.mark.parametrize(
    ("handler", "value", "fits"),
    [
        (by_class, Derived(), True),
        (by_class, Base(), False),
        (by_base, Derived(), True),
        (by_union, 7, True),
        (by_union, "7", False),
        (optional, Derived(), True),
        (elsewhere, _Elsewhere(), True),
        (elsewhere, Base(), False),
        (elsewhere_or_none, _Elsewhere(), True),
        (elsewhere_or_none, 1, None),
        (optional, 1, None),
        (defaulted, 2, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_parameter_gets_what_is_of_its_class(store, handler, value, fits):
    queue, got = WorkQueue(store, "jobs", retry=ONCE), []

    @functools.wraps(handler)
    def noting(word, *more):
        got.extend(more)

    [record] = await run(queue, noting, ["x"], around=constantly(value))
    if fits:
        assert got == [value] and record.state == "done"
    elif fits is None:
        assert got == [1 if handler is defaulted else None] and record.state == "done"
    else:
        assert record.state == "dead" and "nothing fills its parameter a:" in record.error
        assert handler.__name__ in record.error and f"returned {type(value).__name__}" in record.error


async def test_two_values_of_one_class_go_to_two_parameters_in_their_order(store):
    queue, got = WorkQueue(store, "jobs"), []

    async def handler(word: str, source: Session, target: Session):
        got.append((source.name, target.name))

    await run(queue, handler, around=constantly(Session("a"), Session("b")))
    assert got == [("a", "b")]


async def test_a_job_has_managers_too(store, virtual_clock):
    around = Around()

    async def add(a: int, b: int) -> int:
        return a + b

    job = Job(WorkQueue(store, "jobs"), add)
    task = await job.put(1, b=2)
    await work_off(job.queue, Worker(job, around=[around.span]))
    assert await job.result(task) == 3 and around.log == ["span", "no span"]


# how a try ends


async def test_the_exception_of_a_handler_passes_through_what_is_around(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs", retry=ONCE), Around()
    breaker = CircuitBreaker(window=2, min_calls=2)

    async def handler(number: int):
        raise KeyError(number)

    records = await run(queue, handler, [1, 2], concurrency=1, around=[lambda task: breaker, around.session])
    assert [record.state for record in records] == ["dead", "dead"]
    assert [session.ended for session in around.sessions] == ["KeyError", "KeyError"]
    assert breaker.state == "open"


async def test_an_exception_on_leaving_fails_the_try(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=ONCE)

    @asynccontextmanager
    async def refusing(task):
        yield
        raise ConnectionError("not committed")

    async def handler(number: int) -> int:
        return number

    [record] = await run(queue, handler, around=[refusing])
    assert record.state == "dead" and "not committed" in record.error


async def test_an_exception_on_entering_fails_the_try_and_leaves_what_was_entered(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs", retry=Retry(attempts=2)), Around()
    permits, calls = Semaphore(store, "permits", 1), []

    async def handler(number: int):
        calls.append(number)

    async with permits.hold():
        [record] = await run(queue, handler, around=[around.session, lambda task: permits.hold(timeout=1)])
    assert record.state == "dead" and record.attempts == 2 and not calls
    assert "AcquireTimeout" in record.error
    assert [session.ended for session in around.sessions] == [AcquireTimeout.__name__] * 2


@pytest.mark.parametrize("problem", [OutcomeUnknown("p", "a put"), tenure.StoreClosed()], ids=type)
async def test_a_task_goes_back_if_nobody_knows_whether_its_manager_was_entered(
    store, virtual_clock, problem
):
    queue, seen = WorkQueue(store, "jobs", retry=ONCE), []

    @asynccontextmanager
    async def unsure(task):
        if not seen:
            seen.append(1)
            raise problem
        yield

    async def handler(task: Task[int]):
        seen.append(task.attempt)

    [record] = await run(queue, handler, around=[unsure])
    assert record.state == "done" and seen == [1, 1]


async def test_the_same_exception_of_the_handler_is_a_failed_try(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=ONCE)

    async def handler(number: int):
        raise CircuitOpen("of another call", retry_after=1) if number else OutcomeUnknown("p", "a put")

    records = await run(queue, handler, [0, 1], around=constantly(None))
    assert [record.state for record in records] == ["dead", "dead"]


async def test_a_task_that_a_breaker_refuses_rests_without_counting_a_try(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    breaker, starts = CircuitBreaker(window=1, min_calls=1, open_seconds=20, probes=1), []

    async def handler(number: int):
        starts.append(virtual_clock.now())
        if len(starts) == 1:
            raise Dead("broken")

    began = virtual_clock.now()
    states = [
        record.state
        for record in await run(queue, handler, range(4), concurrency=1, around=[lambda task: breaker])
    ]
    assert states == ["dead", "done", "done", "done"]
    assert len(starts) == 4 and starts[1] - began >= 19.9
    assert virtual_clock.now() - began < 30


async def test_a_timeout_is_for_the_whole_and_an_exception_for_what_is_around(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs", retry=ONCE), Around()
    left = []

    @asynccontextmanager
    async def slow(task):
        await anyio.sleep(task.payload)
        try:
            yield
        finally:
            await anyio.sleep(1)  # nothing hurries what leaves after a timeout
            left.append(task.payload)

    async def handler(seconds: float):
        began = anyio.current_time()
        try:
            await anyio.sleep(100)
        finally:
            left.append(anyio.current_time() - began)

    records = await run(queue, handler, [3, 7], timeout=5, around=[around.session, slow])
    assert all(record.state == "dead" and "not done within 5 s" in record.error for record in records)
    assert sorted(left) == [pytest.approx(2), 3]
    # trio starts the two in any order
    assert {session.ended for session in around.sessions} <= {"TimeoutError", "CancelledError", "Cancelled"}
    assert [session.ended for session in around.sessions].count("TimeoutError") == 1


async def test_a_task_with_a_timeout_of_its_own(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    task = await queue.put(1, timeout=2)

    async def handler(number: int):
        await anyio.sleep(3)

    began = virtual_clock.now()
    await work_off(queue, Worker(queue, handler, timeout=50, around=constantly(None)))
    assert (await queue.get(task)).state == "dead" and virtual_clock.now() - began < 3


async def test_a_deadline_holds_for_the_whole(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs"), Around()
    tasks = [await queue.put(seconds, deadline=5) for seconds in (1, 100)]

    async def slow(seconds: float, session: Session):
        await anyio.sleep(100)

    def entering(task):
        return Lock(store, "taken").hold() if task.payload > 1 else around.span(task)

    async with Lock(store, "taken"):
        await work_off(queue, Worker(queue, slow, timeout=50, around=[around.session, entering]))
    assert [(await queue.get(task)).state for task in tasks] == ["expired", "expired"]
    assert len(around.sessions) == 2 and around.log.count("no session") == 2


async def test_a_task_that_is_cancelled_leaves_what_is_around(store, virtual_clock):
    queue, pool = WorkQueue(store, "jobs"), ResourcePool(store, "keys")
    await pool.add("key")
    began = anyio.Event()

    async def handler(number: int, claim: tenure.types.Claim):
        assert claim.resource == "key"
        began.set()
        await anyio.sleep_forever()

    task = await queue.put(1)
    async with working(queue, Worker(queue, handler, around=[lambda task: pool.claim()])):
        await began.wait()
        await queue.cancel(task)
    assert (await queue.get(task)).state == "cancelled"
    assert (await pool.statistics()).claimed == 0


async def test_a_drained_worker_finishes_and_a_cancelled_one_gives_back(store, virtual_clock):
    queue, around, made = WorkQueue(store, "jobs"), Around(), []

    async def connect():
        made.append(1)
        return Session("connection")

    async def close(connection):
        made.append(-1)

    async def handler(number: int, connection: Session):
        assert connection.name == "connection"
        await anyio.sleep(10)

    await queue.put_many([1, 2])
    async with Pool(connect, close=close, max_size=1) as pool:
        worker = Worker(queue, handler, around=[around.span, lambda task: pool.acquire()])
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.sleep(5)
            assert (await queue.statistics()).leased == 2  # one waits for the connection
            group.cancel_scope.cancel()
    counts = await queue.statistics()
    assert (counts.waiting, counts.leased, sum(made)) == (2, 0, 0)


async def test_a_drain_gives_back_tasks_whose_handlers_have_not_begun(store, virtual_clock):
    queue, permits, begun = WorkQueue(store, "jobs"), Semaphore(store, "permits", 1), []

    async def handler(task: Task[int]):
        begun.append(task.id)
        await anyio.sleep(10)

    await queue.put_many([1, 2, 3])
    worker = Worker(queue, handler, around=[lambda task: permits.hold()])
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(1)
        with anyio.fail_after(9.5):
            await worker.drain()
    counts = await queue.statistics()
    assert (len(begun), counts.done, counts.waiting) == (1, 1, 2)
    assert (await permits.waiters().page()).records == []
    async with queue.take() as task:
        assert task.attempt == 1
    await queue.purge("waiting")


async def test_a_handler_may_wait_for_its_children(store, virtual_clock):
    queue, around = WorkQueue(store, "jobs"), Around()

    async def handler(task: Task[int], session: Session):
        if task.payload:
            async with task.children() as children:
                await children.put(0)

    [record] = await run(queue, handler, around=[around.session])
    assert record.state == "done"
    # the parent was suspended once, and delivered again
    assert sorted(session.ended for session in around.sessions).count("committed") == 2
    assert len(around.sessions) == 3


# arguments


def nothing(word: str): ...
def unannotated(word: str, session): ...
def anything(word: str, session: object): ...
def by_protocol(word: str, session: Named): ...
def needs_session(word: str, session: Session): ...


@pytest.mark.parametrize("handler", [unannotated, anything, by_protocol])
def test_a_parameter_that_nothing_can_fill_is_refused_at_once(handler):
    queue = WorkQueue(tenure.open_store("memory:"), "jobs")
    with pytest.raises(TypeError, match=f"{handler.__name__}: nothing fills its parameter session"):
        Worker(queue, handler, around=constantly(1))


def test_without_around_no_parameter_but_the_first_is_filled():
    queue = WorkQueue(tenure.open_store("memory:"), "jobs")
    with pytest.raises(TypeError, match="nothing fills its parameter session"):
        Worker(queue, needs_session)


def test_a_process_gets_the_payload_alone():
    queue = WorkQueue(tenure.open_store("memory:"), "jobs")
    Worker(queue, nothing, executor="process", around=constantly(1))
    with pytest.raises(TypeError, match="hands over the payload, and nothing else"):
        Worker(queue, needs_session, executor="process", around=constantly(1))


async def coroutine(task): ...


@pytest.mark.parametrize(
    ("around", "words"),
    [
        (constantly, "around must be a list of functions of a task"),
        ("x", "around must be a list"),
        ([1], r"around\[0\] must be a function of a task"),
        ([CircuitBreaker()], r"around\[0\] must be a function of a task, as `lambda task: manager`"),
        ([*constantly(1), coroutine], r"around\[1\] must return an async context manager"),
        ([lambda: None], r"around\[0\] must take task"),
    ],
    ids=range(6),
)
def test_wrong_functions_are_refused(around, words):
    with pytest.raises(TypeError, match=words):
        Worker(WorkQueue(tenure.open_store("memory:"), "jobs"), nothing, around=around)


async def test_what_is_no_manager_fails_the_try(store):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    [record] = await run(queue, nothing, around=[lambda task: open])
    assert record.state == "dead" and "around[0] must return an async context manager, not" in record.error
