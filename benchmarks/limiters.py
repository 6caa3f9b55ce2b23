"""Rate limiters on Redis beside others', each in a process and an environment of its own.

Ours books ahead, first come first served, and waits in the process; pyrate-limiter waits itself, for `limits` the
caller does, and the way of openlimit asks again and again. "share" is how much of the rate 50 waiting tasks get after
the first second, "overshoot" the most permits within any second, to the rate; a limiter with a burst may admit that
much again after a pause, of which there is none here. What the unluckiest task got is a share of the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks._contests import compared, contest
from benchmarks._measure import Row, Size
from benchmarks._redis_server import server


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    hold = partial(contest, "limiters", place=server, size=size)
    rows = partial(compared, more_is_better=False)

    admit = hold("admit", {"ours": 15_000})
    yield from compared("Redis: admitted at once, 32 callers", admit, "calls")
    yield from rows("Redis: client CPU for a call", admit, "cpu", "us", scale=1e6)
    yield from rows("Redis: server CPU for a call", admit, "server_cpu", "us", scale=1e6, difference=True)
    yield from rows("Redis: round trips for a call", admit, "reads", "")

    wait = hold("wait", {"ours": 20}, once=True)
    yield from compared(
        "Redis: share of the rate", wait, "share", "share", {"": "0.99 to 1.01"}, more_is_better=True
    )
    yield from rows("Redis: most in any second", wait, "overshoot", "share")
    yield from compared("Redis: what the unluckiest task got", wait, "fair", "share", more_is_better=True)
    yield from rows("Redis: commands for a permit", wait, "commands", "")

    keep = hold("keep", {"ours": 2_000}, once=True)
    yield from rows("Redis: memory for a name", keep, "bytes", "B", difference=True)
