"""Real workers that tasks kill with `os._exit`, and that are started again: only the tasks that do it are dead."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import tenure

CHILD = Path(__file__).with_name("suspects_child.py")
PATIENCE = 100  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_loop]


class Fleet:
    """So many workers, each of which is started again when it has died."""

    def __init__(self, number, *words):
        self.words = [sys.executable, CHILD, *words]
        self.children = [self.start() for _ in range(number)]
        self.deaths = 0

    def start(self):
        return subprocess.Popen(self.words, stderr=subprocess.DEVNULL)

    def kill(self, n):
        self.children[n].kill()
        self.children[n].wait()  # so that its successor has all the time until it is killed

    def renew(self):
        for n, child in enumerate(self.children):
            if child.poll() is not None:
                self.deaths += 1
                self.children[n] = self.start()

    def end(self):
        for child in self.children:
            child.kill()
            child.wait()


@contextlib.asynccontextmanager
async def fleet(number, url, kind, loop, payloads):
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        await queue.put_many(payloads)
        workers = Fleet(number, loop, url, kind)
        try:
            yield queue, workers
        finally:
            workers.end()


async def all_ended(queue, workers, *, every=0.1, then=lambda: None):
    with anyio.fail_after(PATIENCE):
        while (await queue.statistics()).unfinished:
            await anyio.sleep(every)
            then()
            workers.renew()


@pytest.mark.parametrize(
    ("kind", "processes", "poison", "innocent"),
    [
        pytest.param("async", 1, (0,), 5, marks=pytest.mark.full),
        ("thread", 2, (3,), 5),
        ("batch", 1, (5,), 5),
        ("async", 2, (0, 9), 20),
    ],
)
async def test_a_task_that_kills_its_worker_is_dead_and_nobody_else(
    url, anyio_backend_name, kind, processes, poison, innocent
):
    payloads = [f"innocent {n}" for n in range(innocent)]
    for n in poison:
        payloads.insert(n, f"poison {n}")
    async with fleet(processes, url, kind, anyio_backend_name, payloads) as (queue, workers):
        await all_ended(queue, workers)
        letters = {letter.payload: letter.error for letter in (await queue.tasks("dead").page()).records}
        assert sorted(letters) == sorted(f"poison {n}" for n in poison)
        assert all("while the task ran alone" in error for error in letters.values())
        assert (await queue.statistics()).done == innocent
        assert workers.deaths <= len(poison) * (5 + len(payloads).bit_length())


async def test_a_handler_in_a_process_of_its_own_harms_no_worker(url, anyio_backend_name):
    async with fleet(1, url, "process", anyio_backend_name, ["poison", *map(str, range(5))]) as (
        queue,
        workers,
    ):
        await all_ended(queue, workers)
        (letter,) = (await queue.tasks("dead").page()).records
        assert (letter.payload, letter.attempts, workers.deaths) == ("poison", 3, 0)


async def test_workers_that_are_killed_bury_nobody(url, anyio_backend_name):
    async with fleet(2, url, "async", anyio_backend_name, [str(n) for n in range(100)]) as (queue, workers):
        rounds = iter(range(1000))
        await all_ended(queue, workers, every=2.0, then=lambda: workers.kill(next(rounds) % 2))
        assert not (await queue.tasks("dead").page()).records
        assert (await queue.statistics()).done == 100
        assert workers.deaths
