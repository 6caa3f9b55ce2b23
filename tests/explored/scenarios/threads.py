"""Blocking functions in bounded threads. The threads are real: schedules are repeated only as far as they allow."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial

import anyio
import anyio.lowlevel
from anyio import from_thread
from explored.catalogue import scenario

from tenure import BulkheadFull
from tenure.local import Threads
from tenure.testing import cancellable, newcomer


class Thread:
    """What runs in the threads: it blocks until it is let go, at the latest when the scenario ends.

    As a context manager it waits until all of them have ended.
    """

    def __init__(self, most):
        self.go = threading.Event()
        self.changed = threading.Condition()
        self.most = most
        self.inside = 0
        self.calls = []
        self.too_many = False

    def __call__(self, name):
        with self._counted(name):
            assert self.go.wait(5)
        return name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go.set()
        with self.changed:
            assert self.changed.wait_for(lambda: not self.inside, 5)

    async def let_go(self):
        """Let it go, but not at once."""
        for _ in range(4):
            await anyio.lowlevel.checkpoint()
        self.go.set()

    @contextlib.contextmanager
    def _counted(self, name):
        with self.changed:
            self.calls.append(name)
            self.inside += 1
            self.too_many |= self.inside > self.most
        yield
        with self.changed:
            self.inside -= 1
            self.changed.notify_all()


async def all_slots_are_back(threads):
    """All of them can be taken at once, when those that were abandoned have ended."""
    for _ in range(1000):
        if not threads.statistics().abandoned:
            break
        time.sleep(0.001)  # for the threads' sake: virtual time does not end them
        await anyio.lowlevel.checkpoint()
    n = threads.statistics().max_workers
    everybody = threading.Barrier(n)
    try:
        async with anyio.create_task_group() as group:
            for _ in range(n):
                group.start_soon(threads.run, everybody.wait, 5)
    finally:
        everybody.abort()
    state = threads.statistics()
    assert (state.busy, state.abandoned, state.tasks_waiting) == (0, 0, 0), state


@scenario("local.Threads.run")
async def threads_run_in_turn():
    threads, work, results, order = Threads(1), Thread(1), [], []

    async def caller(name, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        order.append(name)
        results.append(await threads.run(work, name))

    async def victim(name):
        with cancellable():
            results.append(await threads.run(work, name))

    with work:
        async with anyio.create_task_group() as group:
            group.start_soon(caller, "a")
            group.start_soon(victim, "victim")
            group.start_soon(caller, "b")
            group.start_soon(caller, "c", newcomer)
            group.start_soon(work.let_go)
        assert [name for name in work.calls if name != "victim"] == order
        assert {"a", "b", "c"} <= set(results) <= set(work.calls) and len(work.calls) == len(set(work.calls))
        await all_slots_are_back(threads)
        assert not work.too_many


@scenario("local.Threads.run")
async def threads_refuse_when_too_many_wait():
    threads, work, refused, served = Threads(2, max_waiting=1), Thread(2), {}, []

    async def caller(name):
        try:
            served.append(await threads.run(work, name))
        except BulkheadFull as error:
            refused[name] = error.waiting

    async def victim(name):
        with cancellable():
            await caller(name)

    with work:
        async with anyio.create_task_group() as group:
            for name in "ab":
                group.start_soon(caller, name)
            group.start_soon(victim, "victim")
            group.start_soon(victim, "victim too")
            group.start_soon(caller, "c")
            group.start_soon(work.let_go)
        assert {"a", "b", "c"} <= {*served, *refused} and not refused.keys() & set(work.calls)
        assert set(refused.values()) <= {1}
        await all_slots_are_back(threads)
        assert not work.too_many


@scenario("local.Threads.run")
async def a_thread_that_is_abandoned_keeps_its_slot():
    threads, work, ends = Threads(1), Thread(1), []

    async def hasty():
        try:
            await threads.run(work, "hasty", timeout=1)
        except TimeoutError:
            ends.append("late")
        else:
            ends.append("done")

    async def victim():
        with cancellable():
            await threads.run(work, "victim")

    async def patient():
        await anyio.sleep(2)
        ends.append(await threads.run(work, "patient"))

    async def watcher():
        await anyio.sleep(10)
        state = threads.statistics()
        assert (state.busy, state.abandoned) in {(1, 1), (1, 0), (0, 0)} and work.inside <= state.busy
        work.go.set()

    with work:
        async with anyio.create_task_group() as group:
            group.start_soon(hasty)
            group.start_soon(victim)
            group.start_soon(patient)
            group.start_soon(watcher)
        assert sorted(ends) in (["done", "patient"], ["late", "patient"])
        await all_slots_are_back(threads)
        assert not work.too_many and len(work.calls) == len(set(work.calls))


@scenario("local.Threads.map")
async def threads_map_keeps_account_of_all_items():
    threads, work, finished, cancelled = Threads(2), Thread(2), [], []
    work.go.set()

    def fails_for_odd(n):
        if n % 2:
            raise KeyError(n)
        return work(n)

    async def mapper(items, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        finished.append(await threads.map(fails_for_odd, items))

    async def victim(items):
        with cancellable() as scope:
            await mapper(items)
        cancelled.append(scope.cancelled_caught)

    with work:
        async with anyio.create_task_group() as group:
            group.start_soon(mapper, [0, 1, 2])
            group.start_soon(victim, [10, 11, 12])
            group.start_soon(mapper, [20, 21], newcomer)
        assert len(finished) == 3 - sum(cancelled)
        for outcome in finished:
            assert not outcome.unfinished
            for item, value, error in outcome.done:
                assert (value, type(error)) == ((None, KeyError) if item % 2 else (item, type(None)))
        assert len(work.calls) == len(set(work.calls))
        await all_slots_are_back(threads)
        assert not work.too_many


@scenario("local.Threads.map")
async def threads_map_tells_what_did_not_end_in_time():
    threads, work, finished = Threads(2), Thread(2), []

    async def mapper(items):
        finished.append(await threads.map(work, items, timeout=1))

    async def victim(items):
        with cancellable():
            await mapper(items)

    async def releaser():
        await anyio.sleep(5)
        work.go.set()

    with work:
        async with anyio.create_task_group() as group:
            group.start_soon(mapper, ["a", "b", "c"])
            group.start_soon(victim, ["d", "e"])
            group.start_soon(releaser)
        for outcome in finished:
            items = [*(done.item for done in outcome.done), *outcome.unfinished]
            assert sorted(items) in (["a", "b", "c"], ["d", "e"])
        await all_slots_are_back(threads)
        assert not work.too_many and len(work.calls) == len(set(work.calls))


@scenario("local.Threads.run")
async def the_limit_of_a_call_begins_with_its_thread():
    threads, work, done, ended = Threads(1), Thread(1), [], []

    async def patient(name):
        try:
            done.append(await threads.run(work, name, timeout=50))
        finally:
            ended.append(name)

    async def victim():
        with cancellable():
            await patient("victim")

    async def watcher():
        await anyio.sleep(60)
        work.go.set()
        for _ in range(1000):
            if len(ended) == 3:
                break
            time.sleep(0.001)  # the loop is never idle, so that no virtual time passes
            await anyio.lowlevel.checkpoint()

    with work:
        async with anyio.create_task_group() as group:
            group.start_soon(threads.run, work, "long")
            group.start_soon(watcher)
            await anyio.sleep(1)
            for caller in (victim, partial(patient, "a"), partial(patient, "b")):
                group.start_soon(caller)
        assert {"a", "b"} <= set(done)
        await all_slots_are_back(threads)


@scenario("local.Threads.run", "local.Threads.map")
async def a_thread_that_would_wait_for_itself_is_refused():
    """At any depth, whoever else is cancelled."""
    threads, other, refused = Threads(1), Threads(1), []

    def again(call, *args):
        try:
            from_thread.run(call, *args)
        except RuntimeError as error:
            refused.append(error)
        return abs(-3)

    async def caller(call, *args):
        # what an abandoned thread has started on the loop would run on
        with anyio.CancelScope(shield=True):
            await threads.run(again, call, *args)

    async def victim():
        with cancellable():
            await threads.run(abs, -1)

    async with anyio.create_task_group() as group:
        group.start_soon(victim)
        group.start_soon(caller, threads.run, abs, -1)
        group.start_soon(caller, other.run, again, threads.run, abs, -1)
        group.start_soon(victim)
        group.start_soon(caller, threads.map, abs, [-1])
    assert len(refused) == 3 and all("inside one of its own threads" in str(error) for error in refused)
    await all_slots_are_back(threads)
    await all_slots_are_back(other)
