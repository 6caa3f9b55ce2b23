"""Concurrency lowers itself when latency grows, and raises itself again."""

from __future__ import annotations

import anyio
import pytest

from tenure import Task
from tenure.processor import Adaptive, Context, Processor
from tenure.processor._adaptive import Limit


def drive(limit, latency_of, seconds, now):
    """Rounds of a service that takes `latency_of(n)` for n at once; gives what was allowed in each, and when it is."""
    seen = []
    end = now + seconds
    while now < end:
        n = limit.allowed
        now += latency_of(n)
        for _ in range(n):
            limit.note(latency_of(n), n, now)
        seen.append(limit.allowed)
    return seen, now


def server(capacity):
    return lambda n: 0.1 * max(1.0, n / capacity)


def test_it_finds_about_what_a_server_can_do():
    limit = Limit(Adaptive(), 1000, 0.0)
    seen, _ = drive(limit, server(20), 300, 0.0)
    assert 40 <= max(seen) <= 80
    assert all(17 <= n <= 44 for n in seen[100:]) and sum(n < 30 for n in seen) < len(seen) / 10


def test_it_lowers_itself_when_latency_grows_and_raises_itself_again():
    limit = Limit(Adaptive(memory=200), 100, 0.0)
    _, now = drive(limit, server(50), 60, 0.0)
    before = limit.allowed
    seen, now = drive(limit, server(5), 60, now)
    assert seen[-1] <= 12 and before >= 50
    seen, now = drive(limit, server(50), 120, now)
    assert seen[-1] >= 90


def test_a_latency_that_has_grown_for_good_is_taken_for_normal():
    limit = Limit(Adaptive(memory=20), 50, 0.0)
    _, now = drive(limit, lambda n: 0.1, 30, 0.0)
    assert limit.allowed == 50
    seen, now = drive(limit, lambda n: 0.5, 15, now)
    assert seen[-1] < 20
    seen, now = drive(limit, lambda n: 0.5, 400, now)
    assert seen[-1] == 50


def test_it_does_not_grow_when_what_is_allowed_is_not_used():
    limit = Limit(Adaptive(), 100, 0.0)
    for i in range(1000):
        limit.note(0.1, 1, i * 0.1)
    assert limit.allowed == 4


def test_it_stays_between_its_least_and_its_most():
    limit = Limit(Adaptive(least=3), 7, 0.0)
    drive(limit, lambda n: 0.1, 30, 0.0)
    assert limit.allowed == 7
    drive(limit, lambda n: 100.0, 3000, 100.0)
    assert limit.allowed >= 3
    assert Limit(Adaptive(least=30), 7, 0.0).allowed == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 1}, "tolerance must be above 1"),
        ({"window": 0}, "window must be above 0"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"least": 0}, "least must be at least 1"),
        ({"memory": 0}, "memory must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Adaptive(**options)


@pytest.mark.one_loop
async def test_a_processor_takes_no_more_tasks_than_its_limit_allows(memory, told):
    capacity = 10
    running = most = 0

    async def handler(task: Task, context: Context):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.1 * max(1.0, running / capacity))
        running -= 1

    async with Processor(memory, "p", handler, workers=200, adaptive=True) as processor:
        await processor.submit_many(range(6000))
        await anyio.sleep(30)
        assert 10 <= processor.metrics().limit <= 30
        capacity, most = 2, 0
        await anyio.sleep(40)
        low = processor.metrics().limit
        assert low <= 8
        await processor.join()
        capacity, most = 10, 0
        # those that wait for a task, of an earlier time, are no more than are allowed either
        await processor.submit_many(range(2000))
        await anyio.sleep(0.05)
        assert running <= processor.metrics().limit + 1
        await anyio.sleep(30)
        assert processor.metrics().limit > low
        await processor.join()
    assert told.of("processor.limit")
