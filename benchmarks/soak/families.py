"""Kills and freezes workers of trees of tasks, cancels trees, and judges that each ended from below.

    python -m benchmarks.soak families --store redis --kills 200      # or sqlite, postgres

Each tree has three levels and 17 tasks. One tree in five has a task that always fails, one in five is cancelled. In the
end each root has one end, the result of a root that is done names its whole tree, and no task is left.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import anyio

import tenure
from benchmarks.soak import command, evidence
from benchmarks.soak.families_client import WIDTHS
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.plain import judged
from benchmarks.soak.referees import History, RefereeError, structured

LOOPS = ("asyncio", "trio", "uvloop")
TTL = 2.0
AT_ONCE = 12
SIZE = 1 + WIDTHS[0] + WIDTHS[0] * WIDTHS[1]


class FamilyFleet(Fleet):
    """As `Fleet`, of `families_client.py`."""

    client = Path(__file__).with_name("families_client.py")


class Trees:
    """Puts trees, cancels some, and notes how each ended."""

    def __init__(self, queue: tenure.WorkQueue, history: History, chance: random.Random) -> None:
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.over = False
        self._queue = queue
        self._history = history
        self._chance = chance
        self._number = 0

    async def grow(self) -> None:
        """Put one tree after the other."""
        while not self.over and not self.wrong:
            self._number += 1
            name, draw = f"t{self._number}", self._chance.random()
            below = f"{name}/{self._chance.randrange(WIDTHS[0])}"
            fails = [self._chance.choice([name, below, f"{below}/0"])] if draw < 0.2 else []
            root = await self._queue.put({"name": name, "fails": fails})
            async with anyio.create_task_group() as group:
                if 0.2 <= draw < 0.4:
                    group.start_soon(self._cancel, root)
                await self._watch(root, name)
                group.cancel_scope.cancel()

    async def _cancel(self, root: int) -> None:
        await anyio.sleep(self._chance.uniform(0, 0.5))
        await self._queue.cancel(root)

    async def _watch(self, root: int, name: str) -> None:
        state = "done"
        try:
            result = await self._queue.result(root)
            if len(set(result)) != SIZE:
                self.wrong.append(f"{name}: {len(set(result))} of {SIZE} results")
        except tenure.TaskFailed as failed:
            state = failed.state
        except tenure.TaskCancelled:
            state = "cancelled"
        self._history.ended(str(root), state)
        self.ends[state] += 1


async def soak(url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    chance = random.Random(options.seed)
    path = folder / "history"
    fleet, loops, began, frozen = FamilyFleet(folder), cycle(LOOPS), time.monotonic(), set[str]()
    job = {"url": url, "ttl": TTL, "history": str(path)}
    async with tenure.open_store(url, ttl=5) as store:
        queue = tenure.WorkQueue(store, "trees")
        trees = Trees(queue, History(path, by="soak"), chance)
        for _ in LOOPS:
            fleet.start(**job, loop=next(loops))
        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(trees.grow)
            for number in range(options.kills):
                await anyio.sleep(chance.uniform(0.05, 0.6))
                victim = chance.choice(sorted(fleet.running))
                if number % 4 == 3:
                    frozen.add(str(victim))
                    fleet.signal(victim, signal.SIGSTOP)
                    await anyio.sleep(chance.uniform(0, 1.5 * TTL))
                    fleet.signal(victim, signal.SIGCONT)
                fleet.kill(victim)
                fleet.start(**job, loop=next(loops))
                if trees.wrong:
                    break
            trees.over = True
        audit = await queue.verify()
        wrong = [*trees.wrong, *audit.problems]
        if audit.statistics.unfinished:
            wrong.append(f"tasks are left: {audit.statistics}")
    fleet.close()
    wrong += judged(options.histories, "families", History(path), excused=frozen)
    try:
        families = structured(History(path), paused=frozen, whole=False)
    except RefereeError as error:
        wrong.append(str(error))
    else:
        print(
            f"{sum(trees.ends.values())} trees in {time.monotonic() - began:.0f} s ({dict(trees.ends)}), "
            f"{families.tries} tries of {families.tasks} tasks, {options.kills} kills, {len(frozen)} of them frozen"
        )
    if options.record:
        evidence.put_on_record(
            seed=options.seed, kills=options.kills, tasks=sum(trees.ends.values()), violations=len(wrong)
        )
    return wrong


def main(arguments: list[str]) -> int:
    return command.run("families", __doc__, soak, arguments, kills=200)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
