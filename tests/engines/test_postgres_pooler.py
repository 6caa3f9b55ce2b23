"""PostgreSQL through a real PgBouncer that pools transactions: each may get another connection of the server's."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import anyio
import depth
import psycopg
import pytest
from contract import EngineContract
from needed import NO_PGBOUNCER
from poolers import PROGRAM, PgBouncer

import tenure
from tenure import EngineError, Lock, StoreUnavailable, WorkQueue
from tenure.engine import HEALTH, HOLDERS, Acquire, Granted, OpenSession, Scan
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres._address import address
from tenure.engines.postgres._pipeline import Statement, rows

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=NO_PGBOUNCER)


@pytest.fixture(scope="module")
def poolers(postgres_process):
    """Makes poolers in front of the server of all tests: `poolers("pool_mode = session")`."""
    made = []
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        Path(folder).chmod(0o755)

        def make(*settings, behind=postgres_process.folder):
            place = Path(folder) / str(len(made))
            place.mkdir()
            made.append(PgBouncer(place, behind, *settings))
            made[-1].start()
            return made[-1]

        yield make
        for pooler in made:
            pooler.stop()


@pytest.fixture(scope="module")
def pooler_process(poolers):
    return poolers("default_pool_size = 3")


@pytest.fixture
def pooler(pooler_process, postgres_server):
    return pooler_process


@pytest.fixture
def url(pooler, postgres_server):
    """Statements go through the pooler, hints come from the server."""
    return pooler.url(direct=postgres_server.url())


@pytest.fixture
def sql(postgres_server):
    """A connection of somebody else to the server."""
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        yield connection


async def one(engine, operation):
    (answer,) = await engine.execute([operation])
    return answer


async def until(condition):
    with anyio.fail_after(50):
        while not condition():
            await anyio.sleep(0.005)


async def somebody_waits(store):
    with anyio.fail_after(50):
        while not (await store.statistics()).waiting:
            await anyio.sleep(0.005)
    # what was sent before has been answered, too
    await store.ping()


POOLED = (
    "FROM pg_stat_activity WHERE application_name LIKE 'tenure %' AND application_name NOT LIKE '% hints'"
)


@pytest.mark.full
@pytest.mark.backends("asyncio")
@pytest.mark.usefixtures("fewer_odd_arguments")
class TestContract(EngineContract):
    walks = depth.walks(3)

    @pytest.fixture
    def now(self):
        return [1000.0]

    @pytest.fixture
    def engine(self, now, url):
        return PostgresEngine(url, clock=lambda: now[0])

    @pytest.fixture
    def advance(self, now):
        async def advance(seconds):
            now[0] += seconds

        return advance


# ------------------------------------------------------------------------------------------------------ where it is


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("postgresql://u:p@pooler:6432/app?direct=postgresql://db", "postgresql://u@db:/app"),
        (
            "postgresql://u:p@pooler:6432/app?direct=postgresql://me:secret@db:5433/jobs&connect_timeout=3",
            "postgresql://me@db:5433/jobs",
        ),
        (
            "postgresql://u@/app?host=/run/pooler&port=6432&direct=postgresql:///?host=/run/postgresql",
            "postgresql://u@:/app?host=/run/postgresql",
        ),
        (
            "postgresql://u@h/app?hostaddr=10.0.0.1&direct=postgresql://a%40b:p%26@db",
            "postgresql://a@b@db:/app",
        ),
        (
            "postgresql://u@h/app?direct=postgresql%3A%2F%2Fdb%3Fsslmode%3Drequire%26hostaddr%3D",
            "postgresql://u@db:/app",
        ),
    ],
)
def test_the_direct_address_has_the_user_and_the_database_of_the_other(url, direct):
    found = address(url)
    assert str(found.direct).replace("db/", "db:/").replace("@/", "@:/") == direct
    assert "direct" not in str(found)
    assert not found.direct.parameters.get("hostaddr")
    assert "secret" not in repr(found) + repr(PostgresEngine(url))
    assert found.parameters.get("connect_timeout") == found.direct.parameters.get("connect_timeout")


@pytest.mark.parametrize(
    "direct", ["db:5432", "mysql://u:secret@h/d", "postgresql://u:secret@h/d?nonsense=1"]
)
def test_a_wrong_direct_address_is_refused(direct):
    with pytest.raises(ValueError, match=r"begins with|does not understand") as caught:
        PostgresEngine(f"postgresql://h/d?direct={direct}")
    assert "secret" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------ what works


async def test_a_lock_is_handed_over_by_a_hint(url):
    # sessions last longer than this test may take, which is when they would ask again without a hint
    async with tenure.open_store(url, ttl=600) as a, tenure.open_store(url, ttl=600) as b:
        granted = anyio.Event()

        async def wait_for_it():
            async with Lock(b, "k"):
                granted.set()

        async with anyio.create_task_group() as group:
            async with Lock(a, "k"):
                group.start_soon(wait_for_it)
                await somebody_waits(b)
            with anyio.fail_after(50):
                await granted.wait()


async def test_without_a_direct_address_waiters_ask_again_and_a_warning_says_so(pooler, monkeypatch):
    monkeypatch.setattr("tenure.engines.postgres._connection.LOOK_AGAIN", 0.1)
    with pytest.warns(RuntimeWarning, match=r"LISTEN does not work.*direct=postgresql://"):
        await hand_over_without_hints(PostgresEngine(pooler.url()))


async def hand_over_without_hints(engine):
    done = []

    async def work(store):
        async with Lock(store, "k"):
            pass
        async with WorkQueue(store, "jobs").take() as task:
            done.append(task.payload)

    async with tenure.open_store(engine, ttl=600) as a, tenure.open_store(engine, ttl=600) as b:
        with anyio.fail_after(50):
            async with anyio.create_task_group() as group:
                async with Lock(a, "k"):
                    group.start_soon(work, b)
                    await somebody_waits(b)
                await anyio.sleep(0.05)
                await WorkQueue(a, "jobs").put("x")
        assert done == ["x"]
        (problem,) = [one for one in (await a._handle.call(Scan(HEALTH))).rows[0].problems if "LISTEN" in one]
        assert "direct=" in problem


@pytest.mark.backends("asyncio")
async def test_that_no_hints_come_is_found_out_when_connections_are_not_shared_yet(poolers):
    # both of ours go to connections of their own, one after the other
    pooler = poolers("server_round_robin = 1")
    with psycopg.connect(pooler.url()) as a, psycopg.connect(pooler.url()) as b:
        for other in (a, b):
            other.execute("SELECT 1")
    assert len(servers_behind(pooler)) == 2
    with pytest.warns(RuntimeWarning, match="LISTEN does not work"):
        async with tenure.open_store(pooler.url()) as store:
            await store.ping()


def servers_behind(pooler):
    """The processes of the server's that stand behind the pooler."""
    console = psycopg.pq.PGconn.connect(pooler.url(database="pgbouncer").encode())
    try:
        shown = console.exec_(b"SHOW SERVERS")
        column = [shown.fname(column) for column in range(shown.nfields)].index(b"remote_pid")
        return [int(shown.get_value(row, column)) for row in range(shown.ntuples)]
    finally:
        console.finish()


@pytest.mark.backends("asyncio")
async def test_hints_come_through_a_pooler_of_sessions(poolers, postgres_server):
    url = poolers("pool_mode = session").url()
    async with tenure.open_store(url, ttl=600) as store:

        async def wait_for_it():
            async with Lock(store, "k"):
                pass

        with anyio.fail_after(50):
            async with anyio.create_task_group() as group, Lock(store, "k"):
                group.start_soon(wait_for_it)
                await somebody_waits(store)


@pytest.mark.backends("asyncio")
async def test_the_first_that_comes_makes_the_schema_through_the_pooler(pooler, sql):
    sql.execute("DROP SCHEMA IF EXISTS pooled CASCADE")
    with pytest.warns(RuntimeWarning, match="LISTEN does not work"):
        async with tenure.open_store(PostgresEngine(pooler.url(), schema="pooled")) as store:
            await WorkQueue(store, "jobs").put("x")
    assert sql.execute("SELECT count(*) FROM pooled.task").fetchone() == (1,)
    sql.execute("DROP SCHEMA pooled CASCADE")


@pytest.mark.backends("asyncio")
async def test_nothing_is_left_on_connections_that_others_will_get(poolers, postgres_server):
    # there is one: who comes next gets it
    pooler = poolers("default_pool_size = 1")
    engine = PostgresEngine(pooler.url(direct=postgres_server.url()), response_timeout=3.0)
    async with tenure.open_store(engine) as store:
        await WorkQueue(store, "jobs").put("x")
        ours = "SELECT current_setting('plan_cache_mode'), current_setting('lock_timeout')"
        result = await engine._connection._commands.ask(Statement(ours))
        assert rows(result) == [[b"force_generic_plan", b"1500ms"]]
        with psycopg.connect(pooler.url(), autocommit=True, prepare_threshold=None) as other:
            cursor = psycopg.ClientCursor(other)
            changed = (
                "SELECT name FROM pg_settings WHERE source = 'session' AND name NOT IN "
                "('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')"
            )
            assert cursor.execute(changed).fetchall() == []
            assert cursor.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert cursor.execute(held).fetchall() == [(0,)]
            assert cursor.execute("SELECT pg_listening_channels()").fetchall() == []


@pytest.mark.backends("asyncio")
async def test_another_default_isolation_is_refused_through_a_pooler(pooler, sql):
    sql.execute("DROP ROLE IF EXISTS strict")
    sql.execute("CREATE ROLE strict LOGIN SUPERUSER")
    sql.execute("ALTER ROLE strict SET default_transaction_isolation = 'repeatable read'")
    with pytest.raises(EngineError, match="has to be read committed, not repeatable read"):
        await PostgresEngine(pooler.url(user="strict")).serve("p", lambda hint: None)


# ------------------------------------------------------------------------------------------------------ faults


async def test_the_end_of_the_poolers_connections_loses_nothing(url, sql):
    inside, sections = [], []

    async def work(store, name):
        for _ in range(8):
            async with Lock(store, "k"):
                inside.append(name)
                assert len(inside) == 1
                await anyio.sleep(0.002)
                inside.pop()
            sections.append(name)

    async def end_them():
        for count in range(1, 32, 6):
            await until(lambda count=count: len(sections) >= count)
            sql.execute(f"SELECT pg_terminate_backend(pid) {POOLED}")

    async with (
        tenure.open_store(url) as a,
        tenure.open_store(url) as b,
        anyio.create_task_group() as group,
    ):
        group.start_soon(end_them)
        for store in (a, b):
            for n in range(2):
                group.start_soon(work, store, n)
    assert len(sections) == 32


async def test_a_pooler_that_is_killed_and_comes_back_loses_nothing(poolers, postgres_server):
    pooler = poolers()
    async with tenure.open_store(pooler.url(direct=postgres_server.url())) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put("before")
        async with queue.take() as task:
            pooler.stop()
            await anyio.to_thread.run_sync(pooler.start)
            await queue.put("after")
            assert task.payload == "before"
        async with queue.take() as task:
            assert task.payload == "after"


async def test_what_comes_late_through_a_pooler_is_not_done(poolers, postgres_server, sql):
    pooler = poolers("default_pool_size = 1")
    engine = PostgresEngine(pooler.url(direct=postgres_server.url()), response_timeout=1.0)
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda hint: None)
        await one(engine, OpenSession("s", "p", 30.0))
        (server,) = servers_behind(pooler)
        os.kill(server, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="no answer within"):
                await one(engine, Acquire("s", "k", "late", 1))
            assert isinstance(await one(engine, Acquire("s", "k", "new", 1)), Granted)
        finally:
            os.kill(server, signal.SIGCONT)
        await until(lambda: not sql.execute(f"SELECT FROM pg_stat_activity WHERE pid = {server}").fetchone())
        holders = await one(engine, Scan(HOLDERS, "k"))
        assert ([held.holder for held in holders.holders], holders.waiting) == (["new"], ())
        group.cancel_scope.cancel()


@pytest.mark.backends("asyncio")
async def test_a_server_that_is_down_behind_a_pooler_is_unavailable(poolers, tmp_path):
    pooler = poolers("query_wait_timeout = 1", behind=tmp_path)
    with pytest.raises(StoreUnavailable, match="query_wait_timeout"):
        await PostgresEngine(pooler.url()).serve("p", lambda hint: None)
