from __future__ import annotations

import contextlib
import logging
import pickle
from functools import partial
from math import inf, nan

import anyio
import pytest
from hypothesis import given, strategies as st

from tenure import (
    BatchWorker,
    Dead,
    Discard,
    Job,
    Processor,
    Retry,
    RetryLater,
    Task,
    TaskFailed,
    Worker,
    WorkQueue,
)
from tenure.processor import Context

SECONDS = st.floats(0, 1e6)


@given(
    backoff=SECONDS,
    factor=st.floats(1, 1e3),
    most=SECONDS,
    jitter=st.floats(0, 1),
    failures=st.integers(1, 100_000),
)
def test_the_rest_lies_within_its_bounds(backoff, factor, most, jitter, failures):
    try:
        full = min(most, backoff * factor ** (failures - 1))
    except OverflowError:
        full = most
    rest = Retry(backoff=backoff, factor=factor, max_backoff=most, jitter=jitter).delay(failures)
    assert full * (1 - jitter) * (1 - 1e-9) <= rest <= full


def test_without_jitter_it_doubles_up_to_the_most():
    retry = Retry(backoff=1, factor=2, max_backoff=10, jitter=0)
    assert [retry.delay(k) for k in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_spreads():
    retry = Retry(backoff=1, jitter=0.5)
    rests = [retry.delay(1) for _ in range(200)]
    assert len(set(rests)) > 190
    assert 0.5 <= min(rests) < 0.6
    assert 0.9 < max(rests) <= 1


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"backoff": -1},
        {"backoff": inf},
        {"backoff": nan},
        {"factor": 0.5},
        {"factor": nan},
        {"max_backoff": -1},
        {"max_backoff": inf},
        {"jitter": 1.1},
        {"jitter": -0.1},
        {"jitter": nan},
        {"on": ValueError},
        {"on": (ValueError, "KeyError")},
        {"never": [ValueError]},
        {"never": (int,)},
    ],
)
def test_wrong_options_are_refused_by_name(options):
    with pytest.raises((ValueError, TypeError), match=f"^{next(iter(options))} must be"):
        Retry(**options)


@pytest.mark.parametrize("delay", [-1, inf, nan])
def test_a_wrong_delay_is_refused(delay):
    with pytest.raises(ValueError, match="delay"):
        RetryLater(delay, counts=False)


def test_what_they_say():
    assert str(RetryLater(5, counts=False)) == "try again in 5 s"
    assert str(RetryLater(5, "busy", counts=False)) == "busy"
    assert Discard("spam").reason == "spam"
    assert Discard(ValueError("odd")).reason == "odd"
    assert Dead("no such user").reason == "no such user"


def test_a_retry_shows_its_types_by_name():
    assert repr(Retry(on=(OSError, KeyError), never=(BrokenPipeError,))) == (
        "Retry(attempts=3, backoff=1.0, factor=2.0, max_backoff=60.0, jitter=0.5, "
        "on=(OSError, KeyError), never=(BrokenPipeError,))"
    )
    assert repr(Retry()).endswith("on=(BaseException,), never=())")


@pytest.mark.parametrize("raised", [RetryLater(5, "busy"), Discard("spam"), Dead("gone")])
def test_an_instruction_can_be_pickled(raised):
    copied = pickle.loads(pickle.dumps(raised))
    assert (type(copied), str(copied), vars(copied)) == (type(raised), str(raised), vars(raised))


NETWORK = Retry(on=(OSError,), never=(PermissionError,))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionError(), None),
        (TimeoutError(), None),
        (ValueError(), "ValueError is not in on=(OSError,)"),
        (SystemExit(), "SystemExit is not in on=(OSError,)"),
        (PermissionError(), "PermissionError is in never=(PermissionError,)"),
        (ExceptionGroup("", [OSError(), ExceptionGroup("", [ConnectionError()])]), None),
        (
            ExceptionGroup("", [OSError(), ExceptionGroup("", [KeyError()])]),
            "KeyError is not in on=(OSError,)",
        ),
        (
            ExceptionGroup("", [OSError(), PermissionError()]),
            "PermissionError is in never=(PermissionError,)",
        ),
    ],
)
def test_the_types_of_exceptions_decide_whether_a_try_follows(error, why):
    assert NETWORK.refusal(error) == (why and f"not tried again: {why}")
    assert Retry().refusal(error) is None


async def work_off(queue, worker):
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()


async def raise_dead():
    try:
        raise LookupError("no row")
    except LookupError as error:
        raise Dead("no such user") from error


@pytest.mark.parametrize("how", ["block", "worker", "thread", "batch", "job", "processor"])
async def test_dead_ends_the_tries_and_keeps_a_dead_letter(store, virtual_clock, caplog, how):
    queue = WorkQueue[dict[str, int]](store, "jobs", retry=Retry(attempts=9))
    payload = {"user": 1}

    async def handler(task: Task):
        await raise_dead()

    def in_thread(task: Task):
        raise Dead("no such user") from LookupError("no row")

    async def in_batch(tasks: list[Task]):
        for task in tasks:
            task.fail(Dead("no such user"))

    async def function(user):
        await raise_dead()

    async def processed(task: Task, context: Context):
        await raise_dead()

    if how == "processor":
        async with Processor(store, "jobs", processed) as processor:
            task_id = await processor.submit(payload)
            await processor.join()
            assert processor.metrics().totals["dead"] == 1
    else:
        task_id = await queue.put(payload)
    if how == "block":
        async with queue.take():
            await raise_dead()
    elif how != "processor":
        workers = {
            "worker": lambda: Worker(queue, handler),
            "thread": lambda: Worker(queue, in_thread),
            "batch": lambda: BatchWorker(queue, in_batch, size=5),
            "job": lambda: Worker(Job(queue, function)),
        }
        worker = workers[how]()
        await work_off(queue, worker)
        assert (worker.statistics().dead, worker.statistics().retried) == (1, 0)
    (letter,) = (await queue.tasks("dead").page()).records
    assert (letter.id, letter.state, letter.error) == (task_id, "dead", "no such user")
    assert (letter.attempts, letter.payload) == (1, payload)
    assert "Dead: no such user" in letter.traceback
    assert how == "batch" or "LookupError: no row" in letter.traceback
    with pytest.raises(TaskFailed, match="no such user"):
        await queue.result(task_id)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.split()[0] for text in warnings if "processor." not in text] == ["task.dead"]
    assert await queue.requeue([task_id]) == 1
    async with queue.take() as task:
        assert (task.attempt, task.payload) == (1, payload)
    assert await queue.verify()


async def test_dead_without_a_reason_has_that_of_its_cause(store):
    queue = WorkQueue(store, "jobs")
    for cause in (None, ValueError("no such user")):
        await queue.put(1)
        async with queue.take():
            raise Dead from cause
    assert [letter.error for letter in (await queue.tasks("dead").page()).records] == [
        "Dead",
        "ValueError: no such user",
    ]


GROUPS = [
    (
        [OSError(1), ExceptionGroup("", [Discard("no"), RetryLater(5, counts=False), Dead("gone")])],
        "dead",
        "gone",
    ),
    (
        [OSError(1), RetryLater(5, counts=False)],
        "dead",
        "ExceptionGroup: tasks (2 sub-exceptions) [OSError: 1; RetryL",
    ),
    ([OSError(1), Discard("no")], "dead", "ExceptionGroup: tasks (2 sub-exceptions) [OSError: 1; Discard"),
    ([Discard("no"), RetryLater(5), RetryLater(9, counts=False)], "dead", "RetryLater: try again in 5 s"),
    ([Discard("no"), RetryLater(5, counts=False), RetryLater(9, counts=False)], "delayed", ""),
    ([Discard("no"), Discard("never")], "discarded", "no"),
]


@pytest.mark.parametrize("how", ["async", "thread", "batch", "block"])
@pytest.mark.parametrize(("errors", "state", "error"), GROUPS)
async def test_of_an_exception_group_the_gravest_exception_decides(
    store, virtual_clock, errors, state, error, how
):
    queue = WorkQueue[int](store, "jobs", retry=Retry(attempts=1, on=(OSError,)))

    def in_thread(task: Task):
        raise ExceptionGroup("tasks", errors)

    async def handler(task: Task):
        in_thread(task)

    async def in_batch(tasks: list[Task]):
        in_thread(tasks[0])

    task_id = await queue.put(1)
    if how == "block":
        messages = not any(isinstance(part, OSError) for part in errors)
        with contextlib.nullcontext() if messages else pytest.raises(ExceptionGroup, match="tasks"):
            async with queue.take() as task:
                in_thread(task)
    else:
        handlers = {"async": handler, "thread": in_thread, "batch": in_batch}
        make = partial(BatchWorker, size=5) if how == "batch" else Worker
        worker = make(queue, handlers[how])
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            while (found := worker.statistics()) and not (found.dead + found.discarded + found.postponed):
                await anyio.sleep(1)
            await worker.drain()
    record = await queue.get(task_id)
    assert record is not None
    assert record.state == state
    assert (record.error or record.result or "").startswith(error)


async def test_dead_in_a_task_group_of_a_handler_ends_the_tries(store):
    queue = WorkQueue[int](store, "jobs")

    async def part():
        raise Dead("no such user")

    async def handler(task: Task):
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.start_soon(part)

    await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    assert [(letter.error, letter.attempts) for letter in (await queue.tasks("dead").page()).records] == [
        ("no such user", 1)
    ]


def test_messages_in_a_group_are_not_compared_with_the_rule():
    assert NETWORK.refusal(ExceptionGroup("", [OSError(), RetryLater(1, counts=False), Discard()])) is None


@pytest.mark.parametrize("reason", ["", "busy"])
async def test_a_retry_that_counts_says_when_the_next_try_is_until_the_attempts_are_used_up(
    store, virtual_clock, reason
):
    queue, times = WorkQueue(store, "jobs", retry=Retry(attempts=3, never=(RetryLater,))), []

    async def handler(task: Task):
        times.append((task.attempt, virtual_clock.now()))
        raise RetryLater(10 * task.attempt, reason) from OSError("503")

    await queue.put("x")
    worker = Worker(queue, handler)
    await work_off(queue, worker)
    attempts, starts = zip(*times, strict=True)
    assert attempts == (1, 2, 3)
    assert starts[1] - starts[0] == pytest.approx(10, abs=1)
    assert starts[2] - starts[1] == pytest.approx(20, abs=1)
    (letter,) = (await queue.tasks("dead").page()).records
    assert (letter.attempts, letter.error) == (3, reason or "OSError: 503")
    statistics = worker.statistics()
    assert (statistics.retried, statistics.dead, statistics.postponed) == (2, 1, 0)


async def test_an_exception_that_is_never_tried_again_is_dead_at_once(store, virtual_clock):
    queue, tries = WorkQueue(store, "jobs", retry=Retry(attempts=2, on=(OSError,))), []

    async def handler(task: Task):
        tries.append(task.payload)
        raise {"network": OSError, "bug": KeyError}[task.payload]("x")

    await queue.put_many(["network", "bug"])
    await work_off(queue, Worker(queue, handler))
    assert sorted(tries) == ["bug", "network", "network"]
    errors = {letter.payload: letter.error for letter in (await queue.tasks("dead").page()).records}
    assert errors == {
        "network": "OSError: x",
        "bug": "KeyError: 'x'\nnot tried again: KeyError is not in on=(OSError,)",
    }


async def test_a_task_without_an_error_has_none(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    assert (await queue.get(task_id)).error is None
    async with queue.take():
        assert (await queue.get(task_id)).error is None
    assert (await queue.get(task_id)).error is None
    cancelled = await queue.put(1)
    await queue.cancel(cancelled)
    assert (await queue.get(cancelled)).error is None


@pytest.mark.parametrize("resets", [True, False])
async def test_a_task_that_postpones_itself_may_begin_the_count_of_failures_anew(
    store, virtual_clock, resets
):
    queue, tries = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=1)), []

    async def poll(task: Task):
        tries.append(task.attempt)
        if len(tries) % 2:
            raise OSError("503")
        if len(tries) < 8:
            raise RetryLater(60, counts=False, resets=resets)

    task_id = await queue.put("x")
    await work_off(queue, Worker(queue, poll))
    state = (await queue.get(task_id)).state
    assert (tries, state) == (([1, 2] * 4, "done") if resets else ([1, 2, 2], "dead"))


def test_a_try_counts_unless_the_exception_says_otherwise():
    tries = RetryLater(1), RetryLater(1, counts=False), RetryLater(1, resets=True)
    assert [later.counts for later in tries] == [True, False, False]
