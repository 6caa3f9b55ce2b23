"""`tenure.put` of PostgreSQL, for programs in other languages, beside the put of Python."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest
from psycopg import errors, sql

import tenure
from tenure import Groups, Item, Keep, Key, WorkQueue
from tenure.engines.postgres import PostgresEngine

EMPTY = {"id", "ready_at", "expires", "first_put", "deadline"}
"""The columns in which two puts differ; times are compared from the put on."""

PAGE = (Path(__file__).parents[2] / "docs/reference/engines-postgres.md").read_text("utf-8")
CALL, ROLE = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)

OPTIONS = {
    "priority": 3,
    "delay": timedelta(minutes=1),
    "key": "invoice-7",
    "group": "ann",
    "expires": timedelta(minutes=15),
    "deadline": timedelta(hours=1),
}


@pytest.fixture
def address(postgres):
    return {"host": str(postgres.folder), "user": "tenure", "dbname": "postgres"}


@pytest.fixture
def db(address, postgres_server):
    with psycopg.connect(**address, autocommit=True) as db:
        yield db


@pytest.fixture
async def store(postgres, db):
    async with tenure.open_store(
        PostgresEngine(f"postgresql://tenure@/postgres?host={postgres.folder}")
    ) as store:
        yield store


@pytest.fixture
def queue(store):
    return WorkQueue(store, "mail")


def put(db, payload, queue="mail", **options):
    """Call the function, with its arguments by name."""
    if "group" in options:
        options["group_name"] = options.pop("group")
    named = sql.SQL("").join(
        sql.SQL(", {} => {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in options.items()
    )
    call = sql.SQL("SELECT tenure.put({}, {}{})").format(sql.Literal(queue), sql.Literal(payload), named)
    return db.execute(call).fetchone()[0]


def row(db, task_id):
    """The row of a task, with times from its put on, in seconds."""
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        task = cursor.execute("SELECT * FROM tenure.task WHERE id = %s", (task_id,)).fetchone()
    times = {name: task.pop(name) for name in EMPTY - {"id"}}
    made = task.pop("id")
    # an id is a time, in microseconds
    return task, {name: time and round((time - made) / 1e6) for name, time in times.items()}


@pytest.mark.parametrize(
    "options",
    [{}, *({name: value} for name, value in OPTIONS.items()), OPTIONS],
    ids=lambda options: "-".join(options) or "plain",
)
async def test_a_task_has_the_row_that_python_puts(queue, db, options):
    payload = {
        "to": 1,
        "text": 'a ", b: \\" ü\n\x1f\x7f/€, "',
        "list": [1, 2.5, -1, None, True, {}, []],
        "e": "",
        "\\": ": ",
    }
    ours = await queue.put(
        json.loads(db.execute("SELECT %s::jsonb::text", (json.dumps(payload),)).fetchone()[0]), **options
    )
    found = row(db, ours)
    await queue.purge("waiting", "delayed")
    theirs = put(db, json.dumps(payload), **options)
    assert theirs > ours
    assert row(db, theirs) == found
    assert (await queue.get(theirs)).payload == payload
    assert await queue.verify()


async def test_the_call_on_the_page_puts_a_task(queue, db):
    (task_id,) = db.execute(CALL).fetchone()
    record = await queue.get(task_id)
    assert (record.payload, record.key, record.state) == ({"to": 1}, "order-7", "delayed")


@pytest.mark.parametrize(
    "payload",
    ["null", "0", '""', "true", "[]", "{}", '"\\\\"', '"\\" , \\\\"', "1e3", '["a", "b", ", ", ": "]'],
)
async def test_a_payload_is_compact_json(queue, db, payload):
    task_id = put(db, payload)
    (raw,) = db.execute("SELECT payload FROM tenure.task WHERE id = %s", (task_id,)).fetchone()
    assert (await queue.get(task_id)).payload == json.loads(payload)
    assert raw.decode() == json.dumps(json.loads(raw), separators=(",", ":"))


async def test_at_is_a_time_and_the_past_is_now(queue, db):
    later = put(db, "1", at=datetime.now(UTC) + timedelta(hours=1))
    past = put(db, "2", at=datetime.now(UTC) - timedelta(hours=1))
    long_ago = put(db, "3", at="-infinity")
    assert [(await queue.get(task_id)).state for task_id in (later, past, long_ago)] == [
        "delayed",
        "waiting",
        "waiting",
    ]
    assert row(db, later)[1]["ready_at"] == 3600
    async with queue.take(0) as task:
        assert task.id == past


async def test_a_key_refuses_keeps_and_replaces(queue, db):
    first = put(db, '"a"', key="k")
    with pytest.raises(
        errors.UniqueViolation, match=f"tenure.put: task {first} of the queue mail has the key k"
    ) as refused:
        put(db, '"b"', key="k")
    assert refused.value.diag.message_detail == str(first)
    with pytest.raises(tenure.DuplicateTask):
        await queue.put("b", key="k")
    assert put(db, '"c"', key="k", on_duplicate="keep") == first
    assert (await queue.get(first)).payload == "a"
    assert (
        put(db, '"d"', key="k", on_duplicate="replace", priority=2)
        == first
        == await queue.put("d", key=Key("k", "keep"))
    )
    record = await queue.get(first)
    assert (record.payload, record.priority) == ("d", 2)
    async with queue.take(0):
        second = put(db, '"e"', key="k", on_duplicate="replace")
        assert second != first
    assert (await queue.get(key="k")).id == second


async def test_a_key_lasts_as_long_as_the_queue_says(store, db):
    queue = WorkQueue(store, "mail", keep=Keep(keys=3600))
    first = await queue.put(1, key="python")
    second = put(db, "1", key="sql")
    for _ in range(2):
        async with queue.take(0):
            pass
    assert put(db, "1", key="python", on_duplicate="keep") == first
    assert put(db, "1", key="sql", on_duplicate="keep") == second
    # of a queue without such a setting, a key ends with its task
    other = WorkQueue(store, "other")
    first = put(db, "1", "other", key="sql")
    async with other.take(0):
        pass
    assert put(db, "1", "other", key="sql", on_duplicate="keep") > first


async def test_two_callers_with_one_key_put_one_task(queue, db, address):
    with psycopg.connect(**address) as other:
        first = put(other, "1", key="k")
        answers = []

        def second():
            answers.append(put(db, "2", key="k", on_duplicate="keep"))

        with anyio.fail_after(50):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, second)
                while not other.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
                ).fetchone()[0]:
                    await anyio.sleep(0.01)
                other.commit()
    assert answers == [first]
    assert (await queue.statistics()).waiting == 1


async def test_a_waiting_worker_wakes_with_the_commit(store, address, db):
    queue = WorkQueue(store, "mail")
    taken = []

    async def work():
        async with queue.take() as task:
            taken.append(task.payload)

    with anyio.fail_after(50), psycopg.connect(**address) as other:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            while not db.execute("SELECT count(*) FROM tenure.taker").fetchone()[0]:
                await anyio.sleep(0.01)
            put(other, '{"to": 1}')
            await anyio.sleep(0.05)
            assert taken == []
            other.commit()
    assert taken == [{"to": 1}]


async def test_it_is_a_part_of_the_transaction(queue, db):
    with db.transaction(force_rollback=True):
        put(db, "1")
    assert (await queue.statistics()).put == 0
    with db.transaction():
        put(db, "2")
        with pytest.raises(errors.InvalidParameterValue), db.transaction():
            put(db, "3", priority=2**31)
        put(db, "4")
        assert db.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("30s",)
    assert [record.payload async for record in queue.tasks("waiting")] == [2, 4]
    with db.transaction(force_rollback=True):
        db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        with pytest.raises(errors.FeatureNotSupported, match="READ COMMITTED"):
            put(db, "5")


async def test_a_thousand_at_once(queue, db):
    db.execute("CREATE TEMPORARY TABLE sent (n int, task bigint)")
    db.execute(
        "INSERT INTO sent SELECT n, tenure.put('mail', to_jsonb(n), key => 'order-' || n)"
        " FROM generate_series(1, 1000) n"
    )
    ids = [task for (task,) in db.execute("SELECT task FROM sent ORDER BY n")]
    assert len(set(ids)) == 1000
    assert ids == sorted(ids)
    assert await queue.verify()
    async with queue.take(0) as task:
        assert (task.id, task.payload) == (ids[0], 1)
    assert (await queue.get(key="order-1000")).id == ids[-1]


async def test_a_full_queue_and_a_full_group_are_refused(store, db):
    queue = WorkQueue(store, "mail", max_size=3, groups=Groups(max_size=1))
    await queue.put_many([Item(1, group="a"), 2])
    with pytest.raises(
        errors.ConfigurationLimitExceeded, match="the queue mail is full, or the group: at most 3"
    ):
        put(db, "3", group="a")
    put(db, "3", group="b")
    with pytest.raises(errors.ConfigurationLimitExceeded):
        put(db, "4")
    async with queue.take(0):
        pass
    put(db, "4")


async def test_it_puts_into_the_namespace_that_is_named(postgres, db):
    engine = PostgresEngine(f"postgresql://tenure@/postgres?host={postgres.folder}")
    async with tenure.open_store(engine, namespace="staging") as store:
        task_id = put(db, "1", namespace="staging")
        assert (await WorkQueue(store, "mail").get(task_id)).state == "waiting"


async def test_each_schema_has_a_function_of_its_own(postgres, db):
    url = f"postgresql://tenure@/postgres?host={postgres.folder}"
    async with tenure.open_store(PostgresEngine(url, schema="other")) as store:
        (task_id,) = db.execute(CALL.replace("tenure.", "other.")).fetchone()
        assert (await WorkQueue(store, "mail").get(task_id)).payload == {"to": 1}
        with pytest.raises(errors.InvalidParameterValue, match=r"^other\.put: queue must"):
            db.execute("SELECT other.put('', '1')")
    db.execute("DROP SCHEMA other CASCADE")


@pytest.mark.parametrize("name", ["x" * 512, "ü:queue:' \\ \"", " ", "\u20ac" * 170, "a\nb"])
async def test_odd_names_are_those_of_python(store, db, name):
    task_id = put(db, "1", name, key=name, group=name)
    record = await WorkQueue(store, name).get(key=name)
    assert (record.id, record.group) == (task_id, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": ""}, "queue must have 1 to 512 bytes in UTF-8, not 0"),
        ({"queue": "ü" * 257}, "queue must have 1 to 512 bytes in UTF-8, not 514"),
        ({"queue": None}, "queue must have 1 to 512 bytes in UTF-8, not NULL"),
        ({"payload": None}, "payload must not be NULL; the JSON value is 'null'"),
        ({"payload": json.dumps("x" * 2**20)}, "payload must have at most 1048576 bytes, not 1048578"),
        ({"key": ""}, "key must have 1 to 512 bytes"),
        ({"group": "x" * 513}, "group_name must have 1 to 512 bytes"),
        ({"on_duplicate": "ignore"}, "on_duplicate must be refuse, keep or replace, not ignore"),
        ({"on_duplicate": None}, "on_duplicate must be refuse, keep or replace, not NULL"),
        ({"priority": 2**31}, "priority must be from -2147483647 to 2147483647, not 2147483648"),
        ({"priority": -(2**63)}, "priority must be"),
        ({"priority": None}, "priority must be .* not NULL"),
        ({"delay": timedelta(seconds=-1)}, "delay must be at least 0 seconds and at most 1000000000, not -1"),
        ({"delay": timedelta(days=12_000)}, "delay must be at least 0"),
        ({"at": "infinity"}, "at must be at least 0 seconds and at most 1000000000, not Infinity"),
        ({"at": datetime.now(UTC), "delay": timedelta(1)}, "a put has a delay or at, not both"),
        ({"expires": timedelta(0)}, "expires must be above 0 seconds"),
        ({"deadline": timedelta(seconds=-5)}, "deadline must be above 0 seconds"),
        ({"namespace": "a:b"}, "namespace must not have a colon: a:b"),
        ({"namespace": None}, "namespace must have 1 to 512 bytes"),
    ],
)
async def test_a_wrong_argument_is_named(store, db, options, message):
    with pytest.raises(errors.InvalidParameterValue, match=f"tenure.put: {message}"):
        put(db, **{"payload": "1", **options})
    assert db.execute("SELECT count(*) FROM tenure.task").fetchone() == (0,)


async def test_what_is_no_json_is_refused(store, db):
    for payload in ("{", "NaN", '"\\u0000"'):
        with pytest.raises(errors.DataError):
            put(db, payload)


@pytest.fixture
def clerk(address, store, db):
    """A connection of a role that may put, and nothing else."""
    db.execute("DROP ROLE IF EXISTS clerk")
    db.execute(ROLE)
    with psycopg.connect(**{**address, "user": "clerk"}, autocommit=True) as clerk:
        yield clerk
    db.execute("DROP OWNED BY clerk")
    db.execute("DROP ROLE clerk")


async def test_a_role_that_may_only_put_puts(queue, clerk):
    task_id = put(clerk, '{"to": 1}', **OPTIONS)
    assert (await queue.get(task_id)).payload == {"to": 1}
    assert put(clerk, "1", key="invoice-7", on_duplicate="replace") == task_id


async def test_a_role_that_may_only_put_can_do_nothing_else(store, clerk, db):
    of_schema = "= 'tenure'::regnamespace"
    for kind, rights in (
        ("table", "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER"),
        ("sequence", "SELECT, UPDATE, USAGE"),
    ):
        found = db.execute(
            f"SELECT has_{kind}_privilege('clerk', oid, %s) FROM pg_class"
            f" WHERE relnamespace {of_schema} AND relkind = %s",
            (rights, "S" if kind == "sequence" else "r"),
        ).fetchall()
        assert len(found) > 5
        assert {has for (has,) in found} == {False}
    with pytest.raises(errors.InsufficientPrivilege):
        clerk.execute("SELECT * FROM tenure.task")
    with pytest.raises(errors.InsufficientPrivilege):
        clerk.execute("SELECT tenure.lock('queue', 'x')")
    with pytest.raises(errors.InsufficientPrivilege):
        clerk.execute("CREATE TABLE tenure.mine ()")
    functions = db.execute(
        f"SELECT proname FROM pg_proc WHERE pronamespace {of_schema}"
        " AND has_function_privilege('clerk', oid, 'EXECUTE')"
    )
    assert functions.fetchall() == [("put",)]
    # what runs with the rights of another role
    definers = db.execute(
        f"SELECT proname, proconfig FROM pg_proc WHERE pronamespace {of_schema} AND prosecdef"
    )
    assert definers.fetchall() == [("put", ["search_path=pg_catalog, pg_temp"])]


async def test_objects_of_the_caller_do_not_take_the_place_of_those_that_are_meant(queue, clerk):
    clerk.execute("CREATE TEMPORARY TABLE task (id bigint)")
    clerk.execute(
        "CREATE FUNCTION pg_temp.length(bytea) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'mine'; END $$"
    )
    clerk.execute("SET search_path = pg_temp, tenure")
    for name in ("tenure.locks", "tenure.sweeps", "tenure.steps"):
        clerk.execute(f"SET {name} = 'wait'")
    put(clerk, "1", key="k", group="g")
    assert (await queue.statistics()).waiting == 1
    assert await queue.verify()


async def test_without_a_grant_nobody_puts(store, clerk, db):
    db.execute("REVOKE EXECUTE ON FUNCTION tenure.put FROM clerk")
    with pytest.raises(errors.InsufficientPrivilege, match="put"):
        put(clerk, "1")


async def test_a_role_with_the_rights_of_a_program_works_with_the_schema(postgres, store, db):
    db.execute("DROP ROLE IF EXISTS program; CREATE ROLE program LOGIN")
    for right in (
        "USAGE ON SCHEMA tenure",
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure",
        "SELECT, USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tenure",
        "EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure",
    ):
        db.execute(f"GRANT {right} TO program")
    try:
        url = f"postgresql://program@/postgres?host={postgres.folder}"
        async with tenure.open_store(PostgresEngine(url)) as other:
            queue = WorkQueue(other, "mail")
            await queue.put(1, key="k")
            async with queue.take(0) as task, tenure.Lock(other, "lock"):
                assert task.payload == 1
    finally:
        db.execute("DROP OWNED BY program; DROP ROLE program")
