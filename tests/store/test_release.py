from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from tenure.engine import Release, Reply
from tenure.errors import EngineError
from tenure.store._acquire import PendingRelease, SettleTimeouts
from tenure.store._sessions import Session
from tenure.store._timers import Timers


class ScriptedWire:
    """Keeps what is sent; a test answers by hand, or at once."""

    def __init__(self, *at_once):
        self.at_once = list(at_once)
        self.sent = []

    def send(self, operation, on_answer):
        self.sent.append((operation, on_answer))
        if self.at_once:
            on_answer(self.at_once.pop(0))

    def answer(self, answer):
        self.sent[-1][1](answer)


RELEASE = Release("key", "name")


def release(dispatcher):
    session = Session("p/1", 3.0, dispatcher)
    return PendingRelease(RELEASE, session), session


def release_under(session):
    return PendingRelease(RELEASE, session)


async def test_it_is_sent_when_it_is_made():
    dispatcher = ScriptedWire()
    made, session = release(dispatcher)
    assert [operation for operation, _ in dispatcher.sent] == [RELEASE]
    assert made.answer is None
    assert list(session.unreleased) == [made]
    dispatcher.answer(Reply.RELEASED)
    assert made.answer is Reply.RELEASED
    assert session.unreleased == {}


async def test_answered_at_once_nothing_is_waited_for(virtual_clock):
    made, session = release(ScriptedWire(Reply.RELEASED))
    assert session.unreleased == {}
    await made.wait(5)
    assert virtual_clock.now() == 0


@pytest.mark.parametrize("answered", [True, False])
async def test_the_answer_is_waited_for_but_not_longer_than_said(virtual_clock, answered):
    dispatcher = ScriptedWire()
    made, _ = release(dispatcher)
    async with anyio.create_task_group() as group:
        group.start_soon(made.wait, 5)
        group.start_soon(made.wait, 6)
        if answered:
            await anyio.sleep(2)
            dispatcher.answer(Reply.RELEASED)
    assert virtual_clock.now() == (2 if answered else 6)


async def test_a_lost_session_does_not_end_a_wait_with_a_time_of_its_own(virtual_clock):
    made, session = release(ScriptedWire())
    async with anyio.create_task_group() as group:
        group.start_soon(made.wait, 5)
        await anyio.sleep(1)
        session.lose("gone")
    assert virtual_clock.now() == 5


async def test_waiting_is_shielded(virtual_clock):
    made, _ = release(ScriptedWire())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await made.wait(2)
    assert virtual_clock.now() == 2


async def test_a_refused_one_is_sent_again_when_asked_to(virtual_clock):
    dispatcher = ScriptedWire(EngineError("not now"))
    made, session = release(dispatcher)
    assert made.answer is None
    assert list(session.unreleased) == [made]
    made.send_again()
    made.send_again()  # it is under way
    assert [operation for operation, _ in dispatcher.sent] == [RELEASE, RELEASE]
    dispatcher.answer(Reply.RELEASED)
    assert made.answer is Reply.RELEASED
    assert session.unreleased == {}
    made.send_again()
    assert len(dispatcher.sent) == 2


@asynccontextmanager
async def settling(seconds):
    timers = Timers()
    timeouts = SettleTimeouts(timers.call_at, seconds)
    async with anyio.create_task_group() as group:
        group.start_soon(timers.run)
        await anyio.wait_all_tasks_blocked()
        yield timeouts
        group.cancel_scope.cancel()


async def until_settled(timeouts, made, ended):
    if (waiter := timeouts.waiter(made)) is not None:
        with anyio.CancelScope(shield=True):
            await waiter
    ended.append(anyio.current_time())


async def test_each_wait_ends_when_its_own_time_is_over(virtual_clock):
    ended = []
    async with settling(3) as timeouts, anyio.create_task_group() as group:
        for _ in range(3):
            made, _ = release(ScriptedWire())
            group.start_soon(until_settled, timeouts, made, ended)
            await anyio.sleep(1)
    assert ended == [3, 4, 5]


async def test_a_wait_ends_with_its_acknowledgement_and_later_ones_have_their_whole_time(virtual_clock):
    ended, dispatcher = [], ScriptedWire()
    async with settling(3) as timeouts, anyio.create_task_group() as group:
        made, _ = release(dispatcher)
        group.start_soon(until_settled, timeouts, made, ended)
        await anyio.sleep(1)
        dispatcher.answer(Reply.RELEASED)
        await anyio.sleep(1)
        group.start_soon(until_settled, timeouts, release(ScriptedWire())[0], ended)
    assert ended == [1, 5]


async def test_a_lost_session_ends_the_wait(virtual_clock):
    ended = []
    async with settling(3) as timeouts, anyio.create_task_group() as group:
        made, session = release(ScriptedWire())
        group.start_soon(until_settled, timeouts, made, ended)
        await anyio.sleep(1)
        session.lose("gone")
        await anyio.sleep(1)
        await until_settled(timeouts, release_under(session), ended)
    assert ended == [1, 2]


async def test_once_closed_nobody_waits_because_nothing_would_end_it(virtual_clock):
    ended = []
    async with settling(3) as timeouts, anyio.create_task_group() as group:
        group.start_soon(until_settled, timeouts, release(ScriptedWire())[0], ended)
        await anyio.sleep(1)
        timeouts.close()
        await anyio.sleep(1)
        await until_settled(timeouts, release(ScriptedWire())[0], ended)
    assert ended == [1, 2]
