"""Weighted slots: first come first served, nobody barges, nothing is lost in any window of cancellation."""

import anyio
import anyio.lowlevel
import pytest
from callers import EVERY_WAY, Cancellable, start_in_turn
from hypothesis import given, strategies as st

from tenure.local._slots import Slots
from tenure.waiting import this_task


class Taker(Cancellable):
    """One that takes slots."""

    def __init__(self, slots, n, how="scope"):
        super().__init__(how)
        self.slots = slots
        self.n = n

    async def do(self):
        await self.slots.take(self.n)
        self.outcome = "has"


async def line_up(group, slots, weights, how="scope"):
    return await start_in_turn(group, [Taker(slots, n, how) for n in weights])


async def test_free_slots_are_taken_at_once_and_given_back():
    slots = Slots(3)
    await slots.take()
    await slots.take(2)
    assert (slots.limit, slots.in_use, slots.waiting) == (3, 3, 0)
    assert not slots.fits()
    assert repr(slots) == "<Slots 3/3 in use, 0 waiting>"
    slots.give_back(3)
    assert slots.in_use == 0
    assert slots.fits(3)
    assert not slots.fits(4)


def test_taking_without_waiting_needs_no_loop():
    slots = Slots(2)
    slots.take_nowait(2)
    with pytest.raises(anyio.WouldBlock):
        slots.take_nowait()
    slots.give_back()
    slots.take_nowait()
    assert slots.in_use == 2


async def test_taking_is_a_schedule_point():
    slots, turns = Slots(1), []

    async def spinner():
        while True:
            turns.append(True)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(spinner)
        for _ in range(10):
            await slots.take()
            slots.give_back()
        assert len(turns) >= 9, "trio shuffles who runs first in a turn"
        group.cancel_scope.cancel()


@EVERY_WAY
async def test_cancelled_in_the_checkpoint_of_a_free_take_it_has_taken_nothing(how):
    slots = Slots(2)
    taker = Taker(slots, 2, how)
    taker.task = this_task()
    taker.cancel()
    await taker.run()
    assert taker.outcome == "cancelled"
    assert slots.in_use == 0


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)]
)
def test_the_limit_is_checked(limit, error):
    with pytest.raises(error, match="limit must be"):
        Slots(limit)


@pytest.mark.parametrize("n", [0, -1, 4])
async def test_what_can_never_be_had_is_refused(n):
    slots = Slots(3)
    with pytest.raises(ValueError, match="n must be"):
        slots.take_nowait(n)
    with pytest.raises(ValueError, match="n must be"):
        await slots.take(n)
    slots.take_nowait(3)
    with pytest.raises(ValueError, match="n must be"):
        slots.give_back(n)


LIMIT = 4
WEIGHT = st.integers(1, LIMIT)
STEP = st.one_of(
    st.tuples(st.just("come"), WEIGHT),
    st.tuples(st.just("give"), st.integers(0, 20)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("grab"), WEIGHT),
    st.tuples(st.just("turn"), st.just(0)),
)


class Model:
    """What slots mean, on lists: who holds, who waits, and who was granted something but has not run since."""

    def __init__(self, how):
        self.how = how
        self.waiting, self.woken, self.holding, self.doomed = [], [], [], []

    @property
    def in_use(self):
        return sum(taker.n for taker in self.woken + self.holding + self.doomed)

    def fits(self, n):
        return not self.waiting and self.in_use + n <= LIMIT

    def let_in(self):
        while self.waiting and self.in_use + self.waiting[0].n <= LIMIT:
            self.woken.append(self.waiting.pop(0))

    def cancel(self, taker):
        if taker in self.waiting:
            self.waiting.remove(taker)
        elif self.how == "native" and taker in self.woken:
            self.woken.remove(taker)
            self.doomed.append(taker)

    def turn(self):
        self.holding += self.woken
        self.woken, self.doomed = [], []
        self.let_in()
        self.holding += self.woken
        self.woken = []


@EVERY_WAY
@given(steps=st.lists(STEP, min_size=5, max_size=60))
async def test_any_mixture_within_one_turn_does_as_the_model_does(how, virtual_clock, steps):
    slots, model, takers = Slots(LIMIT), Model(how), []
    async with anyio.create_task_group() as group:
        for step, number in [*steps, ("turn", 0)]:
            match step:
                case "come":
                    (taker,) = await line_up(group, slots, [number], how)
                    takers.append(taker)
                    model.turn()
                    (model.holding if model.fits(number) else model.waiting).append(taker)
                case "grab":
                    if model.fits(number):
                        slots.take_nowait(number)
                        model.holding.append(Taker(slots, number))
                    else:
                        with pytest.raises(anyio.WouldBlock):
                            slots.take_nowait(number)
                case "give" if model.holding:
                    slots.give_back(model.holding.pop(number % len(model.holding)).n)
                    model.let_in()
                case "cancel" if candidates := model.waiting + model.woken:
                    taker = candidates[number % len(candidates)]
                    taker.cancel()
                    model.cancel(taker)
                case "turn":
                    await anyio.wait_all_tasks_blocked()
                    model.turn()
                    assert slots.waiting == len(model.waiting)
                    assert [taker for taker in takers if taker.outcome is None] == model.waiting
                    assert all(taker.outcome in ("has", None) for taker in model.holding)
            assert slots.in_use == model.in_use <= LIMIT
        group.cancel_scope.cancel()
    assert slots.waiting == 0
