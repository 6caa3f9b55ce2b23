from __future__ import annotations

import anyio
import pytest
from wires import at_home

from tenure import Lock, Schedule, StoreUnavailable, WorkQueue, open_store
from tenure.engine import Engine, Hint, Notice, NotSent, Ping, Reply
from tenure.engines.memory import MemoryEngine
from tenure.observe import Reporter
from tenure.store._availability import Availability
from tenure.store._dispatch import Dispatcher


class Seen:
    def __init__(self):
        self.events = []

    def notice(self, event, /, **fields):
        if event.startswith(("link.", "lease.acq", "operation.")):
            self.events.append((event, fields))


class Linked(Engine):
    """One with a connection that breaks, and operations that wait for it to be back."""

    url = "linked:"
    unreachable = None

    def __init__(self, engine):
        self._engine = engine
        self._waiting = []

    def submit(self, operation, on_answer):
        if self.unreachable:
            self._waiting.append((operation, on_answer))
        else:
            self._engine.submit(operation, on_answer)

    async def serve(self, process, deliver, *, task_status):
        self._deliver = lambda news: deliver(Hint(process, "", "", news))
        await self._engine.serve(process, deliver, task_status=task_status)

    def breaks(self):
        self.unreachable = StoreUnavailable("the cable")
        self._deliver(Notice.LOST)

    def is_back(self):
        self.unreachable = None
        self._deliver(Notice.MISSED)
        waiting, self._waiting = self._waiting, []
        for operation, on_answer in waiting:
            self._engine.submit(operation, on_answer)


@pytest.fixture
def linked():
    return Linked(MemoryEngine())


async def test_a_link_that_breaks_while_nobody_calls_is_noticed(linked, virtual_clock):
    seen = Seen()
    async with open_store(linked, observer=seen) as store:
        assert (await store.statistics()).available
        linked.breaks()
        linked.breaks()
        assert not (await store.statistics()).available
        await virtual_clock.advance(7)
        linked.is_back()
        assert (await store.statistics()).available
    lost, back = seen.events
    assert (lost[0], lost[1]["url"], str(lost[1]["error"])) == ("link.lost", "linked:", "the cable")
    assert back == ("link.back", {"url": "linked:", "seconds": pytest.approx(7)})


async def test_what_waited_through_an_outage_says_so(linked, virtual_clock):
    seen = Seen()
    async with open_store(linked, observer=seen) as store, anyio.create_task_group() as group:

        async def hold():
            async with Lock(store, "x"):
                pass

        await hold()
        linked.breaks()
        await virtual_clock.advance(2)
        group.start_soon(hold)
        await virtual_clock.advance(3)
        linked.is_back()
        await virtual_clock.advance(1)
        await hold()
    acquired = [fields for event, fields in seen.events if event == "lease.acquired"]
    assert [fields.get("outage") for fields in acquired] == [None, pytest.approx(3), None]
    assert acquired[1]["waited"] == pytest.approx(3)


class Failing(Engine):
    """Does not answer its first `failures` operations."""

    url = "failing:"

    def __init__(self, failures):
        self.failures = failures
        self.submitted = []

    def submit(self, operation, on_answer):
        self.submitted.append(type(operation).__name__)
        self.failures -= 1
        on_answer(StoreUnavailable("away") if self.failures >= 0 else Reply.OK)


async def test_it_is_asked_whether_it_is_back_when_nobody_waits_any_more(virtual_clock):
    engine = Failing(3)
    dispatcher = Dispatcher(engine, at_home())
    async with anyio.create_task_group() as group:
        group.start_soon(dispatcher.run)
        with anyio.move_on_after(0.001):
            await dispatcher.call(Ping())
        assert dispatcher._availability.trouble is not None
        await virtual_clock.advance(2)
        assert dispatcher._availability.trouble is None
        assert engine.submitted == ["Ping"] * 4
        assert dispatcher.pending == 0
        group.cancel_scope.cancel()


class Scripted(Engine):
    url = "scripted:"

    def __init__(self, *answers):
        self.answers = list(answers)

    def submit(self, operation, on_answer):
        on_answer(self.answers.pop(0))


@pytest.mark.parametrize(
    ("answers", "reports"),
    [
        ([Reply.MORE, Reply.MORE, Reply.OK], 0),  # the engine had done something else first: nobody was away
        ([StoreUnavailable("away"), Reply.MORE, Reply.MORE, StoreUnavailable("away"), Reply.OK], 1),
        ([Reply.MORE, StoreUnavailable("away"), Reply.OK], 1),
        ([NotSent("away"), Reply.OK], 0),
    ],
)
async def test_only_an_operation_without_an_answer_is_reported_as_sent_again(virtual_clock, answers, reports):
    seen = Seen()
    engine = Scripted(*answers)
    dispatcher = Dispatcher(engine, at_home(), Availability(engine, Reporter(seen)))
    async with anyio.create_task_group() as group:
        group.start_soon(dispatcher.run)
        assert await dispatcher.call(Ping()) is Reply.OK
        group.cancel_scope.cancel()
    assert [event for event, _ in seen.events].count("operation.resent") == reports


async def test_what_is_sent_again_says_for_how_long_the_engine_was_away(virtual_clock):
    seen = Seen()
    engine = Failing(1)
    dispatcher = Dispatcher(engine, at_home(), Availability(engine, Reporter(seen)))
    async with anyio.create_task_group() as group:
        group.start_soon(dispatcher.run)
        await dispatcher.call(Ping())
        group.cancel_scope.cancel()
    assert [event for event, _ in seen.events] == ["link.lost", "operation.resent", "link.back"]
    assert seen.events[1][1]["outage"] == pytest.approx(seen.events[2][1]["seconds"])


class Late(Linked):
    """Its server comes after a while."""

    comes = 12.0

    async def serve(self, process, deliver, *, task_status):
        if anyio.current_time() < self.comes:
            await anyio.lowlevel.checkpoint()
            raise StoreUnavailable("nobody listens")
        await super().serve(process, deliver, task_status=task_status)


async def test_a_server_that_is_awaited_is_reported_away_until_it_comes(virtual_clock):
    seen, late = Seen(), Late(MemoryEngine())
    late.comes = anyio.current_time() + 12
    store = open_store(late, retry=100, observer=seen)
    assert store.unready == "the store linked: is not open"
    async with anyio.create_task_group() as group:

        async def use():
            async with store:
                assert store.unready is None
                late.unreachable = StoreUnavailable("the cable")
                assert store.unready == "the store linked: cannot be reached"
                assert Schedule(WorkQueue(store, "q"), "s", every=9).unready == store.unready
                late.unreachable = None

        group.start_soon(use)
        await anyio.sleep(10)
        assert store.unready == "the store linked: has been away for 10 s"
    assert store.unready == "the store linked: is closed"
    assert [event for event, _ in seen.events] == ["link.lost", "link.back"]
    assert str(seen.events[0][1]["error"]) == "nobody listens"
    assert 12 <= seen.events[1][1]["seconds"] < 14


async def test_a_call_in_vain_says_why_the_server_is_away(virtual_clock, linked):
    async with open_store(linked, ttl=600) as store:
        linked.breaks()
        await anyio.sleep(1)
        with pytest.raises(StoreUnavailable, match=r"has been away for 6 s; .* applied \(the cable\)$"):
            await WorkQueue(store, "q").try_put(1)
        linked.is_back()


async def test_a_server_that_is_not_awaited_is_the_error_of_opening_alone(virtual_clock, caplog):
    with pytest.raises(StoreUnavailable, match="nobody listens"):
        async with open_store(Late(MemoryEngine())):
            pytest.fail("opened")
    assert not caplog.records
