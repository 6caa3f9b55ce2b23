"""Fences for the user's own writes, by the standard library's SQLite and by Redis; more drivers are in tests/sql."""

from __future__ import annotations

import pickle
import sqlite3

import anyio
import pytest

from tenure import Election, LeaseLost, Lock, ResourcePool, RWLock, Semaphore, SqlGuard, WorkQueue
from tenure.types import LuaGuard

OLD, NEW = SqlGuard("report", 100), SqlGuard("report", 200)


@pytest.fixture
def connect(tmp_path):
    """Opens connections to one database, which has the fences and a report."""
    made = []

    def make(**options):
        made.append(sqlite3.connect(tmp_path / "own.db", timeout=0, **options))
        return made[-1]

    with make() as db:
        db.execute(SqlGuard.create_table())
        db.execute("CREATE TABLE report (body TEXT)")
        db.execute("INSERT INTO report VALUES ('')")
    yield make
    for db in made:
        db.close()


# what is fenced


async def test_whatever_is_held_alone_guards_by_its_name_and_token(store):
    pool, queue = ResourcePool(store, "keys"), WorkQueue(store, "jobs")
    await pool.add("k1")
    task_id = await queue.put("job")
    async with Lock(store, "report") as lease:
        assert lease.sql_guard() == SqlGuard("tenure:lock:report", lease.token)
        assert lease.sql_guard("app.fences", name="report") == SqlGuard("report", lease.token, "app.fences")
        assert lease.lua_guard() == LuaGuard("fence:tenure:lock:report", lease.token)
        assert lease.lua_guard("{report}:fence") == LuaGuard("{report}:fence", lease.token)
    async with RWLock(store, "report").write() as lease:
        assert lease.sql_guard().token == lease.token
    async with Election(store, "chief").term() as term:
        assert term.sql_guard() == SqlGuard("tenure:election:chief", term.number)
    async with pool.claim() as claim:
        assert claim.sql_guard() == SqlGuard("tenure:pool:keys 'k1'", claim.token)
    async with queue.take() as task:
        assert task.sql_guard() == SqlGuard(f"tenure:queue:jobs task {task_id}", task.token)
        assert task.lua_guard().token == task.token


async def test_what_several_may_hold_guards_nothing(store):
    async with Semaphore(store, "api", 3) as lease:
        with pytest.raises(RuntimeError, match="others may hold it too"):
            lease.sql_guard()
    async with RWLock(store, "report").read() as lease:
        with pytest.raises(RuntimeError, match="others may hold it too"):
            lease.lua_guard()
    async with Semaphore(store, "one", 1) as lease:
        assert lease.sql_guard().token == lease.token


def test_a_guard_travels_to_other_processes():
    assert pickle.loads(pickle.dumps(OLD)) == OLD


@pytest.mark.parametrize("table", ["", "fences; DROP TABLE x", "a.b.c", "1st", 'a"b', "fences "])
def test_a_table_that_is_no_plain_name_is_refused(table):
    with pytest.raises(ValueError, match="table must be a plain name"):
        SqlGuard("report", 1, table)
    with pytest.raises(ValueError, match="table must be a plain name"):
        SqlGuard.create_table(table)


def test_a_table_of_another_name():
    with sqlite3.connect(":memory:") as db:
        db.execute(SqlGuard.create_table("main.fences"))
        SqlGuard("report", 7, "main.fences").enforce_sync(db)
        assert db.execute("SELECT name, token FROM fences").fetchall() == [("report", 7)]
    db.close()


# SQL text


@pytest.mark.parametrize(
    ("style", "placeholders", "parameters"),
    [
        ("qmark", "(?, ?)", ("report", 100)),
        ("format", "(%s, %s)", ("report", 100)),
        ("numeric_dollar", "($1, $2)", ("report", 100)),
        ("named", "(:name, :token)", {"name": "report", "token": 100}),
        ("pyformat", "(%(name)s, %(token)s)", {"name": "report", "token": 100}),
    ],
)
def test_the_statement_comes_in_the_style_of_the_driver(style, placeholders, parameters):
    sql, values = OLD.statement(style)
    assert f"VALUES {placeholders} ON CONFLICT" in sql
    assert values == parameters


def test_another_style_is_refused():
    with pytest.raises(ValueError, match="paramstyle must be one of qmark"):
        OLD.statement("numeric")


def test_the_statement_returns_a_row_until_a_newer_token_was_seen(connect):
    db = connect()

    def row(guard, style="qmark"):
        return db.execute(*guard.statement(style)).fetchone()

    OLD.passed(row(OLD))
    OLD.passed(row(OLD, "named"))
    NEW.passed(row(NEW))
    assert row(OLD) is None
    with pytest.raises(LeaseLost, match=r"report: lost \(refused\)"):
        OLD.passed(row(OLD))
    NEW.passed(row(NEW))
    SqlGuard("other", 1).passed(row(SqlGuard("other", 1)))


# SQLite


async def test_enforce_raises_once_a_newer_holder_has_written(connect):
    db = connect()
    with db:
        OLD.enforce_sync(db)
        db.execute("UPDATE report SET body = 'old'")
    with db:
        NEW.enforce_sync(db)
        db.execute("UPDATE report SET body = 'new'")
    with pytest.raises(LeaseLost) as refused, db:
        OLD.enforce_sync(db)
    assert (refused.value.key, refused.value.reason) == ("report", "refused")
    assert db.execute("SELECT body FROM report").fetchone() == ("new",)


async def test_one_that_rolled_back_was_never_there(connect):
    db = connect()
    with pytest.raises(ZeroDivisionError), db:
        NEW.enforce_sync(db)
        raise ZeroDivisionError
    with db:
        OLD.enforce_sync(db)


async def test_a_guard_that_would_hold_nothing_back_is_refused(connect):
    db = connect(isolation_level=None)
    with pytest.raises(RuntimeError, match="connection must be in a transaction"):
        OLD.enforce_sync(db)
    db.execute("BEGIN")
    OLD.enforce_sync(db)
    db.execute("COMMIT")


async def test_what_is_no_connection_is_refused():
    with pytest.raises(TypeError, match="connection must be one of sqlite3"):
        OLD.enforce_sync("report.db")
    with pytest.raises(TypeError, match="connection must be one of sqlite3"):
        OLD.enforce_sync(anyio.Lock())


async def test_a_frozen_holder_that_goes_on_is_refused(open_store_on, virtual_clock, freeze, connect):
    db = connect()
    writes = []

    async def write(lease):
        with db:
            lease.sql_guard().enforce_sync(db)
            writes.append(lease.token)

    async with open_store_on(ttl=3.0) as a, open_store_on(ttl=3.0) as b:
        with pytest.raises(LeaseLost, match="expired"):
            async with Lock(a, "report") as lease:
                await write(lease)
                # a shield stands for a process that does not notice
                with anyio.CancelScope(shield=True):
                    freeze(10)
                    async with Lock(b, "report") as later:
                        await write(later)
                    with pytest.raises(LeaseLost, match="refused"):
                        await write(lease)
        assert writes == [lease.token, later.token]


# Redis

SET = "redis.call('SET', KEYS[1], ARGV[1]); return {#KEYS, #ARGV}"
OLDER, NEWER = LuaGuard("fence:report", 100), LuaGuard("fence:report", 200)


@pytest.fixture
def evaluate(redis_server):
    """Runs a script under a guard, as any client would: `evaluate(guard, script, keys, arguments)`."""

    def run(guard, script, keys=("report",), arguments=("body",)):
        keys, arguments = (*keys, guard.key), (*arguments, str(guard.token))
        with guard.refusals():
            reply = redis_server._ask("EVAL", guard.script(script), str(len(keys)), *keys, *arguments)
            if isinstance(reply, Exception):
                raise reply
            return reply

    return run


def test_the_script_sees_its_own_keys_and_arguments_alone(evaluate, redis_server):
    assert evaluate(OLDER, SET) == [1, 1]
    assert redis_server("GET", "report") == b"body"
    assert evaluate(NEWER, "return ARGV", (), ("a", "b")) == [b"a", b"b"]
    assert redis_server("GET", "fence:report") == b"200"


def test_a_script_is_refused_once_a_newer_token_was_seen(evaluate, redis_server):
    evaluate(OLDER, SET)
    evaluate(OLDER, SET)
    evaluate(NEWER, SET, arguments=("new",))
    with pytest.raises(LeaseLost, match="refused"):
        evaluate(OLDER, SET, arguments=("old",))
    assert redis_server("GET", "report") == b"new"
    evaluate(LuaGuard("fence:other", 1), SET)


def test_a_first_line_that_names_the_engine_stays_the_first():
    assert OLDER.script("#!lua\nreturn 1").startswith("#!lua\ndo\n")
    assert OLDER.script("#!lua\nreturn 1").endswith("end\nreturn 1")
    assert OLDER.script("return 1").startswith("do\n")


def test_errors_of_the_script_itself_go_through(evaluate):
    with pytest.raises(Exception, match="user error"):
        evaluate(OLDER, "return redis.error_reply('ERR user error')")


def test_tokens_are_compared_as_numbers(evaluate):
    evaluate(LuaGuard("fence:report", 999_999), SET)
    evaluate(LuaGuard("fence:report", 1_795_268_417_257_585), SET)
    evaluate(LuaGuard("fence:report", 1_795_268_417_257_586), SET)
    with pytest.raises(LeaseLost):
        evaluate(LuaGuard("fence:report", 1_795_268_417_257_585), SET)


async def test_the_token_of_a_lease_guards_a_script(open_store_on, evaluate):
    async with open_store_on() as store:
        async with Lock(store, "report") as first:
            evaluate(first.lua_guard(), SET)
        async with Lock(store, "report") as second:
            evaluate(second.lua_guard(), SET)
        with pytest.raises(LeaseLost):
            evaluate(first.lua_guard(), SET)
