"""Groups of tasks: limits, order, shares, full groups, cursors that are compared, and claimers that take turns."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire, on_every_engine
from explored.scenarios.claims import Lent, all_is_free
from explored.scenarios.losses import AWAY
from explored.scenarios.queues import Consumer, all_is_done
from explored.world import SOON, pause

import tenure
from benchmarks.soak.referees import History, capacity, fair, in_order, rate
from tenure import AcquireTimeout, Item, LeaseLost, Limit, ResourcePool, Retry, RetryLater, WorkQueue
from tenure.engine import CloseSession, Configure
from tenure.errors import CursorConflict
from tenure.testing import cancellable, newcomer


class Groups:
    """Notes what is put into each group of a queue, and what is taken from it and held."""

    def __init__(self):
        self.history = History(clock=anyio.current_time)
        self.done = []

    async def put(self, queue, group, *names, **options):
        for name in names:
            with self.history.putting(group, name):
                await queue.put(name, group=group, **options)

    async def put_many(self, queue, group, *names):
        """Put them in one step."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self.history.putting(group, name))
            await queue.put_many(Item(name, group=group or None) for name in names)

    async def do_one(self, queue, timeout=None, end=None):
        """Take a task, work on it, and end it as `end(task)` does."""
        async with queue.take(timeout) as task:
            with self.history.held(task.group or "", token=task.token):
                self.history.taken(task.group or "", task.payload)
                await pause()
                if end is not None:
                    end(task)
            self.done.append(task.payload)

    async def do_the_rest(self, queue, patience, end=None):
        try:
            while True:
                with suppress(KeyError):
                    await self.do_one(queue, patience, end)
        except AcquireTimeout:
            pass


def fails_once(names, later=()):
    """Ends the first try of these tasks: by an error, or to be tried `later`."""
    tried = set()

    def end(task):
        first = task.payload not in tried
        tried.add(task.payload)
        if first and task.payload in names:
            raise KeyError(task.payload)
        if first and task.payload in later:
            raise RetryLater(0.02, counts=False)

    return end


@on_every_engine("shared.WorkQueue.take", "shared.WorkQueue.put")
async def no_more_of_a_group_are_at_work_than_its_limit(world):
    async with world.open() as store, world.open() as elsewhere:
        retry = Retry(attempts=3, backoff=0.02, jitter=0)
        queue = WorkQueue(store, "q", groups=tenure.Groups(limit=2), retry=retry)
        other, groups = WorkQueue(elsewhere, "q", retry=retry), Groups()
        end = fails_once(("a1", "b0"), later=("a2",))

        async def taker(queue, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await groups.do_the_rest(queue, world.patience, end)

        async def victim():
            with cancellable():
                await groups.do_one(queue)

        async def watcher():
            async for group in other.groups():
                assert group.leased <= 2, group
            with cancellable():
                await queue.groups().page()

        async with world.group() as group:
            await groups.put(queue, "a", *(f"a{n}" for n in range(5)))
            await groups.put(other, "b", "b0", "b1")
            group.start_soon(taker, queue)
            group.start_soon(taker, other)
            group.start_soon(taker, queue)
            group.start_soon(victim)
            group.start_soon(taker, other, newcomer)
            group.start_soon(watcher)
        capacity(groups.history, 2)
        await all_is_done(queue, store, elsewhere, done=7, put=7, groups=0)
        assert set(groups.done) == {*(f"a{n}" for n in range(5)), "b0", "b1"}


@on_every_engine("shared.WorkQueue.take", "shared.WorkQueue.put", "shared.WorkQueue.hold_off")
async def no_group_starts_faster_than_its_rate(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = (
            WorkQueue(store, "q", groups=tenure.Groups(rate=Limit(1, per=0.1))),
            WorkQueue(elsewhere, "q"),
        )
        groups = Groups()

        async def taker(queue, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await groups.do_the_rest(queue, world.patience)

        async def victim():
            with cancellable():
                await groups.do_one(queue)
            with cancellable():
                await other.hold_off(0.1, group="a")
            with cancellable():
                await queue.hold_off(0, group="a")  # wins no start

        async with world.group() as group:
            await groups.put(queue, "a", *(f"a{n}" for n in range(4)))
            await groups.put(other, "b", "b0", "b1")
            group.start_soon(taker, queue)
            group.start_soon(taker, other)
            group.start_soon(victim)
            group.start_soon(taker, other, newcomer)
        await all_is_done(queue, store, elsewhere, done=6, put=6, groups=0)
        assert set(groups.done) == {*(f"a{n}" for n in range(4)), "b0", "b1"}
        assert rate(groups.history, Limit(1, per=0.1), within=SOON if world.faults else 0.1) >= 6


@on_every_engine("shared.WorkQueue.take", "shared.WorkQueue.put")
async def the_tasks_of_a_group_end_in_their_order(world):
    """Whatever becomes of their tries, and however many takers there are."""
    async with world.open() as store, world.open() as elsewhere:
        retry = Retry(attempts=3, backoff=0.02, jitter=0)
        queue = WorkQueue(store, "q", groups=tenure.Groups(limit=1), retry=retry)
        other, groups = WorkQueue(elsewhere, "q", retry=retry), Groups()
        end = fails_once(("a0", "b1"), later=("a2", "b0"))

        async def taker(queue, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await groups.do_the_rest(queue, world.patience, end)

        async def victim():
            with cancellable():
                await groups.do_the_rest(queue, world.patience, end)

        async with world.group() as group:
            await queue.put("plain")
            await groups.put(queue, "a", "a0", "a1")
            group.start_soon(taker, queue)
            group.start_soon(taker, other)
            group.start_soon(victim)
            group.start_soon(taker, queue, newcomer)
            await groups.put(queue, "a", "a2", "a3")
            await groups.put(other, "b", "b0", "b1")
        capacity(groups.history, 1)
        in_order(groups.history)
        await all_is_done(queue, store, elsewhere, done=7, put=7, groups=0)
        order = [name for n, name in enumerate(groups.done) if name not in groups.done[:n]]
        assert [name for name in order if name[0] == "a"] == ["a0", "a1", "a2", "a3"]
        assert [name for name in order if name[0] == "b"] == ["b0", "b1"]


@on_a_wire("shared.WorkQueue.take", "shared.WorkQueue.put")
async def a_group_keeps_its_order_when_a_session_is_lost(world):
    async with world.open() as store, world.open() as elsewhere:
        link, groups = world.links[0], Groups()
        queue, other = WorkQueue(store, "q", groups=tenure.Groups(limit=1)), WorkQueue(elsewhere, "q")

        async def loser():
            with cancellable():
                try:
                    async with queue.take() as task:
                        with groups.history.held(task.group, token=task.token):
                            groups.history.taken(task.group, task.payload)
                            await anyio.sleep(100)
                except LeaseLost:
                    pass

        async def victim():
            with cancellable():
                await groups.do_one(other, 2 * AWAY)

        await groups.put(queue, "a", "a0", "a1", "a2")
        async with anyio.create_task_group() as group:
            group.start_soon(loser)
            await anyio.sleep(1)
            group.start_soon(groups.do_the_rest, other, 2 * AWAY)
            group.start_soon(victim)
            group.start_soon(groups.do_the_rest, queue, 2 * AWAY)
            await anyio.sleep(1)
            link.pause()
            await anyio.sleep(AWAY)
            link.resume()
        capacity(groups.history, 1)
        in_order(groups.history)
        await all_is_done(other, store, elsewhere, done=3, put=3, groups=0)
        assert set(groups.done) == {"a0", "a1", "a2"}


async def end_with_other_settings(queue, store, elsewhere):
    """Another process sets other settings, and ends the session in which `store` has set those of the queue."""
    await elsewhere._handle.call(Configure(queue.key, "elsewhere", (("group_limit", "1"),)))
    (session,) = store._handle.sessions
    await elsewhere._handle.call(CloseSession(session.id))
    while session.lost is None:
        await anyio.sleep(1)


@on_a_wire("shared.WorkQueue.configure", "shared.WorkQueue.settings", "shared.WorkQueue.put")
async def what_another_process_has_set_stays_in_a_new_session(world):
    """The fields that are named are sent again only if they are not in the record."""
    async with world.open() as store, world.open() as elsewhere:
        queue, other, groups = (
            WorkQueue(store, "q", groups=tenure.Groups(limit=3)),
            WorkQueue(elsewhere, "q"),
            Groups(),
        )
        at_work, enough = [], anyio.Event()

        async def taker(queue):
            async with queue.take() as task:
                at_work.append(task.payload)
                await enough.wait()

        async def victim():
            with cancellable():
                await queue.settings()
            with cancellable():
                await other.put("victim")

        await groups.put(queue, "a", *range(4))
        await queue.configure(groups=tenure.Groups(limit=2))
        await end_with_other_settings(queue, store, elsewhere)
        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            await queue.put("new")
            for _ in range(4):
                group.start_soon(taker, other)
            await anyio.sleep(AWAY)
            assert Counter(map(type, at_work))[int] == 1, at_work
            enough.set()
        await other.purge("waiting")
        await all_is_done(other, store, elsewhere, groups=0)


@on_a_wire("shared.WorkQueue.take")
async def it_stays_when_the_first_operation_of_a_session_is_a_take(world):
    """No put of the session comes before it."""
    async with world.open() as store, world.open() as elsewhere:
        queue, other, groups = (
            WorkQueue(store, "q", groups=tenure.Groups(limit=3)),
            WorkQueue(elsewhere, "q"),
            Groups(),
        )

        async def victim():
            with cancellable():
                await other.groups().page()

        await groups.put(queue, "a", *range(3))
        await end_with_other_settings(queue, store, elsewhere)
        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            for _ in range(3):
                group.start_soon(groups.do_one, queue)
        capacity(groups.history, 1)
        in_order(groups.history)
        await all_is_done(other, store, elsewhere, done=3, groups=0)


@on_a_wire("shared.WorkQueue.configure", "shared.WorkQueue.put")
async def what_is_set_last_counts(world):
    """Although what was set before is said again in the session in which it was not said yet."""
    async with world.open() as store:
        link, queue, groups = world.links[0], WorkQueue(store, "q"), Groups()
        await store._handle.session(store.ttl)
        await queue.configure(groups=tenure.Groups(limit=1))

        async def victim():
            with cancellable():
                await queue.groups().page()

        link.pause()
        async with anyio.create_task_group() as group:
            group.start_soon(partial(queue.configure, groups=None))
            await anyio.sleep(1)
            group.start_soon(groups.put, queue, "a", "a0", "a1")
            group.start_soon(victim)
            await anyio.sleep(1)
            link.resume()
        async with queue.take(SOON), queue.take(SOON) as task:
            assert task.payload == "a1"
        await all_is_done(queue, store, done=2, groups=0)


@on_every_engine("shared.WorkQueue.take", "shared.WorkQueue.put")
async def groups_have_their_shares_in_each_window(world):
    """A task that fails uses up a turn of its group, and a group that comes later neither gains nor loses."""
    async with world.open() as store, world.open() as elsewhere:
        weights = {"a": 2.0, "b": 1.0, "": 1.0, "late": 1.0}
        retry = Retry(attempts=3, backoff=0)
        queue = WorkQueue(store, "q", groups=tenure.Groups(weights={"a": 2}), retry=retry)
        other, groups = WorkQueue(elsewhere, "q"), Groups()
        end = fails_once(("a1", "a2", "b0"))

        async def latecomer():
            while len(groups.done) < 12:
                await pause()
            await groups.put_many(other, "late", *(f"late{n}" for n in range(4)))

        async def bystander():
            with cancellable():
                await other.groups().page()
            with cancellable():
                await other.put("victim", group="victim")

        for group, count in (("a", 16), ("b", 9), ("", 7)):
            await groups.put_many(queue, group, *(f"{group}{n}" for n in range(count)))
        async with world.group() as group:
            group.start_soon(bystander)
            group.start_soon(latecomer)
            group.start_soon(groups.do_the_rest, queue, world.patience, end)
        turns, done = fair(groups.history, weights), len(groups.done)
        await all_is_done(queue, store, elsewhere, done=done, put=done, groups=0)
        assert (turns, done - groups.done.count("victim")) == (39, 36)


@on_every_engine("shared.WorkQueue.put", "shared.WorkQueue.put_many")
async def producers_of_a_full_group_wait_and_others_pass(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(store.ttl)
        queue = WorkQueue(store, "q", groups=tenure.Groups(max_size=1))
        other = WorkQueue(elsewhere, "q", groups=tenure.Groups(max_size=1))
        consumer, came, passed = Consumer(other), [], []
        await queue.put("first", group="a")

        async def producer(name, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            came.append(name)
            await queue.put(name, group="a")

        async def victim():
            with cancellable():
                await queue.put("victim", group="a")

        async def many():
            ids = await other.put_many([Item(f"m{n}", group="b") for n in range(2)] + ["m2"])
            assert len(set(ids)) == 3

        async def passer():
            await other.put("passer", group="c")
            passed.append(len(consumer.taken))

        async with world.group() as group:
            async with anyio.create_task_group() as producers:
                producers.start_soon(producer, "x")
                producers.start_soon(victim)
                producers.start_soon(producer, "y")
                producers.start_soon(producer, "z", newcomer)
                producers.start_soon(many)
                await passer()
                assert passed == [0], "nothing was taken, and yet there was room"
                group.start_soon(consumer.run)
            await queue.join()
            group.cancel_scope.cancel()
        done = len(consumer.taken)
        await all_is_done(queue, store, elsewhere, done=done, put=done, groups=0)
        ours = [name for name in consumer.taken if name in came]
        # one who missed the hint for its slot may come after others
        assert ours == came or (world.faults and sorted(ours) == sorted(came))
        counts = Counter(consumer.taken)
        assert counts.pop("victim", 0) <= 1
        assert counts == dict.fromkeys(("first", "x", "y", "z", "m0", "m1", "m2", "passer"), 1)
        assert consumer.taken.index("m0") < consumer.taken.index("m1")


@on_every_engine("shared.WorkQueue.put", "shared.WorkQueue.put_many", "shared.WorkQueue.statistics")
async def a_large_portion_for_a_group_is_not_overtaken(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = WorkQueue(store, "q", groups=tenure.Groups(max_size=2)), WorkQueue(elsewhere, "q")
        consumer = Consumer(other)
        await queue.put("first", group="a")

        async def large():
            await queue.put_many([Item("large0", group="a"), Item("large1", group="a")])

        async def small(name):
            await other.put(name, group="a")

        async def victim():
            with cancellable():
                await small("victim")

        async with world.group() as group:
            async with anyio.create_task_group() as producers:
                producers.start_soon(large)
                while not (await other.statistics()).producers:
                    await pause()
                producers.start_soon(small, "small")
                producers.start_soon(victim)
                await pause()
                group.start_soon(consumer.run)
            await other.join()
            group.cancel_scope.cancel()
        done = len(consumer.taken)
        await all_is_done(queue, store, elsewhere, done=done, put=done, groups=0)
        order = [name for name in consumer.taken if name != "victim"]
        # one who missed the hint for its slot may come after others
        assert order == ["first", "large0", "large1", "small"] or (world.faults and len(order) == 4), order


@on_every_engine("shared.WorkQueue.configure", "shared.WorkQueue.take", "shared.WorkQueue.put")
async def a_raised_limit_wakes_takers_and_producers(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = (
            WorkQueue(store, "q", groups=tenure.Groups(limit=1, max_size=2)),
            WorkQueue(elsewhere, "q"),
        )
        enough, at_work = anyio.Event(), []

        async def taker(queue):
            async with queue.take() as task:
                at_work.append(task.payload)
                if len(at_work) == 3:
                    enough.set()
                await enough.wait()

        async def victim():
            with cancellable():
                await other.configure(groups=tenure.Groups(limit=2, max_size=3))
            with cancellable():
                await queue.put("victim", group="b")

        async with world.group() as group:
            await queue.put("a0", group="a")
            await queue.put("a1", group="a")
            group.start_soon(taker, queue)
            group.start_soon(taker, other)
            group.start_soon(taker, queue)
            group.start_soon(victim)
            await pause()
            group.start_soon(lambda: queue.put("a2", group="a"))
            await newcomer()
            await other.configure(rate=None, groups=None)
        assert set(at_work) <= {"a0", "a1", "a2", "victim"}
        await other.purge("waiting")
        statistics = (await other.verify()).statistics
        assert (statistics.unfinished, statistics.producers, statistics.reserved) == (0, 0, 0)
        assert statistics.done == 3


@on_every_engine("shared.WorkQueue.put_many", "shared.WorkQueue.cursors")
async def one_of_those_that_write_a_cursor_wins(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = WorkQueue(store, "q", max_size=1), WorkQueue(elsewhere, "q", max_size=1)
        consumer, won, lost, victims = Consumer(queue), [], [], []

        async def writer(queue, name, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            try:
                await queue.put_many([name], cursor=("input", name), expected=None)
                won.append(name)
            except CursorConflict as error:
                lost.append(error.value)

        async def victim():
            with cancellable() as scope:
                await writer(other, "victim")
            victims.append(scope.cancelled_caught)

        async with world.group() as group:
            await queue.put("full")
            group.start_soon(consumer.run)
            async with anyio.create_task_group() as writers:
                writers.start_soon(writer, queue, "x")
                writers.start_soon(victim)
                writers.start_soon(writer, other, "y")
                writers.start_soon(writer, queue, "z", newcomer)
            await queue.join()
            group.cancel_scope.cancel()
        (value,) = (await queue.cursors()).values()
        assert won == [value] or (value == "victim" and victims == [True] and won == [])
        assert set(lost) <= {value}
        assert len(lost) >= 2
        assert consumer.taken == ["full", value]
        await all_is_done(queue, store, elsewhere, done=2, put=2)


@on_every_engine("shared.ResourcePool.statistics")
async def claimers_of_different_tenants_take_turns(world):
    async with world.open() as store, world.open() as elsewhere:
        pool, other, lent = ResourcePool(store, "keys"), ResourcePool(elsewhere, "keys"), Lent()
        await pool.add("one", {"n": 1})
        served, gone = [], anyio.Event()

        async def claimer(pool, name):
            async with pool.claim(fair_for=name) as claim:
                with lent.to(claim):
                    served.append(name)
                    await pause()

        async def victim():
            with cancellable():
                await claimer(pool, "victim")
            gone.set()

        async with world.group() as group:
            async with pool.claim(fair_for="big") as claim:
                with lent.to(claim):
                    for _ in range(3):
                        group.start_soon(claimer, pool, "big")
                    group.start_soon(claimer, other, "small")
                    group.start_soon(victim)
                    expected = 5
                    while (await pool.statistics()).waiting < expected:
                        expected = 4 if gone.is_set() else 5
                        await pause()
        await all_is_free(pool, store, elsewhere, free=1)
        order = [name for name in served if name != "victim"]
        assert sorted(order) == ["big", "big", "big", "small"]
        assert "small" in order[:2], order
