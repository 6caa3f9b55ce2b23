from __future__ import annotations

import asyncio
import time
from contextvars import Context
from functools import partial

import anyio
import pytest
from wires import Wire, at_home

from tenure.engine import CloseSession, OpenSession, Ping, RenewSession, Reply, Resting
from tenure.engines.memory import MemoryEngine
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.store._dispatch import Dispatcher, Dispatchers
from tenure.store._sessions import Session, Sessions
from tenure.upkeep import Upkeep


class Link(Wire):
    """A memory engine behind a wire, with its operations on record; it can be away, slow, and refuse."""

    def __init__(self):
        self.engine = MemoryEngine()
        self.log = []
        self.down = False
        self.seconds = 0.0
        self.refused = ()

    async def execute(self, operations):
        await anyio.sleep(self.seconds)
        if self.down:
            raise StoreUnavailable("away")
        answers = []
        for operation in operations:
            self.log.append(operation)
            refused = isinstance(operation, self.refused)
            answers.append(EngineError("refused") if refused else self.engine.apply(operation))
        return answers

    def of(self, kind):
        return [operation for operation in self.log if isinstance(operation, kind)]


class Held:
    _rests = False

    def __init__(self, granted_as=("a holder", 1)):
        self.reasons = []
        self._granted_as = granted_as

    def _lose(self, reason):
        self.reasons.append(reason)


@pytest.fixture
def link():
    return Link()


@pytest.fixture
async def sessions(link, virtual_clock):
    wire = link.link()
    dispatchers = Dispatchers(wire, at_home())
    async with anyio.create_task_group() as group:
        await group.start(wire.serve, "process", lambda _: None)
        dispatchers.home.upkeep = upkeep = Upkeep(group)
        upkeep.start("wire", dispatchers.of("").run)
        sessions = Sessions("process", dispatchers)
        sessions.home, sessions.upkeep = dispatchers.home, upkeep
        yield sessions
        upkeep.cancel()
        group.cancel_scope.cancel()


async def test_one_is_opened_for_all_that_ask(sessions, link, virtual_clock):
    link.seconds = 0.1
    got = []

    async def ask():
        got.append(await sessions.get(3.0))

    assert sessions.current(3.0) is None
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ask)
        await virtual_clock.settle()
        assert sessions.current(3.0) is None
    assert len(set(got)) == 1
    assert sessions.current(3.0) is got[0] is await sessions.get(3.0)
    assert link.of(OpenSession) == [OpenSession(got[0].id, "process", 3.0)]
    assert len(sessions.upkeep.names) == 2


async def test_the_one_that_made_it_be_opened_may_be_cancelled(sessions, link, virtual_clock):
    link.seconds = 1
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0.5):
            group.start_soon(sessions.get, 3.0)
            await sessions.get(3.0)
        assert sessions.current(3.0) is None
    assert sessions.current(3.0) is not None
    assert len(link.of(OpenSession)) == 1


@pytest.mark.parametrize(("ttl", "margin"), [(0.5, 0.05), (0.6, 0.06), (3.0, 0.3), (30.0, 3.0)])
async def test_it_is_trusted_until_ttl_minus_margin_after_sending(sessions, link, virtual_clock, ttl, margin):
    link.seconds = 0.1
    session = await sessions.get(ttl)
    assert session.margin == pytest.approx(margin)
    assert session.deadline == pytest.approx(ttl - margin)
    assert session.remaining() == pytest.approx(ttl - margin - 0.1, abs=0.01)
    await anyio.sleep_until(ttl / 3 + 0.101)
    assert session.deadline == pytest.approx(ttl / 3 + ttl - margin)


async def test_it_beats_at_a_third_of_the_ttl(sessions, link, virtual_clock):
    await sessions.get(3.0)
    await anyio.sleep(30.5)
    assert len(link.of(RenewSession)) == 30
    assert len(link.of(OpenSession)) == 1


async def test_ttls_have_sessions_of_their_own(sessions, link, virtual_clock):
    one, two = await sessions.get(3.0), await sessions.get(6.0)
    assert one is not two
    assert one.id != two.id
    await anyio.sleep(6.5)
    assert len([op for op in link.of(RenewSession) if op.key == one.id]) == 6
    assert len([op for op in link.of(RenewSession) if op.key == two.id]) == 3


async def test_opened_too_slowly_it_is_opened_anew(sessions, link, virtual_clock):
    link.down = True
    got = []

    async def ask():
        got.append(await sessions.get(3.0))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(10)
        link.down = False
    (session,) = got
    assert session.lost is None
    assert session.remaining() > 1
    assert link.engine.apply(RenewSession(session.id)) is Reply.OK


async def test_an_engine_that_refuses_to_open_says_so_to_all_and_is_asked_again(
    sessions, link, virtual_clock
):
    link.refused = OpenSession
    caught = []

    async def ask():
        with pytest.raises(EngineError, match="refused") as error:
            await sessions.get(3.0)
        caught.append(error.value)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
    assert len({id(error) for error in caught}) == 3
    link.refused = ()
    assert (await sessions.get(3.0)).lost is None


async def test_lost_it_informs_the_holder_once(sessions, virtual_clock):
    session = await sessions.get(3.0)
    held, dropped = Held(), Held()
    session.add(held)
    session.add(dropped)
    session.drop(dropped)
    session.drop(dropped)
    session.lose("gone")
    session.lose("expired")
    assert held.reasons == ["gone"]
    assert dropped.reasons == []
    assert (session.lost, session.remaining(), session.check()) == ("gone", 0, "gone")
    assert sessions.current(3.0) is None


async def test_a_session_that_the_server_has_forgotten_is_one_warning(sessions, caplog, virtual_clock):
    session = await sessions.get(3.0)
    for held in (Held(), Held(), Held(granted_as=None)):
        session.add(held)
    session.lose("gone")
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.message.startswith(f"session.lost session={session.id} reason=gone holds=2")
    assert "the server no longer knows this session" in record.message


async def test_a_session_that_expires_is_no_warning(sessions, caplog, virtual_clock):
    (await sessions.get(3.0)).lose("expired")  # the warnings of its leases say it
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_the_engine_is_closed_when_the_last_has_left(sessions, link, virtual_clock):
    session = await sessions.get(3.0)
    held = [Held(), Held()]
    for one in held:
        session.add(one)
    session.lose("expired")
    await virtual_clock.advance(5)
    session.drop(held[0])
    await virtual_clock.settle()
    assert link.of(CloseSession) == []
    session.drop(held[1])
    await virtual_clock.settle()
    assert link.of(CloseSession) == [CloseSession(session.id)]


async def test_dismissing_wakes_all_and_keeps_the_session(sessions, link, virtual_clock):
    session = await sessions.get(3.0)
    held = Held()
    session.add(held)
    session.dismiss("closed")
    session.dismiss("closed")
    assert held.reasons == ["closed"]
    left = []

    async def leave():
        await session.left()
        left.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
        group.start_soon(leave)
        await anyio.sleep(20)
        assert session.lost is None
        session.drop(held)
    assert left == [20, 20]
    assert link.of(CloseSession) == []
    session.lose("closed")
    assert held.reasons == ["closed"]
    await session.left()
    await virtual_clock.settle()
    assert link.of(CloseSession) == [CloseSession(session.id)]


async def test_a_lost_one_is_succeeded(sessions, link, virtual_clock):
    first = await sessions.get(3.0)
    first.lose("gone")
    second = await sessions.get(3.0)
    assert second is not first
    assert second.id != first.id
    assert list(sessions) == [second]
    await anyio.sleep(5)
    assert len(sessions.upkeep.names) == 2  # the wire, one heartbeat
    # those that are over are forgotten
    for _ in range(5):
        (await sessions.get(3.0)).lose("gone")
        await anyio.sleep(2)
    await sessions.get(3.0)
    assert len(sessions._jobs) == 1


async def test_one_that_still_has_somebody_is_not_forgotten(sessions, virtual_clock):
    first = await sessions.get(3.0)
    held = Held()
    first.add(held)
    first.lose("gone")
    await anyio.sleep(5)
    second = await sessions.get(3.0)
    assert list(sessions) == [first, second]
    first.drop(held)
    assert list(sessions) == [second]


async def test_closed_there_are_no_new_ones(sessions, virtual_clock):
    session = await sessions.get(3.0)
    sessions.home.closed = True
    assert sessions.current(3.0) is session
    for ttl in (3.0, 4.0):
        with pytest.raises(StoreClosed):
            await sessions.get(ttl)
    await sessions.end()
    assert sessions.upkeep.names == ("wire",)


async def test_a_waiter_for_it_to_open_is_woken_by_closing(sessions, link, virtual_clock):
    link.down = True
    caught = []

    async def ask():
        with pytest.raises(StoreClosed):
            await sessions.get(3.0)
        caught.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        sessions.home.closed = True
        for session in sessions:
            session.dismiss("closed")
    assert caught == [1]


async def test_from_another_thread_only_the_boot_clock_counts(sessions, virtual_clock, monkeypatch):
    asleep = [0.0]
    monkeypatch.setattr("tenure.store._sessions.boot_time", lambda: virtual_clock.now() + asleep[0])
    session = await sessions.get(3.0)
    over = []

    def look():
        import threading

        thread = threading.Thread(target=lambda: over.append(session.is_over()))
        thread.start()
        thread.join()

    look()
    assert not session.is_over()
    asleep[0] = 5.0
    look()
    assert session.is_over()
    assert over == [False, True]
    assert session.lost is None  # looking on has no effect


async def test_on_its_own_thread_the_loops_clock_counts_too(sessions, link, virtual_clock, monkeypatch):
    monkeypatch.setattr("tenure.store._sessions.boot_time", lambda: 0.0)
    session = await sessions.get(3.0)
    link.down = True
    await anyio.sleep(2.6)
    assert not session.is_over()
    await anyio.sleep(0.2)
    assert session.is_over()


def test_names_are_used_once():
    session = Session("process/1", 3.0, Dispatcher(MemoryEngine(), at_home()))
    names = [session.new_name() for _ in range(100)]
    assert len(set(names)) == 100
    assert all(name.startswith("process/1.") for name in names)
    assert repr(session) == "<Session process/1 ttl=3 held=0 lost=None>"
    # it was never opened: it cannot be trusted, and it has not expired either
    assert (session.lost, session.check()) == (None, None)


@pytest.fixture
def rests(link, monkeypatch):
    """Makes the engine let sessions rest for as long as the list says, then not at all."""
    apply, periods = link.engine.apply, []

    def answer(operation):
        answered = apply(operation)
        if isinstance(operation, RenewSession) and operation.rest and answered is Reply.OK and periods:
            link.engine.apply(OpenSession(operation.key, "process", 10_000))
            return Resting(periods.pop(0))
        return answered

    monkeypatch.setattr(link.engine, "apply", answer)
    return periods


async def test_it_is_silent_while_it_rests(sessions, link, rests, virtual_clock):
    rests += [600.0, 600.0]
    session = await sessions.get(3.0)
    await anyio.sleep(1.1)
    assert session.resting
    assert session.deadline == pytest.approx(1 + 600 + 3 - 0.3)
    await anyio.sleep(590)
    assert len(link.of(RenewSession)) == 1
    await anyio.sleep(600)
    assert [operation.rest for operation in link.of(RenewSession)] == [600, 600]
    assert session.usable


@pytest.mark.parametrize("get", [True, False])
async def test_what_uses_it_wakes_it_first(sessions, link, rests, virtual_clock, get):
    rests.append(600.0)
    session = await sessions.get(3.0)
    await anyio.sleep(100)
    link.seconds = 0.1
    assert session is (await sessions.get(3.0) if get else sessions.current(3.0))
    session.dispatcher.send(Ping(), lambda _: None)
    assert not session.resting
    # the renewal shortens the session on the engine
    assert session.deadline == pytest.approx(100 + 3 - 0.3)
    await anyio.sleep(0.5)
    assert link.log[-2:] == [RenewSession(session.id), Ping()]
    before = len(link.of(RenewSession))
    await anyio.sleep(3)
    assert len(link.of(RenewSession)) == before + 3


async def test_used_while_it_asks_it_stays_awake(sessions, link, rests, virtual_clock):
    rests.append(600.0)
    session = await sessions.get(3.0)
    link.seconds = 0.4
    await anyio.sleep(1.2)
    assert session.resting
    assert sessions.current(3.0) is session
    await anyio.sleep(0.7)
    assert [operation.rest for operation in link.of(RenewSession)[:2]] == [600, 0]
    assert not session.resting
    assert session.deadline < 10


async def test_with_something_held_it_does_not_ask(sessions, link, rests, virtual_clock):
    rests.append(600.0)
    session = await sessions.get(3.0)
    session.add(held := Held())
    await anyio.sleep(5)
    assert {operation.rest for operation in link.of(RenewSession)} == {0}
    session.drop(held)
    await anyio.sleep(2)
    assert session.resting


async def test_when_others_wake_it_comes_back_soon_and_rests_on(sessions, link, rests, virtual_clock):
    rests += [600.0, 600.0]
    session = await sessions.get(3.0)
    await anyio.sleep(100)
    session.on_wake()
    await anyio.sleep(1.1)
    assert [operation.rest for operation in link.of(RenewSession)] == [600, 600]
    assert session.resting
    session.on_wake()
    assert sessions.current(3.0) is session
    session.on_wake()
    await anyio.sleep(2.5)
    assert len(link.of(RenewSession)) == 5


async def test_gone_as_it_wakes_it_is_lost(sessions, link, rests, virtual_clock):
    rests.append(600.0)
    session = await sessions.get(3.0)
    await anyio.sleep(100)
    link.engine.apply(CloseSession(session.id))
    assert sessions.current(3.0) is session
    await anyio.sleep(0.1)
    assert session.lost == "gone"
    assert await sessions.get(3.0) is not session


async def test_refused_as_it_wakes_it_asks_again(sessions, link, rests, virtual_clock):
    rests.append(600.0)
    session = await sessions.get(3.0)
    await anyio.sleep(100)
    link.refused = RenewSession
    sessions.current(3.0)
    await anyio.sleep(0.5)
    link.refused = ()
    await anyio.sleep(0.5)
    assert session.usable
    await anyio.sleep(5)
    assert session.usable


async def test_awake_behind_a_rest_it_is_awake(sessions, link, rests, virtual_clock):
    """After an outage the heartbeat goes first, and the renewal that was to wake the session comes behind it."""
    rests.append(600.0)
    session = await sessions.get(3.0)
    await anyio.sleep(1.5)
    assert session.resting
    session._on_awake(anyio.current_time(), time.monotonic(), Reply.OK)
    assert not session.resting
    assert session.deadline == pytest.approx(1.5 + 3 - 0.3)
    session.add(Held())
    await anyio.sleep(10)
    assert session.usable


@pytest.mark.backends("asyncio")
async def test_a_callback_outside_any_task_hears_that_it_is_awake(sessions, link, rests, virtual_clock):
    """The thread of SQLite hands answers to the loop."""
    rests.append(600.0)
    session = await sessions.get(3.0)
    await anyio.sleep(1.5)
    Context().run(
        partial(asyncio.get_running_loop().call_soon, session._on_awake, 1.5, time.monotonic(), Reply.OK)
    )
    await anyio.sleep(0.01)
    assert not session.resting
    assert session.deadline == pytest.approx(1.5 + 3 - 0.3)
