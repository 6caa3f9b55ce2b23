"""Real processes that are killed within a step: the next process asks before it calls again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import tenure

CHILD = Path(__file__).with_name("find_child.py")
PATIENCE = 40  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_loop]


async def test_a_step_whose_process_was_killed_is_not_called_again(url, tmp_path, anyio_backend_name):
    log = tmp_path / "log"
    log.touch()
    workers = []

    def start():
        workers.append(subprocess.Popen([sys.executable, CHILD, anyio_backend_name, url, log]))

    try:
        async with tenure.open_store(url) as store:
            queue = tenure.WorkQueue(store, "jobs")
            task_id = await queue.put(1)
            start()
            with anyio.fail_after(PATIENCE):
                while not log.read_text():
                    await anyio.sleep(0.05)
            workers[0].kill()
            start()
            with anyio.fail_after(PATIENCE):
                assert await queue.result(task_id) == "found"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert log.read_text().split() == ["charge", "find"]
