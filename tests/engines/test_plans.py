"""The statements that run often find their rows through an index: no scan of a table, no sorting."""

from __future__ import annotations

import re
import sqlite3
from itertools import chain

import pytest

from tenure.engines.rules import LAYOUTS
from tenure.engines.sqlite import _sql
from tenure.engines.sqlite._changes import updating
from tenure.engines.sqlite._opening import create
from tenure.engines.sqlite._tables import SqliteTable

FILES = ("groups", "hints", "queues", "sessions", "tasks")

# What these go through is small, or is the very thing that is asked for.
SCANS = {
    "groups.add": "the names that were handed in",
    "groups.delete": "as above",
    "groups.find": "as above",
    "hints.forget": "in the order of ids, up to a limit",
    "tasks.owners": "the keys that were handed in",
    "sessions.beginning": "one row of numbers",
    "sessions.numbers": "as above",
    "sessions.boot": "as above",
    "sessions.change_boot": "as above",
    "sessions.families": "the first row of an index",
    "sessions.end_all": "at opening",
    "sessions.end_far": "at opening",
}
SORTS = {
    "tasks.group_by_age": "the tasks of two ranges, each up to the limit",
    "sessions.task_watchers": "the watchers of the tasks of one operation",
    "groups.longest": "the groups of a queue, whose cost the contract allows",
    "tasks.recount": "as it says, it counts the rows",
}


@pytest.fixture(scope="module")
def database():
    db = sqlite3.connect(":memory:")
    create(db)
    yield db
    db.close()


STATEMENTS = {
    f"{file}.{name}": sql for file in FILES for name, sql in getattr(_sql, file.upper()).named.items()
}


def statements_of(layout):
    """The statements of a table that find rows."""
    table = SqliteTable(sqlite3.connect(":memory:"), layout)
    yield layout.name, table._get
    for kind in ("first", "last", "some", "after"):
        for order, sql in getattr(table, f"_{kind}").items():
            yield f"{layout.name}.{order} {kind}", sql


OF_TABLES = dict(chain.from_iterable(map(statements_of, LAYOUTS)))
WHOLE = {"unserved.rank", "resource.rest", "limiter.until"}
WHOLE |= {"family.sweeps", "family.timed", "family.over"}


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_table_finds_rows_by_an_index(database, name):
    sql = OF_TABLES[name]
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", [0] * sql.count("?"))]
    assert not [step for step in plan if "TEMP B-TREE" in step], plan
    order, _, kind = name.partition(" ")
    (step,) = plan
    assert step.startswith("SCAN" if order in WHOLE and kind != "after" else "SEARCH"), plan
    assert "INDEX" in step or "PRIMARY KEY" in step, plan


@pytest.mark.parametrize("name", STATEMENTS)
def test_index_is_used(database, name):
    sql = STATEMENTS[name]
    values = dict.fromkeys(re.findall(r":(\w+)", sql), 0)
    values |= dict.fromkeys({"ids", "rows", "tasks"} & set(values), "[]")
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    # json_each is a table of what was handed in, a subquery one of what an index found
    scans = [
        step
        for step in plan
        if step.startswith("SCAN")
        and "VIRTUAL TABLE" not in step
        and "CONSTANT ROW" not in step
        and not step.startswith(("SCAN (", "SCAN SUBQUERY"))
    ]
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert bool(scans) == (name in SCANS), plan
    assert bool(sorts) == (name in SORTS), plan


@pytest.mark.parametrize(
    ("sql", "table", "key"),
    [
        (STATEMENTS["groups.delete"], "task_group", "PRIMARY KEY (queue=? AND name=?)"),
        (STATEMENTS["groups.find"], "task_group", "PRIMARY KEY (queue=? AND name=?)"),
        (updating(("place", "ready_at", "token")), "task", "INTEGER PRIMARY KEY (rowid=?)"),
    ],
    ids=["delete", "find", "update"],
)
def test_several_rows_at_once_use_the_index(database, sql, table, key):
    sql = _sql.repeated(sql, 3)
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", [0] * sql.count("?"))]
    (look,) = [step for step in plan if step.split()[1] == table]
    assert look.startswith(f"SEARCH {table} USING {key}"), plan


def test_all_statements_are_known():
    for file in FILES:
        text = "".join(getattr(_sql, file.upper()).named.values())
        assert "-- " not in text
    assert set(SCANS) | set(SORTS) <= set(STATEMENTS)


def test_a_statement_that_does_not_exist():
    with pytest.raises(AttributeError, match="no statement is called nothing"):
        _ = _sql.TASKS.nothing


HOT = {
    "due": "task_due (queue=?)",
    "first_by_priority": "task_priority (queue=? AND group_name=?)",
    "first_by_age": "task_age (queue=? AND group_name=? AND ready_at<?)",
    "these": "INTEGER PRIMARY KEY (rowid=?)",
    "group_by_priority": "task_priority (queue=? AND group_name=?)",
    "group_by_age": "task_age (queue=? AND group_name=? AND ready_at<?)",
    "promote": "task_due (queue=? AND ready_at<?)",
    "leased": "INTEGER PRIMARY KEY (rowid=?)",
    "lease": "INTEGER PRIMARY KEY (rowid=?)",
    "record": "INTEGER PRIMARY KEY (rowid=?)",
    "delete": "INTEGER PRIMARY KEY (rowid=?)",
    "owners": "task_key (queue=? AND key=?)",
    "forget_keys": "kept_key_until (queue=? AND until<?)",
    "next_key": "kept_key_until (queue=?)",
    "stops": "task_stop (session=? AND queue=? AND stop>?)",
    "next_of_session": "task_lease (session=?)",
    "expired": "task_expiry (expires<?)",
    "oldest": "task_age (queue=? AND group_name=?)",
    "oldest_in_groups": "task_age_in_groups (queue=?)",
    "waiting_same_time": "task_priority (queue=? AND group_name=? AND priority=? AND ready_at=? AND rowid>?)",
    "waiting_later": "task_priority (queue=? AND group_name=? AND priority=? AND ready_at>?)",
    "waiting_lower": "task_priority (queue=? AND group_name=? AND priority<?)",
    "waiting_next": "task_priority (queue=? AND group_name>?)",
    "delayed_same_time": "task_due (queue=? AND ready_at=? AND rowid>?)",
    "delayed_later": "task_due (queue=? AND ready_at>?)",
    "are_due": "task_due (queue=? AND ready_at<?)",
    "leased_in_queue": "task_leased (queue=? AND token>?)",
    "ended_task": "INTEGER PRIMARY KEY (rowid=?)",
    "forget": "ended_expiry (expires<?)",
    "delete_letters": "ended_letters (expires<?)",
    "soonest_letter": "ended_letters (expires>?)",
    "show": "INTEGER PRIMARY KEY (rowid=?)",
    "browse_ended": "ended_state (queue=? AND state=? AND seq>?)",
}


@pytest.mark.parametrize("name", HOT)
def test_the_right_index_is_used(database, name):
    sql = getattr(_sql.TASKS, name)
    values = dict.fromkeys(re.findall(r":(\w+)", sql), 0)
    values |= dict.fromkeys({"ids", "rows"} & set(values), "[]")
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert any(step.endswith(HOT[name]) for step in plan), plan


def test_the_next_turns_are_read_in_the_order_of_an_index(database):
    sql = _sql.GROUPS.next
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", {"queue": 1, "count": 1})]
    # some versions of SQLite read no more than the index
    looks = [step.replace("COVERING ", "") for step in plan if step.startswith(("SCAN", "SEARCH"))]
    assert looks == [
        "SEARCH task_group USING INDEX task_group_turn (queue=?)",
        "SEARCH task USING INDEX task_priority (queue=? AND group_name=?)",
    ]


def test_beginning_reads_the_ends_of_indexes_only(database):
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {_sql.SESSIONS.beginning}")]
    looks = [step for step in plan if step.startswith(("SCAN", "SEARCH"))]
    # one row, and whether there is a first row
    assert [step for step in looks if "INDEX" not in step] == ["SCAN meta", "SCAN family"]
