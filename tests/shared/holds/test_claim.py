from __future__ import annotations

import anyio
import pytest

from tenure import AcquireTimeout, EngineError, LeaseLost
from tenure.engine import EditClaim, GiveBack
from tenure.shared.holds._resource_pool import ResourcePool, ResourcePoolStatistics
from tenure.testing import (
    Fault,
    assert_checkpoints,
)

KEY = "tenure:pool:keys"
ALL_FREE = ResourcePoolStatistics(free=2, claimed=0, resting=0, retired=0, waiting=0)


@pytest.fixture
async def pool(store):
    return await two_keys(store)


async def two_keys(store, **options):
    pool = ResourcePool(store, "keys", **options)
    await pool.add("a", {"n": 1})
    await pool.add("b", {"n": 2})
    return pool


async def states(pool):
    return {resource.resource: resource.state for resource in (await pool.resources().page()).records}


# what is in hand


async def test_a_claim_is_a_lease(pool, virtual_clock):
    async with pool.claim() as claim:
        assert (claim.resource, claim.metadata, claim.key, claim.lost) == ("a", {"n": 1}, KEY, None)
        assert 2.6 <= claim.remaining() <= 2.7
        for _ in range(20):
            await anyio.sleep(1)
            claim.check()
        assert repr(claim) == f"<Claim 'a' of {KEY} token={claim.token} held>"
    with pytest.raises(LeaseLost, match="released"):
        claim.check()
    assert (claim.lost, claim.remaining()) == (None, 0)
    assert repr(claim) == f"<Claim 'a' of {KEY} token={claim.token} released>"
    async with pool.claim(), pool.claim() as again:
        assert again.resource == "a"
        assert again.token > claim.token


async def test_a_task_may_claim_several(pool):
    async with pool.claim(0) as one, pool.claim(0) as two:
        assert {one.resource, two.resource} == {"a", "b"}
        with pytest.raises(AcquireTimeout):
            async with pool.claim(0):
                pytest.fail("there are two")
    assert await pool.statistics() == ALL_FREE


async def test_claiming_and_giving_back_is_a_checkpoint(pool):
    with assert_checkpoints():
        async with pool.claim() as claim:
            with assert_checkpoints():
                await claim.cool_down(0)
            with assert_checkpoints():
                await claim.set_metadata({})
            with assert_checkpoints():
                await claim.retire("old")


async def test_what_is_changed_in_the_metadata_stays_at_home(pool):
    async with pool.claim() as claim:
        claim.metadata["n"] = 5
        assert claim.metadata == {"n": 1}


async def test_a_claim_is_for_one_use(pool):
    claiming = pool.claim()
    with pytest.raises(RuntimeError, match=f"{KEY}: this block was not entered"):
        await claiming.__aexit__(None, None, None)
    async with claiming:
        pass
    with pytest.raises(RuntimeError, match=f"{KEY}: this block was entered before"):
        async with claiming:
            pytest.fail("twice")


async def test_one_that_was_not_obtained_cannot_be_left(store):
    claiming = ResourcePool(store, "keys").claim(0)
    with pytest.raises(AcquireTimeout):
        await claiming.__aenter__()
    with pytest.raises(RuntimeError, match="was not entered"):
        await claiming.__aexit__(None, None, None)


async def test_left_in_another_task_it_is_given_back(pool):
    claiming = pool.claim()

    async def enter():
        await claiming.__aenter__()
        await anyio.sleep_forever()

    # the loops complain of the scope that was not left
    with pytest.raises((RuntimeError, BaseExceptionGroup)):
        async with anyio.create_task_group() as group:
            group.start_soon(enter)
            await anyio.sleep(0.1)
            try:
                with pytest.raises(RuntimeError, match="left from another task"):
                    await claiming.__aexit__(None, None, None)
                assert await pool.statistics() == ALL_FREE
            finally:
                group.cancel_scope.cancel()


# cooling down, retiring, editing


async def test_it_cools_down(pool, virtual_clock):
    async with pool.claim() as claim:
        await claim.cool_down(60)
        claim.check()
        await anyio.sleep(20)
    (a, b) = (await pool.resources().page()).records
    assert (a.state, a.rest, b.state) == ("resting", pytest.approx(40, abs=1), "free")
    async with pool.claim() as other:
        assert other.resource == "b"
        async with pool.claim(timeout=100) as again:
            assert again.resource == "a"
            assert 60 <= virtual_clock.now() < 65
    assert await pool.statistics() == ALL_FREE


async def test_it_is_retired(pool, virtual_clock):
    async with pool.claim() as claim:
        await claim.retire("revoked")
        assert await states(pool) == {"a": "claimed", "b": "free"}
    retired = (await pool.resources().page()).records[0]
    assert (retired.resource, retired.state, retired.reason) == ("a", "retired", "revoked")
    async with pool.claim(0):
        with pytest.raises(AcquireTimeout):
            async with pool.claim(timeout=100):
                pytest.fail("a is retired")
        await pool.add("a")
        assert (await states(pool))["a"] == "retired"
        await pool.add("a", revive=True)
        async with pool.claim(0) as claim:
            assert claim.resource == "a"


async def test_its_metadata_are_replaced(pool):
    async with pool.claim(where={"n": 1}) as claim:
        await claim.set_metadata({"left": 99})
        assert claim.metadata == {"left": 99}
        assert (await pool.resources().page()).records[0].metadata == {"left": 99}
    with pytest.raises(AcquireTimeout):
        async with pool.claim(0, {"n": 1}):
            pytest.fail("replaced")
    async with pool.claim(0, {"left": 99}) as claim:
        assert claim.resource == "a"


async def test_after_the_block_nothing_can_be_changed(pool):
    async with pool.claim() as claim:
        pass
    async with pool.claim(where={"n": 1}):
        for call in (claim.cool_down(60), claim.retire("late"), claim.set_metadata({})):
            with pytest.raises(LeaseLost, match="released"):
                await call
    assert await pool.statistics() == ALL_FREE


async def test_a_claim_no_longer_held_on_the_engine_is_reported(store, pool, virtual_clock):
    async with pool.claim() as claim:
        # as if its session had ended there, unnoticed
        await store._handle.call(GiveBack(KEY, claim._name))
        with pytest.raises(LeaseLost, match="refused"):
            await claim.retire("late")
        claim.check()
    assert await pool.statistics() == ALL_FREE


async def test_wrong_arguments_are_named(pool):
    async with pool.claim() as claim:
        for kind, message, call in (
            (
                TypeError,
                "seconds must be a number of seconds or a timedelta, not str",
                claim.cool_down("long"),
            ),
            (ValueError, "seconds must be at least 0 seconds, not -1", claim.cool_down(-1)),
            (ValueError, "seconds must be at most 1e", claim.cool_down(float("inf"))),
            (TypeError, "reason must be a str, not NoneType", claim.retire(None)),
            (ValueError, "reason must not be empty", claim.retire("")),
            (TypeError, "metadata must be a mapping, not list", claim.set_metadata([])),
            (TypeError, "not JSON serializable", claim.set_metadata({"n": object()})),
        ):
            with pytest.raises(kind, match=message):
                await call
    assert await pool.statistics() == ALL_FREE


# losing it


async def test_a_lost_claim_cancels_the_body(faulty, faulty_store, virtual_clock):
    pool = await two_keys(faulty_store)
    with pytest.raises(LeaseLost) as caught:
        async with pool.claim() as claim:
            faulty.down = True
            try:
                await anyio.sleep_forever()
            finally:
                assert virtual_clock.now() == pytest.approx(2.7)
                assert (claim.lost, claim.remaining()) == ("expired", 0)
                faulty.down = False
                with anyio.CancelScope(shield=True), pytest.raises(LeaseLost, match="expired"):
                    await claim.cool_down(60)
    assert (caught.value.key, caught.value.reason) == (KEY, "expired")
    assert await pool.statistics() == ALL_FREE


async def test_the_bodys_own_error_leaves(faulty, faulty_store, virtual_clock):
    pool = await two_keys(faulty_store)
    with pytest.raises(KeyError) as caught:
        async with pool.claim():
            faulty.down = True
            try:
                await anyio.sleep_forever()
            finally:
                faulty.down = False
                raise KeyError("mine")
    assert caught.value.__notes__ == [f"{KEY} was lost meanwhile (expired)"]


# the check


async def test_what_fails_the_check_rests_and_another_one_is_claimed(store, virtual_clock):
    seen = []

    async def check(claim):
        seen.append((claim.resource, claim.metadata))
        claim.check()
        await anyio.sleep(0.1)
        return claim.resource == "b"

    pool = await two_keys(store, check=check, quarantine=20)
    async with pool.claim() as claim:
        assert claim.resource == "b"
        (a, _) = (await pool.resources().page()).records
        assert (a.state, a.rest) == ("resting", pytest.approx(20, abs=0.5))
    assert seen == [("a", {"n": 1}), ("b", {"n": 2})]


@pytest.mark.parametrize("how", ["False", "raises", "takes too long", "plain"])
async def test_ways_to_fail(store, virtual_clock, how):
    async def check(claim):
        if how == "raises":
            raise OSError("no answer")
        if how == "takes too long":
            await anyio.sleep(6)
        return how != "False"

    pool = await two_keys(store, check=(lambda claim: False) if how == "plain" else check)
    with pytest.raises(AcquireTimeout, match=f"{KEY}: not acquired within 0 s"):
        async with pool.claim(0):
            pytest.fail("unfit")
    (a, b) = (await pool.resources().page()).records
    # for a second at least
    assert (a.state, a.rest, b.state) == ("resting", pytest.approx(1, abs=0.2), "free")


@pytest.mark.parametrize("answer", [True, None, 0])
async def test_whatever_is_not_false_passes(store, answer):
    pool = await two_keys(store, check=lambda claim: answer)
    async with pool.claim(0) as claim:
        assert claim.resource == "a"


async def test_checks_and_waiting_share_the_time_limit(store, virtual_clock):
    async def check(claim):
        await anyio.sleep(1)
        return False

    pool = await two_keys(store, check=check, quarantine=3)
    start = virtual_clock.now()
    with pytest.raises(AcquireTimeout, match="not acquired within 7 s") as caught:
        async with pool.claim(timeout=7):
            pytest.fail("unfit")
    assert caught.value.seconds == 7
    assert 7 <= virtual_clock.now() - start <= 8.1
    await anyio.sleep(5)
    assert await pool.statistics() == ALL_FREE


async def test_a_check_may_retire(store):
    async def check(claim):
        if claim.resource == "a":
            await claim.retire("revoked")
            return False
        return True

    pool = await two_keys(store, check=check)
    async with pool.claim(timeout=1) as claim:
        assert claim.resource == "b"
    assert await states(pool) == {"a": "retired", "b": "free"}


async def test_what_is_lost_during_the_check_is_claimed_anew(store, virtual_clock):
    checked = []

    async def check(claim):
        checked.append(claim)
        if len(checked) == 1:
            claim._session.lose("gone")
            await anyio.sleep_forever()

    pool = await two_keys(store, check=check)
    async with pool.claim(timeout=5) as claim:
        claim.check()
        assert checked[0].lost == "gone" and claim is checked[1]
    assert await pool.statistics() == ALL_FREE


async def test_the_observer_learns_of_it(open_store_on):
    told = []

    class Notes:
        def notice(self, event, /, **fields):
            told.append((event, fields.get("resource"), fields["key"]))

    async with open_store_on(observer=Notes()) as store:
        pool = await two_keys(store, check=lambda claim: claim.resource == "b")
        async with pool.claim():
            pass
    assert told == [
        ("lease.acquired", None, KEY),
        ("claim.unfit", "a", KEY),
        ("lease.released", None, KEY),
        ("lease.acquired", None, KEY),
        ("lease.released", None, KEY),
    ]


# cancellation


async def test_a_cool_down_that_was_cancelled_on_its_way_may_count(faulty, faulty_store, virtual_clock):
    pool = await two_keys(faulty_store)
    faulty.plan(Fault.DELAY, on=EditClaim)
    with anyio.move_on_after(0.5):
        async with pool.claim() as claim:
            await claim.cool_down(60)
    await anyio.sleep(2)
    assert await states(pool) == {"a": "resting", "b": "free"}


# faults


async def test_an_edit_that_the_engine_refuses_is_reported(faulty, faulty_store):
    pool = await two_keys(faulty_store)
    async with pool.claim() as claim:
        faulty.refused = EditClaim
        with pytest.raises(EngineError, match="refused"):
            await claim.cool_down(5)
        faulty.refused = ()
        claim.check()
    assert await pool.statistics() == ALL_FREE
