"""Resource pools: claims, and what claimers do to what they hold."""

from __future__ import annotations

from contextlib import contextmanager

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire, on_every_engine
from explored.referees import Fair
from explored.scenarios.holds import TTL, Holder
from explored.world import at_rest, pause

from tenure import AcquireTimeout, LeaseLost
from tenure.engine import CloseSession
from tenure.shared.holds._resource_pool import ResourcePool
from tenure.testing import cancellable, newcomer

ONE, TWO = {"n": 1}, {"n": 2}


class Lent:
    """Each resource has one claimer, with a token that rises, and matches what was asked for."""

    def __init__(self):
        self.served = []
        self._inside = set()
        self._tokens = {}

    @contextmanager
    def to(self, claim, where=None):
        assert claim.resource not in self._inside
        assert claim.token > self._tokens.get(claim.resource, 0)
        assert (where or {}).items() <= claim.metadata.items()
        self._inside.add(claim.resource)
        self._tokens[claim.resource] = claim.token
        try:
            yield
        finally:
            self._inside.remove(claim.resource)
        self.served.append(claim.resource)


async def one_and_two(store, **options):
    pool = ResourcePool(store, "keys", **options)
    await pool.add("one", ONE)
    await pool.add("two", TWO)
    return pool


async def all_is_free(pool, *stores, free=2):
    """Nobody is there, and whoever comes is served at once."""
    await at_rest(*stores)
    statistics = await pool.statistics()
    assert (statistics.free, statistics.claimed, statistics.waiting) == (free, 0, 0)
    async with pool.claim(timeout=5) as claim:
        claim.check()
    for store in stores:
        assert (await store.statistics()).held == 0


@on_every_engine("shared.ResourcePool.claim")
async def a_resource_goes_down_its_line(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        pool, fair = ResourcePool(store, "keys"), Fair()
        await pool.add("one")
        holder = Holder(fair)
        async with world.group() as group:
            group.start_soon(holder.steady, pool.claim)
            group.start_soon(holder.victim, pool.claim)
            group.start_soon(holder.steady, pool.claim)
            group.start_soon(holder.steady, pool.claim, 1, newcomer)
            group.start_soon(holder.foreign, ResourcePool(elsewhere, "keys").claim)
        assert fair.served >= 4
        await all_is_free(pool, store, elsewhere, free=1)


@on_every_engine("shared.ResourcePool.claim", "shared.Listing.page", "shared.ResourcePool.statistics")
async def claimers_get_what_they_ask_for(world):
    """One who asks for what is not there blocks nobody."""
    async with world.open() as store, world.open() as elsewhere:
        pool, lent, timeouts = await one_and_two(store), Lent(), []
        other = ResourcePool(elsewhere, "keys")

        async def use(pool, where, arrival=anyio.lowlevel.checkpoint, timeout=None):
            await arrival()
            try:
                async with pool.claim(timeout, where) as claim:
                    with lent.to(claim, where):
                        await pause()
            except AcquireTimeout as error:
                timeouts.append(error.seconds)

        async def victim(where):
            with cancellable():
                await use(pool, where)

        async def watcher():
            with cancellable():
                resources = (await pool.resources().page()).records
                assert [resource.resource for resource in resources] == ["one", "two"]
                statistics = await other.statistics()
                assert statistics.free + statistics.claimed == statistics.size == 2

        async with world.group() as group:
            group.start_soon(use, pool, {"n": 3}, anyio.lowlevel.checkpoint, 0.5)
            group.start_soon(victim, {"n": 3})
            group.start_soon(use, pool, ONE)
            group.start_soon(victim, None)
            group.start_soon(use, other, ONE)
            group.start_soon(use, pool, None, newcomer)
            group.start_soon(watcher)
            await anyio.sleep(1)
            # what the victim waits for, if it still does
            await pool.add("three", {"n": 3})
        assert len(lent.served) >= 3 and lent.served.count("one") >= 2 and timeouts == [0.5]
        assert await pool.remove("three") or world.faults
        await all_is_free(pool, store, elsewhere)


@on_every_engine("shared.ResourcePool.add", "shared.ResourcePool.claim", "shared.ResourcePool.statistics")
async def no_more_claim_a_resource_than_it_has_slots(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        pool, inside, served = ResourcePool(store, "keys"), [], []
        await pool.add("one", slots=2)

        async def use(pool, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            async with pool.claim() as claim:
                inside.append(claim.token)
                assert len(set(inside)) <= 2
                await pause()
                inside.remove(claim.token)
            served.append(claim.token)

        async def victim():
            with cancellable():
                async with pool.claim():
                    pass

        async def fewer_and_more():
            with cancellable():
                await pool.add("one", slots=1)
            await pool.add("one", slots=2)

        async with world.group() as group:
            for _ in range(3):
                group.start_soon(use, pool)
            group.start_soon(victim)
            group.start_soon(fewer_and_more)
            group.start_soon(use, ResourcePool(elsewhere, "keys"))
            group.start_soon(use, pool, newcomer)
        assert len(set(served)) == 5
        await all_is_free(pool, store, elsewhere)


@on_every_engine("shared.Claim.cool_down", "shared.Claim.set_metadata", "shared.ResourcePool.claim")
async def what_cools_down_is_not_lent_meanwhile(world):
    async with world.open() as store:
        pool, lent, rested, came = await one_and_two(store), Lent(), [], anyio.Event()

        async def tires():
            with cancellable():
                async with pool.claim(where=ONE) as claim:
                    with lent.to(claim, ONE):
                        came.set()
                        await claim.set_metadata({"n": 1, "tired": True})
                        start = anyio.current_time()
                        await claim.cool_down(0.2)
                        rested.append(start + 0.2)
            came.set()

        async def steady(arrival):
            await arrival()
            async with pool.claim(where=ONE) as claim:
                with lent.to(claim, ONE):
                    # engines count in microseconds
                    assert all(anyio.current_time() >= time - 0.00001 for time in rested)
                    await pause()

        async with world.group() as group:
            group.start_soon(tires)
            await came.wait()
            group.start_soon(steady, anyio.lowlevel.checkpoint)
            group.start_soon(steady, newcomer)
        assert lent.served.count("one") >= 2
        await anyio.sleep(1)
        await all_is_free(pool, store)


@on_every_engine(
    "shared.Claim.retire",
    "shared.ResourcePool.add",
    "shared.ResourcePool.remove",
    "shared.ResourcePool.claim",
)
async def what_is_retired_or_removed_is_replaced(world):
    async with world.open() as store:
        pool, lent = await one_and_two(store), Lent()

        async def retires():
            with cancellable():
                async with pool.claim(where=ONE) as claim:
                    await claim.retire("used up")

        async def removes():
            with cancellable():
                await pool.remove("two")

        async def adds():
            with cancellable():
                await pool.add("new", TWO)

        async def use(where, arrival):
            await arrival()
            async with pool.claim(where=where) as claim:
                with lent.to(claim, where):
                    await pause()

        async with world.group() as group:
            group.start_soon(retires)
            group.start_soon(removes)
            group.start_soon(adds)
            await anyio.sleep(0.5)
            group.start_soon(use, ONE, anyio.lowlevel.checkpoint)
            group.start_soon(use, TWO, newcomer)
            await anyio.sleep(0.5)
            await pool.add("one", ONE, revive=True)
            await pool.add("new", TWO)
        assert len(lent.served) == 2 and lent.served.count("one") == 1
        await pool.remove("two")
        await all_is_free(pool, store)


@on_every_engine("shared.ResourcePool.claim")
async def what_fails_its_check_is_passed_over(world):
    async with world.open() as store:
        lent = Lent()

        async def check(claim):
            claim.check()
            await pause()
            return claim.resource == "two"

        pool = await one_and_two(store, check=check)

        async def use(arrival):
            await arrival()
            async with pool.claim() as claim:
                with lent.to(claim, TWO):
                    await pause()

        async def victim():
            with cancellable():
                await use(anyio.lowlevel.checkpoint)

        async with world.group() as group:
            group.start_soon(victim)
            group.start_soon(use, anyio.lowlevel.checkpoint)
            group.start_soon(use, newcomer)
        assert len(lent.served) >= 2 and set(lent.served) == {"two"}
        await anyio.sleep(2)
        await at_rest(store)
        assert (await pool.statistics()).free == 2


@on_a_wire("shared.ResourcePool.claim")
async def a_claim_that_was_lost_goes_to_the_next(world):
    async with world.open() as store, world.open() as elsewhere:
        link, pool, lent, lost = world.links[0], ResourcePool(store, "keys"), Lent(), []
        await pool.add("one")

        async def loser():
            with cancellable():
                try:
                    async with pool.claim() as claim:
                        with lent.to(claim):
                            await anyio.sleep(100)
                except LeaseLost as error:
                    lost.append((error.reason, claim.lost, claim.remaining()))

        async def use(pool):
            async with pool.claim() as claim:
                with lent.to(claim):
                    await pause()

        async def victim():
            with cancellable():
                await use(pool)

        async with anyio.create_task_group() as group:
            group.start_soon(loser)
            await anyio.sleep(1)
            group.start_soon(use, pool)
            group.start_soon(use, ResourcePool(elsewhere, "keys"))
            group.start_soon(victim)
            await anyio.sleep(1)
            link.pause()
            await anyio.sleep(40)
            link.resume()
        assert lost in ([], [("expired", "expired", 0)]) and len(lent.served) >= 2
        await all_is_free(pool, store, elsewhere, free=1)


@on_every_engine("shared.Claim.cool_down", "shared.Claim.retire", "shared.Claim.set_metadata")
async def whose_session_has_ended_changes_nothing(world):
    async with world.open() as store:
        pool = await one_and_two(store)
        told = []

        async def late():
            with cancellable():
                try:
                    async with pool.claim(where=ONE) as claim:
                        (session,) = store._handle.sessions
                        await store._handle.call(CloseSession(session.id))
                        for edit, value in (
                            (claim.cool_down, 60),
                            (claim.retire, "late"),
                            (claim.set_metadata, {}),
                        ):
                            try:
                                await edit(value)
                            except LeaseLost as error:
                                told.append(error.reason)
                except LeaseLost:
                    pass

        async with world.group() as group:
            group.start_soon(late)
        assert set(told) <= {"refused", "gone"}
        await all_is_free(pool, store)
