from __future__ import annotations

import asyncio
import time

import anyio
import anyio.lowlevel
import pytest

from tenure import (
    BarrierBroken,
    CapacityMismatch,
    EngineError,
    OutcomeUnknown,
    StoreClosed,
    open_store,
)
from tenure.engine import Acquire, CloseSession, Granted, Hint, Ping, Release
from tenure.shared.holds._barrier import Barrier, BarrierStatistics
from tenure.store._dispatch import WINDOW
from tenure.testing import assert_checkpoints

KEY = "tenure:barrier:start"


class Parties:
    """Parties at one barrier, and what became of each."""

    def __init__(self, clock):
        self.clock = clock
        self.outcomes = []
        self.scopes = []

    async def party(self, barrier):
        try:
            with anyio.CancelScope() as scope:
                self.scopes.append(scope)
                self.outcomes.append(await barrier.wait())
            if scope.cancelled_caught:
                self.outcomes.append("cancelled")
        except Exception as problem:
            self.outcomes.append(type(problem))

    async def come(self, group, barrier, number=1):
        for _ in range(number):
            group.start_soon(self.party, barrier)
            await self.clock.settle()

    def met(self, *others):
        """The places of all that met, if they met at once."""
        generations, places = zip(*self.outcomes, *others, strict=True)
        assert len(set(generations)) == 1
        return sorted(places)


@pytest.fixture
def parties(virtual_clock):
    return Parties(virtual_clock)


async def test_parties_meet_over_stores_and_names_part(open_store_on, parties):
    async with open_store_on() as one, open_store_on() as two, open_store_on(namespace="else") as three:
        async with anyio.create_task_group() as group:
            await parties.come(group, Barrier(one, "start", 2))
            await parties.come(group, Barrier(three, "start", 2))
            await parties.come(group, Barrier(two, "other", 2))
            assert parties.outcomes == []
            last = await Barrier(two, "start", 2, ttl=5).wait()
            await parties.clock.settle()
            group.cancel_scope.cancel()
    assert parties.met(last) == [0, last.place] == [0, 1]


async def test_a_barrier_of_one_holds_nobody_up(store):
    barrier = Barrier(store, "start", 1)
    before = 0
    for _ in range(3):
        with assert_checkpoints():
            generation, place = await barrier.wait()
        assert generation > before and place == 0
        before = generation


async def test_statistics_show_how_it_stands(store, parties):
    barrier = Barrier(store, "start", 3)
    assert await barrier.statistics() == BarrierStatistics(0, 0, broken=False)
    async with anyio.create_task_group() as group:
        await parties.come(group, barrier, 2)
        assert await barrier.statistics() == BarrierStatistics(3, 2, broken=False)
        await barrier.wait()
        assert await barrier.statistics() == BarrierStatistics(0, 0, broken=False)
        await barrier.abort()
        assert await barrier.statistics() == BarrierStatistics(0, 0, broken=True)


async def test_a_different_number_of_parties_is_reported(store, parties):
    async with anyio.create_task_group() as group:
        await parties.come(group, Barrier(store, "start", 3))
        with pytest.raises(CapacityMismatch) as caught:
            await Barrier(store, "start", 2).wait()
        assert (caught.value.key, caught.value.asked, caught.value.stored) == (KEY, 2, 3)
        await parties.come(group, Barrier(store, "start", 3), 2)
    assert parties.met() == [0, 1, 2]
    assert (await Barrier(store, "start", 1).wait()).place == 0


async def test_wrong_arguments_are_named(store):
    for wrong in (0, -1, 2**31):
        with pytest.raises(ValueError, match="parties must be at"):
            Barrier(store, "start", wrong)
    for wrong in (2.0, "2", True):
        with pytest.raises(TypeError, match="parties must be an int, not"):
            Barrier(store, "start", wrong)
    with pytest.raises(ValueError, match='on_departure must be "break" or "drop", not \'stay\''):
        Barrier(store, "start", 2, on_departure="stay")
    with pytest.raises(ValueError, match="name must not be empty"):
        Barrier(store, "", 2)
    with pytest.raises(ValueError, match="ttl must be at least"):
        Barrier(store, "start", 2, ttl=0.1)


def test_repr():
    barrier = Barrier(open_store("memory:"), "start", 2)
    assert repr(barrier) == "<Barrier 'start' parties=2 on_departure='break'>"


# who leaves


@pytest.mark.parametrize("how", ["cancelled", "timed out", "cancelled before it came"])
async def test_a_party_that_leaves_breaks_it_for_all_until_it_is_reset(store, open_store_on, parties, how):
    barrier = Barrier(store, "start", 4)
    async with open_store_on() as other, anyio.create_task_group() as group:
        await parties.come(group, barrier)
        await parties.come(group, Barrier(other, "start", 4))
        if how == "cancelled":
            await parties.come(group, barrier)
            parties.scopes[-1].cancel()
        elif how == "timed out":
            with pytest.raises(TimeoutError), anyio.fail_after(1):
                await barrier.wait()
        else:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await barrier.wait()
            assert scope.cancelled_caught
        await parties.clock.advance(0.5)
        assert parties.outcomes.count(BarrierBroken) == 2
        with pytest.raises(BarrierBroken, match="tenure:barrier:start: broken: a party left"):
            await Barrier(other, "start", 4).wait()
        assert (await barrier.statistics()).broken
        await barrier.reset()
        parties.outcomes.clear()
        await parties.come(group, barrier, 4)
    assert parties.met() == [0, 1, 2, 3]


async def test_a_barrier_that_has_tripped_returns_to_a_party_that_is_cancelled(store, open_store_on, parties):
    deaf(store)
    barrier = Barrier(store, "start", 2)
    async with open_store_on() as other, anyio.create_task_group() as group:
        after = []

        async def party():
            with anyio.CancelScope() as scope:
                parties.scopes.append(scope)
                parties.outcomes.append(await barrier.wait())
                await anyio.lowlevel.checkpoint()
                after.append("went on")
            after.append(scope.cancelled_caught)

        group.start_soon(party)
        await parties.clock.settle()
        last = await Barrier(other, "start", 2).wait()
        parties.scopes[0].cancel()
        await parties.clock.settle()
        assert parties.met(last) == [0, 1]
        assert after == [True]


async def test_a_timeout_that_comes_too_late_is_none(store, open_store_on, parties):
    deaf(store)
    async with open_store_on() as other, anyio.create_task_group() as group:

        async def party():
            with anyio.fail_after(1):
                parties.outcomes.append(await Barrier(store, "start", 2).wait())

        group.start_soon(party)
        await parties.clock.settle()
        last = await Barrier(other, "start", 2).wait()
    assert parties.met(last) == [0, 1]
    assert parties.clock.now() == pytest.approx(1, abs=0.1)


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("tripped", [False, True])
async def test_a_native_cancellation_is_never_swallowed(store, open_store_on, parties, tripped):
    deaf(store)
    barrier = Barrier(store, "start", 2)
    async with open_store_on() as other:
        task = asyncio.create_task(barrier.wait())
        await parties.clock.settle()
        if tripped:
            await Barrier(other, "start", 2).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await barrier.statistics()).broken is not tripped


@pytest.mark.backends("asyncio")
async def test_no_native_cancellation_is_left_behind(store, open_store_on, parties):
    deaf(store)
    async with open_store_on() as other, anyio.create_task_group() as group:

        async def party():
            with anyio.move_on_after(1):
                parties.outcomes.append(await Barrier(store, "start", 2).wait())
            assert asyncio.current_task().cancelling() == 0
            await anyio.sleep(1)

        group.start_soon(party)
        await parties.clock.settle()
        last = await Barrier(other, "start", 2).wait()
    assert parties.met(last) == [0, 1]


@pytest.mark.parametrize("session", ["new", "open"])
@pytest.mark.parametrize("when", ["before", "on its way"])
async def test_a_cancelled_party_that_would_be_the_last_breaks_it(open_store_on, parties, session, when):
    async with open_store_on() as one, open_store_on() as two, anyio.create_task_group() as group:
        await parties.come(group, Barrier(one, "start", 2))
        if session == "open":
            await two._handle.session(3.0)
        with anyio.CancelScope() as scope:
            if when == "before":
                scope.cancel()
            else:
                group.start_soon(cancel, scope)
            await Barrier(two, "start", 2).wait()
        if when == "before":
            assert scope.cancelled_caught
        await parties.clock.settle()
        went_on = parties.outcomes != [BarrierBroken]
        assert not went_on or parties.met() == [0]
        assert scope.cancelled_caught is not went_on
        with pytest.raises(BarrierBroken) if scope.cancelled_caught else anyio.move_on_after(1):
            await Barrier(two, "start", 2).wait()


async def cancel(scope):
    scope.cancel()


async def test_a_deadline_that_passed_while_the_loop_was_blocked_counts():
    outcomes = []

    async def party(barrier):
        with pytest.raises(BarrierBroken):
            await barrier.wait()
        outcomes.append("broken")

    async with open_store("memory:") as store, anyio.create_task_group() as group:
        barrier = Barrier(store, "start", 2)
        group.start_soon(party, barrier)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as scope:
            time.sleep(0.02)
            await barrier.wait()
        assert scope.cancelled_caught
    assert outcomes == ["broken"]


async def test_a_cancelled_party_that_is_dropped_leaves_nothing(store, parties):
    barrier = Barrier(store, "start", 2, on_departure="drop")
    async with anyio.create_task_group() as group:
        await parties.come(group, barrier)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await barrier.wait()
        assert scope.cancelled_caught
        assert (await barrier.statistics()).waiting == 1
        await parties.come(group, barrier)
    assert parties.met() == [0, 1]


async def test_an_aborted_barrier_stays_broken_until_it_is_reset(store, open_store_on, parties):
    barrier = Barrier(store, "start", 2)
    async with open_store_on() as other, anyio.create_task_group() as group:
        elsewhere = Barrier(other, "start", 2)
        for waiting in (0, 1):
            await parties.come(group, barrier, waiting)
            await elsewhere.abort()
            await parties.clock.settle()
            assert parties.outcomes == [BarrierBroken] * waiting
            assert (await barrier.statistics()).broken
            for late in (barrier, elsewhere):
                with pytest.raises(BarrierBroken, match="aborted"):
                    await late.wait()
            await barrier.reset()
        parties.outcomes.clear()
        await parties.come(group, barrier, 2)
        assert sorted(place for _, place in parties.outcomes) == [0, 1]
        # those that were let go go on
        await elsewhere.abort()
        assert len(parties.outcomes) == 2


async def test_a_cancelled_task_may_abort(store, parties):
    barrier = Barrier(store, "start", 2)
    async with anyio.create_task_group() as group:
        await parties.come(group, barrier)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await barrier.abort()
        await parties.clock.settle()
    assert parties.outcomes == [BarrierBroken]


# faults


async def test_one_that_is_cancelled_while_the_engine_is_away_ends_in_time(faulty, faulty_store, parties):
    barrier = Barrier(faulty_store, "start", 2)
    async with anyio.create_task_group() as group:
        await parties.come(group, barrier)
        faulty.down = True
        parties.scopes[0].cancel()
        await parties.clock.advance(1.1)
        assert parties.outcomes == ["cancelled"]
        faulty.down = False
        await parties.clock.advance(1.1)
        assert (await barrier.statistics()).broken


async def test_what_the_engine_refuses_is_raised(faulty, faulty_store, parties):
    barrier = Barrier(faulty_store, "start", 2)
    await barrier.reset()
    faulty.refused = Acquire
    with pytest.raises(EngineError, match="refused"):
        await barrier.wait()
    faulty.refused = ()
    async with anyio.create_task_group() as group:
        await parties.come(group, barrier, 2)
    assert parties.met() == [0, 1]


# the dead and the lost


@pytest.mark.parametrize("on_departure", ["break", "drop"])
async def test_a_party_that_was_frozen_is_not_mistaken_for_one_of_a_later_barrier(
    faulty, faulty_store, parties, on_departure
):
    deaf(faulty_store)
    async with open_store(faulty._engine, ttl=3.0) as two, anyio.create_task_group() as group:
        await parties.come(group, Barrier(faulty_store, "start", 2, on_departure=on_departure))
        faulty.down = True
        later = Barrier(two, "start", 2, on_departure=on_departure)
        assert (await later.wait()).place == 1
        await parties.clock.advance(10)
        assert (await later.statistics()).parties == 0
        await parties.come(group, later)
        assert (await later.statistics()).waiting == 1
        faulty.down = False
        await parties.clock.advance(3)
        assert parties.outcomes == [OutcomeUnknown]
        assert (await later.wait()).place == 1


async def test_a_loss_after_all_went_on_is_unknown(open_store_on, parties):
    async with (
        open_store_on(ttl=3.0) as one,
        open_store_on(ttl=3.0) as two,
        anyio.create_task_group() as group,
    ):
        deaf(one)
        await parties.come(group, Barrier(one, "start", 2))
        await Barrier(two, "start", 2).wait()
        await two._handle.call(CloseSession(one._handle.sessions.current(3.0).id))
        await parties.clock.advance(2)
        assert parties.outcomes == [OutcomeUnknown]


@pytest.mark.parametrize("alone", [False, True])
async def test_a_dropped_party_that_was_lost_comes_again_to_those_that_wait(open_store_on, parties, alone):
    async with (
        open_store_on(ttl=3.0) as one,
        open_store_on(ttl=3.0) as two,
        anyio.create_task_group() as group,
    ):
        await parties.come(group, Barrier(one, "start", 3, on_departure="drop"))
        if not alone:
            await parties.come(group, Barrier(two, "start", 3, on_departure="drop"))
        await two._handle.call(CloseSession(one._handle.sessions.current(3.0).id))
        await parties.clock.advance(2)
        if alone:
            # all may have met, and have gone on
            assert parties.outcomes == [OutcomeUnknown]
        else:
            assert parties.outcomes == []
            last = await Barrier(two, "start", 3, on_departure="drop").wait()
            await parties.clock.settle()
            assert parties.met(last) == [0, 1, 2]


async def test_a_party_that_was_lost_after_another_learns_that_it_broke(open_store_on, parties):
    async with (
        open_store_on(ttl=3.0) as one,
        open_store_on(ttl=3.0) as two,
        anyio.create_task_group() as group,
    ):
        await parties.come(group, Barrier(one, "start", 3), 2)
        await two._handle.call(CloseSession(one._handle.sessions.current(3.0).id))
        await parties.clock.advance(2)
    assert parties.outcomes == [BarrierBroken] * 2


@pytest.mark.parametrize("on_departure", ["break", "drop"])
async def test_a_session_that_ended_before_costs_nobody_anything(store, parties, on_departure):
    barrier = Barrier(store, "start", 2, on_departure=on_departure)
    async with anyio.create_task_group() as group:
        await parties.come(group, Barrier(store, "other", 1))
        await store._handle.call(CloseSession(store._handle.sessions.current(3.0).id))
        await parties.come(group, barrier, 2)
    del parties.outcomes[0]
    assert parties.met() == [0, 1]


async def test_what_was_not_sent_before_a_loss_is_not_sent_after_it(faulty, faulty_store, parties):
    barrier = Barrier(faulty_store, "start", 2)
    async with anyio.create_task_group() as group:
        await faulty_store._handle.session(3.0)
        faulty.pause(before_effect=True)
        for _ in range(WINDOW):
            faulty_store._handle.send(Ping(), lambda _: None)
        await parties.come(group, barrier)  # behind the pings, in the store
        await parties.clock.advance(2.8)  # lost here, but not yet there
        faulty.resume()
        await parties.come(group, barrier)
    assert parties.met() == [0, 1]


async def test_long_waits_are_kept_alive(store, open_store_on, parties):
    async with open_store_on(ttl=3.0) as other, anyio.create_task_group() as group:
        await parties.come(group, Barrier(store, "start", 2))
        await parties.clock.advance(60)
        last = await Barrier(other, "start", 2).wait()
    assert parties.met(last) == [0, 1]


# closing


async def test_a_store_that_closes_breaks_it_for_the_others(open_store_on, parties):
    async with open_store_on() as other, anyio.create_task_group() as group:
        async with open_store_on() as closing:
            await parties.come(group, Barrier(closing, "start", 3))
            await parties.come(group, Barrier(other, "start", 3))
        await parties.clock.settle()
        assert parties.outcomes in ([StoreClosed, BarrierBroken], [BarrierBroken, StoreClosed])


async def test_a_barrier_that_has_tripped_returns_although_the_store_closes(open_store_on, parties):
    async with open_store_on() as other, anyio.create_task_group() as group:
        async with open_store_on() as closing:
            deaf(closing)
            await parties.come(group, Barrier(closing, "start", 2))
            last = await Barrier(other, "start", 2).wait()
    assert parties.met(last) == [0, 1]


# agreement


def deaf(store):
    """All hints are lost from now on."""
    store._handle.acquisitions.on_hint = lambda _: None


async def test_a_hint_that_overtakes_the_answer_takes_no_outcome(faulty, faulty_store, parties):
    await faulty_store._handle.session(3.0)
    acquisitions = faulty_store._handle.acquisitions
    async with open_store(faulty._engine, ttl=3.0) as two, anyio.create_task_group() as group:
        faulty.pause()
        await parties.come(group, Barrier(faulty_store, "start", 2))
        (name,) = acquisitions.by_name
        last = await Barrier(two, "start", 2).wait()
        parties.scopes[0].cancel()
        await parties.clock.settle()
        acquisitions.on_hint(Hint("", KEY, name, Granted(last.generation)))
        faulty.resume()
    assert parties.met(last) == [0, 1]


async def test_a_withdrawal_follows_its_arrival(recording, virtual_clock):
    async with open_store(recording) as mine:
        async with anyio.create_task_group() as group:
            group.start_soon(Barrier(mine, "start", 2).wait)
            await virtual_clock.settle()
            group.cancel_scope.cancel()
        await mine.ping()
        kinds = [type(operation) for operation in recording.take(Acquire, Release)]
        assert kinds == [Acquire, Release]
