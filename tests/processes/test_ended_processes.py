"""Real processes that are killed while a task passes its children: each delivery is given the same order of ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import tenure

CHILD = Path(__file__).with_name("ended_child.py")
CHILDREN = 12  # as there
PATIENCE = 60  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_loop]


async def test_each_delivery_passes_the_children_in_one_order(url, tmp_path, anyio_backend_name):
    log = tmp_path / "log"
    log.touch()
    workers = []

    def start():
        workers.append(subprocess.Popen([sys.executable, CHILD, anyio_backend_name, url, log]))

    def deliveries():
        given = {}
        for line in log.read_text().splitlines():
            if line != "step":
                token, child = map(int, line.split())
                given.setdefault(token, []).append(child)
        return given

    try:
        async with tenure.open_store(url) as store:
            queue = tenure.WorkQueue(store, "jobs", max_deliveries=1000)
            task_id = await queue.put(-1)
            start()
            for kills in range(2):
                with anyio.fail_after(PATIENCE):
                    while max(map(len, deliveries().values()), default=0) < 3 * (kills + 1):
                        await anyio.sleep(0.005)
                workers[-1].kill()
                start()
            with anyio.fail_after(PATIENCE):
                total = await queue.result(task_id)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert total == sum(range(CHILDREN))
    given = deliveries()
    order = given[max(given)]
    assert sorted(order) == list(range(CHILDREN))
    for earlier in given.values():
        assert earlier == order[: len(earlier)]
    steps = log.read_text().splitlines().count("step")
    assert (
        CHILDREN - 2 <= steps <= CHILDREN
    )  # a step that was begun as its process was killed is not called again
