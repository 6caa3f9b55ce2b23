"""Fences for the user's own writes: every kind of connection, and every order of two writers on a real server."""

from __future__ import annotations

import contextlib
import sqlite3
from itertools import permutations

import aiosqlite
import anyio
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure import LeaseLost, SqlGuard

OLD, NEW = SqlGuard("report", 100), SqlGuard("report", 200)
TABLES = ("DROP TABLE IF EXISTS tenure_fences", "DROP TABLE IF EXISTS report", SqlGuard.create_table())
TABLES += ("CREATE TABLE report (body TEXT)", "INSERT INTO report VALUES ('')")
ASYNCIO = pytest.mark.backends("asyncio", "uvloop")


@pytest.fixture
def server(postgres):
    """How to reach the server, its tables empty."""
    address = {"host": str(postgres.folder), "user": "tenure"}
    with psycopg.connect(**address, dbname="postgres", autocommit=True) as db:
        for statement in TABLES:
            db.execute(statement)
    return address


# every kind of connection


def sqlalchemy_url(kind, postgres, folder):
    driver = kind.split()[-1]
    if driver in {"pysqlite", "aiosqlite"}:
        return f"sqlite+{driver}:///{folder / 'own.db'}"
    return postgres.url(driver)


@contextlib.asynccontextmanager
async def opened(kind, postgres, folder, *, autocommit=False):
    """A connection by its kind and, with SQLAlchemy, its driver."""
    address = {"host": str(postgres.folder), "user": "tenure"}
    options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
    url = sqlalchemy_url(kind, postgres, folder) if " " in kind else ""
    match kind.split():
        case ["sqlite3"]:
            level = {"isolation_level": None} if autocommit else {}
            with contextlib.closing(sqlite3.connect(folder / "own.db", **level)) as db:
                yield db
        case ["aiosqlite"]:
            level = {"isolation_level": None} if autocommit else {}
            async with aiosqlite.connect(folder / "own.db", **level) as db:
                yield db
        case ["psycopg"]:
            with psycopg.connect(**address, dbname="postgres", autocommit=autocommit) as db:
                yield db
        case ["AsyncConnection"]:
            async with await psycopg.AsyncConnection.connect(
                **address, dbname="postgres", autocommit=autocommit
            ) as db:
                yield db
        case ["asyncpg"]:
            db = await asyncpg.connect(**address, database="postgres")
            if autocommit:
                yield db
            else:
                async with db.transaction():
                    yield db
            await db.close()
        case ["Connection", _]:
            engine = create_engine(url, poolclass=NullPool, **options)
            with engine.connect() as db:
                yield db
        case ["Session", _]:
            engine = create_engine(url, poolclass=NullPool, **options)
            with Session(engine) as db:
                yield db
        case ["AsyncConnection", _]:
            engine = create_async_engine(url, poolclass=NullPool, **options)
            async with engine.connect() as db:
                yield db
        case ["AsyncSession", _]:
            engine = create_async_engine(url, poolclass=NullPool, **options)
            async with AsyncSession(engine) as db:
                yield db


BLOCKING = ("sqlite3", "psycopg", "Connection pysqlite", "Session pysqlite", "Session psycopg")
AWAITED = ("aiosqlite", "asyncpg", "AsyncConnection", "AsyncSession aiosqlite", "AsyncSession asyncpg")
AWAITED += ("AsyncSession psycopg", "AsyncConnection asyncpg")


@pytest.fixture
def tables(server, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as db:
        for statement in TABLES:
            db.execute(statement)
        db.commit()


@pytest.mark.parametrize("kind", BLOCKING)
async def test_on_a_blocking_connection_it_is_done_at_once(kind, postgres, tables, tmp_path):
    async with opened(kind, postgres, tmp_path) as db:
        OLD.enforce_sync(db)
        NEW.enforce_sync(db)
        with pytest.raises(LeaseLost, match="refused"):
            OLD.enforce_sync(db)
        NEW.enforce_sync(db)


@ASYNCIO
@pytest.mark.parametrize("kind", AWAITED)
async def test_on_an_asynchronous_connection_it_is_awaited(kind, postgres, tables, tmp_path):
    async with opened(kind, postgres, tmp_path) as db:
        await OLD.enforce(db)
        await NEW.enforce(db)
        with pytest.raises(LeaseLost, match="refused"):
            await OLD.enforce(db)
        await NEW.enforce(db)


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("kind", [*BLOCKING, *AWAITED])
async def test_in_autocommit_mode_it_is_refused(kind, postgres, tables, tmp_path):
    async with opened(kind, postgres, tmp_path, autocommit=True) as db:
        with pytest.raises(RuntimeError, match="connection must be in a transaction"):
            OLD.enforce_sync(db) if kind in BLOCKING else await OLD.enforce(db)


@ASYNCIO
async def test_a_connection_of_a_pool_and_rows_of_other_kinds_will_do(server):
    async with asyncpg.create_pool(**server, database="postgres", min_size=1, max_size=1) as pool:
        async with pool.acquire() as db, db.transaction():
            await OLD.enforce(db)
            assert await db.fetchrow(*unpacked(NEW.statement("numeric_dollar"))) == (200,)
    with psycopg.connect(**server, dbname="postgres", row_factory=psycopg.rows.dict_row) as db:
        NEW.enforce_sync(db)
        assert db.execute(*OLD.statement("pyformat")).fetchone() is None


async def test_as_text_it_is_for_sqlalchemy_too(postgres, tables):
    engine = create_engine(postgres.url("psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        sql, parameters = OLD.statement("named")
        OLD.passed(session.execute(text(sql), parameters).first())


def unpacked(statement):
    sql, parameters = statement
    return sql, *parameters


# every order of two writers


class Threads:
    """A connection of psycopg's in threads, on any loop."""

    def __init__(self, address):
        self._address = address

    async def __aenter__(self):
        self._db = psycopg.connect(**self._address, dbname="postgres", autocommit=True)
        self.pid = self._db.info.backend_pid
        return self

    async def __aexit__(self, *_):
        self._db.close()

    async def guard(self, guard):
        await anyio.to_thread.run_sync(guard.enforce_sync, self._db)

    async def execute(self, sql):
        await anyio.to_thread.run_sync(self._db.execute, sql)


class Psycopg(Threads):
    """One of psycopg's for asyncio."""

    async def __aenter__(self):
        self._db = await psycopg.AsyncConnection.connect(**self._address, dbname="postgres", autocommit=True)
        self.pid = self._db.info.backend_pid
        return self

    async def __aexit__(self, *_):
        await self._db.close()

    async def guard(self, guard):
        await guard.enforce(self._db)

    async def execute(self, sql):
        await self._db.execute(sql)


class Asyncpg(Psycopg):
    async def __aenter__(self):
        self._db = await asyncpg.connect(**self._address, database="postgres")
        self.pid = self._db.get_server_pid()
        return self


class Careless(Threads):
    """Guards before its transaction: the fault."""

    async def guard(self, guard):
        with psycopg.connect(**self._address, dbname="postgres", autocommit=True) as db:
            guard.passed(db.execute(*guard.statement("format")).fetchone())


class Writer:
    """Takes each of its three steps when told to; `outcome` is None until it has ended."""

    def __init__(self, link, guard, body, begin, end):
        self.outcome = None
        self.behind = 0
        self._link = link
        self._steps = self._take(guard, body, begin, end)
        self._send, self._turns = anyio.create_memory_object_stream(3)

    def step(self):
        self.behind += 1
        self._send.send_nowait(None)

    async def run(self):
        with self._send, self._turns:
            try:
                async for _ in self._steps:
                    self.behind -= 1
                self.outcome = "written"
            except (LeaseLost, psycopg.errors.SerializationFailure) as refusal:
                await self._link.execute("ROLLBACK")
                self.outcome = type(refusal).__name__

    async def _take(self, guard, body, begin, end):
        await self._turns.receive()
        await self._link.execute(begin)
        await self._link.guard(guard)
        yield
        await self._turns.receive()
        await self._link.execute(f"UPDATE report SET body = '{body}'")
        yield
        await self._turns.receive()
        await self._link.execute(end)
        yield

    def rests(self, watch):
        """Whether nothing happens until it is told again, or the other one goes on."""
        blocked = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        return (
            self.outcome or not self.behind or watch.execute(blocked, (self._link.pid,)).fetchone() == (True,)
        )


async def results(server, link, *, begin="BEGIN", end="COMMIT"):
    """For each order of their steps: how the old and the new writer ended, and whose words stand there."""
    found = []
    with psycopg.connect(**server, dbname="postgres", autocommit=True) as watch:
        async with link(server) as one, link(server) as another:
            for order in sorted(set(permutations((0, 1) * 3))):
                watch.execute("DELETE FROM tenure_fences")
                watch.execute("UPDATE report SET body = ''")
                writers = Writer(one, OLD, "old", begin, "COMMIT"), Writer(another, NEW, "new", begin, end)
                async with anyio.create_task_group() as group:
                    for writer in writers:
                        group.start_soon(writer.run)
                    for who in order:
                        if not writers[who].outcome:
                            writers[who].step()
                        while not all(writer.rests(watch) for writer in writers):
                            await anyio.sleep(0.0005)
                (body,) = watch.execute("SELECT body FROM report").fetchone()
                found.append((writers[0].outcome, writers[1].outcome, body))
    assert len(found) == 20
    return found


ALWAYS = {"written", "LeaseLost"}, {"written"}, {"new"}


async def test_the_stale_writer_loses_in_every_order(server):
    assert tuple(map(set, zip(*await results(server, Threads), strict=True))) == ALWAYS


@ASYNCIO
@pytest.mark.parametrize("link", [Psycopg, Asyncpg])
async def test_the_stale_writer_loses_in_every_order_with_asynchronous_drivers(server, link):
    assert tuple(map(set, zip(*await results(server, link), strict=True))) == ALWAYS


async def test_a_newer_writer_that_rolls_back_stops_nobody(server):
    found = await results(server, Threads, end="ROLLBACK")
    assert set(found) == {("written", "written", "old")}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_at_higher_levels_the_stale_writer_loses_too(server, level):
    found = await results(server, Threads, begin=f"BEGIN ISOLATION LEVEL {level}")
    # who did not see the newer token is told to run again; so may the newer writer be
    assert all(body == "new" for _, new, body in found if new == "written")
    assert {old for old, _, _ in found} == {"written", "LeaseLost", "SerializationFailure"}


async def test_a_guard_outside_of_the_transaction_would_not_do(server):
    # the check of the check
    assert "old" in {body for *_, body in await results(server, Careless)}
