from __future__ import annotations

import anyio
import pytest
from sql.tables import Account, Note
from sqlalchemy import func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from tenure.sql import StaleSnapshot, get_or_create

pytestmark = pytest.mark.backends("asyncio", "uvloop")
DRIVERS = pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "aiosqlite"])
SERVERS = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
BLOCKING = {"asyncpg": "psycopg", "psycopg": "psycopg", "aiosqlite": "pysqlite"}


@pytest.fixture
def elsewhere(engine_of):
    """Makes functions that insert a row in a transaction of its own, blocking."""

    def make(driver, model, **values):
        engine = engine_of(BLOCKING[driver])

        def run():
            with engine.begin() as connection:
                connection.execute(insert(model).values(**values))

        return run

    return make


async def count(engine):
    async with AsyncSession(engine) as session:
        return await session.scalar(select(func.count()).select_from(Account))


@DRIVERS
async def test_the_first_creates_and_the_second_finds(async_engine_of, driver):
    engine = async_engine_of(driver)
    async with AsyncSession(engine) as session, session.begin():
        account, created = await get_or_create(session, Account, {"plan": "paid"}, email="a@b")
        # read without a question to the database, which would fail here
        assert (account.plan, account.visits, created) == ("paid", 0, True)
        assert await get_or_create(session, Account, email="a@b") == (account, False)
    assert await count(engine) == 1


@DRIVERS
async def test_the_loser_of_a_race_gets_the_row_of_the_winner(
    async_engine_of, driver, elsewhere, after_reading
):
    engine = async_engine_of(driver)
    win = elsewhere(driver, Account, email="a@b", plan="theirs")
    async with AsyncSession(engine) as session, session.begin():
        with after_reading(engine, "account", win):
            account, created = await get_or_create(session, Account, {"plan": "mine"}, email="a@b")
        assert (account.plan, created) == ("theirs", False)
    assert await count(engine) == 1


@DRIVERS
async def test_a_relationship_in_the_identity_can_be_read_after_a_lost_race(
    async_engine_of, driver, elsewhere, after_reading
):
    elsewhere(driver, Account, email="a@b", id=1)()
    engine = async_engine_of(driver)
    async with AsyncSession(engine) as session:
        account = await session.get(Account, 1)
        with after_reading(engine, "note", elsewhere(driver, Note, account_id=1, title="x")):
            _, created = await get_or_create(session, Note, account=account, title="x")
        assert not created
        assert account.email == "a@b"


@SERVERS
async def test_a_transaction_of_the_callers_learns_that_its_snapshot_is_too_old(
    async_engine_of, driver, elsewhere, after_reading
):
    engine = async_engine_of(driver, isolation_level="REPEATABLE READ")
    async with AsyncSession(engine) as session, session.begin():
        with after_reading(engine, "account", elsewhere(driver, Account, email="a@b", plan="theirs")):
            with pytest.raises(StaleSnapshot):
                await get_or_create(session, Account, email="a@b")
        assert await session.scalar(select(1)), "the transaction goes on"


@SERVERS
async def test_a_call_cancelled_while_it_waits_for_the_winner_leaves_nothing(async_engine_of, driver):
    engine = async_engine_of(driver)
    async with AsyncSession(engine) as winner, winner.begin():
        await get_or_create(winner, Account, {"plan": "theirs"}, email="a@b")

        async def lose():
            async with AsyncSession(engine) as session, session.begin():
                session.add(Account(email="c@d"))
                await get_or_create(session, Account, {"plan": "mine"}, email="a@b")

        async with anyio.create_task_group() as group:
            group.start_soon(lose)
            blocked = "NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            waiting = text(f"SELECT count(*) FROM pg_locks WHERE {blocked}")
            with anyio.fail_after(50):
                while not await winner.scalar(waiting):
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    assert engine.pool.checkedout() == 0
    async with AsyncSession(engine) as session:
        assert (await session.scalars(select(Account.plan))).all() == ["theirs"]
