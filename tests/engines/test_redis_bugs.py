"""What users of other systems have reported, tried on a real Redis server: none of it happens here.

Faults come on the way (`link`: the real scripts in virtual time) or from the server and the network (`redis_server`).
Every test of `tests/shared` that is named below runs on Redis too, and so do those of the contract.
"""

# What is tested elsewhere, or does not apply. L: tests/shared/test_lease.py, C: the contract, in tenure.testing
#
#  2 redisson #5115 #6198 #2590, the dead are renewed: L::test_what_an_ended_task_held_is_released
#  5 redis-py #3847, a cancelled release leaves the lock: L::test_cancelled_at_every_step_nothing_is_left
#  6 coredis, so does a cancelled acquire: the same (that a failed try takes nothing from others: here)
#  9 etcd #22082, a release that comes twice: L::test_a_release_that_comes_again_later_does_not_touch_the_next_holder,
#    C::test_a_late_release_of_one_holder_leaves_the_next_of_its_session_alone, test_redis_interleavings ("duplicate")
# 10 etcd #11456, served after its end: C::test_who_died_in_the_line_does_not_get_the_grant, test_redis_interleavings
#    ("the dead in the line are served"); that it does not enter when it comes back: here
# 11 redisson #5761 and others, a message is missed: test_redis.py::test_waiters_hear_of_their_grant_although_the_
#    message_was_lost, L::test_a_lost_hint_costs_a_ttl_at_most; in a storm: here
# 13 redisson #2045 #2213 #4462 #5066, permits leak or multiply: C::test_permits_of_the_dead_come_back_once,
#    test_semaphore.py::test_the_permits_of_a_dead_holder_come_back, test_redis_interleavings (semaphore)
# 14 redisson #1604, a dead reader: test_rwlock.py::test_a_dead_reader_among_others_lets_the_writer_in
# 16 client-go #728, given up while the body runs: test_election.py::test_the_body_has_ended_before_leadership_moves
# 18 authentik #23876, pgbouncer #102, a lock of a pooled connection: does not apply, nothing belongs to a connection
# 22 redisson #3349, hints go to all nodes: test_redis_cluster.py::test_hints_do_not_go_to_all_nodes
# 24 anyio #387, cpython #90155, a grant and a cancellation cross: L::test_cancelled_at_every_step_of_waiting_the_next_
#    is_served; in one process tests/local
# 25 aioredlock, extending makes a lost lock anew: L::test_loss_is_final, C::test_a_renewal_that_comes_late_revives_
#    nothing, test_redis_interleavings ("a renewal revives what has ended")

from __future__ import annotations

import random
import re
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tenure import (
    AcquireTimeout,
    Barrier,
    BarrierBroken,
    Election,
    LeaseLost,
    Lock,
    RateLimiter,
    RWLock,
    Semaphore,
    WorkQueue,
    open_store,
)
from tenure.engine import Acquire, OpenSession, Queued, RenewSession
from tenure.engines.redis import RedisEngine
from tenure.testing import Fault, FaultProxy, FaultyEngine

TTL = 3.0


class Link(FaultyEngine):
    """The real scripts behind a link that can fail; `renewals` are the sessions that were renewed."""

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self.renewals = []

    async def execute(self, operations):
        self.renewals += [one.key for one in operations if isinstance(one, RenewSession)]
        return await super().execute(operations)


@pytest.fixture
def inline(inline_redis, virtual_clock):
    return inline_redis(virtual_clock.now)


@pytest.fixture
def link(inline):
    return Link(inline, delay=0.3)


@pytest.fixture
def left(redis_server):
    """The keys that are on the server, apart from the one of the last numbers."""

    def names():
        return sorted(name for name in redis_server("KEYS", "*") if name != b"tenure:{0}:state")

    return names


@asynccontextmanager
async def storm(server):
    """Breaks all connections twenty times; gives a function that tells whether it goes on."""
    left = 20

    async def blow():
        nonlocal left
        while left:
            await anyio.sleep(0.05 * random.random())
            for kind in ("normal", "pubsub"):
                server("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            left -= 1

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            group.start_soon(blow)
            yield lambda: left


# ---------------------------------------------------------------------------------------------------------- renewal


async def test_what_was_given_back_is_not_renewed_for_ever(link, left, redis_server, virtual_clock):
    """redisson #7272: a renewal that was being scheduled as the lock was given back went on for ever (bug 1)."""
    async with open_store(link, ttl=TTL) as store:
        for _ in range(300):
            async with Lock(store, "x"):
                await anyio.sleep(random.random() / 10)  # renewals are due in and between
        await anyio.sleep(20 * TTL)
        assert {name.rpartition(b":")[2] for name in left()} == {b"session", b"sessions"}  # that of the store
        assert redis_server("ZCARD", "tenure:{0}:sessions") == 1
        assert len(set(link.renewals)) == 1
    sent = len(link.renewals)
    await anyio.sleep(20 * TTL)
    assert left() == []
    assert len(link.renewals) == sent


async def test_a_lock_that_was_lost_and_acquired_again_is_renewed(link, virtual_clock):
    """redisson #3194 #3712: what was known of the lost lock kept the next one from being renewed (bug 3)."""
    async with open_store(link, ttl=TTL) as store:
        for _ in range(2):
            with pytest.raises(LeaseLost):
                async with Lock(store, "x"):
                    link.pause()
                    await anyio.sleep(2 * TTL)
            link.resume()
        async with Lock(store, "x") as lease:
            await anyio.sleep(3 * TTL)
            lease.check()


async def test_one_that_holds_for_long_is_renewed_until_it_is_lost_and_no_longer(inline, virtual_clock):
    """RedLock.net #68, node-redlock #299, trigger.dev #4918: renewals from the start, or after the end (bug 23)."""
    link = Link(inline, rates={Fault.DELAY: 0.3, Fault.LOST_REPLY: 0.1}, delay=0.3)
    async with open_store(link, ttl=TTL) as store:
        with pytest.raises(LeaseLost):
            async with Lock(store, "x") as lease:
                await anyio.sleep(20 * TTL)
                lease.check()
                (session,) = set(link.renewals)
                link.pause()
                await anyio.sleep_forever()
        link.resume()
        sent = link.renewals.count(session)
        async with Lock(store, "x"):
            await anyio.sleep(5 * TTL)
        assert link.renewals.count(session) == sent


@pytest.mark.parametrize("before_effect", [False, True])
async def test_one_that_is_cut_off_stops_before_the_next_begins(link, inline, virtual_clock, before_effect):
    """redisson #3636 #3187, etcd #10811 #6127: who is cut off works on while the next one does (bug 4)."""
    ended, begun = [], []

    async def next_one():
        async with open_store(inline, ttl=TTL) as other, Lock(other, "x"):
            begun.append(virtual_clock.now())

    async with open_store(link, ttl=TTL) as store, anyio.create_task_group() as group:
        with pytest.raises(LeaseLost):
            async with Lock(store, "x"):
                group.start_soon(next_one)
                await anyio.sleep(2.5 * TTL)
                link.pause(before_effect=before_effect)
                try:
                    await anyio.sleep_forever()
                finally:
                    ended.append(virtual_clock.now())
        while not begun:
            await anyio.sleep(0.1)
        link.resume()
    assert ended[0] < begun[0] < ended[0] + TTL


async def test_an_answer_that_comes_after_the_ttl_grants_nothing(link, virtual_clock):
    """etcd #11456 #9921, emmett #339, nextly #777: the time of the lease did not count from the request (10, 21)."""
    tokens = []

    async def enter():
        async with Lock(store, "x") as lease:
            lease.check()
            assert lease.remaining() > TTL / 3
            tokens.append(lease.token)

    async with open_store(link, ttl=TTL) as store, anyio.create_task_group() as group:
        await enter()  # from now on there is a session
        link.pause()
        group.start_soon(enter)
        await anyio.sleep(2 * TTL)
        assert len(tokens) == 1
        link.resume()
    assert len(tokens) == 2


async def test_one_that_was_frozen_in_the_line_does_not_enter_after_its_end(link, inline, virtual_clock):
    """etcd #11456 #19597: granted while it waited, although its session had ended by then (bug 10)."""
    async with open_store(link, ttl=TTL) as store, open_store(inline, ttl=TTL) as other:
        async with anyio.create_task_group() as group:
            entered = []

            async def waits():
                async with Lock(store, "x") as lease:
                    lease.check()
                    (holder,) = (await Lock(other, "x").holders()).holders
                    entered.append(lease.token == holder.token)

            async with Lock(other, "x"):
                group.start_soon(waits)
                await anyio.sleep(1)
                link.pause(before_effect=True)
                await anyio.sleep(2 * TTL)
            async with Lock(other, "x"):  # nobody else is in the line any more
                pass
            link.resume()
        assert entered == [True]


# --------------------------------------------------------------------------------------------------- giving it back


async def test_a_cancelled_program_leaves_nothing(redis_server, left):
    """open-match #1576, blnk #355, authgear #5721, boundary #918: unlocked with a cancelled context: stuck (bug 7)."""

    async def hold(manager):
        async with manager:
            held.append(manager)
            await anyio.sleep_forever()

    def kinds():
        return {re.sub(rb":(\d{12}|[0-9a-f]{2})$", b"", name).rpartition(b":")[2] for name in left()}

    def holds():
        things = (
            thing for key in redis_server("KEYS", "*:items") for thing in redis_server("ZRANGE", key, 0, -1)
        )
        return sum(thing.startswith(b"hold ") for thing in things)

    held = []
    with anyio.CancelScope() as scope:
        async with open_store(redis_server.url) as store, anyio.create_task_group() as group:
            await WorkQueue(store, "jobs").put("task")
            for make in (
                *(lambda: Lock(store, "lock").hold(), lambda: Semaphore(store, "semaphore", 2).hold(2)),
                *(lambda: RWLock(store, "rw").read(), lambda: RWLock(store, "rw").write()),
                *(lambda: Election(store, "leader").term(), lambda: WorkQueue(store, "jobs").take()),
            ):
                group.start_soon(hold, make())
                group.start_soon(hold, make())
            group.start_soon(Barrier(store, "barrier", 3).wait)
            with anyio.fail_after(10):
                while len(held) < 5 or holds() < 10 or b"participants" not in kinds():
                    await anyio.sleep(0.002)
            scope.cancel()
    assert scope.cancelled_caught
    # the queue with its task, answers, and how the barrier stands
    assert kinds() <= {b"queue", b"queues", b"jobs", b"ready", b"put", b"exchange", b"barrier"}
    async with open_store(redis_server.url) as store, WorkQueue(store, "jobs").take(timeout=1) as task:
        assert task.payload == "task"


async def test_a_server_that_pauses_does_not_count_a_hold_twice(redis_server, left):
    """redisson #6025: repeated after a timeout (CLIENT PAUSE), one lock counted as two and was never free (bug 8)."""
    async with (
        open_store(RedisEngine(redis_server.url, response_timeout=1)) as store,
        open_store(redis_server.url) as other,
    ):
        for pause in (20, 1500):  # shorter than the response_timeout, and longer
            redis_server("CLIENT", "PAUSE", str(pause), "ALL")
            with anyio.fail_after(50):
                async with Lock(store, "x"), Semaphore(store, "y", 1):
                    redis_server("CLIENT", "PAUSE", str(pause), "ALL")
                async with Lock(other, "x"), Semaphore(other, "y", 1):
                    pass
        assert not any(name.endswith((b":holders", b":waiting", b":waiters")) for name in left())


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.CUT, Fault.DUPLICATE])
async def test_a_try_that_fails_takes_nothing_from_the_holder(link, inline, virtual_clock, fault):
    """coredis: a try that failed deleted the key, which was somebody else's, and a third one entered (bug 6)."""
    async with open_store(link, ttl=TTL) as store, open_store(inline, ttl=TTL) as other:
        async with Lock(other, "x") as lease:
            for limit in (0, 0.05, 1):
                link.plan(fault, on=Acquire)
                with pytest.raises(AcquireTimeout):
                    async with Lock(store, "x").hold(timeout=limit):
                        pytest.fail("two hold it")
            assert [one.token for one in (await Lock(other, "x").holders()).holders] == [lease.token]
            lease.check()


async def test_a_lost_reply_costs_a_moment_and_nothing_is_done_twice(redis_server, left):
    """coredis, redis-py: a lock whose reply was lost was taken, by oneself, for a whole ttl."""
    async with FaultProxy(redis_server.socket) as proxy:
        async with open_store(f"redis://{proxy.host}:{proxy.port}", ttl=600) as store:
            limiter, jobs = RateLimiter(store, "rate", rate=0.001, burst=2), WorkQueue(store, "jobs")
            async with Lock(store, "another"):
                pass  # the session is open
            with anyio.fail_after(50):  # much less than the ttl
                proxy.lose_reply()
                async with Lock(store, "x") as lease:
                    proxy.lose_reply()
                async with Lock(store, "x") as later:
                    assert later.token > lease.token
                for _ in range(2):
                    proxy.lose_reply()
                    await limiter.acquire()
                assert not await limiter.try_acquire()
                proxy.lose_reply()
                await jobs.put("task")
                proxy.lose_reply()
                async with jobs.take():
                    proxy.lose_reply()
                counts = await jobs.statistics()
                assert (counts.unfinished, counts.done) == (0, 1)
    assert not any(name.endswith((b":holders", b":waiting", b":waiters")) for name in left())


@pytest.mark.parametrize("late", [-0.001, 0, 0.001])
async def test_a_time_limit_that_ends_with_the_hand_over_leaves_it_free(inline, left, virtual_clock, late):
    """madelson #147, yugabyte #26105: acquired although the statement had timed out, and never released (bug 19)."""
    async with open_store(inline, ttl=TTL) as store, open_store(inline, ttl=TTL) as other:
        for _ in range(20):
            async with anyio.create_task_group() as group:

                async def wait():
                    with suppress(AcquireTimeout):
                        async with Lock(other, "x").hold(timeout=1 + late):
                            pass

                async with Lock(store, "x"):
                    group.start_soon(wait)
                    await anyio.sleep(1)
            async with Lock(store, "x").hold(timeout=0):
                pass
    assert left() == []


# ------------------------------------------------------------------------------------------------------------ lines


async def test_a_hundred_dead_waiters_cost_one_ttl_together(inline, virtual_clock):
    """redisson #1104 #2883 #3730 #1353: each of the dead in the line was waited for, five seconds each (bug 12)."""
    async with open_store(inline, ttl=TTL) as store:
        async with Lock(store, "x"):
            for n in range(100):
                dead = f"dead{n}/1"
                inline.apply_now(OpenSession(dead, f"dead{n}", TTL))
                place = inline.apply_now(Acquire(dead, store.key("lock", "x"), dead, 1))
                assert isinstance(place, Queued)
        begun = virtual_clock.now()
        async with Lock(store, "x"):
            assert virtual_clock.now() - begun <= TTL + 0.01


async def test_in_a_storm_of_broken_connections_nobody_waits_for_long(redis_server):
    """redisson #5761 #5762 #1763 #3891 #763: a missed message was a wait of a ttl, or for ever (bug 11)."""
    holding, tokens, waits = set(), [], []

    async def work(store):
        while goes_on():
            asked = anyio.current_time()
            async with Lock(store, "x") as lease:
                waits.append(anyio.current_time() - asked)
                assert not holding
                holding.add(store)
                tokens.append(lease.token)
                await checkpoint()
                holding.remove(store)

    async with open_store(redis_server.url, ttl=30) as one, open_store(redis_server.url, ttl=30) as other:
        async with storm(redis_server) as goes_on, anyio.create_task_group() as group:
            for store in (one, other, one, other):
                group.start_soon(work, store)
    assert tokens == sorted(set(tokens))
    assert max(waits) < 10  # a third of the ttl


async def test_in_a_storm_of_broken_connections_there_is_one_leader(redis_server):
    """CURATOR-504 -644 -620 -653 -696, Netflix #216: two leaders after reconnecting (bug 15)."""
    leading, terms = [], []

    async def campaign(store):
        async def body(term):
            leading.append(store)
            assert leading == [store]
            terms.append(term.number)
            try:
                await anyio.sleep(0.003)
                term.check()
            finally:
                leading.remove(store)

        while goes_on():
            await Election(store, "leader").lead(body)

    async with open_store(redis_server.url, ttl=5) as one, open_store(redis_server.url, ttl=5) as other:
        async with storm(redis_server) as goes_on, anyio.create_task_group() as group:
            for store in (one, other, one, other):
                group.start_soon(campaign, store)
    assert terms == sorted(set(terms))


# ----------------------------------------------------------------------------------------------- barriers and queues


@pytest.mark.parametrize("seed", range(5))
async def test_parties_that_leave_at_random_leave_no_doubt(redis_server, seed):
    """CURATOR-318 -536 -233 -80, Netflix #99: those who had left were counted, in the next round too (bug 17)."""
    chance = random.Random(seed)

    async def party(barrier, leaves):
        await anyio.sleep(chance.random() / 200)
        try:
            with anyio.move_on_after(chance.random() / 200 if leaves else 10):
                outcomes.append((await barrier.wait()).generation)
                return
        except BarrierBroken:
            outcomes.append("broken")
        else:
            assert leaves
            outcomes.append("left")

    async with open_store(redis_server.url) as one, open_store(redis_server.url) as other:
        barriers = [Barrier(store, "start", 5) for store in (one, other)]
        for n in range(10):
            outcomes = []
            async with anyio.create_task_group() as group:
                for i in range(5):
                    group.start_soon(party, barriers[i % 2], n % 2 == 0 and i < 2)
            passed = {outcome for outcome in outcomes if isinstance(outcome, int)}
            assert (len(passed) == 1 and outcomes == [*passed] * 5) or (n % 2 == 0 and not passed), outcomes
            if not passed:
                await barriers[0].reset()


@pytest.mark.parametrize("seed", range(5))
async def test_parties_that_are_replaced_are_not_counted(redis_server, seed):
    """CURATOR-318: a party that had timed out counted as one of those who had come (bug 17)."""
    chance = random.Random(seed)

    async def party(n, leaves):
        await anyio.sleep(chance.random() / 200)
        with anyio.move_on_after(chance.random() / 200 if leaves else 10):
            outcomes.append(await barriers[n % 2].wait())
            return
        group.start_soon(party, n + 1, False)

    async with open_store(redis_server.url) as one, open_store(redis_server.url) as other:
        barriers = [Barrier(store, "start", 5, on_departure="drop") for store in (one, other)]
        for generation in range(5):
            outcomes = []
            async with anyio.create_task_group() as group:
                for n in range(5):
                    group.start_soon(party, n, n < 2)
            assert sorted((one.generation, one.place) for one in outcomes) == [
                (generation, n) for n in range(5)
            ]


async def test_a_cancelled_taker_swallows_no_task(redis_server):
    """valkey-glide #4673, redis-py #2579, ioredis #516: a cancelled BLPOP ate the next element (bug 20)."""
    async with open_store(redis_server.url) as store, open_store(redis_server.url) as other:
        jobs = WorkQueue(store, "jobs")

        async def take():
            async with jobs.take():
                taken.append(True)

        for n in range(100):
            taken = []
            async with anyio.create_task_group() as group:
                group.start_soon(take)
                await anyio.sleep(0.001)
                await WorkQueue(other, "jobs").put(n)
                for _ in range(n % 10):  # the hint, the question, the answer: each is under way at some time
                    await anyio.sleep(0)
                group.cancel_scope.cancel()
            if not taken:
                async with jobs.take(timeout=5) as task:
                    assert task.payload == n
        assert (await jobs.statistics()).done == 100
