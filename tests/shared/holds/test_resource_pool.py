from __future__ import annotations

import inspect

import anyio
import pytest

import tenure
from tenure import AcquireTimeout
from tenure.engine import RESOURCES, Claim, GiveBack, Scan
from tenure.shared.holds._resource_pool import PooledResource, ResourcePool, ResourcePoolStatistics


@pytest.fixture
async def pool(store):
    """Four keys: two paid, one of them preferred, and two free ones in two regions."""
    pool = ResourcePool(store, "keys")
    await pool.add("paid", {"tier": "paid", "region": "eu"})
    await pool.add("best", {"tier": "paid", "region": "us"}, preference=1)
    await pool.add("eu", {"tier": "free", "region": "eu"})
    await pool.add("us", {"tier": "free", "region": "us"})
    return pool


async def names(pool, state):
    return [
        resource.resource for resource in (await pool.resources().page()).records if resource.state == state
    ]


async def use(pool, where=None):
    async with pool.claim(0, where) as claim:
        return claim.resource


# what is in it


async def test_it_shows_its_resources_in_the_order_of_their_names(pool, store):
    async with pool.claim(where={"tier": "paid"}) as claim:
        assert (await pool.resources().page()).records == [
            PooledResource(
                "best",
                {"tier": "paid", "region": "us"},
                1,
                "claimed",
                store.process,
                claim.token,
                0.0,
                "",
                claimed=1,
            ),
            PooledResource("eu", {"tier": "free", "region": "eu"}, 0, "free", "", 0, 0.0, ""),
            PooledResource("paid", {"tier": "paid", "region": "eu"}, 0, "free", "", 0, 0.0, ""),
            PooledResource("us", {"tier": "free", "region": "us"}, 0, "free", "", 0, 0.0, ""),
        ]


async def test_it_counts_its_resources_and_the_waiters(pool, virtual_clock):
    assert await pool.statistics() == ResourcePoolStatistics(4, 0, 0, 0, 0)
    async with anyio.create_task_group() as group:
        async with pool.claim(where={"region": "eu"}) as one, pool.claim(where={"region": "eu"}) as two:
            await one.retire("gone")
            async with pool.claim(where={"region": "us"}) as three:
                await three.cool_down(60)
            group.start_soon(use_when_there_is_one, pool, {"region": "eu"})
            await virtual_clock.settle()
            statistics = await pool.statistics()
            assert statistics == ResourcePoolStatistics(free=1, claimed=2, resting=1, retired=0, waiting=1)
            assert statistics.size == 4
            two.check()
    assert await pool.statistics() == ResourcePoolStatistics(
        free=2, claimed=0, resting=1, retired=1, waiting=0
    )


async def use_when_there_is_one(pool, where):
    async with pool.claim(where=where):
        pass


async def test_an_empty_pool(store, virtual_clock):
    pool = ResourcePool(store, "keys")
    assert (await pool.resources().page()).records == []
    assert await pool.statistics() == ResourcePoolStatistics(0, 0, 0, 0, 0)
    for timeout in (0, 2):
        with pytest.raises(AcquireTimeout, match=f"tenure:pool:keys: not acquired within {timeout} s"):
            async with pool.claim(timeout=timeout):
                pytest.fail("claimed")
    assert virtual_clock.now() == pytest.approx(2)


async def test_adding_again_changes_it(pool):
    await pool.add("us", {"tier": "paid"}, preference=5)
    assert await use(pool, {"tier": "paid"}) == "us"
    await pool.add("us")
    assert [r for r in (await pool.resources().page()).records if r.resource == "us"] == [
        PooledResource("us", {}, 0, "free", "", 0, 0.0, "")
    ]


async def test_several_claims_share_a_resource_with_slots(store):
    pool = ResourcePool(store, "keys")
    await pool.add("key-1", slots=3)
    await pool.add("key-2")
    async with pool.claim() as one, pool.claim() as other, pool.claim() as third:
        assert [one.resource, other.resource, third.resource] == ["key-1", "key-2", "key-1"]
        assert one.token < third.token
        assert await pool.statistics() == ResourcePoolStatistics(1, 3, 0, 0, 0)
        await one.cool_down(60)
        assert await pool.statistics() == ResourcePoolStatistics(0, 3, 1, 0, 0)
        with pytest.raises(AcquireTimeout):
            await use(pool)
        await third.cool_down(0)
        assert await use(pool) == "key-1"
        await pool.add("key-1", slots=1)
        shown = (await pool.resources().page()).records[0]
        assert (shown.state, shown.slots, shown.claimed) == ("claimed", 1, 2)
        assert (await pool.statistics()).size == 3
    assert await pool.statistics() == ResourcePoolStatistics(2, 0, 0, 0, 0)


async def test_slots_are_a_number_from_1_to_256(pool):
    for odd in (0, -1, 257):
        with pytest.raises(ValueError, match="slots must be at"):
            await pool.add("key-1", slots=odd)
    for odd in (True, 1.0, "4", None):
        with pytest.raises(TypeError, match="slots must be"):
            await pool.add("key-1", slots=odd)
    assert len((await pool.resources().page()).records) == 4


async def test_removing(pool):
    assert await pool.remove("best") is True
    assert await pool.remove("best") is False
    assert await pool.remove("nobody knows it") is False
    assert await use(pool, {"tier": "paid"}) == "paid"
    assert await names(pool, "free") == ["eu", "paid", "us"]


# which one


@pytest.mark.parametrize(
    ("stored", "wanted", "matches"),
    [
        (1, 1, True),
        (1, "1", False),
        (1, 1.0, False),
        (1, True, False),
        (None, None, True),
        ("ü\0\n", "ü\0\n", True),
        (["a", 1], ("a", 1), True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
    ],
)
async def test_values_are_equal_if_their_bytes_are(store, stored, wanted, matches):
    pool = ResourcePool(store, "keys")
    await pool.add("key", {"value": stored})
    if matches:
        assert await use(pool, {"value": wanted}) == "key"
    else:
        with pytest.raises(AcquireTimeout):
            await use(pool, {"value": wanted})


async def test_metadata_go_through_the_codec_of_the_store(open_store_on):
    class Swapping:
        def encode(self, value):
            return value.swapcase().encode()

        def decode(self, data):
            return data.decode().swapcase()

    async with open_store_on(codec=Swapping()) as store:
        pool = ResourcePool(store, "keys")
        await pool.add("key", {"tier": "paid"})
        page = await store._handle.call(Scan(RESOURCES, "tenure:pool:keys"))
        assert page.rows[0].metadata == (("tier", b"PAID"),)
        async with pool.claim(0, {"tier": "paid"}) as claim:
            assert claim.metadata == {"tier": "paid"}
            await claim.set_metadata({"tier": "free"})
            assert claim.metadata == {"tier": "free"}
        assert (await pool.resources().page()).records[0].metadata == {"tier": "free"}


# waiting


async def test_a_timeout_reports_the_position(store, virtual_clock):
    pool = ResourcePool(store, "keys")
    await pool.add("key")
    caught = []

    async def other(timeout):
        with pytest.raises(AcquireTimeout) as error:
            async with pool.claim(timeout):
                pytest.fail("claimed twice")
        caught.append((error.value.position, error.value.seconds, virtual_clock.now()))

    async with anyio.create_task_group() as group, pool.claim():
        for timeout in (3, 2, 1, 0):
            group.start_soon(other, timeout)
            await virtual_clock.settle()
        await virtual_clock.advance(4)
    assert caught == [(None, 0, 0), (2, 1, 1), (1, 2, 2), (0, 3, 3)]
    assert (await pool.statistics()).waiting == 0


async def test_one_command_to_claim_and_one_to_give_back(recording):
    async with tenure.open_store(recording) as store:
        pool = ResourcePool(store, "keys")
        await pool.add("key")
        await use(pool)
        recording.take()
        await use(pool)
        assert [type(operation) for operation in recording.take()] == [Claim, GiveBack]


# what the dead held


@pytest.mark.parametrize("where_from", ["pool", "claim"])
async def test_the_quarantine_is_asked_for_with_the_claim(recording, where_from):
    async with tenure.open_store(recording) as store:
        pool = ResourcePool(store, "keys", quarantine=5 if where_from == "pool" else 60)
        await pool.add("key")
        async with pool.claim() if where_from == "pool" else pool.claim(quarantine=5):
            pass
        assert [claim.quarantine for claim in recording.take(Claim)] == [5]


# faults


# arguments


async def test_wrong_arguments_are_named(store):
    pool = ResourcePool(store, "keys")
    for kind, message, call in (
        (TypeError, "name must be a str, not int", lambda: ResourcePool(store, 5)),
        (ValueError, "name must not be empty", lambda: ResourcePool(store, "")),
        (ValueError, "ttl must be at least 0.5", lambda: ResourcePool(store, "keys", ttl=0.1)),
        (ValueError, "quarantine must be at least 0", lambda: ResourcePool(store, "keys", quarantine=-1)),
        (ValueError, "check_timeout must be", lambda: ResourcePool(store, "keys", check_timeout=0)),
        (TypeError, "check must be callable, not int", lambda: ResourcePool(store, "keys", check=5)),
        (ValueError, "timeout must be", lambda: pool.claim(-1)),
        (TypeError, "timeout must be", lambda: pool.claim("soon")),
        (TypeError, "where must be a mapping, not str", lambda: pool.claim(where="paid")),
        (TypeError, "where must be a mapping, not list", lambda: pool.claim(where=[])),
        (TypeError, "where: a name must be a str, not int", lambda: pool.claim(where={5: 5})),
        (ValueError, "where: a name must not be empty", lambda: pool.claim(where={"": 5})),
        (ValueError, "quarantine must be at most", lambda: pool.claim(quarantine=float("inf"))),
        (TypeError, "quarantine must be a number", lambda: pool.claim(quarantine="long")),
        (ValueError, "Out of range float", lambda: pool.claim(where={"n": float("nan")})),
        (TypeError, "resource must be a str, not bytes", lambda: pool.add(b"key")),
        (ValueError, "resource must not be empty", lambda: pool.add("")),
        (ValueError, "resource must not have lone surrogates", lambda: pool.add("\ud800")),
        (TypeError, "metadata must be a mapping", lambda: pool.add("key", "paid")),
        (TypeError, "not JSON serializable", lambda: pool.add("key", {"n": object()})),
        (TypeError, "preference must be an int, not float", lambda: pool.add("key", None, 1.5)),
        (TypeError, "preference must be an int, not bool", lambda: pool.add("key", None, True)),
        (ValueError, "preference must be at most", lambda: pool.add("key", None, 2**31)),
        (TypeError, "resource must be a str, not int", lambda: pool.remove(5)),
    ):
        with pytest.raises(kind, match=message):
            made = call()
            if inspect.isawaitable(made):
                await made
    assert (await pool.resources().page()).records == []


@pytest.mark.parametrize("preference", [2**31 - 1, 0, -(2**31 - 1)])
async def test_the_ends_of_what_is_allowed(store, preference, virtual_clock):
    pool = ResourcePool(store, "keys")
    await pool.add("\0ü\n", {"\0ü\n": "\0ü\n"}, preference)
    async with pool.claim(0, {"\0ü\n": "\0ü\n"}) as claim:
        assert claim.resource == "\0ü\n"
        await claim.cool_down(1e9)
    (resource,) = (await pool.resources().page()).records
    assert (resource.preference, resource.rest) == (preference, pytest.approx(1e9))


async def test_its_repr_names_it(store):
    assert repr(ResourcePool(store, "keys")) == "<ResourcePool 'keys'>"
