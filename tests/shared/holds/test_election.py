from __future__ import annotations

import asyncio
import os
import re
import socket
from contextlib import suppress

import anyio
import pytest

from benchmarks.soak.referees import History, one_leader
from tenure import LeaseLost, Lock, StoreClosed, open_store
from tenure.engine import Acquire, Ask, CloseSession, OpenSession, Release
from tenure.engines.memory import MemoryEngine
from tenure.shared.holds._election import Election
from tenure.testing import FaultyEngine, assert_checkpoints

KEY = "tenure:election:cluster"


async def end_session(store, term):
    """The engine forgets the session under which somebody leads."""
    await store._handle.call(CloseSession(term._session.id))


async def never(_):
    pytest.fail("leads")


# leading for a block


async def test_one_leads_for_the_block(store, nothing_of):
    election = Election(store, "cluster", node="a")
    assert await election.leader() is None
    async with election.term() as term:
        assert await election.leader() == await Election(store, "cluster", node="b").leader() == "a"
        assert (term.node, term.lost) == ("a", None)
        assert 0 < term.remaining() <= 2.7
        term.check()
        assert repr(term) == f"<Term 'a' of {KEY} token={term.number} held>"
    assert await election.leader() is None
    await nothing_of(store, KEY)
    assert term.remaining() == 0
    with pytest.raises(LeaseLost, match="released"):
        term.check()


async def test_it_may_have_a_ttl_of_its_own(store):
    async with Election(store, "cluster", ttl=20).term() as term:
        assert term.remaining() == pytest.approx(18, abs=0.5)


async def test_a_node_is_known_by_its_process_unless_it_has_a_name(store, open_store_on):
    election = Election(store, "cluster")
    assert re.fullmatch(re.escape(f"{socket.gethostname()}:{os.getpid()}:") + "[0-9a-f]{8}", election.node)
    async with open_store_on() as other:
        assert Election(other, "cluster").node != election.node
        async with election.term():
            assert await Election(other, "cluster", node="b").leader() == election.node
    async with Election(store, "cluster", node="Knoten Ä").term():
        assert await election.leader() == "Knoten Ä"


async def test_an_election_and_a_lock_may_share_a_name(store):
    async with Lock(store, "cluster"), Election(store, "cluster").term(timeout=0):
        pass


async def test_a_leader_that_campaigns_again_gets_an_error_instead_of_waiting_for_itself(store):
    election = Election(store, "cluster")

    async def body(_):
        await Election(store, "cluster", node="else").lead(never)

    with pytest.raises(RuntimeError, match=f"{KEY}: this task holds it already"):
        await election.lead(body)
    async with election.term(timeout=0):
        with pytest.raises(RuntimeError, match="holds it already"):
            async with election.term():
                pytest.fail("twice")


async def test_a_candidacy_is_for_one_use(store):
    candidacy = Election(store, "cluster").term()
    with pytest.raises(RuntimeError, match="was not entered"):
        await candidacy.__aexit__(None, None, None)
    async with candidacy:
        pass
    with pytest.raises(RuntimeError, match="entered before"):
        async with candidacy:
            pytest.fail("twice")


async def test_wrong_arguments_are_named(store):
    election = Election(store, "cluster")
    for kind, message, call in (
        (TypeError, "name must be a str, not int", lambda: Election(store, 5)),
        (ValueError, "name must not be empty", lambda: Election(store, "")),
        (TypeError, "node must be a str, not int", lambda: Election(store, "x", node=5)),
        (ValueError, "node must not be empty", lambda: Election(store, "x", node="")),
        (ValueError, "node must not have lone surrogates", lambda: Election(store, "x", node="\ud800")),
        (ValueError, "ttl must be at least 0.5", lambda: Election(store, "x", ttl=0.4)),
        (
            TypeError,
            "ttl must be a number of seconds or a timedelta, not str",
            lambda: Election(store, "x", ttl="5"),
        ),
        (ValueError, "timeout must be", lambda: election.term(timeout=-1)),
        (
            TypeError,
            "timeout must be a number of seconds or a timedelta, not str",
            lambda: election.term(timeout="soon"),
        ),
    ):
        with pytest.raises(kind, match=f"^{message}"):
            call()
    with pytest.raises(TypeError, match=r"^body must be an async function that takes a term, not None"):
        await election.lead(None)
    with pytest.raises(TypeError, match=r"^body must take a term, but .*<lambda>\(\) does not \(too many"):
        await election.lead(lambda: None)
    assert await election.leader() is None


async def test_leading_and_looking_are_checkpoints(store):
    election = Election(store, "cluster")

    async def body(_):
        pass

    with assert_checkpoints():
        await election.lead(body)
    with assert_checkpoints():
        async with election.term():
            pass
    with assert_checkpoints():
        await election.leader()


# lead


async def test_lead_returns_what_the_body_returns(store, nothing_of):
    election = Election(store, "cluster", node="a")

    async def body(term):
        term.check()
        return await election.leader(), term

    leader, term = await election.lead(body)
    assert leader == "a"
    assert repr(term).endswith("released>")
    await nothing_of(store, KEY)


async def test_what_the_body_raises_resigns_and_is_raised(store, nothing_of):
    async def body(_):
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await Election(store, "cluster").lead(body)
    assert not hasattr(caught.value, "__notes__")
    await nothing_of(store, KEY)


@pytest.mark.parametrize("how", ["sleeps", "checks", "checks in a task", "returns", "sleeps in a task"])
async def test_when_the_term_is_lost_it_campaigns_again(store, virtual_clock, freeze, nothing_of, how):
    election = Election(store, "cluster")
    terms = []

    async def child(term, act):
        await act(term)

    async def wait(_):
        await anyio.sleep_forever()

    async def check(term):
        freeze(2.8)
        term.check()  # before the loop knows

    async def body(term):
        terms.append(term)
        if len(terms) == 3:
            return "done"
        if not how.startswith("checks"):
            await end_session(store, term)
        if how == "returns":
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
            return "too late"
        act = check if how.startswith("checks") else wait
        if not how.endswith("task"):
            await act(term)
        async with anyio.create_task_group() as group:
            group.start_soon(child, term, act)
            group.start_soon(child, term, act)
        return None

    assert await election.lead(body) == "done"
    reason = "expired" if how.startswith("checks") else "gone"
    assert [term.lost for term in terms] == [reason, reason, None]
    numbers = [term.number for term in terms]
    assert numbers == sorted(set(numbers))
    await nothing_of(store, KEY)
    assert not store._handle.entered


@pytest.mark.parametrize("error", [KeyError("mine"), LeaseLost("tenure:lock:other", "gone")])
@pytest.mark.parametrize("grouped", [False, True])
async def test_the_bodys_own_error_ends_it_although_the_term_is_lost(store, virtual_clock, error, grouped):
    async def body(term):
        await end_session(store, term)
        try:
            await anyio.sleep_forever()
        finally:
            lost = LeaseLost(KEY, "gone")
            raise ExceptionGroup("mine", [lost, error]) if grouped else error

    with pytest.raises((ExceptionGroup, type(error))) as caught:
        await Election(store, "cluster").lead(body)
    assert grouped or caught.value is error
    assert f"{KEY} was lost meanwhile (gone)" in caught.value.__notes__
    del caught.value.__notes__[:]  # the error is the one of the next test too


async def test_a_loss_that_is_none_ends_it(store):
    # of another term, that the body has kept
    async with Election(store, "cluster").term() as old:
        pass

    async def body(_):
        old.check()

    with pytest.raises(LeaseLost, match="released"):
        await Election(store, "cluster").lead(body)


async def test_a_cancellation_from_outside_is_never_replaced(store, virtual_clock, nothing_of):
    after = []

    async def body(term):
        await end_session(store, term)
        try:
            await anyio.sleep_forever()
        finally:
            scope.cancel()

    with anyio.CancelScope() as scope:
        await Election(store, "cluster").lead(body)
        after.append("lead")
    assert scope.cancelled_caught
    assert after == []
    await nothing_of(store, KEY)


@pytest.mark.backends("asyncio")
async def test_a_native_cancellation_is_never_replaced(store, virtual_clock, nothing_of):
    async def body(_):
        await anyio.sleep_forever()

    task = asyncio.create_task(Election(store, "cluster").lead(body))
    await anyio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_of(store, KEY)


# handing over


async def test_a_graceful_hand_over_is_one_message(recording, virtual_clock):
    began = []

    async def body(_):
        began.append(virtual_clock.now())

    async with open_store(recording) as one, open_store(recording) as two:
        async with anyio.create_task_group() as group:
            async with Election(one, "cluster").term():
                group.start_soon(Election(two, "cluster").lead, body)
                await anyio.sleep(10)
                recording.take()
        # ours, and that of the successor, which did not have to ask
        asked = recording.take(Acquire, Ask, Release)
        assert [type(operation) for operation in asked] == [Release, Release]
    assert began == [pytest.approx(10, abs=0.1)]


@pytest.mark.parametrize("why", ["cancelled", "closed"])
async def test_the_body_has_ended_before_leadership_moves(store, open_store_on, virtual_clock, why):
    history = History(clock=virtual_clock.now)

    async def body(term):
        with history.held("cluster", token=term.number, by=term.node):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(4)  # longer than the ttl

    async def lead(store, node):
        with suppress(StoreClosed):
            await Election(store, "cluster", node=node).lead(body)

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with open_store_on(ttl=3.0, close_timeout=5.0) as mine:
                async with anyio.create_task_group() as ours:
                    (ours if why == "cancelled" else group).start_soon(lead, mine, "a")
                    await anyio.sleep(0.5)
                    group.start_soon(lead, store, "b")
                    await anyio.sleep(0.5)
                    if why == "cancelled":
                        scope.cancel()
        assert virtual_clock.now() == pytest.approx(4, abs=0.1)
    assert [event.by for event in history] == ["a", "a", "b", "b"]
    assert one_leader(history).held == 2


@pytest.mark.parametrize("before_effect", [False, True])
async def test_one_that_cannot_reach_the_engine_ends_before_the_next_begins(virtual_clock, before_effect):
    engine = MemoryEngine()
    link = FaultyEngine(engine)
    history = History(clock=virtual_clock.now)
    began = {}

    async def body(term):
        with history.held("cluster", token=term.number, by=term.node):
            began[term.node] = virtual_clock.now()
            if list(began) == ["a"]:
                await anyio.sleep(4.5)
                link.pause(before_effect=before_effect)
                await anyio.sleep_forever()

    async with open_store(link, ttl=3.0) as one, open_store(engine, ttl=3.0) as two:
        async with anyio.create_task_group() as group:
            group.start_soon(Election(one, "cluster", node="a").lead, body)
            await anyio.sleep(1)
            group.start_soon(Election(two, "cluster", node="b").lead, body)
            await anyio.sleep(10)
            assert history.events()[-1].by == "b"
            link.resume()
    # the last renewal that got through was sent at 4; those that were only answered too late count for the engine
    assert 6.9 <= began["b"] <= (8 if before_effect else 12)
    assert one_leader(history).held == 3


async def test_a_dead_leader_is_none(store, virtual_clock):
    await store._handle.call(OpenSession("dead", "dead process", 5))
    await store._handle.call(Acquire("dead", KEY, "dead.1", 1, value=b"dead"))
    await anyio.sleep(6)
    assert await Election(store, "cluster").leader() is None


# cancelled everywhere


def over(engine):
    return engine() if engine is MemoryEngine else FaultyEngine(MemoryEngine())


# faults


# manners
