"""Real processes that are killed while releases are held: what was named is undone, but for what is handed over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import tenure

CHILD = Path(__file__).with_name("release_child.py")
PATIENCE = 60  # seconds; never waited for when all is well
TASKS = 18

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_loop]


async def test_what_was_named_is_undone_whoever_is_killed(url, tmp_path, anyio_backend_name):
    log = tmp_path / "log"
    log.touch()
    workers = []

    def start():
        workers.append(subprocess.Popen([sys.executable, CHILD, anyio_backend_name, url, log]))

    def lines(*kinds):
        return [line for line in map(str.split, log.read_text().splitlines()) if line[0] in kinds]

    try:
        async with tenure.open_store(url) as store:
            jobs = tenure.WorkQueue(store, "jobs", max_deliveries=1000)
            undo = tenure.WorkQueue(store, "undo", max_deliveries=1000)
            ids = [await jobs.put(n) for n in range(TASKS)]
            start()
            with anyio.fail_after(PATIENCE):
                for kills in range(2):
                    while len(lines("x", "y", "gone")) < 8 * (kills + 1):
                        await anyio.sleep(0.005)
                    workers[-1].kill()
                    start()
                await jobs.join()
                await undo.join()
            ended = await jobs.statistics()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert (ended.done, ended.dead) == (TASKS * 2 // 3, TASKS // 3)
    fails = set(map(str, ids[::3]))
    named = {thing for _, _, thing in lines("x")} | {
        thing for _, owner, thing in lines("y") if owner in fails
    }
    gone = lines("gone")
    assert {thing for _, _, thing, _ in gone} == named
    assert {state for *_, state in gone} == {"ending"}
