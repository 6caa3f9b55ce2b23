"""Cancellation in every place: all windows are met, and what forgets one of them is caught there."""

from __future__ import annotations

from collections import deque

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tenure.testing import ScheduleFailed, cancel_everywhere, cancellable, newcomer, run
from tenure.waiting import Line

BACKENDS = ("asyncio", "trio")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


class Place:
    def __init__(self):
        self.event = anyio.Event()
        self.granted = False


class PlainLock:
    """A lock that does all of it right, or forgets what it is told to forget."""

    def __init__(self, forgets=None):
        self.forgets = forgets
        self.held = False
        self.line = deque()

    async def acquire(self):
        if not self.held and not self.line:
            self.held = True
            try:
                await checkpoint()
            except BaseException:
                if self.forgets != "uncontended":
                    self.release()
                raise
            return
        place = Place()
        self.line.append(place)
        try:
            await place.event.wait()
            await checkpoint()
        except BaseException:
            if place.granted:
                if self.forgets != "W3":
                    self.release()
            elif self.forgets != "W1":
                self.line.remove(place)
            raise

    def release(self):
        if self.line:
            place = self.line.popleft()
            place.granted = True
            place.event.set()
        else:
            self.held = False


def contended(make, *, with_newcomer=True):
    async def scenario():
        lock = make()
        inside = 0

        async def use():
            nonlocal inside
            await lock.acquire()
            try:
                inside += 1
                assert inside == 1, "two at once"
                await checkpoint()
            finally:
                inside -= 1
                lock.release()

        async def victim():
            with cancellable():
                await use()

        async def late():
            await newcomer()
            await use()

        async with anyio.create_task_group() as group:
            for call in (use, victim, use, *([late] if with_newcomer else ())):
                group.start_soon(call)
        assert not lock.held
        await lock.acquire()
        lock.release()

    return scenario


@each_backend
@pytest.mark.parametrize("cancel", [True, "scope"])
def test_what_is_right_passes_in_every_window(backend, cancel):
    done = cancel_everywhere(contended(PlainLock), backends=[backend], cancel=cancel)
    assert set(done.windows) == {"W1", "W2", "W2N", "W3"}
    assert done.runs == 1 + sum(done.windows.values())


@each_backend
@pytest.mark.parametrize("forgets", ["W1", "W3"])
def test_a_lock_that_forgets_a_window_is_caught(backend, forgets):
    with pytest.raises(ScheduleFailed, match=f"\non {backend}, block 1 cancelled") as failure:
        cancel_everywhere(contended(lambda: PlainLock(forgets)), backends=[backend])
    assert "is cancelled" in failure.value.trace


@each_backend
def test_a_lock_that_forgets_its_uncontended_checkpoint_is_caught(backend):
    async def scenario():
        lock = PlainLock("uncontended")
        with cancellable():
            await lock.acquire()
            lock.release()
        assert not lock.held

    with pytest.raises(ScheduleFailed):
        cancel_everywhere(scenario, backends=[backend])


class Barging:
    """Hands over to the first in line even if that one is cancelled, and lets newcomers queue behind the dead (W2N)."""

    def __init__(self):
        self.held = False
        self.line = Line(owner=self)

    async def acquire(self):
        if not self.held and not len(self.line):
            self.held = True
            await checkpoint()
            return
        await self.line.wait(self.line.join(None))

    def release(self):
        self.held = False
        waiter = self.line.first
        if waiter is not None:
            self.held = self.line.grant(waiter, None)


@each_backend
def test_a_lock_that_wakes_the_dead_is_caught(backend):
    async def scenario():
        lock = Barging()

        async def use():
            await lock.acquire()
            await checkpoint()
            lock.release()

        async def victim():
            with cancellable() as scope:
                await lock.acquire()
            if not scope.cancelled_caught:
                lock.release()

        async def late():
            await newcomer()
            await use()

        async with anyio.create_task_group() as group:
            for call in (use, victim, late):
                group.start_soon(call)

    with pytest.raises(ScheduleFailed, match="Deadlock"):
        cancel_everywhere(scenario, backends=[backend])


@each_backend
def test_each_marked_block_has_its_turn(backend):
    cancelled = set()

    async def scenario():
        async def wait(name):
            with cancellable() as scope:
                await anyio.sleep(1)
            if scope.cancelled_caught:
                cancelled.add(name)

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(wait, name)

    cancel_everywhere(scenario, backends=[backend])
    assert cancelled == {"a", "b", "c"}


@each_backend
def test_every_suspension_of_a_block_is_met(backend):
    reached = set()

    async def scenario():
        steps = 0
        with cancellable() as scope:
            for _ in range(4):
                await checkpoint()
                steps += 1
            await anyio.sleep(1)
            steps += 1
        if scope.cancelled_caught:
            reached.add(steps)

    cancel_everywhere(scenario, backends=[backend])
    assert reached >= ({0, 1, 2, 3, 4} if backend == "asyncio" else {1, 2, 3, 4})


@each_backend
def test_a_scenario_that_fails_by_itself_says_so(backend):
    async def scenario():
        with cancellable():
            raise OSError("broken")

    with pytest.raises(ScheduleFailed, match="^OSError: broken\non") as failure:
        cancel_everywhere(scenario, backends=[backend])
    assert f"on {backend}, with nothing cancelled, " in str(failure.value)
    assert "fails in scenario" in failure.value.trace


def test_a_scenario_that_marks_nothing_is_refused():
    with pytest.raises(ValueError, match="^scenario: "):
        cancel_everywhere(checkpoint)


def test_unknown_loops_are_refused():
    with pytest.raises(ValueError, match="^backends: "):
        cancel_everywhere(checkpoint, backends=["uvloop"])


@each_backend
def test_outside_a_newcomer_makes_a_checkpoint(backend):
    run(newcomer, backend=backend)
