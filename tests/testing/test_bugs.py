"""Exploring finds known kinds of bugs, and nothing where they are mended. `benchmarks.bugs` finds the real ones."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import anyio
import depth
import pytest
from anyio.lowlevel import checkpoint

from tenure.testing import DeadlockError, ScheduleFailed, cancel_everywhere, cancellable, explore, newcomer

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.bugs.dead_waiter import dead_waiter_of_lock, dead_waiter_of_semaphore
from benchmarks.bugs.lost_item import lost_item
from benchmarks.bugs.lost_notice import lost_notice
from benchmarks.bugs.lost_token import lost_token
from benchmarks.bugs.over_grant import over_grant

SEEDS = 30
ENOUGH = 2000
BACKENDS = ("asyncio", "trio")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.mark.parametrize(
    "scenario",
    [lost_item, lost_token, over_grant, dead_waiter_of_lock, dead_waiter_of_semaphore, lost_notice],
    ids=lambda scenario: scenario.__name__,
)
def test_the_anyio_of_today_has_none_of_its_old_bugs(scenario):
    explore(scenario, seeds=SEEDS)
    cancel_everywhere(scenario, cancel="scope")


class Lock:
    """A release passes over those who are gone, and drops them from the line: not so if it is forgetful."""

    def __init__(self, *, forgetful):
        self.forgetful = forgetful
        self.held = False
        self.line = deque()

    async def __aenter__(self):
        if not self.held and not self.line:
            self.held = True
            return
        place = (anyio.get_current_task(), anyio.Event())
        self.line.append(place)
        try:
            await place[1].wait()
        except BaseException:
            if place[1].is_set():
                self.release()
            elif place in self.line:
                self.line.remove(place)
            raise

    async def __aexit__(self, *_):
        self.release()

    def release(self):
        for place in list(self.line):
            gone = place[0].has_pending_cancellation()
            if not gone or not self.forgetful:
                self.line.remove(place)
            if not gone:
                place[1].set()
                return
        self.held = False


class Stream:
    """An item that was handed to a receiver who is gone goes to the next: not so if it is lossy."""

    def __init__(self, *, lossy):
        self.lossy = lossy
        self.items = deque()
        self.receivers = deque()

    def send(self, item):
        if not self.receivers:
            self.items.append(item)
            return
        event, box = self.receivers.popleft()
        box.append(item)
        event.set()

    async def receive(self):
        if self.items:
            return self.items.popleft()
        event, box = place = (anyio.Event(), [])
        self.receivers.append(place)
        try:
            await event.wait()
        except BaseException:
            if not box:
                self.receivers.remove(place)
            elif not self.lossy:
                self.send(box.pop())
            raise
        return box.pop()


def contended(*, forgetful):
    async def scenario():
        lock = Lock(forgetful=forgetful)

        async def hold():
            async with lock:
                await checkpoint()

        async def victim():
            with cancellable():
                await hold()

        async def late():
            await newcomer()
            await hold()

        async with anyio.create_task_group() as group:
            for task in (hold, victim, late):
                group.start_soon(task)

    return scenario


def handed_over(*, lossy):
    async def scenario():
        stream = Stream(lossy=lossy)
        received = []

        async def victim():
            with cancellable():
                received.append(await stream.receive())

        async def send():
            await anyio.sleep(1)
            stream.send("item")

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(send)
        assert [*received, *stream.items] == ["item"]

    return scenario


@each_backend
def test_a_lock_that_takes_the_gone_for_waiting_is_found(backend):
    with pytest.raises(ScheduleFailed) as found:
        explore(contended(forgetful=True), seeds=ENOUGH, backends=[backend])
    assert isinstance(found.value.__cause__, DeadlockError)
    with pytest.raises(ScheduleFailed, match="with a newcomer"):
        cancel_everywhere(contended(forgetful=True), backends=[backend])


@each_backend
def test_a_stream_that_loses_what_it_hands_to_the_gone_is_found(backend):
    with pytest.raises(ScheduleFailed) as found:
        explore(handed_over(lossy=True), seeds=ENOUGH, backends=[backend])
    assert type(found.value.__cause__) is AssertionError
    with pytest.raises(ScheduleFailed, match="W2"):
        cancel_everywhere(handed_over(lossy=True), backends=[backend])


@pytest.mark.parametrize("scenario", [contended(forgetful=False), handed_over(lossy=False)])
def test_the_same_without_the_fault_is_not(scenario):
    explore(scenario, seeds=depth.share(SEEDS * 10))
    cancel_everywhere(scenario)
