"""A process that launches machines for its tasks, until it is killed. Started as `client.py` is."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

import tenure
from benchmarks.soak import client
from benchmarks.soak.referees import History


class Cloud:
    """A cloud in a file. It refuses to launch a machine of a name that was destroyed, launched or not."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("CREATE TABLE IF NOT EXISTS machine (name TEXT PRIMARY KEY, alive INTEGER)")

    def launch(self, name: str) -> str:
        """Launch a machine, or find it. Raises `tenure.Dead` for the name of a machine that was destroyed."""
        self._db.execute("INSERT INTO machine VALUES (?, 1) ON CONFLICT DO NOTHING", (name,))
        if not self.is_alive(name):
            raise tenure.Dead(f"{name} was destroyed")
        return name

    def destroy(self, name: str) -> None:
        self._db.execute("INSERT INTO machine VALUES (?, 0) ON CONFLICT DO UPDATE SET alive = 0", (name,))

    def is_alive(self, name: str) -> bool:
        return bool(self._db.execute("SELECT alive FROM machine WHERE name = ?", (name,)).fetchone()[0])

    def alive(self) -> set[str]:
        return {name for (name,) in self._db.execute("SELECT name FROM machine WHERE alive")}

    def launched(self) -> int:
        return self._db.execute("SELECT count(*) FROM machine").fetchone()[0]


class Owners:
    """Handlers of the owners of machines, and of what destroys them. A payload says what an owner does with its own."""

    def __init__(self, job: dict[str, Any], store: tenure.Store) -> None:
        self.cloud = Cloud(job["cloud"])
        self.history = History(job["history"], by=str(os.getpid()))
        retry = tenure.Retry(attempts=3, backoff=0.05, jitter=0)
        self.queue = tenure.WorkQueue[Any](store, "owners", retry=retry, max_deliveries=100)
        self.undone = tenure.WorkQueue[Any](
            store, "undone", retry=tenure.Retry(attempts=1000, backoff=0.01, jitter=0), max_deliveries=100
        )

    async def own(self, task: tenure.Task[dict[str, str]]) -> list[str]:
        does = task.payload["does"]
        if does == "part":
            with self.history.trying(str(task.id), parent=task.payload["parent"]):
                await self._use(task, [task.payload["machine"]])
            return []
        with self.history.trying(str(task.id)):
            names = [await self._machine(task, name, does) for name in ("first", "second")]
            await self._use(task, names)
            if does == "parts":
                async with task.children() as children:
                    part = {"does": "part", "parent": str(task.id), "machine": names[0]}
                    await children.put_many(part | {"n": n} for n in "ab")
            if does in ("signal", "stuck"):
                await task.wait_for("go")
            if does == "undo":
                await task.undo("second")
            if does in ("dead", "retry") and (does == "dead" or task.attempt == 1):
                raise ValueError(does)
            if does == "keep":
                assert await task.keep("second")
                return names[1:]
            return names if does == "hand over" else []

    async def _machine(self, task: tenure.Task[Any], name: str, does: str) -> str:
        early = (does, name) == ("undo", "second")
        payload = {"owner": str(task.id), "early": early}
        release = await task.at_end(name, self.undone, payload, unless_done=does == "hand over")
        # what one begins early, keeps or hands over need not begin before its owner has ended
        if does != "hand over" and not early and (does, name) != ("keep", "second"):
            self.history.named(release.thing, parent=str(task.id))
        return await task.step(name, partial(self.cloud.launch, release.thing))

    async def _use(self, task: tenure.Task[Any], names: Iterable[str]) -> None:
        for _ in range(3):
            await anyio.sleep(random.uniform(0, 0.004))
            for name in names:
                # a machine that was undone by its own task is passed again, before that is known
                if not self.cloud.is_alive(name) and task.payload["does"] != "undo":
                    task.check()  # who has lost the lease may find nothing
                    self.history.note("missed", name, by=str(os.getpid()))

    async def undo(self, task: tenure.Task[dict[str, Any]]) -> None:
        assert task.thing is not None
        with self.history.trying(task.thing, parent=task.payload["owner"], undoes=not task.payload["early"]):
            if random.random() < 0.1:
                raise OSError("the cloud is busy")
            self.cloud.destroy(task.thing)


async def run(job: dict[str, Any]) -> None:
    async with tenure.open_store(job["url"], ttl=job["ttl"], retry=30) as store:
        owners = Owners(job, store)
        async with anyio.create_task_group() as group:
            group.start_soon(tenure.Worker(owners.queue, owners.own, concurrency=8).run)
            group.start_soon(tenure.Worker(owners.undone, owners.undo, concurrency=8).run)


if __name__ == "__main__":
    client.work = client.on_its_loop(run)
    client.main()
