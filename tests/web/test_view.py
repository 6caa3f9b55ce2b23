"""What is seen of a store: everything that is there, of all processes, and nothing of other namespaces."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import anyio
import pytest

import tenure
from tenure.engine import Acquire, Holder
from tenure.engines.memory import MemoryEngine
from tenure.errors import StoreUnavailable
from tenure.processor import Context, Processor
from tenure.web import _watch
from tenure.web._document import document
from tenure.web._flows import Flow, Flows
from tenure.web._processors import processor
from tenure.web._view import _deadlocks, find_deadlocks, names, read_view
from tenure.web._watch import StoreWatch


class Stage:
    """Stores of several processes over one engine, and tasks that use them until the test is over."""

    def __init__(self, group, stack):
        self.engine = MemoryEngine()
        self._group, self._stack = group, stack
        self.scopes = []

    async def store(self, **options):
        return await self._stack.enter_async_context(tenure.open_store(self.engine, **options))

    def start(self, function, *args):
        scope = anyio.CancelScope()
        self.scopes.append(scope)

        async def run():
            with scope:
                await function(*args)

        self._group.start_soon(run)
        return scope

    def hold(self, context):
        async def run():
            async with context:
                await anyio.sleep_forever()

        self.start(run)


@pytest.fixture
async def stage(virtual_clock):
    async with anyio.create_task_group() as group, contextlib.AsyncExitStack() as stack:
        stage = Stage(group, stack)
        yield stage
        for scope in stage.scopes:
            scope.cancel()
        await virtual_clock.settle()


async def test_an_empty_store(stage):
    view = await read_view((await stage.store())._handle)
    assert (view.queues, view.keys, view.pools, view.processes, view.deadlocks) == ({}, (), (), (), ())
    assert view.more == frozenset()


async def test_everything_of_all_processes_is_seen(stage, virtual_clock):
    one, other, eye = await stage.store(), await stage.store(), await stage.store()
    queue = tenure.WorkQueue(one, "mail:in")
    for _ in range(3):
        await queue.put("secret")
    pool = tenure.ResourcePool(one, "keys")
    await pool.add("secret-1", {"password": "secret"})
    await pool.add("secret-2")
    stage.hold(queue.take())
    stage.hold(tenure.WorkQueue(other, "idle").take())
    stage.hold(tenure.Lock(one, "report"))
    await virtual_clock.settle()
    stage.hold(tenure.Lock(other, "report"))
    stage.hold(tenure.Semaphore(other, "seats", 4).hold(permits=3))
    stage.hold(pool.claim())
    await virtual_clock.settle()
    view = await read_view(eye._handle)
    assert {name: (c.waiting, c.leased) for name, c in view.queues.items()} == {"mail:in": (2, 1)}
    report, seats = sorted(view.keys, key=lambda key: key.kind)
    assert (report.kind, report.name, report.capacity, report.used) == ("lock", "report", 1, 1)
    assert [h.process for h in report.holders] == [one.process]
    assert [h.process for h in report.waiting] == [other.process]
    assert (seats.kind, seats.name, seats.capacity, seats.used) == ("semaphore", "seats", 4, 3)
    (keys,) = view.pools
    assert (keys.name, keys.count("free"), keys.count("claimed"), keys.page.waiting) == ("keys", 1, 1, 0)
    seen = {p.process: (p.tasks, p.idle, p.holds, p.claims, p.waits) for p in view.processes}
    assert seen == {
        one.process: ({"mail:in": 1}, set(), 1, 1, 0),
        other.process: ({}, {"idle"}, 1, 0, 1),
    }
    text = json.dumps(document(eye.url, eye.namespace, view, Flows().add(view)))
    assert "secret" not in text


async def test_who_has_met_at_a_barrier_holds_nothing(stage):
    store = (await stage.store())._handle
    session, key = (await store.session(30.0)).id, store.key("barrier", "start")
    for party in "abc":
        await store.call(Acquire(session, key, party, 2, 0))
    assert await names(store, "holds") == [key]
    assert (await read_view(store)).keys == ()


async def test_other_namespaces_are_not_seen(stage, virtual_clock):
    one, eye = await stage.store(), await stage.store(namespace="other")
    await tenure.WorkQueue(one, "mail").put(1)
    stage.hold(tenure.Lock(one, "report"))
    await virtual_clock.settle()
    view = await read_view(eye._handle)
    assert (view.queues, view.keys, view.processes) == ({}, (), ())
    assert (await read_view((await stage.store())._handle)).keys


async def test_more_than_is_looked_at_is_reported(stage, virtual_clock):
    one = await stage.store()
    for i in range(5):
        stage.hold(tenure.Lock(one, f"{i}"))
    await virtual_clock.settle()
    view = await read_view(one._handle, limit=3)
    assert (len(view.keys), view.more) == (3, frozenset({"holds"}))
    assert len(await names(one._handle, "holds")) == 5


async def nested(store, first, second, meet):
    async with tenure.Lock(store, first):
        await meet()
        async with tenure.Lock(store, second):
            pass


async def test_a_deadlock_between_processes_is_seen_until_it_is_broken(stage, virtual_clock):
    one, other, eye = await stage.store(), await stage.store(), await stage.store()

    async def meet():
        await anyio.sleep(1)

    stage.start(nested, one, "A", "B", meet)
    scope = stage.start(nested, other, "B", "A", meet)
    await virtual_clock.advance(0.5)
    assert (await read_view(eye._handle)).deadlocks == ()
    await virtual_clock.advance(3)
    (found,) = (await read_view(eye._handle)).deadlocks
    assert found.certain
    assert {(w.process, w.key, *w.holds) for w in found.waits} == {
        (one.process, "lock B", "lock A"),
        (other.process, "lock A", "lock B"),
    }
    scope.cancel()
    await virtual_clock.advance(3)
    assert (await read_view(eye._handle)).deadlocks == ()


async def test_what_was_never_there_at_one_moment_is_no_deadlock(stage, virtual_clock):
    """Two keys, looked at in different moments, seem to be a circle."""
    one, other, eye = await stage.store(), await stage.store(), await stage.store()
    go_on = anyio.Event()

    async def first():
        async with tenure.Lock(one, "A"):
            await go_on.wait()

    async def second():
        async with tenure.Lock(other, "B"), tenure.Lock(other, "A"):
            await anyio.sleep_forever()

    stage.start(first)
    stage.start(second)
    await virtual_clock.settle()
    early = {key.name: key for key in (await read_view(eye._handle)).keys}
    go_on.set()
    await virtual_clock.settle()
    # the same task as before would now wait for B; so that both looks are of the same two tasks, say so
    holder = early["A"].holders[0]
    torn = (early["A"], replace(early["B"], waiting=(replace(holder, token=0),)))
    assert _deadlocks(torn)
    assert await find_deadlocks(eye._handle, torn) == ()


async def test_processors_publish_their_metrics_to_all_processes(stage, virtual_clock):
    eye = await stage.store()

    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep(task.payload)

    async def run():
        async with tenure.open_store(stage.engine) as store:
            async with Processor(store, "harvest", handler, workers=3) as processor:
                for _ in range(10):
                    await processor.submit(0.5)
                await anyio.sleep_forever()

    for _ in range(2):
        stage.start(run)
    await virtual_clock.advance(10)
    view = await read_view(eye._handle)
    (seen,) = view.processors
    assert (seen.name, seen.processes, seen.workers, seen.busy) == ("harvest", 2, 6, 0)
    assert seen.throughput > 0
    assert seen.latency.running.count == 20
    assert seen.latency.running.p50 == pytest.approx(0.5, rel=0.02)
    assert view.keys == ()
    assert [process.holds for process in view.processes] == [0, 0], "as many as there are keys to be seen"
    (told,) = document(eye.url, eye.namespace, view, Flows().add(view))["processors"]
    assert told["running"]["p99"] == seen.latency.running.p99


def test_a_report_of_another_release_is_left_out():
    def member(value):
        return Holder("p", "h", 1, 1, value, 0.0)

    strange = [member(value) for value in (b"", b"[]", b"{}", b"\xff", b'{"workers": 1, "sketches": 3}')]
    assert processor("harvest", strange).processes == 0


# flows


async def test_rates_are_counted_and_times_follow_from_them(stage, virtual_clock):
    store = await stage.store()
    queue, flows = tenure.WorkQueue(store, "q"), Flows()
    await queue.put_many(range(100))
    assert flows.add(await read_view(store._handle)) == {"q": Flow()}
    for _ in range(20):
        await virtual_clock.advance(0.5)
        async with queue.take():
            pass
    flow = flows.add(await read_view(store._handle))["q"]
    assert flow.put == 0
    assert flow.ended == pytest.approx(2.0)
    assert flow.waits == pytest.approx((100 + 80) / 2 / 2.0)
    assert flow.runs == 0


async def test_only_the_last_seconds_count(stage, virtual_clock):
    store = await stage.store()
    queue, flows = tenure.WorkQueue(store, "q"), Flows()
    await queue.put_many(range(100))
    for _ in range(40):
        flows.add(await read_view(store._handle))
        await virtual_clock.advance(1)
    flow = flows.add(await read_view(store._handle))["q"]
    assert flow == Flow(0.0, 0.0, None, None)
    assert len(flows._samples["q"]) < 15


# the watch


async def test_many_that_ask_at_once_are_answered_by_one_look(stage, virtual_clock, monkeypatch):
    looks = []

    async def counted(*args):
        looks.append(1)
        return await read_view(*args)

    monkeypatch.setattr(_watch, "read_view", counted)
    watch = StoreWatch((await stage.store())._handle)
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(watch.state)
    assert len(looks) == 1
    await virtual_clock.advance(1)
    assert (await watch.state())["queues"] == []
    assert len(looks) == 2


async def test_an_engine_that_does_not_answer_is_reported(stage, virtual_clock, monkeypatch):
    async def stalls(*args):
        await anyio.sleep_forever()

    monkeypatch.setattr(_watch, "read_view", stalls)
    with pytest.raises(StoreUnavailable, match="no answer within 5 s"):
        await StoreWatch((await stage.store())._handle).state()
