"""Completing and putting in the user's own transaction: both true with the commit, neither without it."""

from __future__ import annotations

import contextlib
import gc
import sqlite3

import aiosqlite
import anyio
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from traced import spans
from transactions import (
    OPTIONS,
    check_options,
    state_of,
    test_a_commit_completes_one_of_a_group_and_puts_the_next_into_it,
    test_a_rollback_keeps_the_place_of_a_task_in_its_group,
    test_put_in_keeps_and_replaces,
    test_put_in_takes_all_options_of_put,
    test_the_commit_wakes_those_that_wait_for_the_group,
    work_off_with_kills,
)

import tenure
from tenure import (
    BatchWorker,
    Discard,
    DuplicateTask,
    EngineError,
    LeaseLost,
    QueueFull,
    Retry,
    Worker,
    WorkQueue,
)
from tenure.engine import Complete, GetResult, NewTask, PutChildren, Reply, Settle, Verdict
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.errors import PayloadTooLarge
from tenure.sql import in_session
from tenure.testing import FaultyEngine

DONE = b"null"

__all__ = (
    "test_a_commit_completes_one_of_a_group_and_puts_the_next_into_it",
    "test_a_rollback_keeps_the_place_of_a_task_in_its_group",
    "test_put_in_keeps_and_replaces",
    "test_put_in_takes_all_options_of_put",
    "test_the_commit_wakes_those_that_wait_for_the_group",
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def engine(request, path):
    """A file; in virtual time without a thread."""
    if "virtual_clock" in request.fixturenames:
        return SqliteEngine(path, clock=request.getfixturevalue("virtual_clock").now, inline=True)
    return SqliteEngine(path)


@pytest.fixture
def connect(path):
    """Opens connections to the store's file, in which the user has a table."""
    made = []

    def make(**options):
        made.append(sqlite3.connect(path, **options))
        made[-1].execute("CREATE TABLE IF NOT EXISTS effect (task INTEGER)")
        return made[-1]

    yield make
    for db in made:
        db.close()


@pytest.fixture
def begin(db):
    return lambda: db


@pytest.fixture
def queue(store):
    return WorkQueue(store, "jobs", retry=Retry(attempts=3, backoff=1, jitter=0))


async def test_a_commit_begins_what_undoes(queue, connect):
    task_id, db = await queue.put("owner"), connect()
    async with queue.take() as task:
        release = await task.at_end("x")
        task.complete_in_sync(db)
        db.rollback()
        with db:
            task.complete_in_sync(db)
    assert (await queue.get(task_id)).state == "ending"
    async with queue.take() as task:
        assert task.payload == task.thing == release.thing
    assert (await queue.get(task_id)).state == "done"


async def test_a_signal_to_a_release_goes_with_the_release(queue, connect):
    await queue.put("owner")
    async with queue.take() as task:
        release = await task.at_end("x")
        assert await queue.signal(release.id, "early")
        assert await task.keep("x")
    for _ in range(3):
        await queue.put("next")
    assert connect().execute("SELECT count(*) FROM entry").fetchone() == (0,)


async def test_a_task_with_unfinished_children_is_not_completed(queue, connect):
    refused = []

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            async with task.children() as children:
                child = await children.put("child")
                if not child.ended:
                    refused.append(child.id)
                    db = connect()
                    with db, pytest.raises(RuntimeError, match="has unfinished children"):
                        db.execute("INSERT INTO effect VALUES (1)")
                        task.complete_in_sync(db)
        return task.payload

    task_id = await queue.put("parent")
    async with anyio.create_task_group() as group:
        group.start_soon(Worker(queue, handler).run)
        assert await queue.result(task_id) == "parent"
        group.cancel_scope.cancel()
    assert len(refused) == 1


async def test_the_commit_begins_the_releases_of_a_task(store, engine, queue, connect):
    db = connect()
    await queue.put("owner")
    async with queue.take() as task:
        to, names, tasks = WorkQueue(store, "undo").key, ("x",), (NewTask(b""),)
        await engine.execute([PutChildren(queue.key, task.id, task.token, to, names, tasks, held="end")])
        with contextlib.suppress(ZeroDivisionError), db:
            task.complete_in_sync(db)
            raise ZeroDivisionError
        assert (await WorkQueue(store, "undo").statistics()).waiting == 0
        with db:
            task.complete_in_sync(db)
    (left,) = await engine.execute([GetResult(queue.key, task.id)])
    assert left.state == "ending"
    assert (await WorkQueue(store, "undo").statistics()).waiting == 1


@pytest.fixture
def db(store, connect):
    return connect()


def effects(db):
    return [task for (task,) in db.execute("SELECT task FROM effect ORDER BY task")]


def note(db, task):
    db.execute("INSERT INTO effect VALUES (?)", (task.id,))


# completing


async def test_the_commit_completes_the_task(queue, db):
    task_id = await queue.put("job")
    async with queue.take() as task:
        task.set_result({"n": 5})
        with db:
            note(db, task)
            task.complete_in_sync(db)
        assert await state_of(queue) == {"done": 1}
    assert await state_of(queue) == {"done": 1}
    assert await queue.result(task_id) == {"n": 5}
    assert effects(db) == [task_id]


async def test_it_is_done_without_being_awaited(queue, db):
    await queue.put("job")
    async with queue.take() as task:
        with db:
            assert task.complete_in_sync(db) is None
    assert await state_of(queue) == {"done": 1}


async def test_after_a_rollback_the_task_is_still_held(queue, db):
    await queue.put("job")
    async with queue.take() as task:
        with contextlib.suppress(ZeroDivisionError), db:
            note(db, task)
            task.complete_in_sync(db)
            raise ZeroDivisionError
        assert await state_of(queue) == {"leased": 1}
        task.check()
        with db:
            note(db, task)
            task.complete_in_sync(db)
    assert await state_of(queue) == {"done": 1}
    assert effects(db) == [task.id]


async def test_a_block_that_ends_without_the_commit_is_reported_and_the_try_has_failed(store, db):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put("job")
    with pytest.raises(LeaseLost) as lost:
        async with queue.take() as task:
            task.complete_in_sync(db)
            db.rollback()
    assert lost.value.reason == "uncommitted"
    (dead,) = (await queue.tasks("dead").page()).records
    assert dead.error == "RuntimeError: the transaction that completes the task was not committed"


async def test_a_cancellation_after_the_commit_changes_nothing(queue, db):
    await queue.put("job")
    with anyio.CancelScope() as scope:
        async with queue.take() as task:
            with db:
                task.complete_in_sync(db)
            scope.cancel()
            await anyio.sleep(1)
    assert await state_of(queue) == {"done": 1}


async def test_a_task_is_completed_once(queue, db):
    await queue.put("job")
    async with queue.take() as task:
        with db:
            task.complete_in_sync(db)
        with pytest.raises(LeaseLost, match="refused"), db:
            note(db, task)
            task.complete_in_sync(db)
    assert await state_of(queue) == {"done": 1}
    assert effects(db) == []


async def test_after_the_block_it_is_too_late(queue, db):
    await queue.put("job")
    async with queue.take() as task:
        pass
    with pytest.raises(LeaseLost, match="released"), db:
        task.complete_in_sync(db)


async def test_a_frozen_holder_writes_nothing(open_store_on, virtual_clock, freeze, connect):
    async with open_store_on(ttl=3.0) as a, open_store_on(ttl=3.0) as b:
        db = connect()
        task_id = await WorkQueue(a, "jobs").put("job")
        with pytest.raises(LeaseLost, match="expired"):
            async with WorkQueue(a, "jobs").take() as task:
                # a shield stands for a process that does not notice
                with anyio.CancelScope(shield=True):
                    freeze(10)
                    async with WorkQueue(b, "jobs").take() as again:
                        assert (again.id, again.deliveries) == (task.id, 2)
                        with db:
                            note(db, again)
                            again.complete_in_sync(db)
                    with pytest.raises(LeaseLost), db:
                        note(db, task)
                        task.complete_in_sync(db)
        assert effects(db) == [task_id]
        assert await state_of(WorkQueue(a, "jobs")) == {"done": 1}


async def test_the_engine_refuses_by_token_and_by_session(
    engine, open_store_on, virtual_clock, freeze, connect
):
    async with open_store_on(ttl=3.0) as store:
        db = connect()
        queue = WorkQueue(store, "jobs")
        await queue.put("job")
        session = (await store._handle.session(3.0)).id

        def answer(session, token):
            joining = engine.enlist(Complete(session, queue.key, Settle(task.id, token, Verdict.DONE, DONE)))
            with db:
                return joining.finish(db, [])

        with pytest.raises(LeaseLost):
            async with queue.take() as task:
                assert answer(session, task.token - 1) is Reply.REFUSED
                assert answer("nobody", task.token) is Reply.GONE
                freeze(5)
                assert answer(session, task.token) is Reply.GONE
                await anyio.sleep(1)


# putting


async def test_the_commit_puts_the_task(queue, db):
    with db:
        task_id = queue.put_in_sync(db, {"a": 1}, priority=3)
        other = queue.put_in_sync(db, "b")
    assert other > task_id
    async with queue.take() as task:
        assert (task.id, task.payload, task.priority) == (task_id, {"a": 1}, 3)
    assert await state_of(queue) == {"waiting": 1, "done": 1}


async def test_a_store_opens_within_a_transaction_that_has_written(path, connect):
    """It would wait for the lock that its caller has."""
    async with tenure.open_store(f"sqlite:///{path}"):
        pass
    db = connect()
    with db:
        db.execute("INSERT INTO effect VALUES (1)")
        async with tenure.open_store(f"sqlite:///{path}") as store:
            WorkQueue(store, "jobs").put_in_sync(db, "next")
    async with tenure.open_store(f"sqlite:///{path}") as store:
        assert await state_of(WorkQueue(store, "jobs")) == {"waiting": 1}


async def test_a_store_that_waits_for_its_caller_says_so(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level="EXCLUSIVE")) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(tenure.StoreUnavailable, match="locked for 0.1 s by another connection") as raised:
            async with tenure.open_store(SqliteEngine(path, busy_timeout=0.1)):
                pass
    assert "commit first" in "".join(raised.value.__notes__)
    assert "another process" not in str(raised.value) and "Start the server" not in str(
        raised.value.__notes__
    )


async def test_what_was_rolled_back_was_never_put(queue, db):
    with contextlib.suppress(ZeroDivisionError), db:
        queue.put_in_sync(db, "job")
        raise ZeroDivisionError
    assert await state_of(queue) == {}
    assert (await queue.statistics()).put == 0


async def test_an_idle_taker_is_woken_by_the_commit(open_store_on, connect):
    async with open_store_on() as a, open_store_on() as b, anyio.create_task_group() as group:
        taken = []

        async def take():
            async with WorkQueue(a, "jobs").take() as task:
                taken.append(task.payload)

        group.start_soon(take)
        db, queue = connect(), WorkQueue(b, "jobs")
        while not (await a.statistics()).sessions:
            await anyio.sleep(0.01)
        await anyio.sleep(0.05)
        with db:
            queue.put_in_sync(db, "job")
        with anyio.fail_after(5):
            while not taken:
                await anyio.sleep(0.01)


async def test_one_that_waits_for_the_result_or_the_end_is_woken_by_the_commit(queue, db):
    task_id = await queue.put("job")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            async with queue.take() as task:
                group.start_soon(queue.result, task_id)
                group.start_soon(queue.join)
                await anyio.wait_all_tasks_blocked()
                await anyio.sleep(0.05)
                with db:
                    task.complete_in_sync(db)


async def test_a_producer_in_line_gets_the_room_that_the_commit_makes(store, db):
    queue = WorkQueue(store, "jobs", max_size=1)
    await queue.put("first")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            async with queue.take() as task:
                group.start_soon(queue.put, "second")
                while not (await queue.statistics()).producers:
                    await anyio.sleep(0.01)
                with db:
                    task.complete_in_sync(db)
    assert await state_of(queue) == {"waiting": 1, "done": 1}


async def test_put_in_refuses_as_try_put_does(store, db):
    queue = WorkQueue(store, "jobs", max_size=1, max_payload=10)
    await queue.configure()
    with db:
        first = queue.put_in_sync(db, "a", key="k")
        with pytest.raises(DuplicateTask) as duplicate:
            queue.put_in_sync(db, "b", key="k")
        assert duplicate.value.task_id == first
        with pytest.raises(QueueFull):
            queue.put_in_sync(db, "b")
        with pytest.raises(PayloadTooLarge):
            queue.put_in_sync(db, "x" * 10)
        with pytest.raises(TypeError, match="priority must be an int"):
            queue.put_in_sync(db, "b", priority=1.5)
    assert await state_of(queue) == {"waiting": 1}


async def test_what_time_has_made_room_for_is_put(store, virtual_clock, db):
    queue = WorkQueue(store, "jobs", max_size=1)
    await queue.put("a", key="k", expires=1)
    await anyio.sleep(2)
    with db:
        queue.put_in_sync(db, "b", key="k")
    assert await state_of(queue) == {"waiting": 1, "expired": 1}


@pytest.mark.parametrize("broken", ["write_hints", "SqliteQueues.save", "SqliteState.save"])
async def test_an_operation_that_fails_leaves_the_transaction_as_it_was(queue, db, monkeypatch, broken):
    def fail(*_):
        raise ZeroDivisionError

    await queue.put("job")
    async with queue.take() as task:
        with db:
            db.execute("INSERT INTO effect VALUES (7)")
            with monkeypatch.context() as patch:
                patch.setattr(f"tenure.engines.sqlite._executor.{broken}", fail)
                with pytest.raises(ZeroDivisionError):
                    task.complete_in_sync(db)
                with pytest.raises(ZeroDivisionError):
                    queue.put_in_sync(db, "next")
        assert await state_of(queue) == {"leased": 1}
    assert effects(db) == [7]
    assert await state_of(queue) == {"done": 1}


async def test_a_transaction_that_sees_an_older_state_has_to_be_run_again(queue, db):
    await queue.put("job")
    db.execute("BEGIN")
    assert effects(db) == []
    async with queue.take() as task:
        # refusing the task would be wrong: it is leased, which cannot be seen here
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            task.complete_in_sync(db)
        db.rollback()
        with db:
            task.complete_in_sync(db)
    assert await state_of(queue) == {"done": 1}


# groups


# which connections


async def test_outside_of_a_transaction_it_is_refused(queue, db, connect):
    await queue.put("job")
    other = connect(isolation_level=None)
    async with queue.take() as task:
        with pytest.raises(RuntimeError, match="connection must be in a transaction"):
            task.complete_in_sync(other)
        assert await state_of(queue) == {"leased": 1}
        other.execute("BEGIN")
        task.complete_in_sync(other)
        other.execute("COMMIT")
    assert await state_of(queue) == {"done": 1}


async def test_another_database_is_refused(queue, tmp_path):
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        with pytest.raises(ValueError, match="connection must be to .*store.db, .* not to memory"):
            queue.put_in_sync(memory, "job")
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
        with pytest.raises(ValueError, match=r"not to .*other\.db"):
            queue.put_in_sync(other, "job")
    with pytest.raises(TypeError, match="connection must be one of sqlite3"):
        queue.put_in_sync("store.db", "job")


async def test_an_engine_that_cannot_says_so():
    for engine in (MemoryEngine(), FaultyEngine(MemoryEngine())):
        async with tenure.open_store(engine) as store:
            queue = WorkQueue(store, "jobs")
            await queue.put("job")
            with contextlib.closing(sqlite3.connect(":memory:")) as db:
                with pytest.raises(EngineError, match="takes no part in transactions"):
                    queue.put_in_sync(db, "job")
                async with queue.take() as task:
                    with pytest.raises(EngineError, match="takes no part in transactions"):
                        task.complete_in_sync(db)


async def test_rows_may_be_whatever_the_owner_wants(queue, db):
    db.row_factory = lambda cursor, row: {"surprise": row}
    await queue.put("job", key="k")
    async with queue.take() as task:
        with db:
            task.complete_in_sync(db)
            queue.put_in_sync(db, "job", key="k")
    assert await state_of(queue) == {"waiting": 1, "done": 1}


async def test_a_session_in_a_thread(queue, path, db):
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    await queue.put("job")

    def work(session, task):
        session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": task.id})
        task.complete_in_sync(session)
        return queue.put_in_sync(session, "next")

    async with queue.take() as task:
        assert await in_session(engine, work, task) > task.id
    assert effects(db) == [task.id]
    assert await state_of(queue) == {"waiting": 1, "done": 1}
    with Session(engine) as session:
        queue.put_in_sync(session, "never")
        session.rollback()
        queue.put_in_sync(session.connection(), "another")
        session.commit()
    assert await state_of(queue) == {"waiting": 2, "done": 1}


@pytest.mark.backends("asyncio", "uvloop")
async def test_asynchronous_connections(queue, path, db):
    task_id = await queue.put("job")
    async with aiosqlite.connect(path) as own, queue.take() as task:
        await task.complete_in(own)
        await own.rollback()
        await own.execute("INSERT INTO effect VALUES (?)", (task.id,))
        await task.complete_in(own)
        await queue.put_in(own, "next")
        await own.commit()
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        third = await queue.put_in(session, "third", **OPTIONS)
    await check_options(queue, third)
    await queue.reschedule(third)
    async with engine.begin() as connection, queue.take() as task:
        pass
    async with queue.take() as task, engine.begin() as connection:
        await task.complete_in(connection)
    assert effects(db) == [task_id]
    assert await state_of(queue) == {"done": 3}


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("native", [False, True])
async def test_cancelled_anywhere_it_is_whole_or_not_there(queue, path, db, cancelled_at_every_step, native):
    async with aiosqlite.connect(path) as own:

        async def scenario():
            await own.execute("INSERT INTO effect VALUES (1)")
            await queue.put_in(own, "job")

        async for _ in cancelled_at_every_step(scenario, native=native):
            # even if one did commit what a cancelled call has left
            await own.commit()
            assert await queue.verify()
            statistics = await queue.statistics()
            assert statistics.put == statistics.waiting
    assert statistics.put > 1
    # SQLite keeps the file open for a cursor that the traceback of a cancelled call refers to
    gc.collect()


# workers


async def test_handlers_complete_their_tasks_themselves(store, queue, connect):
    db = connect()
    ids = await queue.put_many(range(10))

    async def handler(task: tenure.Task):
        with db:
            note(db, task)
            task.complete_in_sync(db)
            if task.payload == 3:
                db.rollback()
            if task.payload == 4 and task.attempt == 1:
                raise ZeroDivisionError

    worker = Worker(WorkQueue(store, "jobs", retry=Retry(backoff=0)), handler, concurrency=1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()
    assert await state_of(queue) == {"done": 9, "dead": 1}
    assert effects(db) == [*ids[:3], *ids[4:]]
    statistics = worker.statistics()
    assert (statistics.done, statistics.retried, statistics.lost) == (9, 1, 3)


async def test_handlers_in_threads_do_too(queue, connect, path):
    connect().commit()
    ids = await queue.put_many(range(10))

    def handler(task: tenure.Task):
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            note(db, task)
            task.complete_in_sync(db)

    worker = Worker(queue, handler, concurrency=3)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()
    assert worker.statistics().done == 10
    assert effects(connect()) == ids


async def run_batches(queue, handler):
    worker = BatchWorker(queue, handler, size=10, concurrency=1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()
    return worker.statistics()


async def test_a_batch_is_completed_by_one_commit_but_for_those_that_are_marked(
    queue, connect, virtual_clock
):
    db = connect()
    ids = await queue.put_many(range(10))

    async def handler(tasks: list[tenure.Task]):
        for task in tasks:
            task.set_result(10 * task.payload)
            if task.payload == 3:
                task.fail(Discard("no"))
        with db:
            done = queue.complete_in_sync(db, tasks)
            assert [task.payload for task in done] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
            for task in done:
                note(db, task)
            assert queue.complete_in_sync(db, done) == []  # each only once

    statistics = await run_batches(queue, handler)
    assert (statistics.done, statistics.discarded, statistics.lost) == (9, 1, 0)
    assert await state_of(queue) == {"done": 9, "discarded": 1}
    assert effects(db) == [task_id for task_id in ids if task_id != ids[3]]
    assert await queue.result(ids[9]) == 90


async def test_a_batch_that_is_rolled_back_is_tried_again(queue, connect, virtual_clock):
    db, tries = connect(), []
    ids = await queue.put_many(range(5))

    async def handler(tasks: list[tenure.Task]):
        tries.append([task.attempt for task in tasks])
        with db:
            for task in queue.complete_in_sync(db, tasks):
                note(db, task)
            if len(tries) == 1:
                raise ZeroDivisionError
            if len(tries) == 2:
                db.rollback()  # and the handler ends as if all were well

    statistics = await run_batches(queue, handler)
    assert tries == [[1] * 5, [2] * 5, [3] * 5]
    assert (statistics.done, statistics.retried, statistics.lost) == (5, 5, 5)
    assert effects(db) == ids and await state_of(queue) == {"done": 5}


async def test_those_of_a_batch_that_are_lost_or_cancelled_are_left_out(queue, connect, virtual_clock):
    db, completed = connect(), []
    ids = await queue.put_many(range(4))

    async def handler(tasks: list[tenure.Task]):
        if len(tasks) == 4:
            tasks[0]._lose("for a test")
            await queue.cancel(ids[1])
            await anyio.sleep(1)
            assert tasks[1].cancelled
        with db:
            done = queue.complete_in_sync(db, tasks)
            for task in done:
                note(db, task)
        completed.append([task.payload for task in done])

    statistics = await run_batches(queue, handler)
    assert completed == [[2, 3]]
    assert effects(db) == ids[2:]
    assert (statistics.cancelled, (await queue.statistics()).cancelled) == (1, 1)


async def test_tasks_that_the_engine_knows_to_be_lost_are_refused_one_by_one(queue, connect, virtual_clock):
    db = connect()
    await queue.put_many(range(3))
    async with queue.take() as first:
        other = connect()
        with other:
            first.complete_in_sync(other)
        first._joined = False  # as if another process had done it
        async with queue.take() as second:
            with db:
                assert queue.complete_in_sync(db, [first, second]) == [second]
        first._joined = True
    assert await state_of(queue) == {"waiting": 1, "done": 2}


async def test_which_tasks_can_be_completed_together(store, queue, connect, virtual_clock):
    db, other = connect(), WorkQueue(store, "others")
    assert queue.complete_in_sync(db, []) == []
    await queue.put("job")
    async with queue.take() as task:
        with pytest.raises(ValueError, match="tasks must be of tenure:queue:others"):
            other.complete_in_sync(db, [task])
        with pytest.raises(ValueError, match="tasks must be at most 256, not 257"):
            queue.complete_in_sync(db, [task] * 257)
        with pytest.raises(TypeError, match="tasks must be tasks, not 1"):
            queue.complete_in_sync(db, [1])
        with db:
            assert queue.complete_in_sync(db, [task]) == [task]
    assert queue.complete_in_sync(db, [task]) == []
    assert await state_of(queue) == {"done": 1}


CHILD = """
import contextlib, sqlite3, sys, anyio, tenure
path, loop = sys.argv[1:]
async def main():
    async with tenure.open_store(f"sqlite:///{path}", ttl=0.5) as store:
        queue = tenure.WorkQueue(store, "jobs", max_deliveries=1000)
        db = sqlite3.connect(path)
        async def handler(task: tenure.Task):
            with db:
                db.execute("INSERT INTO effect VALUES (?)", (task.id,))
                task.complete_in_sync(db)
                await anyio.sleep(0.002)
            print(task.id, flush=True)
            await anyio.sleep(0.005)
        await tenure.Worker(queue, handler, concurrency=1).run()
anyio.run(main, backend=loop)
"""


@pytest.mark.one_loop
async def test_killed_at_any_moment_each_takes_effect_once(store, queue, connect, path, anyio_backend_name):
    connect().commit()
    ids = await queue.put_many(range(40))
    await work_off_with_kills(queue, CHILD, str(path), anyio_backend_name, kill_at=(5, 11))
    assert effects(connect()) == ids
    assert await state_of(queue) == {"done": 40}


async def test_a_put_in_a_transaction_has_a_span(engine, connect):
    with spans() as traced:
        async with tenure.open_store(engine, observer=traced.observer()) as store:
            queue, db = WorkQueue(store, "jobs"), connect()
            task_id = queue.put_in_sync(db, "x", key="k")
            with pytest.raises(DuplicateTask):
                queue.put_in_sync(db, "x", key="k")
            db.commit()
            with pytest.raises(TypeError):
                queue.put_in_sync(object(), "y")
            async with queue.take():
                pass
        good, *failed = traced.puts
        assert good.attributes["messaging.message.id"] == str(task_id)
        assert [span.attributes["error.type"] for span in failed] == ["tenure.DuplicateTask", "TypeError"]
        assert traced.tries[0].links[0].context.span_id == good.context.span_id


@pytest.mark.backends("asyncio")
async def test_a_put_that_is_awaited_in_a_transaction_has_a_span(engine, path):
    with spans() as traced:
        async with (
            tenure.open_store(engine, observer=traced.observer()) as store,
            aiosqlite.connect(path) as own,
        ):
            queue = WorkQueue(store, "jobs")
            task_id = await queue.put_in(own, "x", key="k")
            with pytest.raises(DuplicateTask):
                await queue.put_in(own, "x", key="k")
            await own.rollback()
        good, failed = traced.puts
        assert good.attributes["messaging.message.id"] == str(task_id)
        assert failed.attributes["error.type"] == "tenure.DuplicateTask"
