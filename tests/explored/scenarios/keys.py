"""Keys that several processes put with: one task a window, the last payload runs, and one id for what was put once."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from math import inf

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire, on_every_engine
from explored.scenarios.losses import AWAY
from explored.scenarios.queues import all_is_done
from explored.world import pause

from tenure import (
    AcquireTimeout,
    Item,
    Keep,
    Key,
    OutcomeUnknown,
    Retry,
    RetryLater,
    TaskCancelled,
    WorkQueue,
)
from tenure.engine import Put
from tenure.testing import cancellable, newcomer

DELAY = 0.2
LATE = 0.15
"""Seconds that a timer may be early or late."""


class Windows:
    """Notes the puts of one key and what was done of them, to judge both."""

    def __init__(self):
        self.puts = {}  # payload -> (when it began, when it had returned, id); what was not answered may be put
        self.done = []  # (when it was taken first, payload), in the order of the tokens
        self._taken = {}

    @contextmanager
    def putting(self, payload):
        self.puts[payload] = (anyio.current_time(), inf, None)
        ids = []
        yield ids
        self.puts[payload] = (self.puts[payload][0], anyio.current_time(), *ids)

    def taken(self, task):
        self._taken.setdefault(task.id, anyio.current_time())

    def ended(self, task):
        self.done.append((task.token, self._taken[task.id], task.payload))

    def judge(self, *, delay, max_wait=inf, patience=0.0):
        """Of each payload that was put, it or a later one is done; the last is that of no earlier put."""
        runs = [(when, payload) for _, when, payload in sorted(self.done)]
        for payload, (began, returned, _) in self.puts.items():
            if returned < inf:
                later = [p for _, p in runs if p == payload or self.puts[p][1] >= began]
                assert later, f"{payload} was put, and nothing later is done: {runs}"
        last = runs[-1][1]
        newer = [
            p
            for p, (began, returned, _) in self.puts.items()
            if self.puts[last][1] < began and returned < inf
        ]
        assert not newer, f"{last} is the last that was done, but {newer} were put after it"
        for (before, _), (after, payload) in pairwise(runs):
            assert after - before >= delay - LATE, (
                f"{payload} is done in the window of the one before it: {runs}"
            )
        firsts = {}
        for began, _, task_id in self.puts.values():
            if task_id is not None:
                firsts[task_id] = min(firsts.get(task_id, inf), began)
        for task_id, when in self._taken.items():
            waited = when - firsts.get(task_id, when)
            assert waited <= max_wait + LATE + patience, f"task {task_id} waited for {waited} s"


class Taker:
    """Does the tasks of a queue until none has come for a while."""

    def __init__(self, queue, windows, patience, end=None):
        self.queue, self.windows, self.patience, self.end = queue, windows, patience, end

    async def do_one(self, timeout=None):
        async with self.queue.take(timeout) as task:
            self.windows.taken(task)
            await pause()
            if self.end is not None:
                self.end(task)
            self.windows.ended(task)

    async def run(self):
        while True:
            try:
                await self.do_one(self.patience)
            except AcquireTimeout:
                return
            except TaskCancelled:
                pass


@on_every_engine("shared.WorkQueue.put", "shared.WorkQueue.take")
async def of_what_is_put_with_one_key_the_last_is_done_in_each_window(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, windows = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Windows()
        patience = world.patience + 1

        async def producer(queue, name, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            for n in range(4):
                with windows.putting(f"{name}{n}") as ids:
                    ids.append(
                        await queue.put(f"{name}{n}", key=Key("k", "replace", within=2 * DELAY), delay=DELAY)
                    )
                await pause()

        async def victim():
            with cancellable():
                await producer(queue, "victim")

        async def taken_from():
            with cancellable():
                await Taker(other, windows, patience).run()

        async with anyio.create_task_group() as group:
            group.start_soon(Taker(queue, windows, patience).run)
            group.start_soon(Taker(other, windows, patience).run)
            group.start_soon(producer, queue, "a")
            group.start_soon(producer, other, "b", newcomer)
            group.start_soon(victim)
            group.start_soon(taken_from)
        await Taker(queue, windows, 0).run()
        windows.judge(delay=DELAY, max_wait=2 * DELAY, patience=world.patience)
        await all_is_done(queue, store, elsewhere)


@on_every_engine("shared.WorkQueue.put", "shared.WorkQueue.take")
async def what_is_superseded_never_comes_after_its_successor(world):
    """Whatever becomes of its try."""
    async with world.open() as store, world.open() as elsewhere:
        retry = Retry(attempts=3, backoff=0.02, jitter=0)
        queue, other, windows = (
            WorkQueue(store, "q", retry=retry),
            WorkQueue(elsewhere, "q", retry=retry),
            Windows(),
        )
        tried = set()

        def end(task):
            if task.payload not in tried:
                tried.add(task.payload)
                raise RetryLater(0.02, counts=False)

        async def producer(queue, name):
            for n in range(3):
                with windows.putting(f"{name}{n}") as ids:
                    ids.append(await queue.put(f"{name}{n}", key=Key("k", "replace")))
                await pause()

        async def victim():
            with cancellable():
                await Taker(other, windows, world.patience + 1).run()

        async with anyio.create_task_group() as group:
            group.start_soon(Taker(queue, windows, world.patience + 1, end).run)
            group.start_soon(Taker(other, windows, world.patience + 1, end).run)
            group.start_soon(victim)
            group.start_soon(producer, queue, "a")
            group.start_soon(producer, other, "b")
        await Taker(queue, windows, 0).run()
        windows.judge(delay=0)
        await all_is_done(queue, store, elsewhere)


@on_every_engine(
    "shared.WorkQueue.put", "shared.WorkQueue.try_put", "shared.WorkQueue.put_many", "shared.WorkQueue.get"
)
async def what_is_put_once_has_one_id_whoever_puts_it(world):
    """Before the task, while it is worked on, and when it has ended."""
    async with world.open() as store, world.open() as elsewhere:
        queue, other = WorkQueue(store, "q", max_size=2), WorkQueue(elsewhere, "q", keep=Keep(keys=600))
        ids, windows = set(), Windows()

        async def producer(put, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            for _ in range(3):
                ids.add(await put())
                await pause()

        async def put():
            return await queue.put("x", key=Key("k", "keep", ttl=600))

        async def try_put():
            return await other.try_put("x", key=Key("k", "keep"))

        async def put_many():
            (one, same) = await other.put_many([Item("x", key="k"), Item("x", key="k")], on_duplicate="keep")
            assert one == same
            return one

        async def victim():
            with cancellable():
                await queue.put("x", key=Key("k", "keep", ttl=600))

        async with world.group() as group:
            group.start_soon(Taker(queue, windows, world.patience).run)
            group.start_soon(Taker(other, windows, world.patience).run)
            group.start_soon(producer, put)
            group.start_soon(producer, try_put, newcomer)
            group.start_soon(producer, put_many)
            group.start_soon(victim)
        assert len(ids) == 1, ids
        assert len(windows.done) == 1
        assert {(await other.get(key="k")).id} == ids
        await all_is_done(queue, store, elsewhere, put=1, done=1)


@on_every_engine("shared.WorkQueue.put")
async def a_full_queue_lets_those_pass_who_put_nothing_new(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = WorkQueue(store, "q", max_size=1), WorkQueue(elsewhere, "q", max_size=1)
        windows = Windows()
        first = await queue.put("first", key=Key("k", "replace"), delay=60)

        async def waiter():
            with cancellable():
                await queue.put("waits")

        async def producer(queue):
            for on_duplicate in ("keep", "replace"):
                assert await queue.put("last", key=Key("k", on_duplicate), delay=60) == first

        async with anyio.create_task_group() as group:
            group.start_soon(waiter)
            await anyio.sleep(1)
            async with anyio.create_task_group() as producers:
                producers.start_soon(producer, queue)
                producers.start_soon(producer, other)
            assert (await queue.get(first)).payload == "last"
            assert await other.cancel(first) or world.faults
            await Taker(other, windows, world.patience).run()
        await Taker(queue, windows, 0).run()
        await all_is_done(queue, store, elsewhere, cancelled=1)


@on_a_wire("shared.WorkQueue.put")
async def whoever_got_no_answer_gets_the_id_when_it_tries_again(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, unknown = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []
        await queue.put("before")

        async def put(queue):
            return await queue.put("x", key=Key("k", "keep", ttl=600))

        async def cut():
            with cancellable():
                try:
                    unknown.append(await put(queue))
                except OutcomeUnknown:
                    unknown.append(None)

        world.links[0].cut_after = (Put,)
        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            await anyio.sleep(AWAY)
            world.links[0].cut_after = ()
            world.links[0].resume()
            await Taker(other, Windows(), 1).run()
            ids = {await put(queue), await put(other)}
        assert len(ids) == 1
        await Taker(other, Windows(), 1).run()
        await all_is_done(queue, store, elsewhere, put=2, done=2)
