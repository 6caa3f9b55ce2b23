"""The barrier: all parties go on or none does, generation after generation, in every window of cancellation."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from callers import ON_UVLOOP_TOO, Cancellable, start_in_turn

from tenure.errors import BarrierBroken
from tenure.local._barrier import Barrier, BarrierStatistics
from tenure.testing import (
    assert_checkpoints,
    assert_no_checkpoints,
)


class Party(Cancellable):
    """One that waits at a barrier."""

    def __init__(self, barrier, how="scope"):
        super().__init__(how)
        self.barrier = barrier

    async def do(self):
        try:
            self.outcome = await self.barrier.wait()
        except BarrierBroken:
            self.outcome = "broken"


async def line_up(group, barrier, n, how="scope"):
    return await start_in_turn(group, [Party(barrier, how) for _ in range(n)])


def outcomes(parties):
    return [party.outcome for party in parties]


# ---------------------------------------------------------------------------------------------------------- meeting


async def test_all_go_on_together_each_with_its_place_in_the_order_of_arrival():
    barrier = Barrier(3)
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 2)
        assert outcomes(parties) == [None, None]
        assert (barrier.parties, barrier.n_waiting, barrier.broken) == (3, 2, False)
        parties += await line_up(group, barrier, 1)
    assert outcomes(parties) == [0, 1, 2]
    assert barrier.n_waiting == 0


async def test_a_quick_one_cannot_take_a_place_of_the_generation_that_is_just_let_go():
    barrier = Barrier(2)
    async with anyio.create_task_group() as group:
        (slow,) = await line_up(group, barrier, 1)
        assert await barrier.wait() == 1
        with anyio.move_on_after(0) as again:  # before the other one has run
            await barrier.wait()
    assert again.cancelled_caught
    assert slow.outcome == 0


async def test_a_party_alone_does_not_wait_but_gives_way_to_others():
    barrier = Barrier(1)
    with assert_checkpoints():
        assert await barrier.wait() == 0
    assert barrier.statistics().generation == 1


async def test_async_with_waits_on_entering_and_not_on_leaving():
    barrier, places = Barrier(2), []

    async def party():
        async with barrier as place:
            places.append(place)

    async with anyio.create_task_group() as group:
        group.start_soon(party)
        group.start_soon(party)
    assert sorted(places) == [0, 1]
    assert barrier.n_waiting == 0


def test_made_outside_of_a_loop_it_serves_one_loop_after_the_other():
    barrier = Barrier(2)

    async def meet():
        async with anyio.create_task_group() as group:
            parties = await line_up(group, barrier, 2)
        assert sorted(outcomes(parties)) == [0, 1]

    for backend in ("asyncio", "trio"):
        anyio.run(meet, backend=backend)


# ----------------------------------------------------------------------------------------------------------- broken


async def test_one_that_is_cancelled_breaks_it_for_all_until_it_is_reset():
    barrier = Barrier(3)
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 2)
        parties[0].cancel()
        await anyio.wait_all_tasks_blocked()
        assert outcomes(parties) == ["cancelled", "broken"]
        assert barrier.broken
        with pytest.raises(BarrierBroken, match="the barrier of 3 is broken: a party left it"):
            await barrier.wait()
        barrier.reset()
        assert not barrier.broken
        parties = await line_up(group, barrier, 3)
        assert outcomes(parties) == [0, 1, 2]


async def test_a_party_that_runs_out_of_time_breaks_it(virtual_clock):
    barrier = Barrier(2)
    with pytest.raises(TimeoutError), anyio.fail_after(5):
        await barrier.wait()
    assert virtual_clock.now() == 5
    assert barrier.broken


@pytest.mark.parametrize("n", [1, 2])
async def test_one_that_is_cancelled_before_it_comes_breaks_it_too(n):
    barrier = Barrier(2)
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, n - 1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await barrier.wait()
    assert outcomes(parties) == ["broken"] * (n - 1), "nobody goes on unless all do"
    assert barrier.broken


async def test_aborting_breaks_it():
    barrier = Barrier(3)
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 2)
        with assert_no_checkpoints():
            barrier.abort()
            barrier.abort()
        assert barrier.n_waiting == 0
        parties += await line_up(group, barrier, 1)
    assert outcomes(parties) == ["broken"] * 3
    with pytest.raises(BarrierBroken, match="is broken: it was aborted"):
        await barrier.wait()


async def test_resetting_breaks_it_for_those_that_wait_only():
    barrier = Barrier(2)
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 1)
        with assert_no_checkpoints():
            barrier.reset()
        parties += await line_up(group, barrier, 2)
    assert outcomes(parties) == ["broken", 0, 1]
    assert not barrier.broken


async def test_each_party_gets_an_error_of_its_own():
    barrier, errors = Barrier(3), []

    async def party():
        with pytest.raises(BarrierBroken) as caught:
            await barrier.wait()
        errors.append(caught.value)

    async with anyio.create_task_group() as group:
        group.start_soon(party)
        group.start_soon(party)
        await anyio.wait_all_tasks_blocked()
        barrier.abort()
    assert errors[0] is not errors[1]


async def test_waiting_at_a_broken_barrier_gives_way_to_others():
    barrier = Barrier(2)
    barrier.abort()
    with assert_checkpoints(), pytest.raises(BarrierBroken):
        await barrier.wait()


async def test_it_works_again_when_it_is_reset_while_one_gives_way_at_the_broken_one():
    barrier = Barrier(1)
    barrier.abort()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.lowlevel.checkpoint)
        party = Party(barrier)
        group.start_soon(party.run)
        barrier.reset()
    assert party.outcome == 0


# --------------------------------------------------------------------------------------------------------- "drop"


@ON_UVLOOP_TOO
async def test_r12_with_drop_the_others_wait_on_and_places_are_right_after_a_cancellation(how):
    """python/cpython#155233: asyncio's gave [1, 1, 2]."""
    barrier = Barrier(3, on_departure="drop")
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 2, how)
        parties[0].cancel()
        await anyio.wait_all_tasks_blocked()
        assert barrier.n_waiting == 1 and not barrier.broken
        parties += await line_up(group, barrier, 2, how)
    assert outcomes(parties) == ["cancelled", 0, 1, 2]


async def test_with_drop_it_can_still_be_aborted_and_reset():
    barrier = Barrier(2, on_departure="drop")
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 1)
        barrier.abort()
        parties += await line_up(group, barrier, 1)
        barrier.reset()
        parties += await line_up(group, barrier, 2)
    assert outcomes(parties) == ["broken", "broken", 0, 1]


async def test_with_drop_one_that_is_cancelled_as_the_last_one_comes_leaves_no_mark():
    barrier = Barrier(2, on_departure="drop")
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await barrier.wait()
        assert barrier.n_waiting == 1
        parties += await line_up(group, barrier, 1)
    assert outcomes(parties) == [0, 1]


@ON_UVLOOP_TOO
async def test_a_party_that_was_cancelled_in_this_turn_does_not_count(how):
    barrier = Barrier(3, on_departure="drop")
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 2, how)
        parties[0].cancel()
        assert barrier.n_waiting == barrier.statistics().tasks_waiting == 1
        parties += await line_up(group, barrier, 2)
    assert outcomes(parties) == ["cancelled", 0, 1, 2]


@ON_UVLOOP_TOO
async def test_w2_cancelled_and_then_reset_it_does_not_break_what_comes_after(how):
    barrier = Barrier(3)
    async with anyio.create_task_group() as group:
        parties = await line_up(group, barrier, 2, how)
        parties[0].cancel()
        barrier.reset()
        parties += await line_up(group, barrier, 3)
    assert outcomes(parties) == ["cancelled", "broken", 0, 1, 2]


# ---------------------------------------------------------------------------------------------------------- windows


# -------------------------------------------------------------------------------------------------------- schedules


# -------------------------------------------------------------------------------------------------- what it tells


async def test_it_shows_its_state():
    barrier = Barrier(3)
    async with anyio.create_task_group() as group:
        await line_up(group, barrier, 2)
        assert barrier.statistics() == BarrierStatistics(3, tasks_waiting=2, generation=0, broken=False)
        assert repr(barrier) == "<Barrier 2/3 waiting>"
        barrier.abort()
    assert barrier.statistics() == BarrierStatistics(3, tasks_waiting=0, generation=1, broken=True)
    assert repr(barrier) == "<Barrier 0/3 waiting, broken: it was aborted>"


@pytest.mark.parametrize(
    ("parties", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)]
)
def test_the_number_of_parties_is_checked(parties, error):
    with pytest.raises(error, match=r"parties must be .*, not "):
        Barrier(parties)


def test_what_happens_on_a_departure_is_checked():
    with pytest.raises(ValueError, match=r"on_departure must be .* not 'leave'"):
        Barrier(2, on_departure="leave")
