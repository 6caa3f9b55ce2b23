"""Names leave nothing: what was used once is gone from the tables, also while sessions live."""

from __future__ import annotations

import sqlite3
from itertools import count

import depth
import pytest
from contract import moving, set_groups
from postgres_servers import TABLES, PostgresCalls

from tenure import engine as e
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite._clock import Clocks
from tenure.engines.sqlite._executor import Executor
from tenure.engines.sqlite._opening import create

NAMES = depth.share(150)
TTL = 10.0
RESULTS = 5.0
RECORDS = ("due queues", "grouping", "queue", "queues", "setting", "setting name", "turn")
"""The tables that have the settings of queues."""


class Memory:
    def __init__(self, clock):
        self._engine = MemoryEngine(clock=clock)

    def apply(self, operation):
        return self._engine.apply(operation)

    def rows(self):
        engine = self._engine
        state, queues = engine._state, engine._queues
        dues = {"replies": state.replies_due, "queues": queues.due}
        kept = {
            "sessions": state.sessions,
            "replies": state._replies,
            "watches": state.watches,
            "processes": () if state.sessions else state.numbered,
            **{name: table.rows for name, table in state.tables.items()},
            **{
                f"{name} {order}": rows.groups
                for name, table in state.tables.items()
                for order, rows in table._orders.items()
            },
            "queues": queues,
            "groups": [name for queue in queues for name in queue.group_rows],
            "outdated": engine._rows._outdated,
            **{f"due {name}": due._names for name, due in dues.items()},
        }
        return {name: len(rows) for name, rows in kept.items() if rows}

    def close(self):
        pass


class Sqlite:
    def __init__(self, clock):
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        create(self._db)
        self._executor = Executor(self._db, Clocks(clock))

    def apply(self, operation):
        (answer,), _, _ = self._executor.execute([operation])
        return answer

    def rows(self):
        tables = [
            name
            for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name not in ("meta", "sqlite_sequence")
        ]
        counted = {table: self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
        counted |= {
            "replies": len(self._executor._state.replies),
            "replies due": len(self._executor._state.replies._due),
        }
        return {name.replace("session", "sessions"): rows for name, rows in counted.items() if rows}

    def close(self):
        self._db.close()


class Postgres(PostgresCalls):
    def __init__(self, url, clock):
        super().__init__(url, clock)
        self.empty()

    def apply(self, operation):
        return self.apply_now(operation)

    def rows(self):
        counted = {}
        for table in TABLES:
            result = self._blocking.exec_(f"SELECT count(*) FROM tenure.{table}".encode())
            counted[table.replace("session", "sessions")] = int(result.get_value(0, 0))
        return {name: rows for name, rows in counted.items() if rows}


class World:
    """An engine and its time."""

    def __init__(self, make):
        self.now = 1000.0
        self.engine = make(lambda: self.now)
        self._numbers = count(1)

    def ask(self, operation):
        for _ in range(1000):
            if (answer := self.engine.apply(operation)) is not e.Reply.MORE:
                return answer
        raise AssertionError(f"{operation} never ends")

    def live_on(self, session, seconds):
        while seconds > 0:
            self.now += TTL / 2
            seconds -= TTL / 2
            assert self.ask(e.RenewSession(session)) is e.Reply.OK

    def others_go_on(self):
        for _ in range(max(200, 2 * NAMES)):
            self.ask(e.Ping())

    def use(self, session, name):
        """Each kind of thing, once."""
        ask, numbers = self.ask, self._numbers
        spend = (e.SpendRequest((1.0,)),) * 2
        ask(e.Spend(session, next(numbers), name, spend, (e.RateLimit("", 1.0, 1.0),)))
        ask(e.HoldOff(session, next(numbers), name, 1.0))
        assert isinstance(ask(e.Acquire(session, name, "a", 1, 0)), e.Granted)
        ask(e.Release(name, "a"))
        request = e.PutRequest("m", (e.NewTask(b"x", expires=60.0),))
        ask(e.Put(session, next(numbers), name, (request,)))
        (task,) = ask(e.Exchange(session, next(numbers), name, want=1)).tasks
        done = e.Settle(task.id, task.token, e.Verdict.DONE, ttl=RESULTS)
        ask(e.Exchange(session, next(numbers), name, (done,)))
        ask(e.Count(name, session))
        self.use_group(session, name, name)
        for key, capacity in ((f"lock {name}", 1), (f"semaphore {name}", 3), (f"election {name}", 1)):
            assert isinstance(ask(e.Acquire(session, key, "a", capacity, value=b"v")), e.Granted)
            ask(e.Scan(e.HOLDERS, key))
            assert ask(e.Release(key, "a")) is e.Reply.RELEASED
        ask(e.AddResource(name, "r", ()))
        assert isinstance(ask(e.Claim(session, name, "a", group=name)), e.Claimed)
        ask(e.Claim(session, name, "b", group=name))
        ask(e.GiveBack(name, "b"))
        ask(e.GiveBack(name, "a"))
        ask(e.RemoveResource(name, "r"))

    def use_group(self, session, queue, group):
        """A full group that a producer waits for and leaves, a task of it that is retried and done, and limits."""
        ask, numbers = self.ask, self._numbers
        ask(set_groups(queue, 1, 1, ((group, 2.0),)))
        for producer in "mno":
            request = e.PutRequest(producer, (e.NewTask(b"x", group=group),))
            ask(e.Put(session, next(numbers), queue, (request,)))
        assert ask(e.Leave(queue, "n")) is e.Reply.LEFT
        settle = ()
        for verdict in (e.Verdict.RETRY, e.Verdict.DONE):
            (task,) = ask(e.Exchange(session, next(numbers), queue, settle, want=1)).tasks
            settle = (e.Settle(task.id, task.token, verdict, ttl=RESULTS),)
        ask(e.Exchange(session, next(numbers), queue, settle))
        assert ask(e.Leave(queue, "o")) is e.Reply.RELEASED


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request):
    make = {"memory": Memory, "sqlite": Sqlite}.get(request.param)
    if make is None:
        server = request.getfixturevalue("postgres_server")
        world = World(lambda clock: Postgres(server.url(), clock))
    else:
        world = World(make)
    yield world
    world.engine.close()


@pytest.mark.timeout(300)
def test_names_that_were_used_once_leave_nothing(world):
    assert world.engine.rows() == {}
    session = "alive"
    world.ask(e.OpenSession(session, "p", TTL))
    for i in range(NAMES):
        world.use(session, f"name {i}")
    assert len(world.engine.rows()) > len(RECORDS)
    world.live_on(session, 3 * TTL)
    world.others_go_on()
    assert world.engine.rows().keys() <= {"sessions", *RECORDS}
    world.now += 2 * e.RECORD_TTL
    world.others_go_on()
    assert world.engine.rows() == {}
    world.ask(e.OpenSession(session, "p", TTL))
    for i in range(depth.share(100)):
        world.use(session, f"other {i}")
    world.ask(e.CloseSession(session))
    world.now += 2 * e.RECORD_TTL
    world.others_go_on()
    assert world.engine.rows() == {}


def test_names_whose_users_died_leave_nothing(world):
    for i in range(depth.share(100)):
        world.ask(e.OpenSession(f"mortal {i}", "p", TTL))
        world.use(f"mortal {i}", f"name {i}")
        world.ask(e.Acquire(f"mortal {i}", f"held {i}", "a", 1))
        world.ask(e.Claim(f"mortal {i}", f"pool {i}", "a"))
        world.ask(e.Exchange(f"mortal {i}", 1, f"idle {i}", want=1))
        world.ask(set_groups(f"grouped {i}", 1, 1))
        requests = tuple(e.PutRequest(producer, (e.NewTask(b"x", group="group"),)) for producer in "mno")
        world.ask(e.Put(f"mortal {i}", 10**6, f"grouped {i}", requests))
        world.ask(moving(world.ask, f"grouped {i}", "waiting", "purged"))
        world.ask(e.SetPaused(f"paused {i}", True))
        world.ask(e.SetPaused(f"paused {i}", False))
        world.ask(e.Count(f"counted {i}", f"mortal {i}"))
        world.ask(e.Acquire(f"mortal {i}", f"dropped {i}", "a", 2, 0, e.DROP))
    world.now += 4 * TTL
    world.others_go_on()
    # on PostgreSQL the row of a lock stays for ten seconds after its last holder
    world.now += 2 * e.RECORD_TTL
    world.others_go_on()
    assert world.engine.rows() == {}


def test_groups_that_were_used_once_leave_nothing_in_a_queue_that_goes_on(world):
    session, queue = "alive", "jobs"
    world.ask(e.OpenSession(session, "p", TTL))
    request = e.PutRequest("m", (e.NewTask(b"x", delay=1e6),))
    world.ask(e.Put(session, 10**6, queue, (request,)))
    world.use_group(session, queue, "group")
    world.live_on(session, 3 * TTL)
    world.others_go_on()
    before = world.engine.rows()
    for i in range(NAMES):
        world.use_group(session, queue, f"group {i}")
    world.live_on(session, 3 * TTL)
    world.others_go_on()
    assert world.engine.rows() == before


def test_the_end_of_a_session_leaves_its_many_numbered_answers_alone(world):
    """They go by their time: to forget them all at once would hold up everybody else."""
    session = "many"
    world.ask(e.OpenSession(session, "p", TTL))
    for i in range(2 * e.CAP):
        world.ask(e.Spend(session, i, f"key {i}", (e.SpendRequest((1.0,)),), (e.RateLimit("", 1.0, 1.0),)))
    assert world.engine.apply(e.CloseSession(session)) is e.Reply.OK
    world.now += 3 * TTL
    world.others_go_on()
    assert world.engine.rows() == {}
