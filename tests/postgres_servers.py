"""Private PostgreSQL servers as fixtures, and the engine driven in virtual time."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import anyio
import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo

from tenure.engine import Reply
from tenure.engines.postgres import CALLS, PostgresEngine
from tenure.engines.postgres._calls import answered, channel, hint, row_of
from tenure.engines.postgres._greeting import SETTINGS
from tenure.engines.postgres._schema import creation, existence
from tenure.engines.postgres._wire import failed, message_of, rows

sys.path.append(str(Path(__file__).parent))

from sql.server import Postgres

_SCHEMA = (files("tenure.engines.postgres") / "sql" / "schema.sql").read_text("utf-8")
TABLES = [name for name in re.findall(r"CREATE TABLE tenure\.(\w+)", _SCHEMA) if name != "meta"]
SEQUENCES = [name for name in re.findall(r"CREATE SEQUENCE tenure\.(\w+)", _SCHEMA) if name != "last_token"]


@pytest.fixture(scope="session")
def postgres_process():
    """A PostgreSQL server, of all tests together."""
    # a socket's path has to be short
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        server = Postgres(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def own_postgres_server():
    """Makes PostgreSQL servers that the test may kill, freeze and start again: `own_postgres_server("port=6543")`."""
    servers = []
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:

        def make(*settings):
            Path(folder).chmod(0o755)
            place = Path(folder) / str(len(servers))
            place.mkdir()
            servers.append(Postgres(place, *settings))
            servers[-1].start()
            return servers[-1]

        yield make
        for server in servers:
            server.stop()


class PostgresCalls(PostgresEngine):
    """The functions on a real server, each call blocking until it is answered: for tests in virtual time.

    Hints come on the same connection, before the answer of the call that caused them.
    """

    def __init__(self, url, clock=None, cap=256):
        super().__init__(url, clock=clock, cap=cap)
        self._connection = pq.PGconn.connect(make_conninfo(url).encode())
        assert self._connection.status == pq.ConnStatus.OK, self._connection.get_error_message()
        self._told = {}
        self._known = {}
        if self._ask(existence("tenure")) == [[b"\0"]]:
            self._ask(creation("tenure"))
        self.run(*(f"SET {name} = '{value}'" for name, value in SETTINGS.items()))

    def run(self, *sql):
        for one in sql:
            result = self._connection.exec_(one.encode())
            assert not failed(result), message_of(result)

    def empty(self):
        """Forget everything."""
        self.run(
            ";".join(
                (
                    *(f"DELETE FROM tenure.{table}" for table in TABLES),
                    *(f"SELECT setval('tenure.{name}', 1, false)" for name in SEQUENCES),
                    "SELECT setval('tenure.last_token', 0, false)",
                )
            )
        )

    def _ask(self, statement):
        connection = self._connection
        name = self._known.get(statement.sql)
        if name is None:
            name = self._known[statement.sql] = f"s{len(self._known)}".encode()
            prepared = connection.prepare(name, statement.sql.encode(), list(statement.types))
            assert not failed(prepared), message_of(prepared)
        formats = [pq.Format.BINARY] * len(statement.values)
        result = connection.exec_prepared(name, list(statement.values), formats, pq.Format.BINARY)
        assert not failed(result), message_of(result)
        while notification := connection.notifies():
            process, deliver = self._told.get(notification.relname.decode(), (None, None))
            if process is not None:
                deliver(hint(process, notification.extra.decode()))
        return rows(result)

    def apply_now(self, operation):
        call = CALLS[type(operation)]
        answer = answered(call, [row_of(row) for row in self._ask(self.statement(operation))])
        if answer is Reply.MORE:
            for _ in range(1000):
                if self._ask(self._call("sweep"))[0][0] == b"ok":
                    break
        for chore in self.chores(1):
            self._ask(chore)
        return answer

    async def execute(self, operations):
        answers = [self.apply_now(operation) for operation in operations]
        await anyio.lowlevel.checkpoint()
        return answers

    def listen(self, process, deliver):
        place = channel("tenure", process)
        self._told[place] = process, deliver
        self.run(f'LISTEN "{place}"')

    async def serve(self, process, deliver, *, task_status=anyio.TASK_STATUS_IGNORED):
        self.listen(process, deliver)
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            place = channel("tenure", process)
            del self._told[place]
            self.run(f'UNLISTEN "{place}"')

    def close(self):
        self._connection.finish()


@pytest.fixture
def postgres_server(postgres_process):
    """A PostgreSQL server whose schema is empty, of all tests together."""
    broom = PostgresCalls(postgres_process.url())
    broom.empty()
    broom.close()
    return postgres_process


@pytest.fixture
def inline_postgres(postgres_server):
    """Makes engines in the test's time: `inline_postgres(clock)`."""
    made = []

    def make(clock, cap=256):
        made.append(PostgresCalls(postgres_server.url(), clock, cap))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
