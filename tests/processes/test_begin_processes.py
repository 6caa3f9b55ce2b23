"""Real processes that are kept from running: nothing begins under a lease that another process has by then."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import depth
import pytest

import tenure

CHILD = Path(__file__).with_name("begin_child.py")
PATIENCE = 40  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_loop]


@pytest.mark.parametrize("how", ["c", *(["sleep", "spin", "stop", "c-thread"] if depth.full else [])])
async def test_nothing_begins_behind_a_block(url, how, tmp_path, anyio_backend_name):
    log = tmp_path / "log"
    log.touch()

    def start(how):
        return subprocess.Popen([sys.executable, CHILD, anyio_backend_name, url, log, how])

    def begins():
        return [tuple(map(int, line.split())) for line in log.read_text().splitlines() if line != "over"]

    async def until(condition):
        with anyio.fail_after(PATIENCE):
            while not condition():
                await anyio.sleep(0.05)

    first = second = None
    try:
        async with tenure.open_store(url) as store:
            queue = tenure.WorkQueue(store, "jobs", retry=tenure.Retry(attempts=1))
            first = start(how)
            with anyio.fail_after(PATIENCE):
                while not (await queue.workers().page()).records:
                    await anyio.sleep(0.05)
            await queue.put_many(range(4))
            await until(begins)
            second = start("not")
            if how == "stop":
                first.send_signal(signal.SIGSTOP)
                await until(lambda: {begin[3] for begin in begins()} == {first.pid, second.pid})
                first.send_signal(signal.SIGCONT)
            await until(lambda: "over\n" in log.read_text())
            with anyio.fail_after(PATIENCE):
                await queue.join()
    finally:
        for child in filter(None, (first, second)):
            child.kill()
            child.wait()
    newest = {}
    for task_id, token, attempt, _ in begins():
        assert attempt == 1
        assert newest.get(task_id, 0) < token, "another process had begun the task under a newer token"
        newest[task_id] = token
