"""Families of tasks on PostgreSQL, where an operation locks one queue: what it does when another queue is locked."""

from __future__ import annotations

import re
from contextlib import contextmanager

import psycopg
import pytest

from tenure import engine as e


class Family:
    """A root in the queue "jobs", with children in the queue "other"."""

    def __init__(self, engine):
        self.engine = engine
        self._n = 0
        self.do(e.OpenSession("s", "p", 30.0))

    def do(self, operation):
        while (answer := self.engine.apply_now(operation)) is e.Reply.MORE:
            pass
        return answer

    def exchange(self, queue, *settle, want=0):
        self._n += 1
        return self.do(e.Exchange("s", self._n, queue, settle, want))

    def root(self):
        self._n += 1
        self.do(e.Put("s", self._n, "jobs", (e.PutRequest("p", (e.NewTask(b"root"),)),)))
        return self.exchange("jobs", want=1).tasks[0]

    def bear(self, root, *names, to="other"):
        answer = self.do(children_of(root, *names, to=to))
        assert isinstance(answer, e.Accepted), answer

    def states(self, root):
        return {
            entry.name: entry.state for entry in self.do(e.Scan(e.ENTRIES, "jobs", only=str(root.id))).rows
        }

    def state(self, root):
        answer = self.do(e.GetResult("jobs", root.id))
        return answer.state

    def rows(self, table):
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(f"SELECT * FROM tenure.{table}").fetchall()

    @contextmanager
    def locked(self, queue):
        """Another transaction has the queue."""
        with psycopg.connect(self.url) as connection:
            connection.execute("SELECT tenure.lock('queue', %s)", [queue.encode()])
            yield connection


def children_of(root, *names, to="other"):
    tasks = tuple(e.NewTask(name.encode()) for name in names)
    return e.PutChildren("jobs", root.id, root.token, to, names, tasks, 10_000)


@pytest.fixture
def family(inline_postgres, postgres_server):
    now = [1000.0]
    made = Family(inline_postgres(lambda: now[0]))
    made.now = now
    made.url = postgres_server.url()
    return made


def settled(task, verdict=e.Verdict.DONE, result=b""):
    return e.Settle(task.id, task.token, verdict, result)


def test_the_end_of_a_child_does_not_wait_for_the_queue_of_its_parent(family):
    root = family.root()
    family.bear(root, "a")
    family.exchange("jobs", settled(root, e.Verdict.WAIT))
    child = family.exchange("other", want=1).tasks[0]
    with family.locked("jobs"):
        assert family.exchange("other", settled(child, result=b"result")).refused == ()
        assert [row[3] for row in family.rows("todo")] == ["told"]
    assert family.states(root) == {"a": "done"}
    assert family.rows("todo") == []
    assert family.exchange("jobs", want=1).tasks[0].id == root.id


def test_a_cancellation_does_not_wait_for_the_queues_of_the_children(family):
    root = family.root()
    family.bear(root, "a", "b")
    family.bear(root, "c", to="jobs")
    with family.locked("other"):
        family.exchange("jobs", settled(root, e.Verdict.CANCEL))
        assert {row[3] for row in family.rows("todo")} == {"sweep"}
    assert family.state(root) == "cancelled"
    assert [family.rows(table) for table in ("todo", "family", "entry")] == [[], [], []]


def test_whoever_waits_for_the_queue_of_the_children_locks_no_other(family, postgres_server):
    root = family.root()
    statement = family.engine.statement(children_of(root, "a"))
    with family.locked("other") as holder, psycopg.connect(family.url, autocommit=True) as waiter:
        waiter.pgconn.send_query_params(
            statement.sql.encode(), list(statement.values), list(statement.types), [1] * len(statement.values)
        )
        waiting = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'advisory'"
        with psycopg.connect(family.url, autocommit=True) as looker:
            while not looker.execute(waiting, [waiter.info.backend_pid]).fetchone():
                pass
        assert family.state(root) == "leased"
        holder.rollback()
        result = waiter.pgconn.get_result()
        assert result.get_value(0, 0) == b"accepted", result.error_message
        waiter.pgconn.get_result()
    assert family.states(root) == {"a": "unfinished"}


def complete(family, task, queue, connection):
    enlisted = family.engine.enlist(e.Complete("s", queue, settled(task)))
    sql = re.sub(r":(\w+)", r"%(\1)s", enlisted.sql)
    return enlisted.finish(None, connection.execute(sql, enlisted.values).fetchall())


def test_a_transaction_of_the_user_does_not_complete_a_task_with_children(family):
    root = family.root()
    family.bear(root, "a")
    with psycopg.connect(family.url) as connection:
        assert complete(family, root, "jobs", connection) is e.Reply.CHILDREN
    assert family.state(root) == "leased"


def test_a_transaction_of_the_user_locks_no_other_queue(family):
    root = family.root()
    family.bear(root, "a")
    family.exchange("jobs", settled(root, e.Verdict.WAIT))
    child = family.exchange("other", want=1).tasks[0]
    with psycopg.connect(family.url) as connection:
        assert complete(family, child, "other", connection) is e.Reply.OK
        assert family.state(root) == "suspended"
    assert family.state(root) == "waiting"


def test_many_entries_of_a_task_that_has_ended_are_forgotten_a_few_at_a_time(family):
    root = family.root()
    for part in range(5):
        family.bear(root, *(f"{part}/{i}" for i in range(256)))
    family.exchange("jobs", settled(root, e.Verdict.CANCEL))
    while family.state(root) != "cancelled":
        family.now[0] += e.SWEEP_PAUSE
    assert family.states(root) == {}
    for _ in range(48):
        family.do(e.Ping())
    assert [family.rows(table) for table in ("todo", "family", "entry")] == [[], [], []]
