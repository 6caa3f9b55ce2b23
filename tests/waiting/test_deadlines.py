"""The times at which waiters leave: how often the loop is asked for a timer, and what is kept meanwhile."""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from weakref import ref

import anyio
import pytest

from tenure.waiting import Line, _deadlines

on_asyncio = pytest.mark.backends("asyncio", "uvloop")  # trio keeps the deadlines itself


class Thing:
    """An object whose end a test can see."""


def line(left=None):
    return Line(lambda waiter: left is None or left.append(waiter.want), "a line")


async def stand(line, want, timeout):
    with suppress(TimeoutError):
        await line.wait(line.join(want), timeout)


@on_asyncio
async def test_a_time_limit_takes_one_timer(monkeypatch):
    """uvloop rounds to milliseconds, so its timers may be early: one that is set anew is called in each turn."""
    timers, waiting = [], line()
    call_at = _deadlines.call_at
    monkeypatch.setattr(_deadlines, "call_at", lambda *args: timers.append(args) or call_at(*args))
    for _ in range(20):
        await stand(waiting, "a", 0.0023)
    assert len(timers) == 20


@on_asyncio
async def test_the_timer_keeps_nothing_of_the_context_of_a_waiter():
    waiting, variable = line(), ContextVar("variable")

    async def first():
        thing = Thing()
        things.append(ref(thing))
        variable.set(thing)
        del thing
        await stand(waiting, "first", 3600)

    things = []
    async with anyio.create_task_group() as group:
        asyncio_task = asyncio.create_task(first())
        await anyio.wait_all_tasks_blocked()
        group.start_soon(stand, waiting, "second", 3600)
        await anyio.wait_all_tasks_blocked()
        asyncio_task.cancel()
        await asyncio.wait([asyncio_task])
        del asyncio_task
        assert things[0]() is None
        group.cancel_scope.cancel()


@on_asyncio
async def test_nothing_is_kept_of_waiters_that_have_left_a_line_in_which_others_wait():
    waiting, things = line(), []
    async with anyio.create_task_group() as group:
        for want in range(20):
            group.start_soon(stand, waiting, want, 3600)
        await anyio.wait_all_tasks_blocked()
        for waiter in list(waiting)[1:]:
            thing = Thing()
            things.append(ref(thing))
            waiting.grant(waiter, thing)
        del thing, waiter
        await anyio.wait_all_tasks_blocked()
        assert sum(thing() is not None for thing in things) <= 1
        group.cancel_scope.cancel()


def test_what_happens_at_the_time_of_a_waiter_may_use_anyio():
    """`asyncio.run` tells no context which loop runs: anyio finds it in a task all the same, and nowhere else."""
    times = []
    waiting = Line(lambda waiter: times.append(anyio.current_time()), "a line")
    asyncio.run(stand(waiting, "a", 0.001))
    assert len(times) == 1
