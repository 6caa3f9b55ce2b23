from __future__ import annotations

import threading
from threading import Barrier, Event

import anyio
import anyio.from_thread
import pytest
from sql.tables import Account
from sqlalchemy import delete, event, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure.local import Threads
from tenure.sql import get_or_create, in_session
from tenure.testing import race

DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "pysqlite"])
PATIENCE = 50  # seconds; never waited for when all is well


def emails(engine):
    with Session(engine) as session:
        return sorted(session.scalars(select(Account.email)))


def begin_explicitly(engine):
    """What SQLAlchemy's documentation advises for SQLite: transactions that begin when they are said to."""
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


@DRIVERS
async def test_a_function_runs_in_a_transaction_in_a_thread(engine_of, driver):
    engine = engine_of(driver)

    def create(session, email):
        assert threading.current_thread() is not threading.main_thread()
        return get_or_create(session, Account, email=email)

    account, created = await in_session(engine, create, "a@b")
    assert (account.email, account.plan, created) == ("a@b", "free", True)
    assert emails(engine) == ["a@b"]


@DRIVERS
async def test_an_error_of_the_function_rolls_back_and_goes_through(engine_of, driver):
    engine = engine_of(driver)

    def fail(session):
        get_or_create(session, Account, email="a@b")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await in_session(engine, fail)
    assert emails(engine) == []


@DRIVERS
async def test_of_many_at_once_one_creates(engine_of, driver, after_reading):
    engine = engine_of(driver)
    met = Barrier(5, timeout=PATIENCE)

    def ask():
        return in_session(engine, lambda session: get_or_create(session, Account, email="a@b"))

    # all five have read, and found nothing, before one of them inserts
    with after_reading(engine, "account", met.wait, times=5):
        outcomes = await race(*[ask] * 5)
    assert sorted(created for _, created in outcomes) == [False] * 4 + [True]
    assert len({account.id for account, _ in outcomes}) == 1


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_of_many_with_snapshots_one_creates(engine_of, level, after_reading):
    engine = engine_of("psycopg", isolation_level=level)
    met = Barrier(3, timeout=PATIENCE)

    def ask():
        return in_session(
            engine, lambda session: get_or_create(session, Account, {"slug": "same"}, email="a@b")
        )

    with after_reading(engine, "account", met.wait, times=3):
        outcomes = await race(*[ask] * 3)
    assert sorted(created for _, created in outcomes) == [False] * 2 + [True]


async def test_of_many_with_sqlites_snapshots_one_creates(engine_of, after_reading):
    engine = engine_of("pysqlite")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    engine.dispose()
    begin_explicitly(engine)
    met = Barrier(2, timeout=PATIENCE)

    def ask():
        return in_session(engine, lambda session: get_or_create(session, Account, email="a@b"))

    with after_reading(engine, "account", met.wait, times=2):
        outcomes = await race(ask, ask)
    assert sorted(created for _, created in outcomes) == [False, True]


async def test_a_deadlock_is_run_again(engine_of):
    engine = engine_of("psycopg")
    met, ended = Barrier(2, timeout=PATIENCE), Event()
    calls = []

    def both(session, first, second):
        calls.append(first)
        again = len(calls) > 2
        # before the other has ended, the same deadlock might come again
        assert not again or ended.wait(PATIENCE)
        get_or_create(session, Account, email=first)
        if not again:
            met.wait()
        get_or_create(session, Account, email=second)

    async def run(first, second):
        await in_session(engine, both, first, second)
        ended.set()

    outcomes = await race(lambda: run("a", "b"), lambda: run("b", "a"))
    assert outcomes == [None, None]
    assert len(calls) == 3
    assert emails(engine) == ["a", "b"]


async def test_a_serialization_failure_at_the_commit_is_run_again(engine_of):
    engine = engine_of("psycopg", isolation_level="SERIALIZABLE")
    met, ended = Barrier(2, timeout=PATIENCE), Event()
    calls = []

    def count_and_add(session, email):
        calls.append(email)
        again = len(calls) > 2
        # before the other has ended, its transaction might be in the way again
        assert not again or ended.wait(PATIENCE)
        found = session.scalar(select(func.count()).select_from(Account))
        if not again:
            met.wait()
        session.add(Account(email=email, slug=str(found)))
        session.flush()

    async def run(email):
        await in_session(engine, count_and_add, email)
        ended.set()

    await race(lambda: run("a"), lambda: run("b"))
    with Session(engine) as session:
        assert sorted(session.scalars(select(Account.slug))) == ["0", "1"]
    assert len(calls) == 3


async def test_what_fails_again_and_again_is_raised_at_last(engine_of):
    calls = []

    def fail(session):
        calls.append(1)
        session.execute(text("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"))

    with pytest.raises(DBAPIError, match="again"):
        await in_session(engine_of("psycopg"), fail)
    assert len(calls) == 5


async def test_a_snapshot_that_is_always_too_old_leaves_the_databases_own_error(engine_of, after_refusal):
    engine, other = engine_of("psycopg", isolation_level="REPEATABLE READ"), engine_of("psycopg")
    calls = []

    def lose(session):
        calls.append(1)
        session.execute(select(Account))
        with other.begin() as connection:
            connection.execute(insert(Account).values(email="a@b"))
        try:
            get_or_create(session, Account, email="a@b")
        finally:
            with other.begin() as connection:
                connection.execute(delete(Account))

    with pytest.raises(IntegrityError, match="email"):
        await in_session(engine, lose)
    assert len(calls) == 5


async def test_other_errors_of_the_database_are_not_run_again(engine_of):
    calls = []

    def fail(session):
        calls.append(1)
        session.execute(text("SELECT nonsense"))

    with pytest.raises(DBAPIError, match="nonsense"):
        await in_session(engine_of("psycopg"), fail)
    assert len(calls) == 1


@DRIVERS
async def test_a_cancelled_call_rolls_back(engine_of, driver):
    engine = engine_of(driver)
    inside, go_on, left = anyio.Event(), Event(), anyio.Event()
    threads = Threads(1)

    def slow(session):
        session.add(Account(email="a@b"))
        session.flush()
        anyio.from_thread.run_sync(inside.set)
        assert go_on.wait(PATIENCE)

    async def call():
        await in_session(engine, slow, threads=threads)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await inside.wait()
        group.cancel_scope.cancel()
    assert threads.statistics().abandoned == 1
    go_on.set()
    # the thread keeps its slot until the transaction has ended
    with anyio.fail_after(PATIENCE):
        await threads.run(left.statistics)
    assert emails(engine) == []
    assert engine.pool.checkedout() == 0


async def test_a_call_cancelled_in_line_never_begins(engine_of):
    engine, threads = engine_of("pysqlite"), Threads(1)
    inside, go_on = anyio.Event(), Event()
    calls = []

    def hold():
        anyio.from_thread.run_sync(inside.set)
        assert go_on.wait(PATIENCE)

    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, hold)
        await inside.wait()
        with anyio.move_on_after(0) as scope:
            await in_session(engine, calls.append, threads=threads)
        go_on.set()
    assert scope.cancelled_caught
    assert calls == []


async def test_no_more_run_at_once_than_the_pool_keeps_connections(engine_of):
    engine = engine_of("pysqlite", pool_size=2, max_overflow=0)
    other_options = engine.execution_options(isolation_level="SERIALIZABLE")
    now, most = [], []
    lock = threading.Lock()

    def run(session):
        with lock:
            now.append(1)
            most.append(len(now))
        session.execute(select(Account))
        with lock:
            now.pop()

    outcomes = await race(*(lambda e=e: in_session(e, run) for e in [engine, other_options] * 5))
    assert outcomes == [None] * 10
    assert max(most) <= 2
    assert engine.pool.checkedout() == 0


@pytest.mark.parametrize("options", [{"poolclass": NullPool}, {"pool_size": 0}], ids=["no pool", "no limit"])
async def test_a_pool_without_a_size_will_do(engine_of, options):
    assert await in_session(engine_of("pysqlite", **options), lambda session: session.scalar(select(1))) == 1


async def test_a_call_from_inside_is_refused(engine_of):
    engine = engine_of("pysqlite")

    def inner(session):
        return anyio.from_thread.run(in_session, engine, inner)

    with pytest.raises(RuntimeError, match="deadlock"):
        await in_session(engine, inner)


async def test_bad_arguments_are_named(engine_of):
    async def wrong(session): ...

    with pytest.raises(TypeError, match=r"^engine must be an Engine"):
        await in_session("sqlite://", print)
    with pytest.raises(TypeError, match=r"^fn must be a plain function"):
        await in_session(engine_of("pysqlite"), wrong)


async def test_a_claimed_account_is_changed_once(engine_of, after_reading):
    """Lost updates are what REPEATABLE READ is for: the second one is run again and sees the first."""
    engine = engine_of("psycopg", isolation_level="REPEATABLE READ")
    met = Barrier(2, timeout=PATIENCE)
    await in_session(engine, lambda session: get_or_create(session, Account, email="a@b") and None)

    def visit(session):
        account, _ = get_or_create(session, Account, email="a@b")
        account.visits += 1

    with after_reading(engine, "account", met.wait, times=2):
        await race(*[lambda: in_session(engine, visit)] * 2)
    with Session(engine) as session:
        assert session.scalar(select(Account.visits)) == 2
