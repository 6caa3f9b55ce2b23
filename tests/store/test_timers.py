from __future__ import annotations

from functools import partial

import anyio
import pytest

from tenure.store._timers import Timers, jittered


@pytest.fixture
async def timers(virtual_clock):
    timers = Timers()
    async with anyio.create_task_group() as group:
        group.start_soon(timers.run)
        yield timers
        group.cancel_scope.cancel()


@pytest.fixture
def log(virtual_clock):
    return Log(virtual_clock)


class Log(list):
    def __init__(self, clock):
        self.clock = clock

    def note(self, name):
        self.append((name, self.clock.now()))

    def at(self, timers, when):
        timers.call_at(when, partial(self.note, when))


async def test_each_is_called_at_its_time(timers, log, virtual_clock):
    for when in (3, 1, 2, 1.5):
        log.at(timers, when)
    await virtual_clock.advance(10)
    assert log == [(1, 1), (1.5, 1.5), (2, 2), (3, 3)]


async def test_an_earlier_one_is_not_overslept(timers, log, virtual_clock):
    log.at(timers, 5)
    await virtual_clock.advance(1)
    log.at(timers, 2)
    await virtual_clock.advance(10)
    assert log == [(2, 2), (5, 5)]


async def test_of_equal_times_the_first_comes_first(timers, log, virtual_clock):
    for name in "abc":
        timers.call_at(1, partial(log.note, name))
    await virtual_clock.advance(2)
    assert log == [("a", 1), ("b", 1), ("c", 1)]


async def test_what_is_due_already_is_called_at_once(timers, log, virtual_clock):
    await virtual_clock.advance(5)
    log.at(timers, 2)
    await virtual_clock.settle()
    assert log == [(2, 5)]


async def test_a_call_may_set_the_next(timers, log, virtual_clock):
    def again(left):
        log.note(left)
        if left:
            timers.call_at(virtual_clock.now() + 1, partial(again, left - 1))

    timers.call_at(1, partial(again, 2))
    await virtual_clock.advance(10)
    assert log == [(2, 1), (1, 2), (0, 3)]


async def test_one_set_in_the_turn_of_waking_is_kept(timers, log, virtual_clock):
    log.at(timers, 1)
    await anyio.sleep_until(1)
    log.at(timers, 1)
    await virtual_clock.settle()
    assert log == [(1, 1), (1, 1)]


async def test_infinity_never_comes(timers, log, virtual_clock):
    log.at(timers, float("inf"))
    log.at(timers, 1)
    await virtual_clock.advance(1e5)
    assert log == [(1, 1)]


@pytest.mark.parametrize(("seconds", "least", "most"), [(0, 0.05, 0.055), (1, 1, 1.1), (60, 60, 60.2)])
def test_a_period_is_lengthened_by_up_to_a_tenth(seconds, least, most):
    found = [jittered(seconds, least=0.05) for _ in range(100)]
    assert least <= min(found) < max(found) <= most + 1e-9
