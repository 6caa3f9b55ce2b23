"""Completing and putting in the user's own transaction, on PostgreSQL: what tests/shared shows for a SQLite file."""

from __future__ import annotations

import contextlib

import anyio
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool
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
    Keep,
    LeaseLost,
    QueueFull,
    Retry,
    WorkQueue,
)
from tenure.engine import Complete, Reply, Settle, Verdict
from tenure.engines.postgres import PostgresEngine
from tenure.sql import in_session

ASYNCIO = pytest.mark.backends("asyncio", "uvloop")

__all__ = (
    "test_a_commit_completes_one_of_a_group_and_puts_the_next_into_it",
    "test_a_rollback_keeps_the_place_of_a_task_in_its_group",
    "test_put_in_keeps_and_replaces",
    "test_put_in_takes_all_options_of_put",
    "test_the_commit_wakes_those_that_wait_for_the_group",
)


@pytest.fixture
def address(postgres):
    return {"host": str(postgres.folder), "user": "tenure", "dbname": "postgres"}


@pytest.fixture
def db(address, postgres_server):
    """A connection of the user's, who has a table."""
    with psycopg.connect(**address) as db:
        db.execute("DROP TABLE IF EXISTS effect")
        db.execute("CREATE TABLE effect (task bigint)")
        db.commit()
        yield db


@pytest.fixture
def url(postgres, db):
    return f"postgresql://tenure@/postgres?host={postgres.folder}"


@pytest.fixture
def engine(url):
    return PostgresEngine(url)


@pytest.fixture
async def store(engine):
    async with tenure.open_store(engine, ttl=600) as opened:
        yield opened


@pytest.fixture
def begin(db):
    return db.transaction


@pytest.fixture
def queue(store):
    return WorkQueue(store, "jobs", retry=Retry(attempts=3, backoff=0.1, jitter=0))


def effects(db):
    with db.transaction():
        return [task for (task,) in db.execute("SELECT task FROM effect ORDER BY task")]


def note(db, task):
    db.execute("INSERT INTO effect VALUES (%s)", (task.id,))


async def test_the_commit_completes_the_task_and_puts_the_next(queue, db):
    task_id = await queue.put("job")
    async with queue.take() as task:
        task.set_result({"n": 5})
        with db.transaction():
            note(db, task)
            task.complete_in_sync(db)
            assert queue.put_in_sync(db, "next", priority=3) > task_id
        assert await state_of(queue) == {"waiting": 1, "done": 1}
    assert await queue.result(task_id) == {"n": 5}
    assert effects(db) == [task_id]
    async with queue.take() as task:
        assert (task.payload, task.priority) == ("next", 3)


async def test_after_a_rollback_nothing_has_happened(queue, db):
    await queue.put("job")
    async with queue.take() as task:
        with contextlib.suppress(ZeroDivisionError), db.transaction():
            note(db, task)
            task.complete_in_sync(db)
            queue.put_in_sync(db, "next")
            raise ZeroDivisionError
        assert await state_of(queue) == {"leased": 1}
        with db.transaction():
            note(db, task)
            task.complete_in_sync(db)
    assert await state_of(queue) == {"done": 1}
    assert effects(db) == [task.id]


async def test_the_engine_refuses_by_token_and_by_session(engine, store, queue, db, address):
    await queue.put("job")
    session = (await store._handle.session(3.0)).id

    def answer(session, token):
        joining = engine.enlist(Complete(session, queue.key, Settle(task.id, token, Verdict.DONE, b"null")))
        sql, values = joining.sql, joining.values
        with db.transaction():
            for name in values:
                sql = sql.replace(f":{name} ", f"%({name})s ")
            return joining.finish(None, db.execute(sql, values).fetchall())

    async with queue.take() as task:
        assert answer(session, task.token - 1) is Reply.REFUSED
        assert answer("nobody", task.token) is Reply.GONE
        with psycopg.connect(**address, autocommit=True) as other:
            other.execute("UPDATE tenure.session SET expires = expires - 3100000")
            assert answer(session, task.token) is Reply.GONE
            other.execute("UPDATE tenure.session SET expires = expires + 3100000")
    assert await state_of(queue) == {"done": 1}


async def test_a_frozen_holder_writes_nothing(url, db, address):
    async with (
        tenure.open_store(PostgresEngine(url), ttl=0.5) as a,
        tenure.open_store(PostgresEngine(url)) as b,
    ):
        task_id = await WorkQueue(a, "jobs").put("job")
        with pytest.raises(LeaseLost):
            async with WorkQueue(a, "jobs").take() as task:
                # a shield stands for a process that does not notice
                with anyio.CancelScope(shield=True):
                    with psycopg.connect(**address, autocommit=True) as other:
                        other.execute("UPDATE tenure.session SET expires = 0 WHERE ttl = 500000")
                    async with WorkQueue(b, "jobs").take() as again:
                        assert (again.id, again.deliveries) == (task.id, 2)
                        with db.transaction():
                            note(db, again)
                            again.complete_in_sync(db)
                    with pytest.raises(LeaseLost), db.transaction():
                        note(db, task)
                        task.complete_in_sync(db)
        assert effects(db) == [task_id]


async def test_one_that_never_commits_holds_others_up_for_the_ttl_at_most(url, db):
    async with (
        tenure.open_store(PostgresEngine(url), ttl=0.5) as a,
        tenure.open_store(PostgresEngine(url)) as b,
    ):
        queue = WorkQueue(a, "jobs", retry=Retry(backoff=0))
        await queue.put("job")
        with pytest.raises(psycopg.Error, match="idle-in-transaction timeout"):
            async with queue.take() as task:
                note(db, task)
                task.complete_in_sync(db)
                with anyio.fail_after(50):
                    await WorkQueue(b, "jobs").put("another")
                db.execute("SELECT 1")
        assert await state_of(queue) == {"waiting": 2}


async def test_the_limit_for_idle_transactions_is_for_this_one_alone(queue, db):
    def limit():
        (setting,) = db.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        return setting

    for before, within in (("0", "30s"), ("1min", "30s"), ("2s", "2s")):
        db.execute(f"SET idle_in_transaction_session_timeout = '{before}'")
        db.commit()
        queue.put_in_sync(db, "job")
        assert limit() == within
        db.commit()
        assert limit() == before
        db.commit()


async def test_put_in_refuses_as_try_put_does(store, db):
    queue = WorkQueue(store, "jobs", max_size=1)
    await queue.configure()
    with db.transaction():
        first = queue.put_in_sync(db, "a", key="k", expires=60)
        with pytest.raises(DuplicateTask) as duplicate:
            queue.put_in_sync(db, "b", key="k")
        assert duplicate.value.task_id == first
        with pytest.raises(QueueFull):
            queue.put_in_sync(db, "b", delay=1)
    assert await state_of(queue) == {"waiting": 1}


async def test_a_waiter_is_woken_by_the_commit(store, db):
    queue = WorkQueue(store, "jobs", max_size=1)
    task_id = await queue.put("first")
    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            async with queue.take() as task:
                group.start_soon(queue.put, "second")
                group.start_soon(queue.result, task_id)
                while not (await queue.statistics()).producers:
                    await anyio.sleep(0.01)
                with db.transaction():
                    task.complete_in_sync(db)
    async with queue.take():
        pass
    taken = anyio.Event()

    async def take():
        async with queue.take():
            taken.set()

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await anyio.sleep(0.05)
            with db.transaction():
                queue.put_in_sync(db, "third")
            await taken.wait()


async def test_in_autocommit_mode_it_is_refused(queue, address):
    with psycopg.connect(**address, autocommit=True) as db:
        with pytest.raises(RuntimeError, match="connection must be in a transaction"):
            queue.put_in_sync(db, "job")
        with db.transaction():
            queue.put_in_sync(db, "job")
    assert await state_of(queue) == {"waiting": 1}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_transaction_that_sees_an_older_state_is_refused(queue, db, level):
    await queue.put("job")
    async with queue.take() as task:
        db.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match=f"READ COMMITTED .* this one is {level}"
        ):
            task.complete_in_sync(db)
        db.rollback()
    assert await state_of(queue) == {"done": 1}


async def test_a_session_in_a_thread(queue, postgres, db):
    engine = create_engine(postgres.url("psycopg"), poolclass=NullPool)
    await queue.put("job")

    def work(session, task):
        session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": task.id})
        task.complete_in_sync(session)
        return queue.put_in_sync(session, "next")

    async with queue.take() as task:
        assert await in_session(engine, work, task) > task.id
    assert effects(db) == [task.id]
    assert await state_of(queue) == {"waiting": 1, "done": 1}


@ASYNCIO
async def test_asynchronous_connections(queue, postgres, address, db):
    await queue.put_many(range(4))
    own = await asyncpg.connect(host=address["host"], user="tenure", database="postgres")
    with pytest.raises(RuntimeError, match="connection must be in a transaction"):
        await queue.put_in(own, "job")
    async with queue.take() as task, own.transaction():
        await queue.put_in(own, "next", key="k")
        await task.complete_in(own)
    await own.close()
    row = psycopg.rows.dict_row
    async with await psycopg.AsyncConnection.connect(**address, row_factory=row) as own:
        async with queue.take() as task, own.transaction():
            await task.complete_in(own)
    for driver in ("asyncpg", "psycopg"):
        engine = create_async_engine(postgres.url(driver), poolclass=NullPool)
        async with queue.take() as task, AsyncSession(engine) as session, session.begin():
            await task.complete_in(session)
            first = await queue.put_in(session, {}, **OPTIONS)
        await check_options(queue, first)
        with pytest.raises(TypeError, match=r"^connection must be one that blocks: await the same without"):
            queue.put_in_sync(AsyncSession(engine), {})
    assert await state_of(queue) == {"waiting": 1, "delayed": 1, "done": 4}


@pytest.mark.parametrize("results_ttl", [None, 60.0])
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_batch_is_completed_by_one_commit(store, address, db, results_ttl, awaited):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1), keep=Keep(results=results_ttl))
    ids = await queue.put_many(range(20))

    def handler(tasks: list[tenure.Task]):
        for task in tasks:
            task.set_result(task.payload)
            if task.payload == 3:
                task.fail(Discard("no"))
        with psycopg.connect(**address) as own:
            done = queue.complete_in_sync(own, tasks)
            assert queue.complete_in_sync(own, done) == []
            for task in done:
                note(own, task)

    results = []

    async def wait():
        results.append(await queue.result(ids[19]))

    worker = BatchWorker(queue, handler, size=10, concurrency=2)
    async with anyio.create_task_group() as group:
        if awaited:
            group.start_soon(wait)
            await anyio.sleep(0.1)
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()
    assert await queue.result(ids[19]) == 19 and results == [19] * awaited
    statistics = worker.statistics()
    assert (statistics.done, statistics.discarded, statistics.lost) == (19, 1, 0)
    assert effects(db) == [task_id for task_id in ids if task_id != ids[3]]
    assert await state_of(queue) == {"done": 19, "discarded": 1}


@ASYNCIO
async def test_many_are_completed_on_asynchronous_connections(queue, postgres, address, db):
    await queue.put_many(range(8))
    own = await asyncpg.connect(host=address["host"], user="tenure", database="postgres")
    async with queue.take() as one, queue.take() as another, own.transaction():
        assert await queue.complete_in(own, [one, another]) == [one, another]
    await own.close()
    async with await psycopg.AsyncConnection.connect(**address) as own:
        async with queue.take() as one, queue.take() as another, own.transaction():
            assert await queue.complete_in(own, [one, another]) == [one, another]
    for driver in ("asyncpg", "psycopg"):
        engine = create_async_engine(postgres.url(driver), poolclass=NullPool)
        async with (
            queue.take() as one,
            queue.take() as another,
            AsyncSession(engine) as session,
            session.begin(),
        ):
            assert await queue.complete_in(session, [one, another]) == [one, another]
    assert await state_of(queue) == {"done": 8}


CHILD = """
import sys, anyio, psycopg, tenure
from tenure.engines.postgres import PostgresEngine
url, loop = sys.argv[1:]
async def main():
    async with tenure.open_store(PostgresEngine(url), ttl=0.5) as store:
        queue = tenure.WorkQueue(store, "jobs", max_deliveries=1000)
        db = psycopg.connect(url)
        async def handler(task: tenure.Task):
            with db.transaction():
                db.execute("INSERT INTO effect VALUES (%s)", (task.id,))
                task.complete_in_sync(db)
                await anyio.sleep(0.002)
            print(task.id, flush=True)
            await anyio.sleep(0.005)
        await tenure.Worker(queue, handler, concurrency=1).run()
anyio.run(main, backend=loop)
"""


@pytest.mark.one_loop
async def test_killed_at_any_moment_each_takes_effect_once(queue, url, db, anyio_backend_name):
    ids = await queue.put_many(range(40))
    await work_off_with_kills(queue, CHILD, url, anyio_backend_name, kill_at=(7,))
    assert effects(db) == sorted(ids)
    assert await state_of(queue) == {"done": 40}
