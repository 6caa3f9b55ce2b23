from __future__ import annotations

from threading import Event

import anyio
import anyio.from_thread
import pytest
from sql.tables import Account, Job, Step
from sqlalchemy import func, select, text, union, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, aliased, joinedload

from tenure.errors import EngineError
from tenure.sql import claim_rows, in_session
from tenure.testing import race

DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "pysqlite"])
NEW = select(Job).where(Job.state == "new").order_by(Job.id)


@pytest.fixture
def jobs(engine_of):
    """Makes an engine with jobs numbered from 1, each of an account and with two steps."""

    def make(driver, number=6, **options):
        engine = engine_of(driver, **options)
        with Session(engine) as session, session.begin():
            session.add(account := Account(email="a@b"))
            for n in range(1, number + 1):
                session.add(Job(id=n, account=account, steps=[Step(), Step()]))
        return engine

    return make


def ids(rows):
    return [row.id for row in rows]


def test_what_one_has_claimed_the_other_passes_over(jobs):
    engine = jobs("psycopg")
    with Session(engine) as one, Session(engine) as two, Session(engine) as three:
        assert ids(claim_rows(one, NEW, 2)) == [1, 2]
        assert ids(claim_rows(two, NEW, 3)) == [3, 4, 5]
        assert ids(claim_rows(three, NEW, 10)) == [6]
        assert ids(claim_rows(three, NEW.limit(1), 10)) == [6], "a limit of its own is replaced"
        one.rollback()
        assert ids(claim_rows(three, NEW, 10)) == [1, 2, 6], "a claim ends with its transaction"


@DRIVERS
def test_claimed_rows_are_read_anew_and_own_changes_are_kept(jobs, driver):
    engine = jobs(driver, 2)
    with Session(engine, autoflush=False, expire_on_commit=False) as session:
        first, second = session.scalars(NEW)
        session.commit()
        with engine.begin() as connection:
            connection.execute(update(Job).where(Job.id == 1).values(account_id=None))
        second.account_id = None
        assert claim_rows(session, NEW, 5) == [first, second]
        assert (first.account_id, second.account_id) == (None, None)


def test_only_the_rows_of_the_model_are_locked(jobs):
    engine = jobs("psycopg")
    query = NEW.join(Job.account).where(Account.email == "a@b")
    with Session(engine) as one, Session(engine) as two:
        assert ids(claim_rows(one, query, 2)) == [1, 2]
        assert ids(claim_rows(two, query, 2)) == [3, 4]


@DRIVERS
@pytest.mark.parametrize("relation", [Job.account, Job.steps], ids=["many to one", "one to many"])
def test_joined_loading_works(jobs, driver, relation):
    engine = jobs(driver)
    with Session(engine) as session:
        found = claim_rows(session, NEW.options(joinedload(relation)), 2)
        assert ids(found) == [1, 2]
        assert found[0].account.email == "a@b"
        assert len(found[0].steps) == 2


@DRIVERS
def test_columns_and_aliases_can_be_claimed(jobs, driver):
    engine = jobs(driver)
    other = aliased(Job)
    with Session(engine) as session:
        assert claim_rows(session, select(Job.state).order_by(Job.id), 2) == ["new", "new"]
        assert ids(claim_rows(session, select(other).order_by(other.id), 2)) == [1, 2]
        assert claim_rows(session, select(Job.__table__.c.id).order_by(Job.__table__.c.id), 2) == [1, 2]
        assert claim_rows(session, NEW.where(Job.id > 99), 2) == []


@DRIVERS
async def test_many_workers_take_each_job_once(jobs, driver):
    engine = jobs(driver, 20)

    def work(session):
        taken = claim_rows(session, NEW, 3)
        for job in taken:
            job.state = "done"
        return ids(taken)

    taken = []

    async def worker():
        while some := await in_session(engine, work):
            taken.extend(some)

    assert await race(*[worker] * 4) == [None] * 4
    # one that passes over the claims of others may see an end too early, but nobody takes a job twice
    while some := await in_session(engine, work):
        taken.extend(some)
    assert sorted(taken) == list(range(1, 21))


async def test_with_snapshots_too(jobs):
    engine = jobs("psycopg", 10, isolation_level="REPEATABLE READ")

    def work(session):
        for job in claim_rows(session, NEW, 2):
            job.state = "done"

    await race(*[lambda: in_session(engine, work)] * 5)
    with Session(engine) as session:
        assert session.scalar(select(func.count()).where(Job.state == "done")) == 10


async def test_on_sqlite_the_second_waits_until_the_first_has_ended(jobs):
    engine = jobs("pysqlite")
    claimed, go_on = anyio.Event(), Event()

    def first(session):
        (job,) = claim_rows(session, NEW, 1)
        anyio.from_thread.run_sync(claimed.set)
        assert go_on.wait(20)
        job.state = "done"

    def second(session):
        anyio.from_thread.run_sync(go_on.set)
        return ids(claim_rows(session, NEW, 1))

    async with anyio.create_task_group() as group:
        group.start_soon(in_session, engine, first)
        await claimed.wait()
        assert await in_session(engine, second) == [2]


@pytest.mark.backends("asyncio", "uvloop")
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_an_async_session_awaits_it(jobs, async_engine_of, driver):
    jobs("psycopg")
    engine = async_engine_of(driver)
    async with AsyncSession(engine) as one, AsyncSession(engine) as two:
        assert ids(await claim_rows(one, NEW, 2)) == [1, 2]
        assert ids(await claim_rows(two, NEW, 2)) == [3, 4]


@pytest.mark.backends("asyncio", "uvloop")
async def test_an_async_session_claims_on_sqlite(jobs, async_engine_of):
    jobs("pysqlite")
    async with AsyncSession(async_engine_of("aiosqlite")) as session:
        assert ids(await claim_rows(session, NEW, 2)) == [1, 2]


def test_bad_arguments_are_named(jobs):
    with Session(jobs("pysqlite")) as session:
        with pytest.raises(ValueError, match=r"^limit must be at least 1, not 0"):
            claim_rows(session, NEW, 0)
        with pytest.raises(TypeError, match=r"^limit must be an int, not str"):
            claim_rows(session, NEW, "1")
        with pytest.raises(ValueError, match=r"^select must ask for one model or column, not for 2"):
            claim_rows(session, select(Job.id, Job.state), 1)
        with pytest.raises(TypeError, match=r"^session must be"):
            claim_rows(None, NEW, 1)
        for unread in (
            select(Job).from_statement(NEW),
            text("SELECT 1"),
            union(NEW, NEW),
            session.query(Job),
            "x",
        ):
            with pytest.raises(TypeError, match=r"^select must be a select\(...\) of SQLAlchemy"):
                claim_rows(session, unread, 1)


def test_a_database_that_cannot_skip_is_refused(jobs, monkeypatch):
    engine = jobs("pysqlite")
    monkeypatch.setattr(engine.dialect, "name", "mssql")
    with Session(engine) as session, pytest.raises(EngineError, match="mssql has no FOR UPDATE SKIP LOCKED"):
        claim_rows(session, NEW, 1)
