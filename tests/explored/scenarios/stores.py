"""Opening, using and closing stores."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine, scenario
from explored.referees import Fair
from explored.scenarios.holds import TTL, Holder, nothing_is_held
from explored.world import at_rest, pause

from tenure import LeaseLost, Limit, Lock, RateLimiter, StoreClosed, WorkQueue
from tenure.engine import Ping, Reply
from tenure.testing import cancellable, newcomer
from tenure.upkeep import Upkeep, in_one_task, unwrapped_task_group


@on_every_engine(
    "store.Store.__asynccontextmanager__", "store.StoreHandle.close", "store.StoreHandle.run_timers"
)
async def a_store_ends_clean_whenever_it_is_cancelled(world):
    async with world.open() as witness:
        lock, fair = Lock(witness, "x"), Fair()

        async def victim():
            with cancellable():
                async with world.open(ttl=3, settle_timeout=0.5) as store:
                    holder = Holder(fair)
                    async with anyio.create_task_group() as group:
                        group.start_soon(holder.foreign, Lock(store, "x").hold)
                        group.start_soon(holder.foreign, Lock(store, "x").hold)
                    await WorkQueue(store, "q").put("a")

        async def other():
            await newcomer()
            await Holder(fair).foreign(lock.hold)

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(other)
        # what a store could not give back comes back at the end of its session
        async with lock.hold(timeout=5 + world.patience):
            pass
        queue = WorkQueue(witness, "q")
        assert await queue.verify()
        await nothing_is_held(lock, lock.hold, witness)


@on_every_engine("store.Store.__asynccontextmanager__", "store.Session.left")
async def closing_a_store_ends_all_that_is_done_with_it(world):
    """Whoever holds something is told and may clean up; whoever waits for something gets nothing."""
    async with world.open() as witness:
        await WorkQueue(witness, "full").put("a")
        task_id = await WorkQueue(witness, "one").put("a")
        await RateLimiter(witness, "rate", Limit(1, per=1000, burst=1)).acquire()
        ends = []

        async def tell(end, call):
            try:
                await call()
            except end as error:
                ends.append(type(error))

        async def entered(manager):
            async with manager:
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await pause()

        async def victim(store):
            with cancellable():
                await tell((LeaseLost, StoreClosed), lambda: entered(Lock(store, "x").hold()))

        async with anyio.create_task_group() as group:
            async with world.open(close_timeout=5) as store:
                await store._handle.session(TTL)
                queue, full = WorkQueue(store, "one"), WorkQueue(store, "full", max_size=1)
                for manager in (Lock(store, "x").hold(), Lock(store, "x").hold(), queue.take()):
                    group.start_soon(tell, (LeaseLost, StoreClosed), lambda manager=manager: entered(manager))
                waits = [
                    lambda: entered(WorkQueue(store, "none").take()),
                    lambda: full.put("b"),
                    lambda: queue.result(task_id),
                    queue.join,
                ]
                for wait in waits:
                    group.start_soon(tell, StoreClosed, wait)
                group.start_soon(victim, store)
                await anyio.sleep(world.patience / 2)
                await newcomer()
            await tell(StoreClosed, Lock(store, "x").hold().__aenter__)
            await tell(StoreClosed, store.ping)
        await anyio.lowlevel.checkpoint()
        assert ends.count(LeaseLost) <= 2 and len(ends) >= 9, ends
        # what the body did to the end is done; the task was given back
        assert await WorkQueue(witness, "one").verify()
        async with WorkQueue(witness, "one").take(world.patience) as task:
            assert task.payload == "a" and task.attempt == 1
        lock = Lock(witness, "x")
        await nothing_is_held(lock, lock.hold, witness)
        assert (await WorkQueue(witness, "full").statistics()).producers == 0


@on_every_engine(
    "store.Store.ping",
    "store.Store.statistics",
    "store.StoreHandle.call",
    "store.StoreHandle.session",
    "store.Session.opened",
    "store.Session.keep",
)
async def calls_of_a_store_go_their_way_when_one_is_cancelled(world):
    async with world.open() as store:
        served = []

        async def caller(arrival=anyio.lowlevel.checkpoint):
            await arrival()
            session = await store._handle.session(TTL)
            assert session.lost is None and 0 < session.remaining() <= TTL
            assert await store.ping() >= 0
            assert await store._handle.call(Ping()) is Reply.OK
            served.append(session)

        async def victim():
            with cancellable():
                await caller()
                await store.statistics()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(caller)
            group.start_soon(victim)
            group.start_soon(caller, newcomer)
        assert len(served) >= 2 and len(set(served)) == 1, "one session for all"
        state = await store.statistics()
        assert state.sessions == 1 and state.held == 0 and state.available and not state.closing
        await at_rest(store)


@scenario(
    "upkeep.Upkeep.open",
    "upkeep.BackgroundTask.end",
    "upkeep.in_one_task",
    "upkeep.unwrapped_task_group",
)
async def upkeep_jobs_end_when_they_are_told_to():
    begun, ended = [], []

    async def job(name, *, task_status=None):
        begun.append(name)
        try:
            await anyio.lowlevel.checkpoint()
            if task_status is not None:
                task_status.started()
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    async def ender(running, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await running.end()
        assert running.ended

    async def victim(running):
        with cancellable():
            await ender(running)

    async with in_one_task("scenario"), unwrapped_task_group() as group:
        upkeep = Upkeep(group)
        try:
            with cancellable():
                await upkeep.open("cancelled", job, "cancelled")
            opened = await upkeep.open("opened", job, "opened")
            started = upkeep.start("started", job, "started")
            async with anyio.create_task_group() as enders:
                for running in (opened, started):
                    enders.start_soon(victim, running)
                    enders.start_soon(ender, running)
                    enders.start_soon(ender, running, newcomer)
            assert "opened" in ended and set(upkeep.names) <= {"cancelled"}
        finally:
            upkeep.cancel()
    assert sorted(begun) == sorted(ended) and upkeep.names == ()
