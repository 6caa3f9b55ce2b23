"""Locks that are handed on and tasks that are done in one process, while servers move and die; and who had to wait."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import NamedTuple

import anyio

import tenure
from benchmarks.soak.plain import judged
from benchmarks.soak.referees import History, RefereeError, conservation, mutual_exclusion, nothing_lost

PATIENCE = 120.0
TICK = 0.02


class Place(NamedTuple):
    """Names that lie together: those of a lock, a queue and a limiter."""

    lock: str
    queue: str
    limiter: str


class Load:
    """Works over `stores` on all `places`; one limiter in each place is asked all the time, and how long it takes kept.

    Each place and each store has a task that takes the lock, one that puts, and a worker; they rest for `pace` seconds
    at the mean. `note` is for the observer of the stores.
    """

    def __init__(self, places: list[Place], pace: float) -> None:
        self.history = History()
        self.places = places
        self.longest: Counter[Place] = Counter()
        self.late = 0.0
        self.lost: Counter[str] = Counter()
        self.did: Counter[str] = Counter()
        self._pace = pace
        self._asked: dict[Place, float] = {}
        self._items: dict[tuple[object, object], str] = {}
        self._numbers = count(1)
        self._stopping = False
        self._wrong: list[str] = []

    def notice(self, event, /, **fields) -> None:
        """Note which completions were accepted, and which leases were lost."""
        if event == "task.done":
            self.did["tasks"] += 1
            self.history.completed(fields["queue"], self._items[fields["queue"], fields["id"]])
        elif event.endswith(".lost"):
            self.lost[f"{event} {fields.get('reason', '')}".strip()] += 1

    def start(self, group, stores) -> None:
        group.start_soon(self._tick)
        for place in self.places:
            group.start_soon(
                self._ask, tenure.RateLimiter(stores[0], place.limiter, tenure.Limit(1e6)), place
            )
            for store in stores:
                queue = self.queue(store, place)
                group.start_soon(self._again, self._hold, tenure.Lock(store, place.lock))
                group.start_soon(self._again, self._put, queue)
                group.start_soon(self._work, queue)

    @staticmethod
    def queue(store, place) -> tenure.WorkQueue:
        return tenure.WorkQueue(store, place.queue, keep=tenure.Keep(results=None, payloads=True))

    async def waited(self) -> None:
        """Wait until every limiter has answered what it was asked up to now."""
        since = anyio.current_time()
        with anyio.fail_after(PATIENCE):
            while min(self._asked.values(), default=0) <= since or len(self._asked) < len(self.places):
                await anyio.sleep(TICK)

    def forget(self) -> None:
        """Begin to measure anew."""
        self.longest.clear()
        self.late = 0.0

    async def end(self, store, folder, name) -> list[str]:
        """Have all that was put done, keep the history in a folder, and tell what was against the rules."""
        self._stopping = True
        wrong = self._wrong
        for place in self.places:
            queue = self.queue(store, place)
            with anyio.fail_after(PATIENCE):
                await queue.join()
            async for record in queue.tasks("ended"):
                self.history.found(queue.name, record.payload, record.state)
            wrong += (await queue.verify()).problems
            wrong += _breaches(conservation, await queue.statistics(), self.history.about(queue.name))
        wrong += judged(folder, name, self.history)
        return [*wrong, *_breaches(mutual_exclusion, self.history), *_breaches(nothing_lost, self.history)]

    async def _again(self, act, thing) -> None:
        while not self._stopping:
            try:
                await act(thing)
            except (tenure.LeaseLost, tenure.EngineError, tenure.OutcomeUnknown) as error:
                self.lost[type(error).__name__] += 1
            await anyio.sleep(random.uniform(0, 2 * self._pace))

    async def _hold(self, lock) -> None:
        async with lock as lease:
            lease.check()
            with self.history.held(lock.name, token=lease.token, by=str(next(self._numbers))) as held:
                await anyio.sleep(0.002)
                lease.check()
                held.still()
            self.did["holds"] += 1

    async def _put(self, queue) -> None:
        item = str(next(self._numbers))
        with self.history.putting(queue.name, item):
            first = await self._put_once(queue, item)
        # as one does that got no answer: perhaps another server answers now
        await anyio.sleep(random.uniform(0, 2 * self._pace))
        again = await self._put_once(queue, item)
        self.did["puts repeated"] += 1
        if again != first:
            self._wrong.append(f"{queue.name}: {item} was put as {first}, and again as {again}")

    async def _put_once(self, queue, item) -> int:
        return await queue.put(item, key=tenure.Key(item, "keep", ttl=3600.0))

    async def _work(self, queue) -> None:
        async def handle(task: tenure.Task) -> None:
            self._items[queue.name, task.id] = task.payload
            self.history.taken(queue.name, task.payload)
            await anyio.sleep(0.002)

        while True:
            with suppress(tenure.EngineError):
                await tenure.Worker(queue, handle, concurrency=2).run()

    async def _ask(self, limiter, place) -> None:
        while True:
            self._asked[place] = since = anyio.current_time()
            answered = False
            while not answered:
                try:
                    await limiter.acquire()
                    answered = True
                except (tenure.EngineError, tenure.OutcomeUnknown) as error:
                    self.lost[f"spending {type(error).__name__}"] += 1
            self.longest[place] = max(self.longest[place], anyio.current_time() - since)
            await anyio.sleep(TICK)

    async def _tick(self) -> None:
        """Measure for how long this process itself was busy or kept from running."""
        while True:
            since = anyio.current_time()
            await anyio.sleep(TICK)
            self.late = max(self.late, anyio.current_time() - since - TICK)


def _breaches(referee, *what) -> list[str]:
    try:
        referee(*what)
    except RefereeError as error:
        return [str(breach) for breach in error.breaches]
    return []


async def until(condition) -> None:
    """Wait for a server, while the load goes on."""
    with anyio.fail_after(PATIENCE):
        while not await anyio.to_thread.run_sync(condition):
            await anyio.sleep(TICK)
