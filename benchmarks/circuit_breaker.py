"""What a guarded call costs over the bare one: microseconds of CPU, of an async function that does nothing, one task.

Measured are ``await breaker.call(fn)`` and ``async with breaker: await fn()``, less ``await fn()`` in a loop of the
same length. By default ours keeps a window of 100 calls with failures and slow calls, reads the loop's clock twice,
and gives out permits. interlock-cb does the same (with ``time.monotonic``, whatever the loop's clock is). The others
count failures in a row, read no clock and measure nothing; beside them, ours counts failures in a row. circuitbreaker
refuses calls of a decorated function only. A refused call of ours is a checkpoint, theirs are not.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import process_time
from typing import TYPE_CHECKING, Any

import aiobreaker
import circuitbreaker
import interlock
import purgatory

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import CircuitBreaker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    Guarded = Callable[[], Awaitable[None]]

UNIT = "CPU us"


async def nothing() -> None:
    """The function that is guarded."""


async def ours() -> CircuitBreaker:
    """A breaker of ours."""
    return CircuitBreaker()


async def ours_in_time() -> CircuitBreaker:
    """One of ours that remembers the calls of ten seconds."""
    return CircuitBreaker(window_seconds=10)


async def ours_in_a_row() -> CircuitBreaker:
    """One of ours that counts failures in a row."""
    return CircuitBreaker.consecutive(5)


async def interlock_cb() -> interlock.CircuitBreaker:
    """The one that does as much as ours."""
    return interlock.CircuitBreaker(name="bench")


async def interlock_cb_in_time() -> interlock.CircuitBreaker:
    """It, with the calls of ten seconds."""
    config = interlock.Config(window_type=interlock.WindowType.TIME_BASED, window_size=10)
    return interlock.CircuitBreaker(name="bench", config=config)


async def purgatorys() -> AbstractAsyncContextManager[Any]:
    """Purgatory's, which has no `call`."""
    return await purgatory.AsyncCircuitBreakerFactory().get_breaker("bench")


async def guarded(make: Callable[[], Awaitable[Any]]) -> Guarded:
    """The function, called through a breaker."""
    return partial((await make()).call, nothing)


async def guarded_by_aiobreaker() -> Guarded:
    """The same through aiobreaker."""
    return partial(aiobreaker.CircuitBreaker().call_async, nothing)


async def guarded_by_circuitbreaker() -> Guarded:
    """The same through circuitbreaker."""
    return circuitbreaker.CircuitBreaker(name="bench")(nothing)


async def _bare(times: int) -> float:
    start = process_time()
    for _ in range(times):
        await nothing()
    return process_time() - start


async def called(make: Callable[[], Awaitable[Guarded]], times: int) -> float:
    """Microseconds that a call through the breaker takes over a bare one."""
    call = await make()
    await call()
    bare = await _bare(times)
    start = process_time()
    for _ in range(times):
        await call()
    return (process_time() - start - bare) / times * 1e6


async def entered(make: Callable[[], Awaitable[AbstractAsyncContextManager[Any]]], times: int) -> float:
    """The same of a call in a block."""
    breaker = await make()
    async with breaker:
        pass
    bare = await _bare(times)
    start = process_time()
    for _ in range(times):
        async with breaker:
            await nothing()
    return (process_time() - start - bare) / times * 1e6


async def refused(make: Callable[[], Awaitable[Any]], times: int) -> float:
    """Microseconds that a refusal takes."""
    breaker = await make()
    breaker.force_open()
    start = process_time()
    for _ in range(times):
        with suppress(Exception):
            await breaker.call(nothing)
    return (process_time() - start) / times * 1e6


def run(size: Size) -> Iterator[Row]:
    times = size.of(200, 5_000, 50_000)
    works: dict[str, tuple[Callable[..., Awaitable[float]], dict[str, Callable[..., Any]], str]] = {
        "closed, call": (
            called,
            {
                "ours": partial(guarded, ours),
                "interlock-cb": partial(guarded, interlock_cb),
            },
            "<= 2 us",
        ),
        "closed, call, failures in a row": (
            called,
            {
                "ours": partial(guarded, ours_in_a_row),
                "aiobreaker": guarded_by_aiobreaker,
                "circuitbreaker": guarded_by_circuitbreaker,
            },
            "<= 2 us",
        ),
        "closed, call, time window": (
            called,
            {
                "ours": partial(guarded, ours_in_time),
                "interlock-cb": partial(guarded, interlock_cb_in_time),
            },
            "<= 2 us",
        ),
        "closed, async with": (
            entered,
            {"ours": ours, "interlock-cb": interlock_cb},
            "<= 2 us",
        ),
        "closed, async with, failures in a row": (
            entered,
            {"ours": ours_in_a_row, "purgatory": purgatorys},
            "<= 2 us",
        ),
        "open, call": (refused, {"ours": ours, "interlock-cb": interlock_cb}, ""),
    }
    for loop in LOOPS:
        for work, (measure, makes, goal) in works.items():
            figures = interleaved(
                {name: partial(on_loop, loop, measure, make, times) for name, make in makes.items()},
                size,
            )
            yield from [
                row(
                    *(work, loop, figures, name),
                    unit=UNIT,
                    less_is_better=True,
                    goal=goal,
                    difference=measure is not refused,
                )
                for name in makes
                if name != "ours"
            ]
