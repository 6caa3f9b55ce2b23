from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from tenure import StoreClosed, open_store
from tenure.engine import CloseSession, Hint, Notice, Scan
from tenure.engines.memory import MemoryEngine
from tenure.shared.holds._election import Election
from tenure.testing import (
    Fault,
    assert_checkpoints,
    assert_no_checkpoints,
)

KEY = "tenure:election:cluster"


def nodes(store, names):
    return [Election(store, "cluster", node=name) for name in names]


@asynccontextmanager
async def log_of(election, *, pause=0.0):
    """What one who watches has been told so far."""
    log = []

    async def read():
        async with election.watch() as changes:
            async for leader in changes:
                log.append(leader)
                await anyio.sleep(pause)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        yield log
        group.cancel_scope.cancel()


# what one is told


async def test_first_comes_the_present_leader_then_each_change(store, open_store_on, virtual_clock):
    async with open_store_on() as other:
        a, b = nodes(other, "ab")
        async with Election(store, "cluster").watch() as changes:
            assert await anext(changes) is None
            async with a.term():
                assert await anext(changes) == "a"
            assert await anext(changes) is None
            async with b.term():
                assert await anext(changes) == "b"
                async with Election(store, "cluster").watch() as later:
                    assert await anext(later) == "b"
            assert await anext(changes) is None


async def test_it_is_reported_at_once(store, open_store_on, virtual_clock):
    async with open_store_on() as other, log_of(Election(store, "cluster")) as log:
        (a,) = nodes(other, "a")
        await virtual_clock.settle()
        start = virtual_clock.now()
        async with a.term():
            await anyio.sleep(0.2)
            assert log == [None, "a"]
        await anyio.sleep(0.2)
        assert log == [None, "a", None]
        assert virtual_clock.now() - start == pytest.approx(0.4, abs=0.1)


async def test_a_slow_reader_misses_what_is_over_and_never_the_last(store, virtual_clock):
    elections = nodes(store, "abcdef")
    async with log_of(elections[0], pause=10) as log:
        await virtual_clock.settle()
        for election in elections:
            async with election.term():
                await anyio.sleep(1)
        async with elections[1].term():
            await anyio.sleep(20)
            assert log == [None, "b"]


async def test_a_leader_that_leads_again_at_once_is_no_change(store, virtual_clock):
    (a,) = nodes(store, "a")
    async with a.watch() as changes:
        async with a.term():
            assert await anext(changes) == "a"
        async with a.term():
            with anyio.move_on_after(10) as scope:
                await anext(changes)
    assert scope.cancelled_caught


async def test_one_that_only_waits_to_lead_is_no_change(store, recording, virtual_clock):
    async with open_store(recording) as other:
        a, b = nodes(other, "ab")
        async with a.term(), log_of(a) as log, anyio.create_task_group() as group:
            await anyio.sleep(1)
            recording.take()
            group.start_soon(b.term().__aenter__)
            await anyio.sleep(1)
            assert not recording.take(Scan)
            group.cancel_scope.cancel()
            assert log == ["a"]


# when hints get lost, and sessions


@pytest.mark.parametrize("told", [False, True])
async def test_a_lost_hint_costs_a_ttl_or_nothing_if_the_loss_is_known(
    faulty, faulty_store, virtual_clock, told
):
    (a,) = nodes(faulty_store, "a")
    async with log_of(a) as log:
        await anyio.sleep(1)
        faulty.plan(Fault.LOST_HINT)
        async with a.term():
            await virtual_clock.settle()
            assert log == [None]
            if told:
                faulty_store._handle.on_hint(Hint(faulty_store.process, "", "", Notice.MISSED))
                await virtual_clock.settle()
            else:
                await anyio.sleep(3.2)
            assert log == [None, "a"]


async def test_a_session_found_gone_when_looking_is_made_anew(store, open_store_on, virtual_clock):
    async with open_store_on() as other, Election(store, "cluster").watch() as changes:
        assert await anext(changes) is None
        (session,) = store._handle.sessions
        await other._handle.call(CloseSession(session.id))
        async with Election(other, "cluster", node="a").term():
            assert await anext(changes) == "a"
        assert session.lost == "gone"


async def test_an_outage_is_waited_out(faulty, faulty_store, virtual_clock):
    async with log_of(Election(faulty_store, "cluster")) as log, open_store(faulty._engine) as other:
        await virtual_clock.settle()
        faulty.down = True
        async with Election(other, "cluster", node="a").term():
            await anyio.sleep(20)
            assert log in ([None], [None, "a"])
            faulty.down = False
            await anyio.sleep(2)
            assert log == [None, "a"]


# manners


async def test_a_watcher_does_not_poll(faulty, faulty_store, virtual_clock):
    async with open_store(faulty, ttl=30) as store, log_of(Election(store, "cluster")):
        await virtual_clock.settle()
        before = faulty.batches
        await anyio.sleep(300)
        # a heartbeat every ten seconds, a look every thirty
        assert faulty.batches - before <= 30 + 300 / 30 + 1


async def test_watching_is_a_checkpoint(store):
    (a,) = nodes(store, "a")
    watch = a.watch()
    with assert_checkpoints():
        changes = await watch.__aenter__()
    with assert_checkpoints():
        await anext(changes)
    with assert_no_checkpoints():
        await watch.__aexit__(None, None, None)


async def test_it_is_read_inside_of_its_block(store):
    changes = Election(store, "cluster").watch()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=rf"{KEY}: write `async with election.watch\(\) as changes:`"):
            await anext(changes)
        async with changes as entered:
            assert entered is changes


async def test_a_look_that_is_answered_while_the_store_closes_waits_no_more(faulty, virtual_clock):
    async def read(store):
        async with Election(store, "cluster").watch() as changes:
            with pytest.raises(StoreClosed):
                async for _ in changes:
                    pass

    async def resume_soon():
        await anyio.sleep(0.5)
        faulty.resume()

    async with anyio.create_task_group() as group:
        async with open_store(faulty, ttl=30.0) as store:
            group.start_soon(read, store)
            await anyio.sleep(0.5)
            faulty.pause()
            store._handle.on_hint(Hint(store.process, KEY, "", Notice.CHANGED))
            await anyio.sleep(0.5)
            group.start_soon(resume_soon)
        assert virtual_clock.now() <= 2
    assert virtual_clock.now() <= 2


async def test_nothing_is_kept_of_elections_that_nobody_watches(virtual_clock):
    async with open_store(MemoryEngine(), ttl=3.0) as store:
        for number in range(50):
            async with Election(store, f"election {number}").watch() as changes:
                await anext(changes)
        assert not store._handle._listeners
        assert (await store.statistics()).held == 0
