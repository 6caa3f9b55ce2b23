"""The line of waiters, and the slots above it."""

from __future__ import annotations

from collections import Counter, deque
from math import inf

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.referees import Fair
from explored.world import no_one_waits_behind, pause

from tenure.local._slots import Slots
from tenure.testing import cancellable, newcomer
from tenure.waiting import Line


class Mailbox:
    """Items for whoever comes first: the least that can be built on a line."""

    def __init__(self):
        self.items = deque()
        self.line = Line(self._left)
        self.left = Counter()
        self._came = self._served = 0

    def put(self, item):
        self.items.append(item)
        self._hand_out()

    async def get(self, timeout=inf):
        self._came += 1
        waiter = self.line.join(self._came)
        self._hand_out()
        return await self.line.wait(waiter, timeout)

    def _hand_out(self):
        while self.items and (waiter := self.line.head()) is not None:
            assert waiter.waiting and waiter in list(self.line), "the head is one who waits"
            assert waiter.want > self._served, f"{waiter} was granted after {self._served}"
            self._served = waiter.want
            assert self.line.grant(waiter, self.items[0]), "the head can be granted something"
            assert not self.line.grant(waiter, self.items[0]) and not self.line.fail(waiter, KeyError()), (
                "once"
            )
            self.items.popleft()

    def _left(self, waiter):
        assert waiter.gone and not waiter.waiting and waiter not in list(self.line)
        self.left[waiter] += 1
        assert self.left[waiter] == 1, f"{waiter} left twice"
        if waiter.granted:
            self.items.appendleft(waiter.value)
        self._hand_out()


@scenario("waiting.Line.wait")
async def a_line_loses_no_item():
    box, received, cancelled = Mailbox(), [], []

    async def taker(arrival=pause):
        await arrival()
        received.append(await box.get())

    async def victim():
        with cancellable() as scope:
            item = await box.get()
            received.append(item)
        cancelled.append(scope.cancelled_caught)

    async def giver():
        for item in range(5):
            box.put(item)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(taker, anyio.lowlevel.checkpoint)
        group.start_soon(victim)
        group.start_soon(taker)
        group.start_soon(taker, newcomer)
        group.start_soon(victim)
        group.start_soon(giver)
    assert sorted([*received, *box.items]) == [0, 1, 2, 3, 4]
    assert 3 <= len(received) <= 5 and len(received) >= 5 - sum(cancelled)
    assert len(box.line) == 0 and not box.line and list(box.line) == []


@scenario("waiting.Line.wait")
async def a_line_hands_nothing_to_a_waiter_whose_time_is_over():
    box, received, late = Mailbox(), [], []

    async def taker(timeout):
        with cancellable():
            try:
                received.append(await box.get(timeout))
            except TimeoutError:
                late.append(timeout)

    async def giver():
        for item in range(3):
            await anyio.sleep(0.01)
            box.put(item)

    async with anyio.create_task_group() as group:
        group.start_soon(giver)
        for timeout in (0.01, 0.02, 0.02, 0.03, 1):
            group.start_soon(taker, timeout)
    assert sorted([*received, *box.items]) == [0, 1, 2]
    assert len(received) + len(late) <= 5 and len(box.line) == 0


@scenario("waiting.Line.wait")
async def a_line_fails_each_with_an_error_of_its_own():
    left, errors, cancelled = Counter(), [], []
    line = Line(lambda waiter: left.update([waiter]), "the line")

    async def waiter(arrival=anyio.lowlevel.checkpoint):
        await arrival()
        place = line.join(None)
        try:
            await line.wait(place)
        except KeyError as error:
            errors.append(error)
            assert place.gone and place.error is None and not left[place]

    async def victim():
        with cancellable() as scope:
            place = line.join(None)
            try:
                await line.wait(place)
            except KeyError as error:
                errors.append(error)
            except BaseException:
                # one that was failed and then cancelled natively has gone already
                assert place.gone and left[place] <= 1
                raise
        cancelled.append(scope.cancelled_caught)

    async def passer_by():
        place = line.join(None)
        await pause()
        line.leave(place)
        line.leave(place)
        assert left[place] <= 1 and place.gone and not line.grant(place, None)

    async def closer():
        while len(errors) + sum(cancelled) < 5:
            await anyio.sleep(0.01)
            line.fail_all(KeyError)
            assert not line

    async with anyio.create_task_group() as group:
        group.start_soon(waiter)
        group.start_soon(victim)
        group.start_soon(passer_by)
        group.start_soon(waiter)
        group.start_soon(waiter, newcomer)
        group.start_soon(victim)
        group.start_soon(closer)
    assert len(set(map(id, errors))) == len(errors) == 5 - sum(cancelled)
    assert all(times == 1 for times in left.values()) and len(line) == 0


@scenario("waiting.Line.wait")
async def a_line_grants_out_of_order():
    """As limiters and claims do: whoever matches goes first, wherever it stands."""
    taken = []

    def grant():
        for waiter in line:
            if waiter.want in free and line.grant(waiter, waiter.want):
                free.remove(waiter.want)

    def left(waiter):
        if waiter.granted:
            free.append(waiter.value)
        grant()

    line, free = Line(left, "the line"), []

    async def taker(want, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        taken.append(await line.wait(line.join(want)))

    async def victim(want):
        with cancellable():
            taken.append(await line.wait(line.join(want)))

    async def giver():
        for thing in "cab":
            await anyio.sleep(0.01)
            free.append(thing)
            grant()
        while len(line):
            await anyio.sleep(0.01)
            grant()

    async with anyio.create_task_group() as group:
        group.start_soon(taker, "a")
        group.start_soon(victim, "b")
        group.start_soon(taker, "c")
        group.start_soon(giver)
    assert sorted([*taken, *free]) == ["a", "b", "c"] and {"a", "c"} <= set(taken)


@scenario("local.Slots.take")
async def slots_go_down_their_line():
    """Heavy and light ones: a heavy one that leaves lets the light ones behind it in."""
    slots, fair = Slots(3), Fair(3)

    async def taker(weight, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        place = fair.came(weight)
        await slots.take(weight)
        with fair.inside(place):
            try:
                await pause()
            finally:
                slots.give_back(weight)

    async def victim(weight):
        with cancellable():
            place = fair.came(weight, steady=False)
            await slots.take(weight)
            with fair.inside(place):
                try:
                    await pause()
                finally:
                    slots.give_back(weight)

    async def thief():
        for _ in range(8):
            if slots.fits():
                place = fair.came()
                slots.take_nowait()
                with fair.inside(place):
                    slots.give_back()
            await anyio.sleep(0.005)

    async with anyio.create_task_group() as group:
        group.start_soon(taker, 2)
        group.start_soon(victim, 3)
        group.start_soon(taker, 1)
        group.start_soon(taker, 3, newcomer)
        group.start_soon(victim, 1)
        group.start_soon(thief)
    assert slots.in_use == slots.waiting == 0 and slots.fits(3)
    assert fair.served >= 3


@scenario("local.Slots.take")
async def a_light_one_goes_in_when_the_heavy_one_ahead_gives_up():
    slots, fair, heavy_ended, light_ended = Slots(2), Fair(2), anyio.Event(), anyio.Event()
    slots.take_nowait()

    async def heavy():
        with cancellable():
            place = fair.came(2, steady=False)
            await slots.take(2)
            with fair.inside(place):
                slots.give_back(2)
        heavy_ended.set()

    async def light():
        place = fair.came()
        await slots.take()
        with fair.inside(place):
            slots.give_back()
        light_ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(heavy)
        group.start_soon(light)
        await no_one_waits_behind(heavy_ended, light_ended, patience=1)
        slots.give_back()
    assert slots.in_use == slots.waiting == 0


@scenario("local.Slots.take")
async def a_light_newcomer_waits_behind_a_heavy_waiter():
    slots, fair = Slots(2), Fair(2)
    slots.take_nowait()

    async def heavy():
        place = fair.came(2)
        await slots.take(2)
        with fair.inside(place):
            slots.give_back(2)

    async def light():
        with cancellable():
            place = fair.came(steady=False)
            await slots.take()
            with fair.inside(place):
                try:
                    await pause()
                finally:
                    slots.give_back()

    async with anyio.create_task_group() as group:
        group.start_soon(heavy)
        group.start_soon(light)
        await pause()
        slots.give_back()
    assert slots.in_use == slots.waiting == 0


@scenario("local.Slots.take")
async def one_return_lets_in_all_who_fit():
    """Two who need each other wait behind one who has all."""
    slots, together = Slots(2), []
    both = anyio.Event()
    slots.take_nowait(2)

    async def light():
        await slots.take()
        together.append(slots)
        if len(together) == 2:
            both.set()
        await both.wait()
        slots.give_back()

    async def victim():
        with cancellable():
            await slots.take()
            slots.give_back()

    async with anyio.create_task_group() as group:
        group.start_soon(light)
        group.start_soon(victim)
        group.start_soon(light)
        await pause()
        slots.give_back(2)
    assert slots.in_use == slots.waiting == 0
