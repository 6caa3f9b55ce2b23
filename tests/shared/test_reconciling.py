"""What goes on while the engine is asked what a session has. What comes of it: tests/engines/test_redis_rewound.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import anyio
import pytest

from tenure import Barrier, LeaseLost, Lock, WorkQueue, open_store
from tenure.engine import (
    SESSION,
    Acquire,
    CloseSession,
    Engine,
    Exchange,
    Hint,
    Notice,
    Put,
    Release,
    Scan,
    SessionPage,
)
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SqliteEngine


class Late(Engine):
    """Memory that answers operations of some kinds late: when `answer` is called."""

    url = "late:"

    def __init__(self):
        self._memory = MemoryEngine()
        self._serve = self._memory.serve
        self.kinds = ()
        self.answers = []

    def submit(self, operation, on_answer):
        self.answers.append((type(operation), on_answer, self._memory.apply(operation)))

    def answer(self, *kinds):
        """Answer what was asked, but for these kinds."""
        now = [asked for asked in self.answers if asked[0] not in kinds]
        self.answers = [asked for asked in self.answers if asked[0] in kinds]
        for _, on_answer, answer in now:
            on_answer(answer)

    async def serve(self, process, deliver, *, task_status):
        async def answer():
            while True:
                self.answer(*self.kinds)
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as group:
            group.start_soon(answer)
            await self._serve(process, deliver, task_status=task_status)


@pytest.fixture
def late(virtual_clock):
    return Late()


@pytest.fixture
async def store(late):
    async with open_store(late, ttl=60.0) as store:
        yield store


def missed(store):
    store._handle.on_hint(Hint(store.process, "", "", Notice.MISSED))


async def test_what_is_left_meanwhile_was_not_lost(late, store):
    async with Lock(store, "x") as lease:
        late.kinds = (Scan,)
        missed(store)
        late.answers = [(kind, on_answer, nothing(answer)) for kind, on_answer, answer in late.answers]
    late.kinds = ()
    await anyio.sleep(1)
    assert lease.lost is None


async def test_a_place_is_not_yet_a_grant(late, store):
    with pytest.raises(LeaseLost, match="gone"):
        async with Lock(store, "x"):
            late.kinds = (Scan,)
            missed(store)
            late.answers = [(kind, on_answer, waiting(answer)) for kind, on_answer, answer in late.answers]
            late.kinds = ()
            await anyio.sleep_forever()


async def test_the_first_reason_counts(store):
    with pytest.raises(LeaseLost) as caught:
        async with Lock(store, "x") as lease:
            lease._lose("gone")
            store._handle.sessions.current(60.0).lose("expired")
            await anyio.sleep_forever()
    assert caught.value.reason == "gone"


async def test_an_arrival_under_a_session_that_had_ended_leaves_nothing(late, store):
    async with Lock(store, "opens the session"):
        pass
    await late.execute([CloseSession(store._handle.sessions.current(60.0).id)])
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(Barrier(store, "b", 2).wait)
    assert not store._handle.acquisitions.by_name


async def test_a_task_that_is_on_its_way_is_not_given_back(late, store):
    queue = WorkQueue(store, "jobs")
    await queue.put("work")
    late.kinds = (Exchange,)
    async with anyio.create_task_group() as group:

        async def work():
            async with queue.take() as task:
                await anyio.sleep(1)
                task.check()

        group.start_soon(work)
        await anyio.sleep(1)
        missed(store)
        await anyio.sleep(1)
        late.kinds = ()
    assert (await queue.statistics()).done == 1


async def test_a_task_with_a_verdict_is_not_given_back(late, store):
    queue = WorkQueue(store, "jobs")
    await queue.put("work")
    async with queue.take():
        late.kinds = (Scan, Exchange)
        missed(store)
        await anyio.sleep(1)
        # its exchange is under way, and the answer to the inspection is there when that has come
        late.answers.sort(key=lambda asked: asked[0] is Exchange)
        (_, inspected, answer), *late.answers = late.answers
        inspected(answer)
        late.kinds = ()
    assert (await queue.statistics()).done == 1


async def test_one_round_at_a_time(late, store):
    async with Lock(store, "x"):
        late.kinds = (Scan,)
        for _ in range(5):
            missed(store)
            await anyio.sleep(1)
        assert len(late.answers) == 1
        late.answer()
        assert len(late.answers) == 1  # for all that came meanwhile
        late.kinds = ()
        await anyio.sleep(1)
        assert late.answers == []


@pytest.mark.parametrize("asked", ["before", "after"])
async def test_what_is_done_in_a_transaction_is_not_lost(tmp_path, asked):
    async with open_store(SqliteEngine(tmp_path / "store.db")) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put("work")
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
            async with queue.take() as task:
                if asked == "before":
                    missed(store)
                connection.execute("BEGIN IMMEDIATE")
                task.complete_in_sync(connection)
                connection.execute("COMMIT")
                if asked == "after":
                    missed(store)
                await store.ping()
                await store.ping()
        assert (await queue.statistics()).done == 1


async def test_giving_back_is_sent_again_until_it_is_done(faulty, faulty_store, virtual_clock):
    async with Lock(faulty_store, "x"):
        pass
    session = faulty_store._handle.sessions.current(3.0)
    await faulty_store._handle.call(Acquire(session.id, "tenure:lock:k", f"{session.id}.0", 1))
    faulty.refused = (Release,)
    missed(faulty_store)
    await anyio.sleep(0.5)
    faulty.refused = ()
    await anyio.sleep(2)
    assert (await faulty_store._handle.call(Scan(SESSION, session.id))).rows == ()


async def test_producers_that_wait_are_asked_for_once(recording, virtual_clock):
    async with open_store(recording) as store:
        queue = WorkQueue(store, "jobs", max_size=1)
        await queue.put("first")
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(queue.put, number)
            await anyio.sleep(1)
            recording.take()
            missed(store)
            await anyio.sleep(1)
            assert sum(len(put.requests) for put in recording.take(Put)) == 20
            group.cancel_scope.cancel()


def nothing(inspected):
    assert isinstance(inspected, SessionPage)
    return SessionPage((), process=inspected.process)


def waiting(inspected):
    found = tuple(replace(one, held=False, token=0) for one in inspected.rows)
    return SessionPage(found, process=inspected.process)
