"""So many at once, so many in line, each kind its share, and nothing lost in any window of cancellation."""

from contextlib import AsyncExitStack
from decimal import Decimal

import anyio
import anyio.lowlevel
import pytest
from callers import EVERY_WAY, Cancellable
from hypothesis import given, strategies as st

from tenure.errors import AcquireTimeout, BulkheadFull
from tenure.local._bulkhead import Bulkhead
from tenure.testing import assert_checkpoints


class Guest(Cancellable):
    """One that enters and stays until `leave` is set."""

    def __init__(self, bulkhead, kind=None, *, timeout=None, how="scope"):
        super().__init__(how)
        self.bulkhead = bulkhead
        self.kind = kind
        self.timeout = timeout
        self.leave = anyio.Event()

    async def do(self):
        try:
            async with self.bulkhead.enter(self.kind, timeout=self.timeout):
                self.outcome = "inside"
                await self.leave.wait()
            self.outcome = "left"
        except (BulkheadFull, AcquireTimeout) as error:
            self.outcome = type(error)


async def settle():
    """Let everybody run until they wait; anyio's own way takes 0.1 s each time."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def come(group, bulkhead, *kinds, **options):
    guests = [Guest(bulkhead, kind, **options) for kind in kinds]
    for guest in guests:
        group.start_soon(guest.run)
        await settle()
    return guests


def outcomes(guests):
    return [guest.outcome for guest in guests]


async def go(*guests):
    for guest in guests:
        guest.leave.set()
    await settle()


async def test_so_many_are_inside_and_the_others_follow_first_come_first_served():
    bulkhead = Bulkhead(2)
    async with anyio.create_task_group() as group:
        a, b, c, d = await come(group, bulkhead, *[None] * 4)
        assert outcomes([a, b, c, d]) == ["inside", "inside", None, None]
        assert repr(bulkhead) == "<Bulkhead 2/2 in use, 2 waiting>"
        await go(b)
        assert outcomes([a, b, c, d]) == ["inside", "left", "inside", None]
        await go(a, c, d)
    assert repr(bulkhead) == "<Bulkhead 0/2 in use, 0 waiting>"


async def test_a_caller_that_finds_the_line_full_is_refused():
    bulkhead = Bulkhead(1, max_waiting=1)
    async with anyio.create_task_group() as group:
        inside, waiting = await come(group, bulkhead, None, None)
        with assert_checkpoints(), pytest.raises(BulkheadFull, match="1 are inside and 1 wait") as full:
            async with bulkhead.enter():
                pytest.fail("let in")
        assert (full.value.limit, full.value.waiting) == (1, 1)
        statistics = bulkhead.statistics()
        assert (statistics.in_use, statistics.tasks_waiting, statistics.refused) == (1, 1, 1)
        await go(inside, waiting)


async def test_with_no_line_at_all_a_caller_that_finds_it_occupied_is_refused():
    bulkhead = Bulkhead(1, max_waiting=0)
    async with bulkhead.enter():
        with pytest.raises(BulkheadFull):
            async with bulkhead.enter():
                pytest.fail("let in")
    async with bulkhead.enter():
        pass


async def test_an_exception_gives_the_slot_back():
    bulkhead = Bulkhead(1)
    with pytest.raises(KeyError):
        async with bulkhead.enter():
            raise KeyError
    assert bulkhead.statistics().in_use == 0


async def test_entering_is_a_checkpoint_and_leaving_is_none():
    bulkhead = Bulkhead(1)
    with assert_checkpoints():
        async with bulkhead.enter():
            pass
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bulkhead.enter())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stack.aclose()
        assert bulkhead.statistics().in_use == 0


async def test_a_timeout_ends_the_wait_and_not_the_stay(virtual_clock):
    bulkhead = Bulkhead(1)
    async with bulkhead.enter(timeout=1):
        began = virtual_clock.now()
        with pytest.raises(AcquireTimeout) as late:
            async with bulkhead.enter(timeout=2):
                pytest.fail("let in")
        assert virtual_clock.now() - began == pytest.approx(2)
        assert (late.value.key, late.value.seconds) == ("bulkhead", 2)
        await anyio.sleep(5)
    assert bulkhead.statistics().tasks_waiting == bulkhead.statistics().in_use == 0


async def test_a_timeout_of_zero_tries_once(virtual_clock):
    bulkhead = Bulkhead(1)
    async with bulkhead.enter(timeout=0):
        with assert_checkpoints(), pytest.raises(AcquireTimeout):
            async with bulkhead.enter(timeout=0):
                pytest.fail("let in")
    async with bulkhead.enter(timeout=0):
        pass
    assert virtual_clock.now() == pytest.approx(0, abs=1e-3)


# ---------------------------------------------------------------------------------------------------------------- kinds


async def test_one_kind_alone_borrows_everything():
    bulkhead = Bulkhead(4, shares={"checkout": 3, "search": 1})
    async with anyio.create_task_group() as group:
        guests = await come(group, bulkhead, *["search"] * 5)
        assert outcomes(guests) == ["inside"] * 4 + [None]
        await go(*guests)


async def test_a_lender_is_served_first_until_it_has_its_share():
    bulkhead = Bulkhead(4, shares={"checkout": 3, "search": 1})
    async with anyio.create_task_group() as group:
        searches = await come(group, bulkhead, *["search"] * 6)
        checkouts = await come(group, bulkhead, *["checkout"] * 4)
        for number in range(3):
            await go(searches[number])
            assert outcomes(checkouts).count("inside") == number + 1
        assert outcomes(searches) == ["left"] * 3 + ["inside", None, None]
        await go(checkouts[0])
        assert outcomes(checkouts) == ["left", "inside", "inside", "inside"]
        await go(searches[3])
        assert outcomes(searches)[4] == "inside"
        kinds = bulkhead.statistics().kinds
        assert [(kinds[kind].in_use, kinds[kind].tasks_waiting) for kind in ("checkout", "search")] == [
            (3, 0),
            (1, 1),
        ]
        await go(*searches, *checkouts)


async def test_equals_go_by_how_long_they_have_waited():
    bulkhead = Bulkhead(1, shares={"a": 5, "b": 1, "c": 1})
    async with anyio.create_task_group() as group:
        guests = await come(group, bulkhead, "a", "b", "a", "c", "a")
        for number in range(5):
            assert outcomes(guests) == ["left"] * number + ["inside"] + [None] * (4 - number)
            await go(guests[number])


async def test_each_kind_has_a_line_of_its_own():
    bulkhead = Bulkhead(1, max_waiting=1, shares={"a": 1, "b": 1})
    async with anyio.create_task_group() as group:
        guests = await come(group, bulkhead, "a", "a", "a", "b", "b")
        assert outcomes(guests) == ["inside", None, BulkheadFull, None, BulkheadFull]
        statistics = bulkhead.statistics()
        assert (statistics.tasks_waiting, statistics.refused) == (2, 2)
        assert statistics.kinds["b"].refused == 1
        await go(*guests)
        with pytest.raises(TypeError):
            statistics.kinds["c"] = statistics.kinds["b"]


async def test_errors_name_the_kind():
    bulkhead = Bulkhead(1, max_waiting=1, shares={"search": 1})
    async with bulkhead.enter("search"):
        with pytest.raises(AcquireTimeout, match="bulkhead 'search'"):
            async with bulkhead.enter("search", timeout=0):
                pytest.fail("let in")


@pytest.mark.parametrize(("shares", "kind"), [(None, "a"), ({"a": 1}, None), ({"a": 1}, "b")])
def test_a_kind_without_a_share_is_refused(shares, kind):
    with pytest.raises(ValueError, match="^kind must be one of"):
        Bulkhead(1, shares=shares).enter(kind)


@EVERY_WAY
async def test_let_in_and_then_cancelled_it_leaves_nothing_behind(how):
    """1, window 3."""
    bulkhead = Bulkhead(1)
    async with anyio.create_task_group() as group:
        async with bulkhead.enter():
            (victim,) = await come(group, bulkhead, None, how=how)
            (heir,) = await come(group, bulkhead, None)
        victim.cancel()
        await settle()
        assert outcomes([victim, heir]) == ["cancelled", "inside"]
        await go(heir)
    assert bulkhead.statistics().in_use == 0


# --------------------------------------------------------------------------------------------------------- cancellation


@EVERY_WAY
async def test_a_newcomer_in_that_turn_does_not_queue_behind_the_dead(how):
    """Callers that were cancelled in this turn of the loop fill no place in the line."""
    bulkhead = Bulkhead(1, max_waiting=1)
    async with anyio.create_task_group() as group:
        async with AsyncExitStack() as stay:
            await stay.enter_async_context(bulkhead.enter())
            (victim,) = await come(group, bulkhead, None, how=how)
            victim.cancel()
            newcomer = Guest(bulkhead)
            with anyio.move_on_after(0):  # what it does before it parks, it does in this turn
                await newcomer.run()
            assert newcomer.outcome == "cancelled"
            assert bulkhead.statistics().refused == 0, "it found room in the line"
            await stay.aclose()
        async with bulkhead.enter():
            pass
        await settle()
        assert victim.outcome == "cancelled"


async def test_cancelled_in_the_checkpoint_of_a_free_slot_it_has_taken_nothing():
    bulkhead = Bulkhead(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with bulkhead.enter():
            pytest.fail("let in")
    assert bulkhead.statistics().in_use == 0


# ------------------------------------------------------------------------------------------------------------ the model


@given(
    limit=st.integers(1, 4),
    shares=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    steps=st.lists(
        st.tuples(st.sampled_from(["come", "come", "go", "cancel"]), st.integers(0, 5)), max_size=25
    ),
)
@pytest.mark.backends("asyncio")
async def test_it_lets_in_whom_the_model_lets_in(limit, shares, steps):
    """The model keeps one list in order of arrival, and looks through all of it each time."""
    bulkhead = Bulkhead(limit, shares=dict(enumerate(shares)))
    inside, waiting = [], []

    def in_use(kind):
        return sum(guest.kind == kind for guest in inside)

    async with anyio.create_task_group() as group:
        for step, number in steps:
            if step == "come":
                (guest,) = await come(group, bulkhead, number % len(shares))
                waiting.append(guest)
            elif step == "go" and inside:
                await go(inside.pop(number % len(inside)))
            elif step == "cancel" and waiting:
                waiting.pop(number % len(waiting)).cancel()
                await settle()
            while waiting and len(inside) < limit:
                best = min(waiting, key=lambda guest: in_use(guest.kind) / shares[guest.kind])
                waiting.remove(best)
                inside.append(best)
            assert outcomes(inside) == ["inside"] * len(inside)
            assert outcomes(waiting) == [None] * len(waiting)
        group.cancel_scope.cancel()
    assert bulkhead.statistics().in_use == bulkhead.statistics().tasks_waiting == 0


def test_one_bulkhead_may_serve_one_loop_after_the_other():
    bulkhead = Bulkhead(1)

    async def crowd():
        async with anyio.create_task_group() as group:
            for guest in [Guest(bulkhead) for _ in range(3)]:
                guest.leave.set()
                group.start_soon(guest.run)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(crowd, backend=backend)
    assert bulkhead.statistics().in_use == 0


@pytest.mark.parametrize(
    ("options", "name", "error"),
    [
        ({"limit": 0}, "limit", ValueError),
        ({"limit": 1.5}, "limit", TypeError),
        ({"limit": None}, "limit", TypeError),
        ({"max_waiting": -1}, "max_waiting", ValueError),
        ({"max_waiting": "1"}, "max_waiting", TypeError),
        ({"shares": {}}, "shares", ValueError),
        ({"shares": {"a": 0}}, "shares", ValueError),
        ({"shares": {"a": 1, "b": float("inf")}}, "shares", ValueError),
        ({"shares": {"a": float("nan")}}, "shares", ValueError),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(options, name, error):
    with pytest.raises(error, match=f"^{name} must"):
        Bulkhead(**{"limit": 1} | options)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused(timeout):
    with pytest.raises(ValueError, match="^timeout must be 0 or more seconds"):
        Bulkhead(1).enter(timeout=timeout)


@pytest.mark.parametrize("timeout", ["5", True, Decimal("0.01"), [1]])
def test_a_timeout_that_is_no_number_is_refused(timeout):
    with pytest.raises(TypeError, match="^timeout must be a number of seconds"):
        Bulkhead(1).enter(timeout=timeout)
