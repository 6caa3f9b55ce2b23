"""Hints and answers that never come: nobody waits for long, and nobody is told what is not known."""

from __future__ import annotations

import anyio
from explored.catalogue import on_a_wire
from explored.scenarios.queues import all_is_done
from explored.world import at_rest

from tenure import LeaseLost, Limit, Lock, OutcomeUnknown, RateLimiter, WorkQueue
from tenure.engine import CloseSession, Exchange, Put, Settle, Spend, Verdict
from tenure.testing import cancellable

TTL = 30.0
HEARTBEAT = TTL / 3
LATE = 1.0
"""Seconds: schedules let timers come late."""


async def all_sorts_wait(store, elsewhere, *, trouble, mend, within):
    """Some of each kind wait in one store; `trouble` comes before what they wait for, and they get it all the same."""
    lock, queue = Lock(elsewhere, "x"), WorkQueue(elsewhere, "q")
    full = WorkQueue(elsewhere, "full", max_size=2)
    first = await queue.put("first")
    await full.put_many(["first"] * 2)
    served = set()

    async def holder():
        async with Lock(store, "x").hold():
            served.add("lock")

    async def taker():
        async with WorkQueue(store, "q").take() as task:
            served.add(task.payload)

    async def producer():
        await WorkQueue(store, "full", max_size=2).put("second")
        served.add("put")

    async def watcher():
        await WorkQueue(store, "q").result(first)
        served.add("result")

    async def victim(waiter):
        with cancellable():
            await waiter()

    async with anyio.create_task_group() as group:
        async with lock.hold(), queue.take():
            for waiter in (holder, taker, producer, watcher):
                group.start_soon(waiter)
            for waiter in (holder, producer, watcher):
                group.start_soon(victim, waiter)
            await anyio.sleep(1)
            await trouble()
        await queue.put("new")
        await full.purge("waiting")
        await anyio.sleep(1)
        mend()
        since = anyio.current_time()
    waited = anyio.current_time() - since
    assert served == {"lock", "new", "put", "result"} and waited <= within, f"{waited} s"
    await full.purge("waiting")
    await all_is_done(full, store, elsewhere)
    await all_is_done(queue, store, elsewhere, done=2)


@on_a_wire("shared.Lock.hold", "shared.WorkQueue.take", "shared.WorkQueue.put", "shared.WorkQueue.result")
async def who_missed_a_hint_asks_when_the_subscription_is_back(world):
    async with world.open() as store, world.open() as elsewhere:
        link = world.links[0]

        async def trouble():
            link.deaf = True

        await all_sorts_wait(store, elsewhere, trouble=trouble, mend=link.hear_again, within=LATE)


@on_a_wire("shared.Lock.hold", "shared.WorkQueue.take", "shared.WorkQueue.put", "shared.WorkQueue.result")
async def who_waits_in_a_lost_session_waits_in_the_next(world):
    async with world.open() as store, world.open() as elsewhere:
        session = await store._handle.session(TTL)

        async def trouble():
            await elsewhere._handle.call(CloseSession(session.id))

        def mend():
            """The heartbeat does."""

        await all_sorts_wait(store, elsewhere, trouble=trouble, mend=mend, within=HEARTBEAT + LATE)


@on_a_wire("shared.WorkQueue.take")
async def a_taker_that_missed_its_hint_asks_in_time(world):
    """Its alarm has been put off before."""
    async with world.open() as store, world.open() as elsewhere:
        link, queue, other, taken = world.links[0], WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []

        async def taker():
            for _ in range(3):
                async with queue.take() as task:
                    taken.append(task.payload)

        async def victim():
            with cancellable():
                await queue.join()

        async with anyio.create_task_group() as group:
            group.start_soon(taker)
            for name, after in (("a", 1), ("b", HEARTBEAT * 1.4), ("c", HEARTBEAT * 2)):
                await anyio.sleep(after)
                link.deaf = name == "c"
                await other.put(name)
            group.start_soon(victim)
            with anyio.move_on_after(TTL + LATE) as late:
                await other.join()
            assert not late.cancelled_caught
        assert taken == ["a", "b", "c"]
        await all_is_done(queue, store, elsewhere, done=3)


@on_a_wire("shared.WorkQueue.take", "shared.WorkQueue.put")
async def a_hint_that_overtakes_the_answer_counts(world):
    async with world.open() as store, world.open() as elsewhere:
        link, queue, other, served = world.links[0], WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), set()
        full = WorkQueue(elsewhere, "full", max_size=2)
        await store._handle.session(TTL)
        await full.put_many(["first"] * 2)

        async def taker():
            async with queue.take() as task:
                served.add(task.payload)

        async def producer():
            await WorkQueue(store, "full", max_size=2).put("second")
            served.add("put")

        async def victim(waiter):
            with cancellable():
                await waiter()

        async with world.group() as group:
            link.answers_after = 0.4
            for waiter in (taker, producer):
                group.start_soon(waiter)
                group.start_soon(victim, waiter)
            await anyio.sleep(0.2)
            await other.put_many(["a", "b"])
            await full.purge("waiting")
        link.answers_after = 0
        assert served & {"a", "b"} and "put" in served
        for one in (other, full):
            await one.purge("waiting")
            await all_is_done(one, store, elsewhere)


@on_a_wire("shared.WorkQueue.put")
async def a_put_of_unknown_outcome_is_not_said_again(world):
    async with world.open() as store, world.open() as elsewhere:
        link, queue, other, outcomes = world.links[0], WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []
        await store._handle.session(TTL)

        async def producer():
            try:
                outcomes.append(await queue.put("a"))
            except OutcomeUnknown:
                outcomes.append(None)

        async def victim():
            with cancellable():
                await producer()

        async with anyio.create_task_group() as group:
            link.cut_after = Put
            group.start_soon(victim)
            group.start_soon(producer)
            await anyio.sleep(TTL + HEARTBEAT)
            link.resume()
        assert outcomes
        waiting = (await other.tasks("waiting").page()).records
        assert len(waiting) <= 2 and {record.id for record in waiting} >= {*outcomes} - {None}
        await other.purge("waiting")
        await all_is_done(other, store, elsewhere)


@on_a_wire("shared.RateLimiter.acquire")
async def a_spending_of_unknown_outcome_is_not_said_again(world):
    async with world.open() as store, world.open() as elsewhere:
        link, unknown = world.links[0], []
        limiter = RateLimiter(store, "x", Limit(1, per=10_000, burst=10))
        other = RateLimiter(elsewhere, "x", Limit(1, per=10_000, burst=10))
        await store._handle.session(TTL)

        async def spender():
            try:
                await limiter.acquire(2)
            except OutcomeUnknown:
                unknown.append(2)

        async def victim():
            with cancellable():
                await spender()

        async with anyio.create_task_group() as group:
            link.cut_after = Spend
            group.start_soon(victim)
            group.start_soon(spender)
            await anyio.sleep(TTL + HEARTBEAT)
            link.resume()
        assert await other.try_acquire(6), "two have spent, at most"
        await at_rest(store, elsewhere)


@on_a_wire("shared.WorkQueue.take")
async def a_verdict_that_came_too_late_is_reported(world):
    """The engine has taken the task back, by whatever accident, and the session is alive."""
    async with world.open() as store, world.open() as elsewhere:
        queue, other, lost = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []
        session = await store._handle.session(TTL)
        await other.put("a")

        async def loser():
            try:
                async with queue.take() as task:
                    back = Settle(task.id, task.token, Verdict.GIVE_BACK)
                    await elsewhere._handle.call(Exchange(session.id, 1_000_000, queue.key, (back,)))
            except LeaseLost as error:
                lost.append(error.reason)

        with cancellable():
            await loser()
        await loser()
        assert set(lost) == {"refused"}
        await other.purge("waiting")
        await all_is_done(other, store, elsewhere)


@on_a_wire("shared.WorkQueue.take", "shared.Task.progress")
async def a_verdict_without_an_answer_is_no_success(world):
    async with world.open(settle_timeout=2) as store, world.open() as elsewhere:
        link, queue, other, lost = world.links[0], WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []
        await store._handle.session(TTL)
        await other.put("a")

        async def taker():
            try:
                async with queue.take() as task:
                    await task.progress(1)
                    link.pause(before_effect=True)
            except LeaseLost as error:
                lost.append(error.reason)

        with cancellable():
            await taker()
        link.resume()
        assert set(lost) <= {"unacknowledged"}
        await other.put("b")
        lost.clear()
        await taker()
        assert lost == ["unacknowledged"]
        link.resume()
        await other.purge("waiting")
        await all_is_done(other, store, elsewhere)
