"""The circuit breaker."""

from __future__ import annotations

from contextlib import suppress

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.world import pause

from tenure import CircuitOpen
from tenure.local import CircuitBreaker
from tenure.testing import cancellable, newcomer


@scenario("local.CircuitBreaker.call", "local.CircuitBreaker.__aenter__", "local.CircuitBreaker.__aexit__")
async def a_probe_that_is_cancelled_leaves_its_place_to_the_next():
    breaker = CircuitBreaker(window=2, min_calls=2, open_seconds=1, probes=1)
    probing = 0

    async def fail():
        raise KeyError

    for _ in range(2):
        with suppress(KeyError):
            await breaker.call(fail)
    assert breaker.state == "open"
    await anyio.sleep(1.5)

    async def probe():
        nonlocal probing
        probing += breaker.state == "half_open"
        assert probing <= 1, "one probe at a time"
        try:
            await pause()
        finally:
            probing -= breaker.state == "half_open"

    async def victim():
        with cancellable():
            try:
                async with breaker:
                    await probe()
            except CircuitOpen:
                pass

    async def caller(arrival=anyio.lowlevel.checkpoint):
        await arrival()
        while True:
            try:
                await breaker.call(probe)
            except CircuitOpen:
                await pause()
            else:
                return

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(victim)
        group.start_soon(caller)
        group.start_soon(victim)
        group.start_soon(caller, newcomer)
    assert breaker.state == "closed" and breaker.statistics().probes == 0
    assert anyio.current_time() - start <= 5, "long before a probe loses its place"
