"""A breaker refuses what would fail, lets few find out whether it still does, and believes nobody who is late."""

import gc
from contextlib import suppress
from functools import partial, wraps
from math import inf

import anyio
import anyio.lowlevel
import pytest

from tenure.errors import CircuitOpen
from tenure.local._breaker import CircuitBreaker
from tenure.testing import (
    assert_checkpoints,
    assert_no_checkpoints,
    run,
)


async def good(value=None, *, seconds=0.0):
    if seconds:
        await anyio.sleep(seconds)
    return value


async def bad(error=None, *, seconds=0.0):
    await good(seconds=seconds)
    raise OSError("down") if error is None else error


async def fail(breaker, times=1, **options):
    for _ in range(times):
        with pytest.raises(OSError, match="down"):
            await breaker.call(partial(bad, **options))


async def refusal(breaker):
    """How it refuses: in how many seconds to come again."""
    with pytest.raises(CircuitOpen) as refused:
        await breaker.call(good)
    return refused.value.retry_after


def quick(**options):
    """A breaker that opens at the first failure and closes at the first success."""
    return CircuitBreaker(**{"window": 1, "min_calls": 1, "open_seconds": 10.0, "probes": 1} | options)


async def tripped(**options):
    breaker = quick(**options)
    await fail(breaker)
    assert breaker.state == "open"
    return breaker


async def half_open(**options):
    """One that waits for its probes."""
    breaker = await tripped(**options)
    await anyio.sleep(10)
    return breaker


def changes(breaker):
    seen = []
    breaker.on_change(lambda old, new: seen.append((old, new)))
    return seen


# ------------------------------------------------------------------------------------------------- closed, and opening


async def test_a_call_returns_what_the_function_returns():
    breaker = CircuitBreaker()
    assert await breaker.call(good, 7) == 7
    with pytest.raises(OSError, match="mine"):
        await breaker.call(bad, OSError("mine"))


async def test_in_a_time_window_the_number_of_calls_has_no_bound(virtual_clock):
    breaker = CircuitBreaker(window=2, window_seconds=10, min_calls=300)
    await fail(breaker, 299)
    assert breaker.state == "closed"
    await fail(breaker)
    assert breaker.state == "open"


async def test_slow_calls_open_it_though_none_failed(virtual_clock):
    breaker = CircuitBreaker(slow_call_rate=0.5, slow_call_seconds=2, window=4, min_calls=4)
    for seconds in (2, 2.1, 1, 0):
        await breaker.call(partial(good, seconds=seconds))
    assert breaker.state == "closed"
    await breaker.call(partial(good, seconds=3))
    assert breaker.state == "open"
    statistics = breaker.statistics()
    assert (statistics.failures, statistics.slow_calls, statistics.slow_call_rate) == (0, 2, 0.5)


@pytest.mark.parametrize("kind", ["call", "block"])
async def test_a_success_that_completes_the_calls_to_judge_opens_it_for_as_long_as_a_failure(
    virtual_clock, kind
):
    await anyio.sleep(1000)
    breaker = CircuitBreaker(slow_call_seconds=inf, failure_rate=0.5, min_calls=4, window=10, open_seconds=60)
    await fail(breaker, times=3)
    if kind == "call":
        await breaker.call(good)
    else:
        async with breaker:
            await good()
    assert breaker.state == "open"
    assert await refusal(breaker) == 60


async def test_a_slow_failure_counts_as_both(virtual_clock):
    breaker = CircuitBreaker(slow_call_seconds=2, window=4)
    await fail(breaker, seconds=3)
    statistics = breaker.statistics()
    assert (statistics.calls, statistics.failures, statistics.slow_calls) == (1, 1, 1)


async def test_what_is_ignored_says_nothing_and_what_is_not_recorded_is_a_success():
    breaker = CircuitBreaker(record=OSError, ignore=ConnectionError, window=10)
    for error in (ConnectionError(), KeyError(), OSError()):
        with pytest.raises(type(error)):
            await breaker.call(bad, error)
    statistics = breaker.statistics()
    assert (statistics.calls, statistics.failures) == (2, 1)


async def test_a_failure_in_a_group_is_a_failure():
    breaker = quick(record=OSError)
    with pytest.raises(ExceptionGroup):
        async with breaker, anyio.create_task_group() as group:
            group.start_soon(bad)
            group.start_soon(bad, KeyError())
    assert breaker.state == "open"


# ----------------------------------------------------------------------------------------------------- open, half open


async def test_an_open_one_calls_nothing_and_says_when_to_come_again(virtual_clock):
    breaker = await tripped(name="billing")
    assert await refusal(breaker) == 10
    await anyio.sleep(4)
    assert await refusal(breaker) == pytest.approx(6)
    with pytest.raises(CircuitOpen, match="billing: the circuit breaker is open"):
        async with breaker:
            pytest.fail("let in")
    assert breaker.statistics().refused == 3


async def test_the_first_call_after_its_time_is_a_probe_and_closes_it(virtual_clock):
    breaker = await tripped()
    seen = changes(breaker)
    await anyio.sleep(await refusal(breaker))
    assert breaker.state == "open"
    async with breaker:
        assert breaker.state == "half_open"
    assert breaker.state == "closed"
    assert seen == [("open", "half_open"), ("half_open", "closed")]


async def test_it_stays_open_longer_each_time_and_forgets_that_when_it_closes(virtual_clock):
    breaker, waits = quick(open_factor=3, max_open_seconds=100), []
    for _ in range(5):
        await fail(breaker)
        waits.append(round(await refusal(breaker)))
        await anyio.sleep(waits[-1])
    assert waits == [10, 30, 90, 100, 100]
    await breaker.call(good)
    await fail(breaker)
    assert await refusal(breaker) == 10
    assert breaker.statistics().opened == 6


async def test_a_hundred_callers_at_half_open_are_as_many_as_it_has_probes(virtual_clock):
    """R4, 13: most breakers let all of them through."""
    breaker, inside, refused = await half_open(probes=3), [], []

    async def caller():
        try:
            async with breaker:
                inside.append(breaker.statistics().probes)
                await anyio.sleep(1)
        except CircuitOpen as error:
            refused.append(error.retry_after)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(caller)
    assert inside == [1, 2, 3]
    assert refused == [60.0] * 97
    assert breaker.state == "closed"


async def test_the_rates_say_why_it_is_open_also_after_probes_have_reopened_it(virtual_clock):
    breaker = CircuitBreaker(window=20, min_calls=10, probes=4, open_seconds=10)
    await fail(breaker, 10)
    assert (breaker.state, breaker.statistics().failure_rate) == ("open", 1)
    await anyio.sleep(10)
    await fail(breaker)
    assert (breaker.state, breaker.statistics().failure_rate) == ("half_open", None)
    await fail(breaker)
    statistics = breaker.statistics()
    assert (statistics.state, statistics.calls, statistics.failures) == ("open", 2, 2)
    assert (statistics.failure_rate, statistics.slow_call_rate) == (1, 0)
    breaker.force_open()
    assert breaker.statistics().failure_rate is None


async def test_an_ignored_probe_gives_its_place_to_the_next(virtual_clock):
    """12: a breaker whose probe says nothing must not stay half open for ever."""
    breaker = await half_open(ignore=KeyError)
    for _ in range(3):
        with pytest.raises(KeyError):
            await breaker.call(bad, KeyError())
        assert breaker.state == "half_open"
    await breaker.call(good)
    assert breaker.state == "closed"


# ------------------------------------------------------------------------------------------------ cancelled, and stale


async def test_a_probe_that_hangs_loses_its_place_and_its_say(virtual_clock):
    """12."""
    breaker = await half_open(probe_seconds=5)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(fail, breaker, seconds=8))
        await anyio.sleep(1)
        after = await refusal(breaker)
        assert after == pytest.approx(4)
        await anyio.sleep(after)
        async with breaker:
            await anyio.sleep(6)
            assert breaker.statistics().dropped == 1, "the late failure"
            assert breaker.state == "half_open"
    assert breaker.state == "closed"


async def test_cancelled_calls_are_no_failures(virtual_clock):
    """R6."""
    breaker = CircuitBreaker(window=3)
    for _ in range(5):
        with anyio.move_on_after(1):
            await breaker.call(anyio.sleep_forever)
    assert (breaker.state, breaker.statistics().calls) == ("closed", 0)


async def test_a_time_limit_within_the_call_is_a_failure(virtual_clock):
    breaker = quick()
    with pytest.raises(TimeoutError):
        async with breaker:
            with anyio.fail_after(1):
                await anyio.sleep_forever()
    assert breaker.state == "open"


# ------------------------------------------------------------------------------------------------------------- by hand


async def test_forced_open_it_refuses_until_it_is_reset(virtual_clock):
    breaker = quick()
    breaker.force_open()
    assert await refusal(breaker) == inf
    await anyio.sleep(1e6)
    assert await refusal(breaker) == inf
    assert breaker.state == "forced_open"
    breaker.reset()
    await breaker.call(good)
    assert breaker.state == "closed"


async def test_disabled_it_lets_all_through_and_remembers_nothing():
    breaker = await tripped()
    breaker.disable()
    await fail(breaker, 10)
    assert (breaker.state, breaker.statistics().calls) == ("disabled", 0)
    assert breaker.statistics().dropped == 0


async def test_with_metrics_only_it_lets_all_through_and_counts():
    breaker = CircuitBreaker(window=10, min_calls=5)
    breaker.metrics_only()
    await fail(breaker, 8)
    await breaker.call(good)
    statistics = breaker.statistics()
    assert (breaker.state, statistics.calls, statistics.failure_rate) == ("metrics_only", 9, 8 / 9)


async def test_reset_closes_it_with_nothing_remembered(virtual_clock):
    breaker = await tripped(open_factor=2)
    breaker.reset()
    assert (breaker.state, breaker.statistics().calls) == ("closed", 0)
    await fail(breaker)
    assert await refusal(breaker) == 10


# ----------------------------------------------------------------------------------------------------------- listeners


async def test_listeners_are_called_in_order_until_they_are_taken_off():
    breaker, seen = quick(), []
    remove_first = breaker.on_change(lambda *change: seen.append(("first", *change)))
    same = lambda *change: seen.append(("same", *change))  # noqa: E731 - registered twice
    breaker.on_change(same)
    remove_same = breaker.on_change(same)
    await fail(breaker)
    assert seen == [("first", "closed", "open"), ("same", "closed", "open"), ("same", "closed", "open")]
    remove_first()
    remove_same()
    remove_same()
    breaker.reset()
    assert seen[3:] == [("same", "open", "closed")]
    breaker.reset()
    assert len(seen) == 4, "no change, no call"


async def test_a_listener_that_fails_is_logged_and_the_call_goes_on(caplog):
    breaker = quick()
    breaker.on_change(lambda old, new: 1 / 0)
    seen = changes(breaker)
    await fail(breaker)
    assert seen == [("closed", "open")]
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "breaker.listener_failed name= old=closed new=open error=ZeroDivisionError"
    )
    assert (record.name, record.levelname, record.exc_info[0]) == ("tenure", "WARNING", ZeroDivisionError)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("which", ["record", "ignore"])
async def test_a_function_of_exceptions_that_fails_is_logged_and_its_call_says_nothing(caplog, which):
    breaker = quick(**{which: lambda error: error.code == 503})
    await fail(breaker)
    assert (breaker.state, breaker.statistics().calls) == ("closed", 0)
    (record,) = caplog.records
    assert record.getMessage().startswith("breaker.matcher_failed name= error=AttributeError")
    assert "has no attribute 'code'" in record.exc_text


async def test_a_listener_may_switch_the_breaker():
    breaker = quick()
    breaker.on_change(lambda old, new: new == "open" and breaker.metrics_only())
    await fail(breaker)
    assert breaker.state == "metrics_only"
    await breaker.call(good)


# ------------------------------------------------------------------------------------------------------- its interface


async def test_a_decorated_function_is_guarded_and_keeps_its_face():
    breaker = quick()

    @breaker
    async def charge(amount, *, currency="EUR"):
        """Charge."""
        if amount < 0:
            raise OSError("down")
        return amount, currency

    assert await charge(3, currency="CHF") == (3, "CHF")
    assert (charge.__name__, charge.__doc__) == ("charge", "Charge.")
    with pytest.raises(OSError, match="down"):
        await charge(-1)
    with pytest.raises(CircuitOpen):
        await charge(3)


def plain():
    raise AssertionError("it was called")


async def steps():
    raise AssertionError("it was called")
    yield


def plain_steps():
    raise AssertionError("it was called")
    yield


class Client:
    def get(self):
        raise AssertionError("it was called")

    def __call__(self):
        raise AssertionError("it was called")


NO_ASYNC_FUNCTIONS = [
    plain,
    steps,
    plain_steps,
    partial(plain),
    Client().get,
    Client(),
    3,
    wraps(plain)(partial(plain)),
]


@pytest.mark.parametrize("fn", NO_ASYNC_FUNCTIONS)
def test_what_is_no_async_function_is_not_decorated(fn):
    with pytest.raises(TypeError, match="^fn must be an async function, not "):
        quick()(fn)


@pytest.mark.parametrize("fn", [plain, steps, plain_steps, Client().get])
async def test_what_is_no_async_function_is_not_called(fn):
    breaker = quick()
    with pytest.raises(TypeError, match="^fn must be an async function, not "):
        await breaker.call(fn)
    assert (breaker.state, breaker.statistics().calls) == ("closed", 0)


@pytest.mark.parametrize(
    "fn", [lambda: 7, partial(len, "seven!!"), int, partial(good, 1, 2, 3), partial(good, wrong=1)]
)
async def test_a_mistake_of_the_program_is_no_failure_of_the_service(virtual_clock, fn):
    breaker = await half_open()
    with pytest.raises(TypeError):
        await breaker.call(fn)
    with pytest.raises(TypeError):
        await breaker.call(good, 1, 2, 3)
    statistics = breaker.statistics()
    assert (statistics.state, statistics.calls, statistics.probes) == ("half_open", 0, 0)
    with pytest.raises(TypeError, match="mine"):
        await breaker.call(bad, TypeError("mine"))
    assert breaker.state == "open", "a TypeError of the service is one"


async def test_what_is_not_awaitable_is_named():
    with pytest.raises(
        TypeError, match="^fn must be an async function, but <built-in function len> returned 3$"
    ):
        await quick().call(len, "abc")


async def test_all_that_returns_something_awaitable_is_let_through():
    class Fetch:
        async def get(self):
            return 7

        async def __call__(self):
            return 7

    @wraps(good)
    def decorated(*args):
        return good(*args)

    @wraps(plain)
    async def in_a_thread():
        return 7

    breaker = quick()
    for fn in (Fetch().get, Fetch(), partial(good, 7), partial(decorated, 7), in_a_thread):
        assert await breaker.call(fn) == 7
        assert await breaker(fn)() == 7
    assert await breaker.call(lambda: good(7)) == 7


async def test_closed_it_adds_no_checkpoint_and_a_refusal_is_one():
    breaker = quick()
    with assert_no_checkpoints():
        await breaker.call(good)
        async with breaker:
            pass
    breaker.force_open()
    with assert_checkpoints(), pytest.raises(CircuitOpen):
        await breaker.call(good)
    with assert_checkpoints(), pytest.raises(CircuitOpen):
        async with breaker:
            pass


async def test_it_works_in_a_cancelled_scope():
    breaker = quick()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await breaker.call(good)
        async with breaker:
            pass
    assert breaker.statistics().calls == 1


async def test_blocks_of_one_task_lie_inside_one_another():
    outer, inner = CircuitBreaker(window=5), CircuitBreaker(window=5)
    async with outer:
        async with inner, outer:
            pass
        assert (outer.statistics().calls, inner.statistics().calls) == (1, 1)
    assert outer.statistics().calls == 2


async def test_blocks_of_one_task_may_end_in_another_order(virtual_clock):
    first, second = (CircuitBreaker(window=5, slow_call_seconds=2) for _ in range(2))
    await first.__aenter__()
    await anyio.sleep(3)
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    await second.__aexit__(None, None, None)
    assert (first.statistics().slow_calls, second.statistics().slow_calls) == (1, 0)
    assert first.statistics().calls == second.statistics().calls == 1


async def test_a_block_that_was_not_entered_cannot_be_left():
    breaker = CircuitBreaker(name="x")
    with pytest.raises(RuntimeError, match="left in another task than it was entered in"):
        await breaker.__aexit__(None, None, None)
    async with breaker:
        pass
    with pytest.raises(RuntimeError, match="left in another task"):
        await breaker.__aexit__(None, None, None)


async def test_tasks_that_end_leave_nothing_behind():
    """One breaker, many tasks, each in its own block, in any order."""
    breaker = CircuitBreaker(window=100, min_calls=1000)

    async def caller(rounds):
        for _ in range(rounds):
            async with breaker:
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for rounds in range(8):
            group.start_soon(caller, rounds)
    assert breaker.statistics().calls == sum(range(8))


async def test_a_call_leaves_no_garbage(virtual_clock):
    breaker = await half_open()
    gc.collect()
    gc.disable()
    try:
        await breaker.call(good)
        breaker.force_open()
        with suppress(CircuitOpen):
            await breaker.call(good)
        assert not [thing for thing in gc.get_objects() if type(thing) is CircuitOpen]
    finally:
        gc.enable()


def test_one_breaker_may_serve_one_loop_after_the_other():
    breaker = quick()

    async def trip():
        await fail(breaker)

    async def recover():
        assert await refusal(breaker) <= 10
        await anyio.sleep(10)
        await breaker.call(good)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(trip)  # real time
        run(recover, backend=backend)  # virtual time: another clock
        assert breaker.state == "closed"


def test_it_shows_its_state():
    breaker = CircuitBreaker(name="billing")
    assert repr(breaker) == "<CircuitBreaker 'billing' closed, 0 failed and 0 slow of 0>"
    breaker.force_open()
    assert repr(breaker) == "<CircuitBreaker 'billing' forced_open, 0 failed and 0 slow of 0>"
    assert repr(CircuitBreaker()).startswith("<CircuitBreaker closed")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("failure_rate", 0, ValueError),
        ("failure_rate", 1.1, ValueError),
        ("failure_rate", float("nan"), ValueError),
        ("slow_call_rate", -1, ValueError),
        ("slow_call_seconds", 0, ValueError),
        ("window", 0, ValueError),
        ("window", 1.5, TypeError),
        ("window_seconds", 0, ValueError),
        ("window_seconds", inf, ValueError),
        ("min_calls", 0, ValueError),
        ("min_calls", "3", TypeError),
        ("open_seconds", 0, ValueError),
        ("open_seconds", inf, ValueError),
        ("open_factor", 0.5, ValueError),
        ("open_factor", inf, ValueError),
        ("max_open_seconds", 59, ValueError),
        ("probes", 0, ValueError),
        ("probes", None, TypeError),
        ("probe_seconds", 0, ValueError),
        ("record", "OSError", TypeError),
        ("ignore", [OSError], TypeError),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name, value, error):
    with pytest.raises(error, match=f"^{name} must be"):
        CircuitBreaker(**{name: value})


def test_a_listener_has_to_be_a_function():
    with pytest.raises(TypeError, match="^callback must be"):
        CircuitBreaker().on_change("print")


# ----------------------------------------------------------------------------------------------------------- schedules


# failures in a row, and keyword arguments


async def test_failures_in_a_row_open_it_and_one_probe_closes_it(virtual_clock):
    breaker = CircuitBreaker.consecutive(3, open_seconds=10, name="mail")
    await fail(breaker, 2)
    await breaker.call(good, seconds=1000)  # slow, but no failure
    await fail(breaker, 2)
    assert breaker.state == "closed"
    with pytest.raises(OSError, match="down"):
        async with breaker:
            await bad()
    assert breaker.state == "open"
    with pytest.raises(CircuitOpen, match="mail"):
        await breaker.call(good)
    await anyio.sleep(10)
    assert await breaker.call(good, 1) == 1
    assert breaker.state == "closed"
    await fail(breaker, 3)
    await anyio.sleep(10)
    await fail(breaker)
    assert breaker.state == "open"


def test_failures_in_a_row_are_a_number():
    with pytest.raises(ValueError, match="failures"):
        CircuitBreaker.consecutive(0)
    with pytest.raises(TypeError, match="failures"):
        CircuitBreaker.consecutive("3")


async def test_keyword_arguments_are_passed_on(virtual_clock):
    async def function(*args, **kwargs):
        return args, kwargs

    breaker = CircuitBreaker()
    assert await breaker.call(function, 1, fn=2, self=3) == ((1,), {"fn": 2, "self": 3})
    with pytest.raises(TypeError, match="unexpected"):
        await breaker.call(good, colour="red")
    assert breaker.statistics().calls == 1  # a mistake of the program does not count


async def test_a_result_may_be_a_failure(caplog):
    breaker = CircuitBreaker.consecutive(2, record_result=lambda result: result["status"] >= 500)

    @breaker
    async def fetch(status):
        return {"status": status}

    assert await breaker.call(fetch.__wrapped__, 503) == {"status": 503}
    await fetch(200)
    assert breaker.state == "closed"
    for _ in range(2):
        await fetch(503)
    assert breaker.state == "open"
    breaker.reset()
    assert await breaker.call(fetch.__wrapped__, "odd") == {"status": "odd"}
    assert breaker.state == "closed"
    assert "breaker.matcher_failed" in caplog.text
    with pytest.raises(TypeError, match="record_result must be a function or None"):
        CircuitBreaker(record_result=3)
