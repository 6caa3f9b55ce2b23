"""What runs often passes few dead entries of indexes, however much was done while a transaction was held open.

No row that is dead goes as long as an older snapshot is there. An index says how many of its entries were read, dead
ones among them: so a cycle of operations may read no more of them after many cycles than after few.
"""

from __future__ import annotations

import re
import time
from itertools import count

import psycopg
import pytest
from contract import configured, set_groups
from postgres_servers import TABLES, PostgresCalls

import tenure
from tenure import engine as e

CYCLES = 300
FEW = 56
"""Cycles of a look; before the first one, the marks of time have begun to move, which are 0.1 s behind."""

MORE = 60
"""Entries that a cycle may read more than it did in the beginning, half as many more in any case: the versions of a
block, and what the marks of time leave behind. One for each cycle before would be 200."""


class Program:
    """Calls of an engine in virtual time."""

    def __init__(self, url):
        self.now = 1e9
        self.engine = PostgresCalls(url, lambda: self.now)
        self.numbers = count(1)
        self.settle = ()
        for session in ("s", "w", "v"):
            self.do(e.OpenSession(session, session, 1e6))

    def do(self, operation):
        answer = self.engine.apply_now(operation)
        while answer is e.Reply.MORE:
            answer = self.engine.apply_now(operation)
        return answer

    def put(self, *tasks, queue="q", session="s", most=10**6, **more):
        request = e.PutRequest(f"producer {next(self.numbers)}", tasks, **more)
        self.do(configured(queue, max_size=most))
        return self.do(e.Put(session, next(self.numbers), queue, (request,))).answers[0]

    def take(self, want, queue="q", verdict=e.Verdict.DONE, session="w"):
        taken = self.do(e.Exchange(session, next(self.numbers), queue, self.settle, want)).tasks
        self.settle = tuple(e.Settle(task.id, task.token, verdict, ttl=0.05) for task in taken)
        return taken

    def forget(self):
        self.engine._ask(self.engine._call("forget_outdated"))

    def pass_time(self, seconds=0.01):
        self.now += seconds


def plain(program, _):
    program.put(*[e.NewTask(b"p")] * 20)
    program.take(20)


def priorities(program, _):
    program.put(*(e.NewTask(b"p", priority=i % 8) for i in range(20)))
    program.take(20)


def by_age(program, _):
    program.put(*(e.NewTask(b"p", priority=i % 3) for i in range(20)))
    program.do(configured("q", aging=0.02))
    program.take(20)


def delayed(program, _):
    program.put(*(e.NewTask(b"p", delay=0.02 * (i % 2)) for i in range(20)))
    program.take(20)


def expiring(program, _):
    program.put(*(e.NewTask(b"p", expires=0.02) for i in range(20)))
    program.take(15)


def groups(program, _):
    program.put(*(e.NewTask(b"p", group=f"group {i % 7}", priority=i % 2) for i in range(20)))
    program.take(20)


def groups_that_come_and_go(program, cycle):
    """One of 50 groups at a time, while another one stays."""
    if cycle == 0:
        program.put(e.NewTask(b"p", group="stays", delay=1e5))
    program.put(*(e.NewTask(b"p", group=f"group {cycle % 50}") for _ in range(20)))
    program.take(20)
    program.take(0)


def groups_of_an_empty_queue(program, cycle):
    program.put(*(e.NewTask(b"p", group=f"group {cycle % 3}") for _ in range(20)))
    program.take(20)
    program.take(0)


def groups_with_rates(program, cycle):
    """Each has a task that waits for its time; from all of them a task can be taken in each cycle."""
    if cycle == 0:
        program.do(set_groups("q", group_rate=e.Rate(0.01)))
        program.put(*(e.NewTask(b"p", group=f"group {i}") for i in range(7)))
    program.put(*(e.NewTask(b"p", group=f"group {i}") for i in range(7)))
    program.take(20)


def groups_that_are_idle(program, cycle):
    """One of them at a time has a task, and meanwhile the times of the others have an effect."""
    if cycle == 0:
        program.do(set_groups("q", group_rate=e.Rate(0.035)))
    program.put(e.NewTask(b"p", group=f"group {cycle % 5}"), *[e.NewTask(b"p")] * 20)
    program.take(20)
    program.take(1)
    program.take(0)
    program.put(e.NewTask(b"p"))
    program.take(1)


def idle_takers(program, _):
    for session in ("w", "v"):
        program.do(e.Exchange(session, next(program.numbers), "q", (), 20, wait=True))
    program.put(e.NewTask(b"p"))
    program.take(1)
    program.take(0)


def results(program, _):
    accepted = program.put(*[e.NewTask(b"p")] * 2)
    for task_id in accepted.ids:
        program.do(e.GetResult("q", task_id, "s"))
    program.take(2)
    program.take(0)


def followers(program, _):
    accepted = program.put(*[e.NewTask(b"p")] * 2)
    for task_id in accepted.ids:
        program.do(e.Scan(e.TASK, "q", only=str(task_id), watch="s"))
    program.take(2)
    program.take(0)


def fresh_keys(program, cycle):
    program.put(
        *(e.NewTask(b"p", key=f"key {cycle} {i}", key_ttl=0.02, on_duplicate="keep") for i in range(4))
    )
    program.take(4)


def cursors(program, cycle):
    program.put(e.NewTask(b"p"), cursor=("cursor", b"%d" % cycle))
    program.take(1)


def producers_that_wait(program, cycle):
    """Each waits for the room that the one before it has taken."""
    name = f"waits {cycle}"
    request = e.PutRequest(name, (e.NewTask(b"p"),))
    if cycle == 0:
        program.put(e.NewTask(b"p"), most=1)
    program.do(e.Put("s", next(program.numbers), "q", (request,)))
    program.take(1)
    program.take(0)
    assert isinstance(program.do(e.Put("s", next(program.numbers), "q", (request,))).answers[0], e.Accepted)


def retries(program, cycle):
    program.put(e.NewTask(b"p"))
    program.take(2, verdict=e.Verdict.RETRY if cycle % 2 else e.Verdict.DONE)


def heartbeats(program, cycle):
    """Of sessions that live for less time than the cycles take."""
    for session in ("a", "b", "c"):
        if cycle == 0:
            program.do(e.OpenSession(session, session, 0.2))
        assert program.do(e.RenewSession(session)) is e.Reply.OK


def a_lock(program, cycle):
    program.do(e.Acquire("s", "lock", f"holder {cycle}", 1))
    program.do(e.Release("lock", f"holder {cycle}"))


def a_lock_that_is_waited_for(program, cycle):
    if cycle == 0:
        program.do(e.Acquire("s", "lock", "holder 0", 1))
    program.do(e.Acquire("s", "lock", f"holder {cycle + 1}", 1))
    program.do(e.Release("lock", f"holder {cycle}"))


def a_limiter(program, _):
    program.do(
        e.Spend(
            "s", next(program.numbers), "api", (e.SpendRequest((1.0,)),), (e.RateLimit("", 1000.0, 10.0),)
        )
    )


def short_sessions(program, cycle):
    session = f"short {cycle}"
    program.do(e.OpenSession(session, "p", 10.0))
    program.do(e.Acquire(session, "another lock", session, 1))
    program.do(e.CloseSession(session))


CYCLE = {
    one.__name__: one
    for one in (
        *(
            plain,
            priorities,
            by_age,
            delayed,
            expiring,
            groups,
            groups_that_come_and_go,
            groups_of_an_empty_queue,
        ),
        *(
            groups_with_rates,
            groups_that_are_idle,
            idle_takers,
            results,
            followers,
            fresh_keys,
            cursors,
            producers_that_wait,
            retries,
            heartbeats,
            a_lock,
        ),
        *(a_lock_that_is_waited_for, a_limiter, short_sessions),
    )
}


OFTEN = {"plain", "delayed", "groups", "results", "heartbeats", "a_lock"}


@pytest.fixture
def program(postgres_server):
    with psycopg.connect(postgres_server.url(), autocommit=True) as sql:
        # what other tests have deleted stands in the indexes until somebody reads past it
        sql.execute(f"TRUNCATE {', '.join(f'tenure.{table}' for table in TABLES)}")
    program = Program(postgres_server.url())
    program.engine.run("SET stats_fetch_consistency = none")
    yield program
    program.engine.check_marks()
    program.engine.close()


def entries_read(program):
    """How many entries were read of each index until now."""
    program.engine.run("SELECT pg_stat_force_next_flush()")
    result = program.engine._blocking.exec_(
        b"SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'tenure'"
    )
    return {result.get_value(i, 0).decode(): int(result.get_value(i, 1)) for i in range(result.ntuples)}


@pytest.mark.parametrize(
    "cycle", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.full]) for name in CYCLE]
)
def test_a_cycle_passes_few_dead_entries(program, postgres_server, cycle):
    def look(cycles):
        before = entries_read(program)
        for i in cycles:
            CYCLE[cycle](program, i)
            program.pass_time()
            if i % 8 == 0:
                program.forget()
        return {name: (read - before[name]) / len(cycles) for name, read in entries_read(program).items()}

    with psycopg.connect(postgres_server.url()) as held:
        held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        held.execute("SELECT FROM tenure.queue")
        look(range(FEW))
        first = look(range(FEW, 2 * FEW))
        look(range(2 * FEW, CYCLES - FEW))
        # An idle connection of another test reports once what it has read, within ten seconds.
        for cycle_after in (CYCLES - FEW, CYCLES, CYCLES + FEW):
            last = look(range(cycle_after, cycle_after + FEW))
            grown = {
                name: (first[name], last[name]) for name in last if last[name] > 1.5 * first[name] + MORE
            }
            if not grown:
                break
    assert not grown


@pytest.mark.parametrize("stays", [True, False], ids=["beside a group that stays", "alone"])
def test_idle_groups_are_forgotten_when_their_times_have_no_effect(program, stays):
    def rows():
        result = program.engine._blocking.exec_(b"SELECT count(*) FROM tenure.task_group WHERE name <> ''")
        return int(result.get_value(0, 0))

    program.put(e.NewTask(b"p", group="stays" if stays else "", delay=1e5))
    for i in range(600):
        program.do(e.SetPaused("q", False, 1.0, f"group {i}"))
    program.put(e.NewTask(b"p", group="group 0"))
    assert program.take(1) == ()
    program.pass_time(0.9)
    assert program.take(1) == ()
    assert rows() == 600 + stays
    program.pass_time(0.2)
    assert len(program.take(1)) == 1
    for _ in range(4):
        program.take(0)
    assert rows() < 260 if stays else rows() == 0
    program.engine.check_marks()


async def test_an_audit_finds_what_lies_before_the_marks_and_a_second_row(postgres_server):
    calls = PostgresCalls(postgres_server.url())
    async with tenure.open_store(postgres_server.url(), namespace="n") as store:
        queue = tenure.WorkQueue(store, "jobs")
        await queue.put_many([tenure.Item(1), tenure.Item(2, delay=60.0)])
        assert await queue.verify()
        lost = ("the records do not add up to put",)
        calls.run("UPDATE tenure.queue SET fronts[2] = fronts[2] + 1000000")
        assert (await queue.verify()).problems == lost
        calls.run("UPDATE tenure.queue SET fronts[2] = 0, first_due = 9223372036854775807")
        assert (await queue.verify()).problems == lost
        calls.run(
            "UPDATE tenure.queue SET first_due = 0",
            "CREATE TEMPORARY TABLE twin AS SELECT * FROM tenure.queue",
            "UPDATE twin SET page = page - 1",
            "INSERT INTO tenure.queue SELECT * FROM twin",
        )
        with pytest.raises(tenure.EngineError, match="the queue has more than one row"):
            await queue.verify()
        calls.run("DELETE FROM tenure.queue WHERE page < 0", "DROP TABLE twin")
        assert await queue.verify()
    calls.close()


async def test_the_health_names_the_oldest_snapshot(postgres_server, monkeypatch):
    monkeypatch.setattr("tenure.engines.postgres._health._LONG", -1)
    calls = PostgresCalls(postgres_server.url())
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
    )
    until = time.monotonic() + 50
    with psycopg.connect(postgres_server.url(), autocommit=True) as sql:
        while sql.execute(others).fetchone() != (0,):  # the server ends a closed connection in its own time
            assert time.monotonic() < until
    with psycopg.connect(postgres_server.url(), application_name="a report") as held:
        held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        held.execute("SELECT FROM tenure.queue")
        (health,) = calls.apply_now(e.Scan(e.HEALTH)).rows
        pid = held.info.backend_pid
    name = dict(health.facts)["oldest snapshot"]
    assert re.fullmatch(rf"client backend {pid} of tenure \(a report\), idle in transaction, for \d+ s", name)
    (problem,) = (one for one in health.problems if "dead rows from being" in one)
    assert problem.startswith(name)
    (health,) = calls.apply_now(e.Scan(e.HEALTH)).rows
    assert str(pid) not in dict(health.facts)["oldest snapshot"]
    calls.close()
