"""What runs often looks at the rows it needs: no scan of a table, no sorting of a queue, whatever is in it.

The plans are those of the statements inside the functions, as they were executed (`auto_explain`), with the number of
rows that each step looked at. `TENURE_PLANS_ROWS` is how many tasks there are: 20,000, or 1,000,000 for a longer look.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from contract import configured, moving, set_groups
from postgres_servers import TABLES, PostgresCalls
from psycopg import pq
from psycopg.conninfo import make_conninfo

from tenure import engine as e
from tenure.engines.postgres._pipeline import FAILED

ROWS = int(os.environ.get("TENURE_PLANS_ROWS", "20000"))
WANT = 32
MOST = 20 * WANT
"""Rows that a step may look at: some steps look at a few of each task that is taken."""
PAGES = 8 * MOST
"""Pages that a step may read. A condition on the second column of an index alone reads all of the index, and no row."""

SCANNED = {"last_token", "meta"}
"""Tables of a few rows, and a sequence."""

FEW = ROWS // 10
FILL = f"""
    UPDATE tenure.queue SET fronts = NULL, first_due = 0, waiting = {ROWS}, takeable = {ROWS}, delayed = {FEW},
        live = {ROWS + 2 * FEW}, put = {ROWS + 4 * FEW}, dead = {FEW}, done = {FEW} WHERE name = 'big';
    UPDATE tenure.queue SET max_size = {10 * ROWS + 1000}, revision = 1;
    INSERT INTO tenure.setting SELECT name, 'max_size', '{10 * ROWS + 1000}', 0, '' FROM tenure.queue;
    INSERT INTO tenure.task (id, queue, priority, ready_at, delayed, payload, key, session, process, token, expires)
    SELECT nextval('tenure.last_token'), 'big', i % 7, CASE WHEN delayed THEN 1e17 ELSE i % 1000 END, delayed, 'p',
        CASE WHEN i % 3 = 0 THEN 'key ' || i END::bytea,
        CASE WHEN leased THEN (SELECT id FROM tenure.session WHERE name = 'other') END,
        CASE WHEN leased THEN 'p'::bytea END, CASE WHEN leased THEN i ELSE 0 END, CASE WHEN i % 5 = 0 THEN 1e17 END
    FROM generate_series(1, {ROWS + 2 * FEW}) i,
        LATERAL (SELECT i BETWEEN {ROWS + 1} AND {ROWS + FEW} AS delayed, i > {ROWS + FEW} AS leased) kind;
    INSERT INTO tenure.ended
        (id, queue, state, seq, priority, attempts, deliveries, ended_at, expires, result, payload)
    SELECT nextval('tenure.last_token'), 'big', CASE i % 2 WHEN 0 THEN 'done' ELSE 'dead' END,
        nextval('tenure.last_ending'), 0, 1, 1, 1, CASE WHEN i % 4 < 3 THEN 1e17 END, '', 'p'
    FROM generate_series(1, {2 * FEW}) i;
    INSERT INTO tenure.ended
        (id, queue, state, seq, priority, attempts, deliveries, ended_at, expires, result, payload)
    SELECT nextval('tenure.last_token'), 'big', 'cancelled', nextval('tenure.last_ending'), 0, 1, 1, 1, i, '', 'p'
    FROM generate_series(1, {ROWS}) i;
    INSERT INTO tenure.todo (due, id, name) SELECT expires, id, queue FROM tenure.ended
    WHERE state = 'dead' AND expires IS NOT NULL;
    UPDATE tenure.queue SET first_due = 0, delayed = {ROWS}, live = {ROWS}, put = {ROWS} WHERE name = 'due';
    INSERT INTO tenure.task (id, queue, priority, ready_at, delayed, payload)
    SELECT nextval('tenure.last_token'), 'due', i % 7, i, true, 'p' FROM generate_series(1, {ROWS}) i;
    UPDATE tenure.queue SET waiting = 2 * {ROWS}, live = 2 * {ROWS}, put = 2 * {ROWS}, named = {ROWS} + 1,
        groups = {ROWS} + 1, delayed = 0, takeable = 2 * {ROWS}, round = period, virtual_time = 0,
        has_groups = true WHERE name = 'groups';
    INSERT INTO tenure.task (id, queue, priority, ready_at, payload, group_name)
    SELECT nextval('tenure.last_token'), 'groups', i % 7, i % 1000, 'p',
        CASE WHEN i <= {ROWS} THEN 'long' ELSE 'group ' || i END::bytea
    FROM generate_series(1, 2 * {ROWS}) i;
    INSERT INTO tenure.task_group (queue, period, name, live, waiting, leased, takeable, line, rank, fronts)
    SELECT 'groups', q.period, t.group_name, count(*), count(*), 0, count(*), q.period, 1, NULL
    FROM tenure.task t, tenure.queue q WHERE t.queue = 'groups' AND q.name = 'groups' GROUP BY 2, 3;
    UPDATE tenure.queue SET live = live + {FEW}, suspended = {FEW} WHERE name = 'big';
    WITH suspended AS (
        INSERT INTO tenure.task (id, queue, priority, ready_at, payload, session, kin)
        SELECT nextval('tenure.last_token'), 'big', 0, 1, 'p', 0, true FROM generate_series(1, {FEW}) RETURNING id
    )
    INSERT INTO tenure.family (task, queue, awaited, total) SELECT id, 'big', 'never', 2 FROM suspended;
    INSERT INTO tenure.entry (task, name, kind, state, tries)
    SELECT f.task, i::text::bytea, 'value', 'done', 0 FROM tenure.family f, generate_series(1, 2) i;
"""


class Watched(PostgresCalls):
    """Notes the plan of each statement that runs while `watched()` is entered."""

    def __init__(self, url):
        super().__init__(url)
        self.plans = []
        self.run(
            "LOAD 'auto_explain'",
            "SET auto_explain.log_nested_statements = on",
            "SET auto_explain.log_analyze = on",
            "SET auto_explain.log_timing = off",
            "SET auto_explain.log_buffers = on",
            "SET auto_explain.log_format = json",
        )
        self._blocking.notice_handler = self._note

    def _note(self, notice):
        words = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY).decode()
        assert "plan:\n" in words, words
        plan = json.loads(words.partition("plan:\n")[2])
        if "tenure." in plan["Query Text"] or " _" in plan["Query Text"]:
            self.plans.append(plan)

    def ask_to_forget(self):
        self._ask(self._call("forget_outdated"))

    @contextmanager
    def watched(self):
        self.plans = []
        self.run("SET client_min_messages = log", "SET auto_explain.log_min_duration = 0")
        try:
            yield self.plans
        finally:
            self.run("SET auto_explain.log_min_duration = -1", "SET client_min_messages = error")


numbers = count(1)


def put(engine):
    task = e.NewTask(b"p")
    tasks = (
        task,
        replace(task, key="key 3"),
        replace(task, key="new"),
        replace(task, delay=1e6, expires=1e6),
    )
    request = e.PutRequest(str(next(numbers)), tasks)
    answer = ask(engine, e.Put("s", next(numbers), "big", (request,)))
    assert isinstance(answer.answers[0], e.Accepted)


def take(engine, aging=None):
    engine.apply_now(configured("big", aging=aging))
    answer = engine.apply_now(e.Exchange("s", next(numbers), "big", want=WANT))
    return answer.tasks


def take_by_age(engine):
    take(engine, aging=1.0)


def settling(*verdicts):
    def settle(engine):
        tasks = take(engine)
        wanted = tuple(
            e.Settle(task.id, task.token, verdicts[i % len(verdicts)], ttl=60.0)
            for i, task in enumerate(tasks)
        )
        answer = engine.apply_now(e.Exchange("s", next(numbers), "big", wanted))
        assert not answer.refused

    return settle


def watch(engine):
    """With a watcher, tasks are settled one by one."""
    (task, *_) = page(engine, "waiting") or [None]
    engine.apply_now(e.GetResult("big", task.id if task else 0, "s"))
    settling(e.Verdict.DONE)(engine)


def follow(engine):
    """With followers of tasks that are taken, settled, postponed and purged."""
    tasks = page(engine, "waiting")
    for task in tasks:
        engine.apply_now(e.Scan(e.TASK, "big", only=str(task.id), watch="s"))
    settling(e.Verdict.DONE, e.Verdict.DEAD)(engine)
    tasks = page(engine, "waiting")
    for unique in ("key 3", "none"):
        engine.apply_now(e.Scan(e.KEYED_TASK, "big", only=unique, watch="s"))
    engine.apply_now(e.Move("big", tuple(task.id for task in tasks), "delayed", delay=1e6))


def ask(engine, operation):
    """The answer once nothing is due. The store of each client asks again too: MORE says that nothing was done yet.

    A sweep of children is due every 10 ms until it has visited all.
    """
    while (answer := engine.apply_now(operation)) is e.Reply.MORE:
        pass
    return answer


def page(engine, state):
    return ask(engine, e.Scan(e.TASKS[state], "big", limit=WANT)).rows


def browsing(state):
    def browse(engine):
        after = ""
        for _ in range(3):
            found = ask(engine, e.Scan(e.TASKS[state], "big", after, WANT))
            assert len(found.rows) == WANT or not found.next
            if not (after := found.next):
                return

    return browse


def purging(state):
    def purge(engine):
        engine.apply_now(moving(partial(ask, engine), "big", state, "purged"))

    return purge


def requeue(engine):
    engine.apply_now(moving(partial(ask, engine), "big", "dead", "waiting"))


def survey(engine):
    for kind in e.NAMES:
        engine.apply_now(e.Scan(e.NAMES[kind], limit=WANT))


def expire(engine):
    """Dead letters, and then a task, long before others."""
    buried = tuple(e.Settle(task.id, task.token, e.Verdict.DEAD, ttl=0.0) for task in take(engine))
    request = e.PutRequest("m", (e.NewTask(b"p", expires=0.0),))
    for operation in (
        e.Exchange("s", next(numbers), "big", buried),
        e.Put("s", next(numbers), "big", (request,)),
    ):
        assert engine.apply_now(operation) is not e.Reply.MORE
        assert engine.apply_now(e.Ping()) is e.Reply.MORE
        assert engine.apply_now(e.Ping()) is e.Reply.OK


def forget(engine):
    engine.ask_to_forget()


def end(engine):
    """A session that has many things, one step after the other."""
    session = f"mortal {next(numbers)}"
    engine.apply_now(e.OpenSession(session, "p", 60.0))
    for i in range(3):
        engine.apply_now(e.Acquire(session, f"k{i}", session, 1000))
        engine.apply_now(
            e.Spend(session, next(numbers), f"k{i}", (e.SpendRequest((1.0,)),), (e.RateLimit("", 1.0, 1.0),))
        )
    engine.apply_now(e.Exchange(session, next(numbers), "big", want=2))
    assert engine.apply_now(e.CloseSession(session)) is e.Reply.OK


def due(engine):
    """Many are due, and nobody has moved them."""
    engine.apply_now(e.Put("s", next(numbers), "due", (e.PutRequest("m", (e.NewTask(b"p"),)),)))
    for state in ("waiting", "delayed"):
        engine.apply_now(e.Scan(e.TASKS[state], "due", limit=WANT))
    engine.apply_now(e.Count("due"))
    engine.apply_now(e.Exchange("s", next(numbers), "due", want=WANT))
    engine.apply_now(moving(partial(ask, engine), "due", "waiting", "purged"))


def groups(engine):
    """Of many groups one is long; tasks are put, taken, settled in several ways, looked at, postponed and purged.

    The settings are said again, and are the same.
    """
    names = ("long", "group 5", "new", "", "new")
    tasks = tuple(e.NewTask(b"p", group=name, delay=delay) for name in names for delay in (0.0, 1e6))
    request = e.PutRequest(str(next(numbers)), tasks)
    engine.apply_now(e.Put("s", next(numbers), "groups", (request,)))
    for aging in (None, 1.0):
        engine.apply_now(configured("groups", aging=aging))
        for verdict in (e.Verdict.DONE, e.Verdict.RETRY, e.Verdict.GIVE_BACK):
            taken = engine.apply_now(e.Exchange("s", next(numbers), "groups", want=WANT)).tasks
            settle = tuple(e.Settle(task.id, task.token, verdict, ttl=60.0) for task in taken)
            engine.apply_now(e.Exchange("s", next(numbers), "groups", settle))
    found = engine.apply_now(e.Scan(e.TASKS["waiting"], "groups", limit=WANT))
    found = engine.apply_now(e.Scan(e.TASKS["waiting"], "groups", found.next, WANT))
    ids = tuple(record.id for record in found.rows)
    engine.apply_now(e.Move("groups", ids, "delayed", delay=1e6))
    engine.apply_now(moving(partial(ask, engine), "groups", "waiting", "purged"))
    engine.apply_now(e.Count("groups"))
    engine.apply_now(set_groups("groups"))


def families(engine):
    """Roots wait for children, of which one fails, and for a signal; another root is cancelled."""
    root, other, third = take(engine)[:3]
    names = tuple(f"c/{i}" for i in range(WANT))
    tasks = tuple(e.NewTask(b"p", priority=100) for _ in names)
    for parent in (root, other):
        answer = ask(engine, e.PutChildren("big", parent.id, parent.token, "big", names, tasks))
        assert isinstance(answer, e.Accepted), answer
        assert ask(engine, e.SetEntry("big", parent.id, parent.token, "v", b"x")) is e.Reply.OK
    children = take(engine)
    verdicts = {children[0].id: e.Verdict.DEAD}
    waits = e.Settle(root.id, root.token, e.Verdict.WAIT, b"c/")
    ends = e.Settle(other.id, other.token, e.Verdict.CANCEL, ttl=60.0)
    late = e.Settle(third.id, third.token, e.Verdict.WAIT_FOR, b"v", 1e-6)
    ask(engine, e.Exchange("s", next(numbers), "big", (waits, ends, late)))
    settle = tuple(
        e.Settle(task.id, task.token, verdicts.get(task.id, e.Verdict.DONE), ttl=60.0) for task in children
    )
    ask(engine, e.Exchange("s", next(numbers), "big", settle))
    ask(engine, e.SetEntry("big", root.id, 0, "w", b"x"))
    for parent in (root, other, third):
        ask(engine, e.Scan(e.TASK, "big", only=str(parent.id)))
        for index in (e.ENTRIES, e.UNFINISHED_CHILDREN):
            ask(engine, e.Scan(index, "big", "c/1", WANT, str(parent.id)))
    page(engine, "suspended")
    while page(engine, "ending"):  # until the sweep has ended, so that nothing is due in what follows
        pass


def counting(engine):
    engine.apply_now(e.Count("big", "s"))


def administer(engine):
    for state in ("waiting", "dead"):
        for task in page(engine, state)[:1]:
            engine.apply_now(e.GetResult("big", task.id))
            engine.apply_now(e.Move("big", (task.id,), "cancelled"))
            engine.apply_now(e.Move("big", (task.id,), "waiting"))
    for task in take(engine)[:1]:
        assert engine.apply_now(e.Progress("big", task.id, task.token, b"half")) is e.Reply.OK
    engine.apply_now(e.SetPaused("big", False))


WORKS = {
    "put": put,
    "take": take,
    "take by age": take_by_age,
    "settle endings": settling(e.Verdict.DONE, e.Verdict.DEAD),
    "settle anything": settling(e.Verdict.DONE, e.Verdict.RETRY, e.Verdict.GIVE_BACK),
    "settle with a watcher": watch,
    "settle with followers": follow,
    "expire": expire,
    "many are due": due,
    "groups": groups,
    "families": families,
    "count": counting,
    "browse waiting": browsing("waiting"),
    "browse delayed": browsing("delayed"),
    "browse leased": browsing("leased"),
    "browse ended": browsing("ended"),
    "browse dead": browsing("dead"),
    "purge waiting": purging("waiting"),
    "purge delayed": purging("delayed"),
    "purge dead": purging("dead"),
    "purge done": purging("done"),
    "purge outdated": purging("cancelled"),
    "requeue": requeue,
    "survey": survey,
    "forget": forget,
    "end a session": end,
    "single tasks": administer,
}


@pytest.fixture(scope="module")
def early(postgres_process):
    """A connection that had every plan made while the queue was empty; it is long now, and no ANALYZE has seen it."""
    url = postgres_process.url()
    _forget_statistics(url)
    engine = Watched(url)
    engine.run(*(f"ALTER TABLE tenure.{table} SET (autovacuum_enabled = off)" for table in TABLES))
    for session in ("s", "other"):
        engine.apply_now(e.OpenSession(session, "p", 1e6))
    for work in WORKS.values():
        for _ in range(3):
            put(engine)
        work(engine)
    engine.run(
        "DELETE FROM tenure.task",
        "DELETE FROM tenure.task_group",
        "DELETE FROM tenure.family",
        "DELETE FROM tenure.entry",
        "DELETE FROM tenure.ended",
        "DELETE FROM tenure.cached_reply",
        FILL,
    )
    yield engine
    engine.close()
    _forget_statistics(url)


KNOWN = ("empty", "unknown", "analyzed")
"""What the planner knew when it made its plans."""


@pytest.fixture(scope="module", params=KNOWN)
def engine(postgres_process, early, request):
    """An engine at a long queue, by what the planner knew when the plans were made."""
    if request.param == "empty":
        yield early
        return
    if request.param == "analyzed":
        early.run("ANALYZE tenure.task", "ANALYZE tenure.ended")
    late = Watched(postgres_process.url())
    yield late
    late.close()


def _forget_statistics(url):
    """The next engine makes the schema anew."""
    connection = pq.PGconn.connect(make_conninfo(url).encode())
    assert connection.exec_(b"DROP SCHEMA IF EXISTS tenure CASCADE").status not in FAILED
    connection.finish()


def steps(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from steps(part)


def faults(plans):
    """What looks at more than it needs."""
    for plan in plans:
        for step in steps(plan["Plan"]):
            relation = step.get("Relation Name", "")
            rows = step["Actual Rows"] * step["Actual Loops"] + step.get("Rows Removed by Filter", 0)
            is_sum = step.get("Plans") or step["Node Type"] == "Function Scan"
            pages = 0 if is_sum else step["Shared Hit Blocks"] + step["Shared Read Blocks"]
            scan = step["Node Type"] in ("Seq Scan", "Bitmap Heap Scan") and relation not in SCANNED
            if scan or rows > MOST or pages > PAGES:
                yield f"{step['Node Type']} {relation}: {rows} rows, {pages} pages in {plan['Query Text']}"


@pytest.mark.parametrize("engine", KNOWN, indirect=True)
@pytest.mark.parametrize("work", WORKS)
def test_a_step_looks_at_few_rows(engine, work):
    with engine.watched() as plans:
        WORKS[work](engine)
    assert plans
    assert not list(faults(plans))


def test_the_plans_are_seen(engine):
    with engine.watched() as plans:
        engine.apply_now(e.Count("big", recount=True))
    assert any("tenure.task" in fault for fault in faults(plans))
    with engine.watched() as plans:
        engine.run("SELECT FROM tenure.task t WHERE t.progress = 'none such' ORDER BY t.payload")
    assert any(fault.startswith("Seq Scan task: ") for fault in faults(plans))


def changed_tables(plans):
    return [plan["Plan"]["Relation Name"] for plan in plans if plan["Plan"]["Node Type"] == "ModifyTable"]


def test_settings_that_hold_already_are_not_written(engine):
    engine.apply_now(configured("big", max_deliveries=7))
    with engine.watched() as plans:
        engine.apply_now(configured("big", "another", missing=True, max_deliveries=7))
    assert plans
    assert changed_tables(plans) == []
