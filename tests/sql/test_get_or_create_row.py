"""`get_or_create` with a driver alone, with each of them."""

from __future__ import annotations

import contextlib
import sqlite3
from functools import partial

import aiosqlite
import anyio
import asyncpg
import psycopg
import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from tenure.dbapi import Awaiting, Blocking
from tenure.sql import StaleSnapshot, get_or_create_row, get_or_create_row_sync
from tenure.testing import race

BLOCKING = ("sqlite3", "psycopg", "sqlalchemy")
AWAITED = ("aiosqlite", "asyncpg", "AsyncConnection", "AsyncSession")
# these drivers know asyncio alone
KINDS = pytest.mark.parametrize(
    ("kind", "anyio_backend"),
    [(kind, loop) for kind in BLOCKING for loop in ("asyncio", "trio")]
    + [(kind, "asyncio") for kind in AWAITED],
    indirect=["anyio_backend"],
)
ON_POSTGRES = pytest.mark.parametrize(
    ("kind", "anyio_backend"),
    [("psycopg", "asyncio"), ("psycopg", "trio"), ("asyncpg", "asyncio"), ("AsyncConnection", "asyncio")],
    indirect=["anyio_backend"],
)


@pytest.fixture
def opened(url_of, postgres, tmp_path):
    """Opens a connection of a kind, in a transaction: `opened(kind)`, and rolls back what was not committed."""

    @contextlib.asynccontextmanager
    async def connection(kind, begin=""):
        address = {"host": str(postgres.folder), "user": "tenure"}
        match kind:
            case "sqlite3":
                url_of("pysqlite")
                with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as db:
                    # rows of another kind do not disturb
                    db.row_factory = lambda *_: {}
                    yield db
            case "aiosqlite":
                url_of("aiosqlite")
                async with aiosqlite.connect(tmp_path / "own.db") as db:
                    db.row_factory = aiosqlite.Row
                    yield db
            case "psycopg":
                url_of("psycopg")
                with contextlib.closing(psycopg.connect(**address, dbname="postgres")) as db:
                    db.execute(f"BEGIN {begin}")
                    yield db
            case "AsyncConnection":
                url_of("psycopg")
                options = {**address, "row_factory": psycopg.rows.dict_row}
                db = await psycopg.AsyncConnection.connect(**options, dbname="postgres")
                await db.execute(f"BEGIN {begin}")
                yield db
                await db.close()
            case "asyncpg":
                url_of("asyncpg")
                db = await asyncpg.connect(**address, database="postgres")
                await db.execute(f"BEGIN {begin}")
                yield db
                await db.close()
            case "sqlalchemy":
                with create_engine(url_of("psycopg"), poolclass=NullPool).connect() as db:
                    yield db
            case "AsyncSession":
                engine = create_async_engine(url_of("asyncpg"), poolclass=NullPool)
                async with AsyncSession(engine) as db:
                    yield db

    return connection


@pytest.fixture
def elsewhere(url_of, postgres, tmp_path):
    """Runs a statement in a transaction of its own."""

    def run(kind, sql):
        if "sqlite" in kind:
            with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as db, db:
                return db.execute(sql).fetchall()
        with psycopg.connect(postgres.url(), autocommit=True) as db:
            cursor = db.execute(sql)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def before(monkeypatch):
    """`before("INSERT", do, times)`: `do()` before the first statements that begin so; gives what all begin with."""

    def arm(beginning, do, times=1):
        sent = []

        def note(sql):
            sent.append(sql.split()[0])
            if sent[-1] == beginning and sent.count(beginning) <= times:
                do()

        blocking, awaiting = Blocking.find, Awaiting.find

        def find(own, sql, values):
            note(sql)
            return blocking(own, sql, values)

        async def find_async(own, sql, values):
            note(sql)
            return await awaiting(own, sql, values)

        monkeypatch.setattr(Blocking, "find", find)
        monkeypatch.setattr(Awaiting, "find", find_async)
        return sent

    return arm


def nothing():
    pass


async def ask(db, *arguments, **values):
    """Call the function for such a connection."""
    if isinstance(db, sqlite3.Connection | psycopg.Connection | Connection):
        return get_or_create_row_sync(db, *arguments, **values)
    return await get_or_create_row(db, *arguments, **values)


async def commit(db):
    if isinstance(db, asyncpg.Connection):
        await db.execute("COMMIT")
        return
    done = db.commit()
    if done is not None:
        await done


@KINDS
async def test_the_first_creates_and_the_second_finds(opened, elsewhere, kind):
    async with opened(kind) as db:
        row, created = await ask(
            db, "account", where={"email": "a@b"}, defaults={"plan": "paid", "slug": None}
        )
        assert (row["plan"], row["slug"], row["visits"], created) == ("paid", None, 0, True)
        again = ask(db, "account", where={"email": "a@b", "slug": None}, defaults={"plan": "-"})
        assert await again == (row, False)
        assert elsewhere(kind, "SELECT count(*) FROM account") == [(0,)], "the caller commits"
        await commit(db)
    assert elsewhere(kind, "SELECT count(*), max(plan) FROM account") == [(1, "paid")]


@KINDS
async def test_the_loser_of_a_race_gets_the_row_of_the_winner(opened, elsewhere, before, kind):
    first = "DELETE" if "sqlite" in kind else "INSERT"
    before(first, lambda: elsewhere(kind, "INSERT INTO account (email, plan) VALUES ('a@b', 'theirs')"))
    async with opened(kind) as db:
        await ask(db, "account", where={"email": "own"}, defaults={"plan": "mine"})
        row, created = await ask(db, "account", where={"email": "a@b"}, defaults={"plan": "mine"})
        assert (row["plan"], created) == ("theirs", False)
        await commit(db)
    assert elsewhere(kind, "SELECT count(*) FROM account") == [(2,)], "what was done before is kept"


@KINDS
async def test_a_refusal_that_was_no_race_is_raised_at_once_and_the_transaction_goes_on(opened, before, kind):
    async with opened(kind) as db:
        own = {"where": {"email": "other"}, "defaults": {"plan": "free", "slug": "same"}}
        assert (await ask(db, "account", **own))[1]
        sent = before("INSERT", nothing)
        with pytest.raises(Exception, match=r"(?i)not.null"):
            await ask(db, "account", where={"email": "a@b"})
        with pytest.raises(Exception, match="slug"):
            await ask(db, "account", where={"email": "a@b"}, defaults={"plan": "free", "slug": "same"})
        assert sent.count("INSERT") == 2
        assert not (await ask(db, "account", where={"email": "other"}))[1]


@ON_POSTGRES
async def test_winners_that_come_and_go_for_ever_leave_the_drivers_own_error(opened, elsewhere, before, kind):
    come = partial(elsewhere, kind, "INSERT INTO account (email, plan) VALUES ('a@b', 'theirs')")
    go = partial(elsewhere, kind, "DELETE FROM account")
    async with opened(kind) as db:
        sent = before("INSERT", come, times=5)
        before("ROLLBACK", go, times=5)
        with pytest.raises((psycopg.errors.UniqueViolation, asyncpg.UniqueViolationError)):
            await ask(db, "account", where={"email": "a@b"}, defaults={"plan": "mine"})
        assert sent.count("INSERT") == 5
        row, created = await ask(db, "account", where={"email": "a@b"}, defaults={"plan": "mine"})
        assert (row["plan"], created) == ("mine", True)


@ON_POSTGRES
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_snapshot_that_is_too_old_is_reported(opened, elsewhere, before, kind, level):
    before("INSERT", lambda: elsewhere(kind, "INSERT INTO account (email, plan) VALUES ('a@b', 'theirs')"))
    async with opened(kind, f"ISOLATION LEVEL {level}") as db:
        with pytest.raises(StaleSnapshot, match=r"account\(email='a@b'\)") as caught:
            await ask(db, "account", where={"email": "a@b"}, defaults={"plan": "mine"})
        assert caught.value.violation.sqlstate == "23505"
        with pytest.raises(StaleSnapshot):
            await ask(db, "account", where={"email": "a@b"}, defaults={"plan": "mine"})


@ON_POSTGRES
async def test_of_many_at_once_one_creates(opened, kind):
    async def create():
        async with opened(kind) as db:
            function = get_or_create_row_sync if kind == "psycopg" else get_or_create_row
            call = partial(function, db, "account", where={"email": "a@b"}, defaults={"plan": "mine"})
            row, created = await (anyio.to_thread.run_sync(call) if kind == "psycopg" else call())
            await commit(db)
            return row["id"], created

    outcomes = await race(*[create] * 6)
    assert sorted(created for _, created in outcomes) == [False] * 5 + [True]
    assert len({number for number, _ in outcomes}) == 1


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("kind", ["sqlite3", "psycopg", "asyncpg"])
async def test_in_autocommit_mode_it_is_refused(opened, elsewhere, kind):
    async with opened(kind) as db:
        match kind:
            case "sqlite3":
                db.isolation_level = None
            case "psycopg":
                db.rollback()
                db.autocommit = True
            case _:
                await db.execute("ROLLBACK")
        with pytest.raises(RuntimeError, match="^connection must be in a transaction"):
            await ask(db, "account", where={"email": "a@b"})
    assert elsewhere(kind, "SELECT count(*) FROM account") == [(0,)]


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"])
async def test_names_are_quoted(opened, kind):
    async with opened(kind) as db:
        db.execute('CREATE TABLE "Mixed ""Case?" ("the key$" text UNIQUE, "select" text)')
        where = {"the key$": "; DROP TABLE account"}
        expected = {**where, "select": "%s"}
        call = partial(get_or_create_row_sync, db, 'Mixed "Case?', where=where, defaults={"select": "%s"})
        assert call() == (expected, True)
        assert call() == (expected, False)
        if kind == "psycopg":
            # it is that of the user, if the server has one of this name
            ((schema,),) = db.execute("SELECT current_schema()")
            _, created = get_or_create_row_sync(
                db, f"{schema}.account", where={"email": "a"}, defaults={"plan": ""}
            )
            assert created


def test_bad_arguments_are_named(url_of, tmp_path):
    url_of("pysqlite")
    with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as db:
        with pytest.raises(ValueError, match="^where must name"):
            get_or_create_row_sync(db, "account", where={})
        with pytest.raises(ValueError, match="^defaults must not repeat .*: email$"):
            get_or_create_row_sync(db, "account", where={"email": "a"}, defaults={"email": "b"})
        with pytest.raises(ValueError, match="^names of tables and columns .*'e:mail'$"):
            get_or_create_row_sync(db, "account", where={"e:mail": "a"})
        with pytest.raises(TypeError, match="^connection must be one of"):
            get_or_create_row_sync("nothing", "account", where={"email": "a"})
        for email in "ab":
            get_or_create_row_sync(db, "account", where={"email": email}, defaults={"plan": "same"})
        with pytest.raises(ValueError, match="^where must fit one row"):
            get_or_create_row_sync(db, "account", where={"plan": "same"})
