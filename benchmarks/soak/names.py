"""Uses very many names once each, and says what is left of them, with the session alive and after it.

python -m benchmarks.soak names --engine redis --count 1000000
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import anyio
import psycopg
from postgres_servers import TABLES
from redis_servers import RedisServer

from benchmarks._postgres_server import server as postgres_server
from tenure import engine as e
from tenure.engines.memory import MemoryEngine
from tenure.engines.memory._due import Due
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisEngine
from tenure.engines.sqlite import SqliteEngine

BATCH = 128  # names
SESSION = "alive"


class Redis:
    def __init__(self, folder):
        self._server = RedisServer(folder)
        self._server.start()
        self.engine = RedisEngine(self._server.url)

    def left(self):
        """The keys but for those of the shard and of the session, and how many bytes they all take."""
        memory = dict(
            line.split(b":") for line in self._server("INFO", "memory").splitlines() if b":" in line
        )
        own = {b"tenure:{0}:state", b"tenure:{0}:sessions", f"tenure:{{0}}:{SESSION}:session".encode()}
        there = sum(self._server("EXISTS", name) for name in own)
        return self._server("DBSIZE") - there, int(memory[b"used_memory"])


class Memory:
    def __init__(self, _):
        self.engine = MemoryEngine()

    def left(self):
        """What is in the collections of the engine, but for the session; and the peak of the process."""
        engine = self.engine
        state, tables = engine._state, engine._state.tables.values()
        orders = [order.groups for table in tables for order in table._orders.values()]
        parts = (state, engine._queues, engine._rows)
        kept = [*orders, *(value for part in parts for value in vars(part).values())]
        # a session has a row by its name, and its process by its number
        rows = -2 * len(state.sessions) - len(state.tables) - len(state.soonest)
        for value in (*kept, *(table.rows for table in tables)):
            rows += len(
                value._heap if isinstance(value, Due) else value if isinstance(value, (dict, list)) else ()
            )
        return rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Sqlite:
    def __init__(self, folder):
        self._path = folder / "store.db"
        self.engine = SqliteEngine(self._path)

    def left(self):
        """The rows of all tables, but for the session; and the size of the file without its free pages."""
        with sqlite3.connect(self._path) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
            pages, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        db.close()
        ours = sum(n for name, n in rows.items() if name not in ("meta", "session", "sqlite_sequence"))
        return ours, (pages - free) * size


class Postgres:
    def __init__(self, url):
        self._url = url
        self.engine = PostgresEngine(url)

    def left(self):
        """The rows of all tables, but for the session; and the size of the database."""
        with psycopg.connect(self._url, autocommit=True) as sql:
            rows = {name: sql.execute(f"SELECT count(*) FROM tenure.{name}").fetchone()[0] for name in TABLES}
            size = sql.execute("SELECT pg_database_size(current_database())").fetchone()[0]
        return sum(n for name, n in rows.items() if name not in ("session", "link")), size


@contextmanager
def world(name):
    with tempfile.TemporaryDirectory(prefix="names") as folder:
        if name == "postgres":
            with postgres_server() as database, database() as url:
                yield Postgres(url)
            return
        made = {"redis": Redis, "memory": Memory, "sqlite": Sqlite}[name](Path(folder))
        try:
            yield made
        finally:
            if name == "redis":
                made._server.kill()


class User:
    """Uses names, many at a time, with one session."""

    def __init__(self, engine, ttl):
        self._engine = engine
        self._ttl = ttl
        self._numbers = count(1)

    async def ask(self, operations):
        """The answers; what is answered MORE is sent again."""
        operations = list(operations)
        answers = list(await self._engine.execute(operations))
        while again := [i for i, answer in enumerate(answers) if answer is e.Reply.MORE]:
            for i, answer in zip(
                again, await self._engine.execute([operations[i] for i in again]), strict=True
            ):
                answers[i] = answer
        for operation, answer in zip(operations, answers, strict=True):
            assert answer is not e.Reply.GONE and not isinstance(answer, Exception), (operation, answer)
        return answers

    async def live(self):
        await self.ask([e.RenewSession(SESSION)])

    async def lock(self, names):
        await self.ask(e.Acquire(SESSION, name, "a", 1) for name in names)
        await self.ask(e.Release(name, "a") for name in names)

    async def semaphore(self, names):
        await self.ask(e.Acquire(SESSION, name, "a", 3, 2) for name in names)
        await self.ask(e.Acquire(SESSION, name, "b", 3, 2) for name in names)
        for holder in "ab":
            await self.ask(e.Release(name, holder) for name in names)

    async def election(self, names):
        await self.ask(e.Scan(e.HOLDERS, name, limit=1, watch=SESSION) for name in names)
        await self.ask(e.Acquire(SESSION, name, "a", 1, value=b"node") for name in names)
        await self.ask(e.Scan(e.HOLDERS, name, limit=1, watch=SESSION) for name in names)
        await self.ask(e.Release(name, "a") for name in names)

    async def limiter(self, names):
        await self.ask(
            e.Spend(
                SESSION, next(self._numbers), name, (e.SpendRequest((1.0,)),), (e.RateLimit("", 1.0, 5.0),)
            )
            for name in names
        )

    async def barrier(self, names):
        for participant in "ab":
            await self.ask(e.Acquire(SESSION, name, participant, 2, 0) for name in names)
        for participant in "ab":
            await self.ask(e.Release(name, participant) for name in names)

    async def pool(self, names):
        await self.ask(e.AddResource(name, "it", (("color", b"red"),)) for name in names)
        for holder in "ab":
            await self.ask(e.Claim(SESSION, name, holder, group=holder) for name in names)
        for holder in "ba":
            await self.ask(e.GiveBack(name, holder) for name in names)
        await self.ask(e.RemoveResource(name, "it") for name in names)

    async def queue(self, names):
        await self.ask(
            e.Put(
                SESSION,
                next(self._numbers),
                name,
                (e.PutRequest("m", (e.NewTask(b"payload", group=name),)),),
            )
            for name in names
        )
        taken = await self.ask(e.Exchange(SESSION, next(self._numbers), name, want=1) for name in names)
        await self.ask(
            e.Exchange(
                SESSION,
                next(self._numbers),
                name,
                (
                    e.Settle(
                        answer.tasks[0].id, answer.tasks[0].token, e.Verdict.DONE, b"result", ttl=self._ttl
                    ),
                ),
            )
            for name, answer in zip(names, taken, strict=True)
        )
        await self.ask(e.Count(name, SESSION) for name in names)

    async def key(self, names):
        """Keys of tasks, which outlast these."""
        tasks = tuple(e.NewTask(b"", key=name, on_duplicate="keep", key_ttl=self._ttl) for name in names)
        put = e.Put(SESSION, next(self._numbers), "keys", (e.PutRequest("m", tasks),))
        ((answer,),) = [one.answers for one in await self.ask([put])]
        assert len(set(answer.ids)) == len(names)
        (taken,) = await self.ask([e.Exchange(SESSION, next(self._numbers), "keys", want=len(names))])
        settle = tuple(e.Settle(task.id, task.token, e.Verdict.DONE, ttl=0.0) for task in taken.tasks)
        await self.ask([e.Exchange(SESSION, next(self._numbers), "keys", settle)])

    async def use(self, number):
        """That many names, as many of each kind."""
        holds = (self.lock, self.semaphore, self.election, self.barrier, self.pool)
        kinds = (*holds, self.limiter, self.queue, self.key)
        names = (f"tenure:{{}}:name {i}" for i in count())
        for kind, each in zip(kinds, _shares(number, len(kinds)), strict=True):
            for start in range(0, each, BATCH):
                some = [next(names).format(kind.__name__) for _ in range(min(BATCH, each - start))]
                await self.live()
                await kind(some)

    async def idle(self, seconds):
        """Time passes while others go on."""
        until = anyio.current_time() + seconds
        while anyio.current_time() < until:
            await self.live()
            await anyio.sleep(self._ttl / 5)

    async def others_go_on(self, number):
        """So many operations that use no name."""
        for start in range(0, number, BATCH):
            await self.live()
            await self.ask([e.Ping()] * min(BATCH, number - start))


def _shares(number, parts):
    return [number // parts + (i < number % parts) for i in range(parts)]


@asynccontextmanager
async def served(engine):
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "process", lambda _: None)
        yield
        group.cancel_scope.cancel()


async def soak(name, number, ttl):
    """Whether anything is left."""
    with world(name) as it:
        async with served(it.engine):
            user = User(it.engine, ttl)
            await user.ask([e.OpenSession(SESSION, "process", ttl)])
            before = it.left()
            began = time.monotonic()
            await user.use(number)
            print(f"{name}: {number} names in {time.monotonic() - began:.0f} s", flush=True)
            say("before", before)
            say("at once", it.left())
            # numbered answers and queues are kept for two ttls
            await user.idle(3 * ttl)
            alive, others = it.left(), 0
            while alive[0] and others < number:
                # what is due is forgotten a few at a time, by whatever is done
                await user.others_go_on(2000)
                alive, others = it.left(), others + 2000
            say(f"with the session alive, after {others} other operations", alive)
            await user.ask([e.CloseSession(SESSION)])
            await anyio.sleep(1)
            await it.engine.execute([e.Ping()] * 2)
            say("after", after := it.left())
    return alive[0] == after[0] == 0


def say(when, left):
    rows, size = left
    print(f"  {when}: {rows} left, {size / 1e6:.1f} MB", flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak names", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--engine", choices=["memory", "sqlite", "redis", "postgres"], default="redis")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--ttl", type=float, default=20.0, help="of the session, in seconds")
    options = parser.parse_args(arguments)
    return 0 if anyio.run(soak, options.engine, options.count, options.ttl) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
