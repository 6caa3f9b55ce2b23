"""The link to a real PostgreSQL server: what is said when it will not do, and that nothing is lost on the way."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import anyio
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import tenure
import tenure.engine
from tenure import EngineError, Lock, StoreUnavailable, WorkQueue
from tenure.engine import (
    HOLDERS,
    Acquire,
    Exchange,
    Granted,
    Move,
    NewTask,
    Notice,
    OpenSession,
    Ping,
    Put,
    PutRequest,
    Queued,
    RateLimit,
    Release,
    Reply,
    Scan,
    Settle,
    Spend,
    SpendRequest,
    Verdict,
)
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres._address import address
from tenure.engines.postgres._version import VERSION
from tenure.testing import FaultProxy


@pytest.fixture
def engine(postgres_server):
    return PostgresEngine(postgres_server.url())


@pytest.fixture
def serving():
    """The engine, at work: `async with serving(engine) as hints`."""
    return Serving


class Serving:
    def __init__(self, engine, process="p"):
        self._engine = engine
        self._process = process
        self._group = anyio.create_task_group()

    async def __aenter__(self):
        hints = []
        await self._group.__aenter__()
        await self._group.start(self._engine.serve, self._process, hints.append)
        return hints

    async def __aexit__(self, *failure):
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(*failure)


@pytest.fixture
def sql(postgres_server):
    """A connection of somebody else."""
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        yield connection


async def one(engine, operation):
    (answer,) = await engine.execute([operation])
    return answer


async def until(condition):
    with anyio.fail_after(50):
        while not condition():
            await anyio.sleep(0.005)


# Those that were opened after the connection that asks: PostgreSQL takes its time to end those of the last test.
OURS = (
    "FROM pg_stat_activity WHERE application_name LIKE 'tenure %' AND backend_start >"
    " (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())"
)

# ------------------------------------------------------------------------------------------------------ where it is


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://jobs@db.example/app", "postgresql://jobs@db.example/app"),
        ("postgres://jobs:secret@db.example:5433/app", "postgresql://jobs@db.example:5433/app"),
        ("postgresql:///app?host=/run/postgresql", "postgresql:///app?host=/run/postgresql"),
        ("postgresql://a,b:5433/app", "postgresql://a,b:,5433/app"),
    ],
)
def test_the_password_is_not_shown(url, said):
    assert str(address(url)) == said
    assert "secret" not in repr(address(url)) + repr(PostgresEngine(url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://secret@h/d", "begins with postgresql://"),
        ("postgresql://u:secret@h/d?no_such_option=1", "libpq does not understand"),
        ("postgresql://h/d?password=secret%zz", "'postgresql://h/d': libpq does not understand"),
        ("postgresql://u:secret", "postgresql://...: what follows the : of the host is not a port"),
        ("postgresql://h/d?direct=me:secret@db", "'db': a PostgreSQL URL begins with"),
        ("postgresql://h/d?direct=postgresql://me:se/secret@db", "'postgresql://db': .*at most one @"),
    ],
)
def test_a_wrong_url_is_named(url, words):
    with pytest.raises(ValueError, match=words) as caught:
        PostgresEngine(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "login",
    [":se/cret", "me:se#cret", "me:se?cret", "me:se@cret", "se/cr?e#t", "12/se?host=cret", "h/?user=cret"],
)
def test_a_password_that_is_not_escaped_is_refused_without_being_shown(login):
    with pytest.raises(ValueError, match=r"^'postgresql://db.example/app': .*write / # \? @ in a") as caught:
        PostgresEngine(f"postgresql://{login}@db.example/app")
    assert "cret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_password_is_decoded():
    assert address("postgresql://u:%2F%23%3F%40@h/d").parameters["password"] == "/#?@"


@pytest.mark.parametrize("schema", ["", "Jobs", "a.b", "x" * 31, "a'b"])
def test_the_schema_is_a_plain_name(schema):
    with pytest.raises(ValueError, match="schema"):
        PostgresEngine("postgresql://h/d", schema=schema)


def test_response_timeout_is_a_time():
    with pytest.raises(ValueError, match="response_timeout must be above 0 seconds"):
        PostgresEngine("postgresql://h/d", response_timeout=0)


async def test_a_name_is_looked_up(monkeypatch):
    async def found(host, *_, **__):
        return [(0, 0, 0, "", (f"{host}.1", 0)), (0, 0, 0, "", (f"{host}.2", 0))]

    monkeypatch.setattr(anyio, "getaddrinfo", found)
    info = await address("postgresql://u@a:1,10.0.0.1:2/d").conninfo()
    assert psycopg.conninfo.conninfo_to_dict(info) == {
        "keepalives_idle": "15",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "user": "u",
        "dbname": "d",
        "host": "a,a,10.0.0.1",
        "hostaddr": "a.1,a.2,",
        "port": "1,1,2",
    }


async def test_what_does_not_serve_does_not_answer(engine):
    with pytest.raises(StoreUnavailable, match="does not serve"):
        await engine.execute([Ping()])


# ------------------------------------------------------------------------------------------------------ who will not do


async def refused(engine, error, words):
    with pytest.raises(error, match=words) as caught:
        await engine.serve("p", lambda hint: None)
    assert type(caught.value) is error
    return caught.value


async def test_nobody_listens(tmp_path):
    await refused(PostgresEngine(f"postgresql:///d?host={tmp_path}"), StoreUnavailable, "No such file")


async def test_an_unknown_database(postgres_server):
    url = postgres_server.url().replace("/postgres?", "/nowhere?")
    await refused(PostgresEngine(url), EngineError, 'database "nowhere" does not exist')


async def test_a_wrong_password(postgres_server, sql):
    hba = postgres_server.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    sql.execute("DROP ROLE IF EXISTS locked")
    sql.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
    hba.write_text("local all locked scram-sha-256\n" + before)
    sql.execute("SELECT pg_reload_conf()")
    try:
        url = postgres_server.url().replace("tenure@", "locked:wrong@")
        while True:
            error = await anyio.to_thread.run_sync(lambda: connection_error(url))
            if "password" in error:
                break
        error = await refused(PostgresEngine(url), EngineError, "password authentication failed")
        assert "wrong" not in str(error)
    finally:
        hba.write_text(before)
        sql.execute("SELECT pg_reload_conf()")
        sql.execute("DROP ROLE locked")


def connection_error(url):
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


async def test_a_server_that_is_too_old(engine, monkeypatch):
    monkeypatch.setattr("tenure.engines.postgres._handshake.OLDEST", 99)
    await refused(engine, EngineError, "PostgreSQL 99 or later is needed, this is 1")


async def test_a_server_that_is_read_only(postgres_server, sql):
    sql.execute("DROP ROLE IF EXISTS reader")
    sql.execute("CREATE ROLE reader LOGIN")
    sql.execute("ALTER ROLE reader SET default_transaction_read_only = on")
    url = postgres_server.url().replace("tenure@", "reader@")
    await refused(PostgresEngine(url), StoreUnavailable, "read-only")


async def test_a_role_that_may_not_make_a_schema_gets_a_clear_error(postgres_server, sql):
    sql.execute("DROP ROLE IF EXISTS guest")
    sql.execute("CREATE ROLE guest LOGIN")
    url = postgres_server.url().replace("tenure@", "guest@")
    await refused(PostgresEngine(url, schema="nothing_yet"), EngineError, "lacks a permission")


# ------------------------------------------------------------------------------------------------------ the schema


@pytest.fixture
def fresh_schema(sql):
    """The name of a schema that is not there."""
    sql.execute("DROP SCHEMA IF EXISTS fresh CASCADE")
    yield "fresh"
    sql.execute("DROP SCHEMA IF EXISTS fresh CASCADE")


async def test_many_come_first_at_once(postgres_server, fresh_schema, serving):
    engines = [PostgresEngine(postgres_server.url(), schema=fresh_schema) for _ in range(4)]
    async with anyio.create_task_group() as group:
        for engine in engines:
            group.start_soon(serve_and_ping, serving, engine)


async def serve_and_ping(serving, engine):
    async with serving(engine):
        assert await one(engine, Ping()) is Reply.OK


async def test_schemas_are_apart(engine, postgres_server, fresh_schema, serving):
    other = PostgresEngine(postgres_server.url(), schema=fresh_schema)
    async with serving(engine), serving(other):
        for each in (engine, other):
            await one(each, OpenSession("s", "p", 30.0))
            assert isinstance(await one(each, Acquire("s", "k", "a", 1)), Granted)


async def test_what_a_newer_release_has_made_is_refused(postgres_server, sql, fresh_schema, serving):
    engine = PostgresEngine(postgres_server.url(), schema=fresh_schema)
    await serve_and_ping(serving, engine)
    sql.execute(f"UPDATE {fresh_schema}.meta SET version = 99")
    await refused(
        engine,
        EngineError,
        f"the schema fresh has version 99, this release knows {VERSION}; use a newer release",
    )


async def test_the_steps_that_are_missing_are_taken_in_order(
    postgres_server, sql, fresh_schema, serving, monkeypatch
):
    await serve_and_ping(serving, PostgresEngine(postgres_server.url(), schema=fresh_schema))
    sql.execute("UPDATE fresh.meta SET version = 2")
    steps = {
        2: "CREATE TABLE tenure.never ();",
        3: "CREATE TABLE tenure.third (n bigint);",
        4: "ALTER TABLE tenure.third ADD COLUMN name text; INSERT INTO tenure.third VALUES (4, 'it''s done');",
    }
    monkeypatch.setattr("tenure.engines.postgres._schema.STEPS", steps)
    for module in ("_schema", "_connection"):
        monkeypatch.setattr(f"tenure.engines.postgres.{module}.VERSION", 4)
    for _ in range(2):
        await serve_and_ping(serving, PostgresEngine(postgres_server.url(), schema=fresh_schema))
    assert sql.execute("SELECT * FROM fresh.third").fetchall() == [(4, "it's done")]
    assert sql.execute("SELECT to_regclass('fresh.never'), version FROM fresh.meta").fetchone() == (None, 4)


async def test_one_that_is_connected_goes_on_with_a_newer_schema_but_does_not_come_back(
    postgres_server, sql, fresh_schema, serving
):
    engine = PostgresEngine(postgres_server.url(), schema=fresh_schema)
    async with serving(engine):
        sql.execute("UPDATE fresh.meta SET version = 99")
        assert await one(engine, Ping()) is Reply.OK
        sql.execute(f"SELECT pg_terminate_backend(pid) {OURS}")
        with suppress(StoreUnavailable), anyio.move_on_after(0.2):
            while True:
                await one(engine, Ping())
        with anyio.move_on_after(0.2) as scope:
            await one(engine, Ping())
        assert scope.cancelled_caught
        sql.execute(f"UPDATE fresh.meta SET version = {VERSION}")
        with anyio.fail_after(50):
            assert await one(engine, Ping()) is Reply.OK


async def test_a_step_that_fails_changes_nothing(postgres_server, sql, fresh_schema, serving, monkeypatch):
    await serve_and_ping(serving, PostgresEngine(postgres_server.url(), schema=fresh_schema))
    monkeypatch.setattr(
        "tenure.engines.postgres._schema.STEPS", {99: "CREATE TABLE tenure.third (); SELECT 1 / 0;"}
    )
    for module in ("_schema", "_connection"):
        monkeypatch.setattr(f"tenure.engines.postgres.{module}.VERSION", 99)
    engine = PostgresEngine(postgres_server.url(), schema=fresh_schema)
    await refused(engine, EngineError, "division by zero")
    assert sql.execute("SELECT to_regclass('fresh.third'), version FROM fresh.meta").fetchone() == (
        None,
        VERSION,
    )


# ------------------------------------------------------------------------------------------------------ one alone


async def test_what_cannot_be_stored_fails_alone(engine, serving):
    too_long = os.urandom(4000).hex()
    async with serving(engine):
        answers = await engine.execute(
            [
                OpenSession("s", "p", 30.0),
                Acquire("s", too_long, "a", 1),
                Acquire("s", "k", "a", 2**70),
                Acquire("s", "k", "a", 1),
            ]
        )
    assert answers[0] is Reply.OK
    assert [type(answer) for answer in answers[1:3]] == [EngineError] * 2
    assert isinstance(answers[3], Granted)


async def test_a_hint_that_is_too_long_says_to_look_again(engine, serving):
    key = "k" * 2500
    holder = "h" * 2500
    async with serving(engine) as hints:
        await engine.execute(
            [OpenSession("s", "p", 30.0), Acquire("s", key, "a", 1), Acquire("s", key, holder, 1)]
        )
        hints.clear()
        await engine.execute([Release(key, "a")])
        await until(lambda: hints)
        assert [hint.news for hint in hints] == [Notice.MISSED] or len(hints[0].name) == 2500


async def test_a_cancelled_caller_leaves_the_stream_in_order(engine, serving):
    async with serving(engine):
        for i in range(20):
            async with anyio.create_task_group() as group:
                group.start_soon(engine.execute, [OpenSession(f"s{i}", "p", 30.0)])
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        assert await one(engine, Ping()) is Reply.OK
        await one(engine, OpenSession("s", "p", 30.0))
        assert isinstance(await one(engine, Acquire("s", "k", "a", 1)), Granted)


@pytest.mark.parametrize("to", ["waiting", "purged"])
async def test_a_dead_letter_that_goes_early_leaves_nothing_to_do(engine, sql, serving, to):
    async with serving(engine):
        await one(engine, OpenSession("s", "p", 30.0))
        await one(engine, Put("s", 1, "q", (PutRequest("m", (NewTask(b"x"),) * 2),)))
        for n, verdict in ((1, Verdict.DEAD), (3, Verdict.RETRY)):  # all tasks end; and one by one
            tasks = (await one(engine, Exchange("s", n, "q", want=2))).tasks
            buried = [Settle(task.id, task.token, Verdict.DEAD, ttl=1e6) for task in tasks]
            buried[1:] = [Settle(task.id, task.token, verdict, ttl=1e6) for task in tasks[1:]]
            await one(engine, Exchange("s", n + 1, "q", tuple(buried)))
            letters = sql.execute("SELECT due, id, name FROM tenure.todo ORDER BY id").fetchall()
            assert (
                letters
                == sql.execute(
                    "SELECT expires, id, queue FROM tenure.ended WHERE state = 'dead' ORDER BY id"
                ).fetchall()
            )
            assert letters
            await one(engine, Move("q", tuple(letter[1] for letter in letters), to))
            assert sql.execute("SELECT FROM tenure.todo").fetchall() == []
            await one(engine, Put("s", n + 1, "q", (PutRequest("m", (NewTask(b"x"),) * 2),)))


# ------------------------------------------------------------------------------------------------------ faults


async def test_a_lock_that_somebody_keeps_is_not_waited_for_for_ever(postgres_server, sql, serving):
    engine = PostgresEngine(postgres_server.url(), response_timeout=1.0)
    async with serving(engine):
        await one(engine, OpenSession("s", "p", 30.0))
        with sql.transaction():
            sql.execute("SELECT tenure.lock('hold', 'k')")
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await engine.execute([Acquire("s", "k", "a", 1)])
            assert isinstance(await one(engine, Acquire("s", "other", "a", 1)), Granted)
        assert isinstance(await one(engine, Acquire("s", "k", "a", 1)), Granted)


async def test_a_statement_that_is_cancelled_may_be_sent_again(engine, sql, serving):
    async with serving(engine):
        await one(engine, OpenSession("s", "p", 30.0))
        with sql.transaction():
            sql.execute("SELECT tenure.lock('hold', 'k')")
            async with anyio.create_task_group() as group:
                group.start_soon(cancel_what_waits, sql)
                with pytest.raises(StoreUnavailable, match="canceling statement"):
                    await engine.execute([Acquire("s", "k", "a", 1)])
        assert isinstance(await one(engine, Acquire("s", "k", "a", 1)), Granted)


async def cancel_what_waits(sql):
    await until(
        lambda: sql.execute(f"SELECT pg_cancel_backend(pid) {OURS} AND wait_event_type = 'Lock'").fetchone()
    )


async def test_the_end_of_connections_loses_nothing(postgres_server, sql):
    inside, sections = [], []

    async def work(store, name):
        for _ in range(12):
            async with Lock(store, "k"):
                inside.append(name)
                assert len(inside) == 1
                await anyio.sleep(0.002)
                inside.pop()
            sections.append(name)

    async def end_them():
        for count in range(1, 48, 6):
            await until(lambda count=count: len(sections) >= count)
            sql.execute(f"SELECT pg_terminate_backend(pid) {OURS}")

    async with (
        tenure.open_store(PostgresEngine(postgres_server.url())) as a,
        tenure.open_store(PostgresEngine(postgres_server.url())) as b,
        anyio.create_task_group() as group,
    ):
        group.start_soon(end_them)
        for store in (a, b):
            for n in range(2):
                group.start_soon(work, store, n)
    assert len(sections) == 48


@pytest.mark.one_loop
async def test_tasks_outlive_an_immediate_shutdown(own_postgres_server):
    server = own_postgres_server("fsync=on")
    async with tenure.open_store(PostgresEngine(server.url())) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put("before")
        async with queue.take() as task:
            server.stop()
            await anyio.to_thread.run_sync(server.start)
            await queue.put("after")
            assert task.payload == "before"
        async with queue.take() as task:
            assert task.payload == "after"


async def test_what_waits_while_tries_to_connect_fail_goes_on(own_postgres_server, monkeypatch):
    server = own_postgres_server()
    engine = PostgresEngine(server.url())
    tries = []
    give_up = engine._connection._break

    def failed_try(pipelines):
        tries.append(pipelines)
        give_up(pipelines)

    async with tenure.open_store(engine) as store, anyio.create_task_group() as group:
        monkeypatch.setattr(engine._connection, "_break", failed_try)
        server.stop()
        await until(lambda: len(tries) > 1)
        group.start_soon(store.ping)
        await until(lambda: len(tries) > 4)
        await anyio.to_thread.run_sync(server.start)


async def test_a_server_that_stands_still_is_given_up_and_applies_nothing_late(postgres_server, sql, serving):
    engine = PostgresEngine(postgres_server.url(), response_timeout=1.0)
    async with serving(engine):
        await one(engine, OpenSession("s", "p", 30.0))
        (pid,) = sql.execute(f"SELECT pid {OURS} AND application_name NOT LIKE '% hints'").fetchone()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="no answer within"):
                await engine.execute([Acquire("s", "k", "late", 1)])
        finally:
            os.kill(pid, signal.SIGCONT)
        answer = await one(engine, Acquire("s", "k", "new", 1))
        holders = await one(engine, Scan(HOLDERS, "k"))
        # either it was applied before, or it never will be
        if isinstance(answer, Granted):
            assert [held.holder for held in holders.holders] == ["new"]
        else:
            assert isinstance(answer, Queued)
            assert [held.holder for held in holders.holders] == ["late"]
        assert sql.execute(f"SELECT count(*) {OURS} AND pid = {pid}").fetchone() == (0,)


async def test_several_stores_of_one_engine_share_its_connections(engine, sql):
    async with tenure.open_store(engine, ttl=600) as a:
        async with tenure.open_store(engine, ttl=600) as b:
            assert sql.execute(f"SELECT count(*) {OURS}").fetchone() == (2,)
            granted = anyio.Event()

            async def wait_for_it():
                async with Lock(b, "k"):
                    granted.set()

            async with anyio.create_task_group() as group:
                async with Lock(a, "k"):
                    group.start_soon(wait_for_it)
                    await anyio.sleep(0.05)
                    assert not granted.is_set()
                with anyio.fail_after(50):
                    await granted.wait()
        await a.ping()


async def test_the_keeper_of_the_connections_may_close_first(engine):
    async with tenure.open_store(engine) as b:
        closing = anyio.Event()

        async def first(*, task_status):
            async with tenure.open_store(engine):
                task_status.started()
                await closing.wait()

        async with anyio.create_task_group() as group:
            await group.start(first)
            closing.set()
        await b.ping()


async def test_stores_that_open_at_once_while_the_server_is_away_all_get_the_error(tmp_path):
    engine, told = PostgresEngine(f"postgresql:///d?host={tmp_path}"), []

    async def open_one():
        with pytest.raises(StoreUnavailable):
            async with tenure.open_store(engine):
                pytest.fail("it was opened")
        told.append(True)

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(open_one)
    assert len(told) == 3


async def test_one_that_opens_goes_on_when_the_first_gives_up(postgres_server):
    server = conninfo_to_dict(postgres_server.url())
    async with FaultProxy(f"{server['host']}/.s.PGSQL.{server.get('port', 5432)}") as proxy:
        engine = PostgresEngine(f"postgresql://{server['user']}@127.0.0.1:{proxy.port}/{server['dbname']}")
        proxy.latency(float("inf"))
        with anyio.fail_after(50):
            async with anyio.create_task_group() as group:
                first, opened = anyio.CancelScope(), []

                async def open_one(scope):
                    with scope:
                        async with tenure.open_store(engine) as store:
                            await store.ping()
                            opened.append(True)

                for scope in (first, anyio.CancelScope(), anyio.CancelScope()):
                    group.start_soon(open_one, scope)
                await anyio.sleep(0.05)
                first.cancel()
                proxy.heal()
        assert opened == [True, True]


async def test_large_batches_forget_more_than_they_leave(postgres_server, sql, serving):
    now = 1000.0
    engine = PostgresEngine(postgres_server.url(), clock=lambda: now)
    async with serving(engine):
        await one(engine, OpenSession("s", "p", 1e6))
        for batch in range(5):
            now += 100.0
            names = [f"{batch} {n}" for n in range(160)]
            await engine.execute(
                [Spend("s", 1, name, (SpendRequest((1.0,)),), (RateLimit("", 1.0, 1.0),)) for name in names]
            )
        # nobody waits for the forgetting, but what follows comes behind it
        await one(engine, Ping())
        assert sql.execute("SELECT count(*) FROM tenure.limiter").fetchall() == [(160,)]


async def test_a_connection_that_is_cut_while_much_is_being_sent_is_made_anew(postgres_server):
    server = conninfo_to_dict(postgres_server.url())
    async with FaultProxy(f"{server['host']}/.s.PGSQL.{server.get('port', 5432)}") as proxy:
        url = f"postgresql://{server['user']}@127.0.0.1:{proxy.port}/{server['dbname']}"
        async with tenure.open_store(url, ttl=10) as store:
            queues = [WorkQueue(store, f"big{n}") for n in range(10)]
            for queue in queues:
                await queue.put("a")
            async with anyio.create_task_group() as group:
                proxy.latency(float("inf"), direction="up")
                for n in range(60):
                    group.start_soon(queues[n % 10].put, "x" * 900_000)
                with anyio.fail_after(50):
                    while not store._handle._engine._connection._commands._more_to_write:
                        await anyio.sleep(0.01)
                proxy.heal()
                proxy.cut()
            assert sum([(await queue.statistics()).put for queue in queues]) == 70


@pytest.mark.parametrize("silence", [600.0, 0.0])
async def test_connections_that_are_not_in_use_send_nothing(own_postgres_server, monkeypatch, silence):
    monkeypatch.setattr(tenure.engine, "IN_USE", 0.0)
    monkeypatch.setattr(tenure.engine, "SILENCE", silence)
    server = own_postgres_server()
    with psycopg.connect(server.url(), autocommit=True) as connection:

        def last():
            of = "FROM pg_stat_activity WHERE application_name ~ '^tenure'"
            return connection.execute(f"SELECT pid, query_start {of} ORDER BY pid").fetchall()

        async with tenure.open_store(PostgresEngine(server.url(), response_timeout=0.4)) as store:
            await store.ping()
            await anyio.sleep(0.5)
            before = last()
            assert len(before) == 2
            await anyio.sleep(0.9)
            assert (last() == before) is (silence > 0)
            await store.ping()
