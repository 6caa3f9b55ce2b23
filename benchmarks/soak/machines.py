"""Kills and freezes the workers of tasks that own machines of a cloud, and judges that no machine is an orphan.

    python -m benchmarks.soak machines --store redis --machines 10000 --kills 200      # or sqlite, postgres
    python -m benchmarks.soak machines --store sentinel --failovers 4           # the primary is replaced meanwhile

Each task launches two machines, and names before each what destroys it. Tasks end in every way: done, after a retry,
dead, cancelled while they run or are suspended, past a deadline; some destroy a machine early, keep one, or hand both
over. In the end only kept and handed over machines are alive, nothing missed a machine that it worked with, and no task
is left.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import anyio

import tenure
from benchmarks.soak import command, evidence, sentinel
from benchmarks.soak.families import LOOPS, TTL
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.machines_client import Cloud
from benchmarks.soak.plain import judged
from benchmarks.soak.referees import History, RefereeError, structured

T = TypeVar("T")

AT_ONCE = 24
DOES = ("done", "retry", "dead", "cancel", "signal", "stuck", "late", "parts", "undo", "keep", "hand over")


class MachineFleet(Fleet):
    """As `Fleet`, of `machines_client.py`."""

    client = Path(__file__).with_name("machines_client.py")


class Owners:
    """Puts owners, ends some from outside, and notes how each ended."""

    def __init__(self, queue: tenure.WorkQueue, history: History, chance: random.Random) -> None:
        self.ends: Counter[str] = Counter()
        self.handed: set[str] = set()
        self.left = 0
        self._queue = queue
        self._history = history
        self._chance = chance

    async def own(self) -> None:
        """Put one owner after the other."""
        while self.left > 0:
            self.left -= 1
            does = self._chance.choice(DOES)
            deadline = self._chance.uniform(0, 0.1) if does == "late" else None
            key = tenure.Key(f"owner {self.left}", "keep", ttl=60)  # a put whose answer is lost is repeated
            task_id = await again(partial(self._queue.put, {"does": does}, deadline=deadline, key=key))
            if does == "signal":
                await again(partial(self._queue.signal, task_id, "go"))
            async with anyio.create_task_group() as group:
                if does in ("cancel", "stuck"):
                    group.start_soon(self._cancel, task_id, does)
                state = await self._end(task_id)
                group.cancel_scope.cancel()
            self._history.ended(str(task_id), state)
            self.ends[state] += 1

    async def _cancel(self, task_id: int, does: str) -> None:
        await anyio.sleep(self._chance.uniform(0, 0.1 if does == "cancel" else 0.3))
        await again(partial(self._queue.cancel, task_id))

    async def _end(self, task_id: int) -> str:
        try:
            self.handed.update(await self._queue.result(task_id))
        except tenure.TaskFailed as failed:
            return failed.state
        except tenure.TaskCancelled:
            return "cancelled"
        return "done"


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of a call that may be repeated, from a store that comes back."""
    while True:
        try:
            return await call()
        except (tenure.StoreUnavailable, tenure.OutcomeUnknown):
            await anyio.sleep(0.1)


async def soak(url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    chance = random.Random(options.seed)
    path, cloud = folder / "history", folder / "cloud"
    fleet, loops, began, frozen = MachineFleet(folder), cycle(LOOPS), time.monotonic(), set[str]()
    job = {"url": url, "ttl": TTL, "history": str(path), "cloud": str(cloud)}
    machines = Cloud(str(cloud))
    wrong: list[str] = []
    async with tenure.open_store(url, ttl=5, retry=30) as store:
        queue, undone = (tenure.WorkQueue(store, name) for name in ("owners", "undone"))
        owners = Owners(queue, History(path, by="soak"), chance)
        owners.left = options.machines // 2
        for _ in LOOPS:
            fleet.start(**job, loop=next(loops))
        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(owners.own)
            if options.store == "sentinel":
                group.start_soon(replace_primary, owners, options)
            kills = 0
            while owners.left > 0 or kills < options.kills:
                if kills >= options.kills * (1 - owners.left / (options.machines // 2)):
                    await anyio.sleep(0.05)
                    if owners.left > 0:
                        continue
                await anyio.sleep(chance.uniform(0, 0.2))
                victim = chance.choice(sorted(fleet.running))
                if kills % 4 == 3:
                    frozen.add(str(victim))
                    fleet.signal(victim, signal.SIGSTOP)
                    await anyio.sleep(chance.uniform(0, 1.5 * TTL))
                    fleet.signal(victim, signal.SIGCONT)
                    await anyio.sleep(chance.uniform(0, 0.1))
                fleet.kill(victim)
                fleet.start(**job, loop=next(loops))
                kills += 1
        for each in (queue, undone):
            audit = await again(each.verify)
            wrong += audit.problems
            if audit.statistics.unfinished:
                wrong.append(f"tasks of {each.name} are left: {audit.statistics}")
        letters = (await undone.statistics()).dead
    fleet.close()
    if letters:
        wrong.append(f"{letters} machines have a dead letter")
    orphans = machines.alive() - owners.handed
    wrong += [f"{name} is an orphan" for name in sorted(orphans)]
    wrong += [
        f"{name} was destroyed after it was handed over" for name in sorted(owners.handed - machines.alive())
    ]
    events = list(History(path))
    wrong += judged(options.histories, "machines", events, excused=frozen)
    wrong += [f"{event.subject} was destroyed under {event.by}" for event in events if event.kind == "missed"]
    try:
        structured(History(path), paused=frozen, whole=False)
    except RefereeError as error:
        wrong.append(str(error))
    print(
        f"{machines.launched()} machines in {time.monotonic() - began:.0f} s, {len(owners.handed)} handed over, "
        f"{len(orphans)} orphans; {sum(owners.ends.values())} owners ({dict(owners.ends)}), {kills} kills, "
        f"{len(frozen)} of them frozen"
    )
    if options.record:
        evidence.put_on_record(
            seed=options.seed, kills=kills, tasks=sum(owners.ends.values()), violations=len(wrong)
        )
    return wrong


async def replace_primary(owners: Owners, options: argparse.Namespace) -> None:
    """Kill the primary, or tell Sentinel to replace it, in equal parts of the run."""
    for number in range(options.failovers):
        while owners.left > options.machines // 2 * (1 - (number + 1) / (options.failovers + 1)):
            await anyio.sleep(0.05)
        act = sentinel.failover if number % 2 else sentinel.kill
        print(f"{act.__doc__}: {await act(options.watched)}", flush=True)


def main(arguments: list[str]) -> int:
    return command.run("machines", __doc__, soak, arguments, machines=10_000, kills=200, failovers=4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
