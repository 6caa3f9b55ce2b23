"""Real processes that run one schedule, killed and with clocks that are wrong: each tick is once on record."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import anyio
import depth
import pytest

import tenure
from tenure.engine import Count

CHILD = Path(__file__).with_name("schedule_child.py")
EVERY = 0.25
PATIENCE = 50  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_loop]


@pytest.fixture(params=("sqlite", "redis"))
def url(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_server").url
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def start(url, anyio_backend_name):
    """Starts a process that runs the schedule; it gives the function that kills it."""
    with contextlib.ExitStack() as stack:

        def run(skew):
            child = subprocess.Popen([sys.executable, CHILD, anyio_backend_name, url, str(skew)])
            stack.callback(child.wait)
            stack.callback(child.kill)
            return child

        yield run


async def test_each_tick_is_once_on_record_whoever_dies(url, start, anyio_backend_name):
    processes, kills = (8, 6) if depth.full else (3, 2)
    # a file has no clock but that of its host, which all processes share
    skews = [0] if url.startswith("sqlite") else [0, 300, -300, 86400]
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        children = [start(skews[n % len(skews)]) for n in range(processes)]
        with anyio.fail_after(PATIENCE):
            while (await queue.statistics()).put < 5:
                await anyio.sleep(0.05)
        for n in range(kills):
            victim = children.pop(random.randrange(len(children)))
            victim.kill()
            victim.wait()
            children.append(start(skews[(processes + n) % len(skews)]))
            await anyio.sleep(random.uniform(0, 2 * EVERY))
        enough = (await queue.statistics()).put + 10
        with anyio.fail_after(PATIENCE):
            while (await queue.statistics()).put < enough:
                await anyio.sleep(0.05)
        tasks = (await queue.tasks("waiting").page(limit=100_000)).records
        ticks = [datetime.fromisoformat(task.meta["scheduled_for"]).timestamp() for task in tasks]
        assert ticks == [ticks[0] + EVERY * n for n in range(len(ticks))]
        now = (await store._handle.call(Count(queue.key))).now
        assert 0 <= now - ticks[-1] < PATIENCE
