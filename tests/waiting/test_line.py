"""The line of waiters: its states, and cancellation in each of the four windows.

W1: cancelled while parked. W2: cancelled, then about to be granted something in the same turn. W2N: the same, with a
newcomer in that turn. W3: granted something, then cancelled in the same turn.
"""

import asyncio
import gc
from math import inf

import anyio
import anyio.lowlevel
import pytest
from callers import ON_UVLOOP_TOO, Caller

from tenure.testing import assert_checkpoints
from tenure.waiting import Line


def test_a_line_of_nobody_is_refused():
    with pytest.raises(AttributeError, match="__self__"):
        Line(lambda _: None)


class Trier(Caller):
    """One whose call may be refused."""

    async def do(self, fn, *args):
        try:
            await super().do(fn, *args)
        except Exception as error:
            self.outcome = ("raised", error)


class Ticket:
    """An owner of a line: tickets are handed to whoever is first, and back again."""

    def __init__(self, tickets=()):
        self.tickets = list(tickets)
        self.left = []
        self.line = Line(self.on_leave)

    def on_leave(self, waiter):
        self.left.append((waiter.want, waiter.granted))
        if waiter.granted:
            self.tickets.insert(0, waiter.value)
        self.hand_out()

    def hand_out(self):
        while self.tickets and (waiter := self.line.head()) is not None:
            assert self.line.grant(waiter, self.tickets.pop(0))

    def give(self, ticket):
        self.tickets.append(ticket)
        self.hand_out()

    async def take(self, want, timeout=inf):
        return await self.line.wait(self.line.join(want), timeout)

    def take_nowait(self):
        if self.line or not self.tickets:
            raise anyio.WouldBlock
        return self.tickets.pop(0)


async def line_up(group, owner, wants, how="scope"):
    callers = []
    for want in wants:
        callers.append(Trier(how))
        group.start_soon(callers[-1].run, owner.take, want)
        await anyio.wait_all_tasks_blocked()
    return callers


async def test_first_come_first_served():
    owner = Ticket()
    async with anyio.create_task_group() as group:
        callers = await line_up(group, owner, "abc")
        assert [waiter.want for waiter in owner.line] == ["a", "b", "c"]
        assert len(owner.line) == 3
        owner.give(1)
        assert [waiter.want for waiter in owner.line] == ["b", "c"]
        owner.give(2)
        owner.give(3)
        assert not owner.line
    assert [caller.outcome for caller in callers] == [("returned", 1), ("returned", 2), ("returned", 3)]
    assert owner.left == []


async def test_enlisting_is_synchronous_and_the_owner_may_grant_anywhere():
    owner = Ticket()
    first, second = owner.line.join("first"), owner.line.join("second")
    assert list(owner.line) == [first, second]
    assert owner.line.grant(second, 2)
    assert list(owner.line) == [first]
    assert await owner.line.wait(second) == 2
    owner.line.leave(first)
    assert owner.left == [("first", False)]


async def test_granted_before_it_parks_it_makes_a_checkpoint():
    owner, turns = Ticket(), []

    async def spinner():
        while True:
            turns.append(True)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(spinner)
        for number in range(10):
            waiter = owner.line.join("x")
            owner.give(number)
            assert await owner.line.wait(waiter) == number
        assert len(turns) >= 9, "trio shuffles who runs first in a turn"
        group.cancel_scope.cancel()


@ON_UVLOOP_TOO
async def test_granted_before_it_parks_and_cancelled_in_that_checkpoint_it_gives_back(how):
    owner, caller = Ticket(), Trier(how)

    async def take():
        waiter = owner.line.join("x")
        owner.give(1)
        caller.cancel()
        return await owner.line.wait(waiter)

    await caller.run(take)
    assert caller.outcome[0] == "cancelled"
    assert owner.left == [("x", True)]
    assert owner.tickets == [1]


async def test_a_waiter_can_be_granted_only_once():
    owner = Ticket()
    waiter = owner.line.join("x")
    assert owner.line.grant(waiter, 1)
    assert not owner.line.grant(waiter, 2)
    assert not owner.line.fail(waiter, KeyError())
    assert await owner.line.wait(waiter) == 1


@ON_UVLOOP_TOO
async def test_w2_cancelled_and_then_offered_something_the_next_one_gets_it(how):
    owner = Ticket()
    async with anyio.create_task_group() as group:
        first, second = await line_up(group, owner, "ab", how)
        (dead, _) = owner.line
        first.cancel()
        owner.give(1)
        assert not owner.line.grant(dead, 2)
        assert not dead.granted
        assert owner.line.head() is None
    assert (first.outcome[0], second.outcome) == ("cancelled", ("returned", 1))
    assert owner.left == [("a", False)]
    assert owner.tickets == []


@ON_UVLOOP_TOO
async def test_w2_the_cancelled_are_passed_over_in_the_middle_too(how):
    owner = Ticket()
    async with anyio.create_task_group() as group:
        callers = await line_up(group, owner, "abc", how)
        callers[1].cancel()
        assert [waiter.want for waiter in owner.line] == ["a", "c"]
        owner.give(1)
        owner.give(2)
    assert [caller.outcome[0] for caller in callers] == ["returned", "cancelled", "returned"]


@ON_UVLOOP_TOO
async def test_w3_granted_and_then_cancelled_nothing_is_lost(how):
    owner = Ticket()
    async with anyio.create_task_group() as group:
        first, second = await line_up(group, owner, "ab", how)
        owner.give(1)
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        if how == "scope":
            assert first.outcome == ("returned", 1)
            assert second.outcome is None
            assert owner.left == []
            owner.give(2)
        else:
            assert first.outcome[0] == "cancelled"
            assert owner.left == [("a", True)]
    assert second.outcome == ("returned", 2 if how == "scope" else 1)


async def test_a_cancelled_caller_still_joins_and_leaves_cleanly():
    owner = Ticket()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await owner.take("x")
    assert scope.cancelled_caught
    assert owner.left == [("x", False)]
    assert not owner.line


@pytest.mark.backends("asyncio", "uvloop")
async def test_the_reason_of_a_native_cancel_is_not_swallowed():
    owner, caught = Ticket(), []

    async def take():
        try:
            await owner.take("x")
        except BaseException as error:
            caught.append(error)
            raise

    async with anyio.create_task_group() as group:
        caller = Trier("native")
        group.start_soon(caller.run, take)
        await anyio.wait_all_tasks_blocked()
        caller.task.cancel("because")
    assert caught[0].args == ("because",)


async def test_failed_waiters_raise_each_its_own_error_and_the_owner_hears_nothing():
    owner = Ticket()
    async with anyio.create_task_group() as group:
        callers = await line_up(group, owner, "abc")
        owner.line.fail_all(lambda: anyio.ClosedResourceError("closed"))
        assert not owner.line
        assert len(owner.line) == 0
    errors = [caller.outcome[1] for caller in callers]
    assert all(type(error) is anyio.ClosedResourceError for error in errors)
    assert len({id(error) for error in errors}) == 3
    assert owner.left == []


async def test_failed_before_it_parks():
    owner = Ticket()
    waiter = owner.line.join("x")
    assert owner.line.fail(waiter, KeyError("x"))
    assert not owner.line.fail(waiter, KeyError("y"))
    with pytest.raises(KeyError, match="x"):
        await owner.line.wait(waiter)


@ON_UVLOOP_TOO
async def test_failed_and_cancelled_in_either_order_the_owner_is_reported_at_most_once(how):
    owner = Ticket()
    async with anyio.create_task_group() as group:
        first, second = await line_up(group, owner, "ab", how)
        first.cancel()
        owner.line.fail_all(KeyError)
        second.cancel()
    assert first.outcome[0] == "cancelled"
    assert second.outcome[0] == ("raised" if how == "scope" else "cancelled")
    assert owner.left == [("a", False)]


async def test_a_failed_waiter_leaves_no_circle_of_references():
    owner = Ticket()
    waiter = owner.line.join("x")
    owner.line.fail(waiter, KeyError())
    with pytest.raises(KeyError):
        await owner.line.wait(waiter)
    assert waiter.error is None


async def test_granting_while_going_through_the_line():
    owner = Ticket()
    async with anyio.create_task_group() as group:
        callers = await line_up(group, owner, "abcd")
        for waiter in owner.line:
            if waiter.want in "ac":
                owner.line.grant(waiter, waiter.want.upper())
                owner.line.join("newcomer")
        assert [waiter.want for waiter in owner.line] == ["b", "d", "newcomer", "newcomer"]
        for waiter in owner.line:
            if waiter.want == "newcomer":
                owner.line.leave(waiter)
        owner.give(1)
        owner.give(2)
    assert [caller.outcome[1] for caller in callers] == ["A", 1, "C", 2]


async def test_leaving_twice_calls_the_owner_once():
    owner = Ticket()
    waiter = owner.line.join("x")
    owner.line.leave(waiter)
    owner.line.leave(waiter)
    assert owner.left == [("x", False)]
    assert repr(waiter) == "<Waiter gone want='x'>"


async def test_each_waiter_leaves_when_its_own_time_has_come(virtual_clock):
    owner, times = Ticket(), {}

    async def take(want, timeout):
        try:
            times[want] = await owner.take(want, timeout)
        except TimeoutError:
            times[want] = anyio.current_time()

    async with anyio.create_task_group() as group:
        for want, timeout in {"a": 3, "b": 1, "c": inf, "d": 2, "e": 1.5, "f": 9}.items():
            group.start_soon(take, want, timeout)
            await virtual_clock.settle()
        await anyio.sleep(5)
        assert times == {"a": 3, "b": 1, "d": 2, "e": 1.5}
        assert owner.left == [("b", False), ("e", False), ("d", False), ("a", False)]
        assert [waiter.want for waiter in owner.line] == ["c", "f"]
        owner.give("first")
        owner.give("second")
    assert (times["c"], times["f"]) == ("first", "second")
    assert len(owner.left) == 4
    assert anyio.current_time() == 5


@pytest.mark.backends("asyncio")  # no plain function can run in the turn in which trio cancels a block
@pytest.mark.parametrize("granted", ["before", "after"])
async def test_its_time_is_over_in_the_turn_in_which_it_is_granted_something(granted, virtual_clock):
    owner, caller = Ticket(), Trier()
    loop = asyncio.get_running_loop()
    async with anyio.create_task_group() as group:
        if granted == "before":
            loop.call_at(1, owner.give, "ticket")
        group.start_soon(caller.run, owner.take, "a", 1)
        await virtual_clock.settle()
        if granted == "after":
            loop.call_at(1, owner.give, "ticket")
        await anyio.sleep(2)
    if granted == "before":
        assert caller.outcome == ("returned", "ticket")
        assert (owner.left, owner.tickets) == ([], [])
    else:
        assert isinstance(caller.outcome[1], TimeoutError)
        assert (owner.left, owner.tickets) == ([("a", False)], ["ticket"])


@pytest.mark.backends("asyncio", "trio", "uvloop")
async def test_a_time_limit_of_zero_is_a_checkpoint_and_one_try():
    owner = Ticket()
    with assert_checkpoints(), pytest.raises(TimeoutError):
        await owner.take("a", 0)
    assert owner.left == [("a", False)]


@pytest.mark.backends("asyncio")  # trio keeps the deadlines itself
async def test_waiters_that_have_left_do_not_pile_up_until_their_time(virtual_clock):
    owner = Ticket()
    async with anyio.create_task_group() as group:
        group.start_soon(Trier().run, owner.take, "stays", 100)
        await virtual_clock.settle()
        for n in range(50):
            await line_up_with_limit(group, virtual_clock, owner, n)
            owner.line.grant(list(owner.line)[-1], n)
        assert len(owner.line._deadlines.heap) <= 4
        owner.give("last")
    assert anyio.current_time() < 1, "the timer was taken back"


async def line_up_with_limit(group, clock, owner, want):
    group.start_soon(Trier().run, owner.take, want, 60)
    await clock.settle()


def test_a_line_with_time_limits_may_be_used_on_one_loop_after_the_other():
    owner = Ticket()
    for options in ({}, {"use_uvloop": True}, {}):
        with pytest.raises(TimeoutError):
            anyio.run(owner.take, "a", 0.001, backend="asyncio", backend_options=options)
    with pytest.raises(TimeoutError):
        anyio.run(owner.take, "a", 0.001, backend="trio")
    assert owner.left == [("a", False)] * 4


@pytest.fixture(params=["asyncio", "uvloop"])
def left_waiting(request):
    """Has a task wait for a ticket on a loop that is closed then. Returns the task."""

    def leave(owner, timeout):
        loop = pytest.importorskip(request.param).new_event_loop()
        task = loop.create_task(owner.take("left", timeout))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        task._log_destroy_pending = False
        return task

    return leave


def test_a_waiter_of_a_closed_loop_does_not_keep_later_ones_beyond_their_time(left_waiting):
    owner = Ticket()
    task = left_waiting(owner, 0.1)

    async def main():
        with anyio.move_on_after(5) as limit, pytest.raises(TimeoutError):
            await owner.take("a", 0.15)
        assert not limit.cancelled_caught

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(main, backend=backend)
    # on a busy machine the time of the first waiter may pass before its loop is closed
    assert owner.left[-3:] == [("a", False)] * 3
    del task


def test_a_waiter_of_a_closed_loop_gives_back_what_it_is_granted_when_it_is_collected(left_waiting):
    owner = Ticket()
    task = left_waiting(owner, inf)
    with pytest.raises(RuntimeError, match="closed"):
        owner.give(1)
    assert not owner.line
    del task
    gc.collect()
    assert (owner.left, owner.tickets) == ([("left", True)], [1])
