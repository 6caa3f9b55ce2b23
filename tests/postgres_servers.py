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
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres._codec import answered
from tenure.engines.postgres._handshake import SETTINGS
from tenure.engines.postgres._hints import channel, hint
from tenure.engines.postgres._operations import CODECS
from tenure.engines.postgres._pipeline import FAILED, message_of, rows
from tenure.engines.postgres._schema import creation, existence

sys.path.append(str(Path(__file__).parent))

from sql.server import Postgres

from tenure.testing._batch_link import BatchLink

_SCHEMA = (files("tenure.engines.postgres") / "sql" / "schema.sql").read_text("utf-8")
TABLES = [name for name in re.findall(r"CREATE TABLE tenure\.(\w+)", _SCHEMA) if name != "meta"]
SEQUENCES = [name for name in re.findall(r"CREATE SEQUENCE tenure\.(\w+)", _SCHEMA) if name != "last_token"]

BEFORE_A_MARK = {
    "queues with two rows": "SELECT name FROM tenure.queue GROUP BY 1 HAVING count(*) > 1",
    "replies with two rows": "SELECT name FROM tenure.cached_reply GROUP BY session, kind, name HAVING count(*) > 1",
    "takers with two rows": "SELECT queue FROM tenure.taker GROUP BY queue, session HAVING count(*) > 1",
    "sessions with two rows": "SELECT name FROM tenure.session GROUP BY 1 HAVING count(*) > 1",
    "lines with two rows": "SELECT key FROM tenure.line GROUP BY 1 HAVING count(*) > 1",
    "limiters with two rows": "SELECT key FROM tenure.limiter GROUP BY 1 HAVING count(*) > 1",
    "cursors with two rows": "SELECT name FROM tenure.cursor GROUP BY queue, name HAVING count(*) > 1",
    "lines that wait": """
        SELECT h.key FROM tenure.hold h LEFT JOIN tenure.line l USING (key)
        WHERE l IS NULL OR h.token = 0 AND h.ordinal < l.first_waiter""",
    "lines that are kept": """
        SELECT l.key FROM tenure.line l
        WHERE NOT l.fixed AND l.check_at IS NULL AND NOT EXISTS (SELECT FROM tenure.hold h WHERE h.key = l.key)""",
    "keys": """
        SELECT k.key FROM tenure.kept_key k LEFT JOIN tenure.queue q ON q.name = k.queue
        WHERE q IS NULL OR k.until < q.first_kept""",
    "tasks before their front": """
        SELECT t.id, t.priority, t.ready_at, f.fronts FROM tenure.task t JOIN tenure.queue q ON q.name = t.queue
            LEFT JOIN tenure.task_group g ON g.queue = t.queue AND g.name = t.group_name,
            LATERAL (SELECT CASE WHEN q.round > 0 THEN g.fronts ELSE q.fronts END) f (fronts)
        WHERE t.session IS NULL AND NOT t.delayed AND f.fronts IS NOT NULL AND NOT EXISTS (
            SELECT FROM generate_series(1, cardinality(f.fronts), 3) i
            WHERE f.fronts[i] = t.priority AND (f.fronts[i + 1], f.fronts[i + 2]) <= (t.ready_at, t.id))""",
    "turns": """
        SELECT g.name FROM tenure.task_group g JOIN tenure.queue q ON q.name = g.queue
        WHERE g.line > 0 AND (g.line <> q.round OR g.rank < q.virtual_time)""",
    "groups that open": """
        SELECT g.name FROM tenure.task_group g JOIN tenure.queue q ON q.name = g.queue
        WHERE g.line = -1 AND (g.rank >= q.first_closed) IS NOT TRUE""",
    "takeable tasks": """
        SELECT q.name FROM tenure.queue q
        WHERE q.takeable <> CASE WHEN q.round = 0 THEN q.waiting
            ELSE (SELECT sum(g.takeable) FROM tenure.task_group g WHERE g.queue = q.name) END""",
    "fronts out of order": """
        SELECT f.fronts FROM (SELECT q.fronts FROM tenure.queue q UNION ALL SELECT g.fronts FROM tenure.task_group g) f,
            generate_series(4, cardinality(f.fronts), 3) i
        WHERE f.fronts[i] >= f.fronts[i - 3]""",
    "groups with two rows": "SELECT name FROM tenure.task_group GROUP BY queue, name HAVING count(*) > 1",
    "groups of another period": """
        SELECT g.name FROM tenure.task_group g LEFT JOIN tenure.queue q ON q.name = g.queue
        WHERE g.period IS DISTINCT FROM q.period OR q.named = 0""",
    "tasks of groups": """
        SELECT t.id FROM tenure.task t JOIN tenure.queue q ON q.name = t.queue
        WHERE t.session IS NULL AND NOT t.delayed AND t.group_name <> '' AND t.ready_at < q.first_grouped""",
    "delayed tasks": """
        SELECT t.id FROM tenure.task t JOIN tenure.queue q ON q.name = t.queue
        WHERE t.session IS NULL AND t.delayed AND t.ready_at < q.first_due""",
    "takers": "SELECT t.made FROM tenure.taker t JOIN tenure.queue q ON q.name = t.queue WHERE t.made < q.first_taker",
    "producers": """
        SELECT p.name FROM tenure.producer p JOIN tenure.queue q ON q.name = p.queue
        WHERE NOT p.reserved AND NOT p.for_group AND p.ordinal < q.first_producer""",
    "watches": """
        SELECT w.task FROM tenure.watch w JOIN tenure.queue q ON q.name = w.name
        WHERE w.kind = 'task' AND (NOT q.awaited OR w.task < q.first_awaited)
            OR w.kind = 'change' AND (NOT q.followed OR w.task < q.first_followed)""",
    "tasks in no order": """
        SELECT q.name FROM tenure.queue q WHERE (q.suspended, q.ending) <> (
            SELECT count(*) FILTER (WHERE NOT t.ending), count(*) FILTER (WHERE t.ending)
            FROM tenure.task t WHERE t.queue = q.name AND t.session = 0)""",
    "families of no task": """
        SELECT f.task FROM tenure.family f
        WHERE NOT f.over AND NOT EXISTS (SELECT FROM tenure.task t WHERE t.id = f.task AND t.kin)
            AND NOT EXISTS (SELECT FROM tenure.ended d WHERE d.id = f.task AND d.state = 'dead' AND d.kin)""",
    "entries of no family": """
        SELECT e.name FROM tenure.entry e WHERE NOT EXISTS (SELECT FROM tenure.family f WHERE f.task = e.task)""",
    "unfinished children": """
        SELECT f.task FROM tenure.family f WHERE NOT f.over AND f.unfinished <> (
            SELECT count(*) FROM tenure.entry e WHERE e.task = f.task AND e.state = 'unfinished')""",
    "sweeps that do not go on": """
        SELECT f.task FROM tenure.family f
        WHERE f.sweeps AND NOT EXISTS (SELECT FROM tenure.todo t WHERE t.id = -1)""",
    "timeouts": """
        SELECT f.task, t.id
        FROM tenure.family f FULL JOIN (SELECT * FROM tenure.todo o WHERE o.what = 'time out') t
            ON t.id = f.task AND t.due = f.until
        WHERE f.until IS NOT NULL AND t.id IS NULL OR t.id IS NOT NULL AND f.task IS NULL""",
}
"""What must not be there, as queries."""


@pytest.fixture(scope="session")
def postgres_process():
    """A PostgreSQL server, of all tests together."""
    # a socket's path has to be short
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        server = Postgres(Path(folder))
        server.start()
        yield server
        kept.close()
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

    Hints come on the same connection, before the answer of the call that caused them. It is that of `over` if that is
    given: a new one has to compile every function again.
    """

    def __init__(self, url, clock=None, cap=256, over=None):
        super().__init__(url, clock=clock, cap=cap)
        self._told = {}
        self._over = over
        if over is not None:
            self._blocking, self._known = over._blocking, over._known
            return
        self._blocking = pq.PGconn.connect(make_conninfo(url).encode())
        assert self._blocking.status == pq.ConnStatus.OK, self._blocking.get_error_message()
        self._known = {}
        if self._ask(existence("tenure")) == [[b"\0"]]:
            self._ask(creation("tenure"))
        self.run(*(f"SET {name} = '{value}'" for name, value in SETTINGS.items()))
        self._schema_id = self._look_up_schema()

    @property
    def unreachable(self):
        """None: each call would raise at once."""
        return None

    def _look_up_schema(self):
        result = self._blocking.exec_(b"SELECT to_regnamespace('tenure')::oid")
        return result.status not in FAILED and result.get_value(0, 0)

    @property
    def is_whole(self):
        """Whether the connection is there, and the schema that its statements are about."""
        return self._look_up_schema() == self._schema_id

    def run(self, *sql):
        for one in sql:
            result = self._blocking.exec_(one.encode())
            assert result.status not in FAILED, message_of(result)

    def check_marks(self):
        """Check that nothing is before the marks from which the functions begin, and that rows are there once."""
        for what, query in BEFORE_A_MARK.items():
            result = self._blocking.exec_(query.encode())
            assert result.status not in FAILED, message_of(result)
            assert result.ntuples == 0, f"{what}: {[result.get_value(0, i) for i in range(result.nfields)]}"

    def empty(self):
        """Forget everything."""
        self.check_marks()
        self.run(
            ";".join(
                (
                    *(f"DELETE FROM tenure.{table}" for table in TABLES),
                    *(f"SELECT setval('tenure.{name}', 1, false)" for name in SEQUENCES),
                    "SELECT setval('tenure.last_token', 0, false)",
                )
            )
        )

    def send(self, statement):
        """The result of a statement, failed or not."""
        connection = self._blocking
        name = self._known.get(statement[:2])
        if name is None:
            name = f"s{len(self._known)}".encode()
            prepared = connection.prepare(name, statement.sql.encode(), list(statement.types))
            if prepared.status in FAILED:
                return prepared
            self._known[statement[:2]] = name
        formats = [pq.Format.BINARY] * len(statement.values)
        return connection.exec_prepared(name, list(statement.values), formats, pq.Format.BINARY)

    def notifications(self):
        """What came since the last call: channels, and what was said there."""
        while notification := self._blocking.notifies():
            yield notification.relname.decode(), notification.extra.decode()

    def _ask(self, statement):
        result = self.send(statement)
        assert result.status not in FAILED, message_of(result)
        for place, payload in self.notifications():
            process, deliver = self._told.get(place, (None, None))
            if process is not None:
                deliver(hint(process, payload))
        return rows(result)

    def apply_now(self, operation):
        codec = CODECS[type(operation)]
        answer = answered(codec, self._ask(self.statement(operation)))
        if answer is Reply.MORE:
            for _ in range(1000):
                if self._ask(self._call("sweep"))[0][0] == b"ok":
                    break
        for chore in self.chores(1):
            self._ask(chore)
        return answer

    def link(self):
        return BatchLink(self)

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
        if self._over is None:
            self._blocking.finish()
        else:
            self.run("UNLISTEN *")


class Kept:
    """A connection that one test after the other uses, made between two of them: so it is no leak of either."""

    def __init__(self):
        self.calls = None
        self._wanted = None

    def want(self, url):
        """The connection, if it and what its statements are about are there; else it is there for the next test."""
        if self.calls is None or not self.calls.is_whole:
            self._wanted = url
            return None
        return self.calls

    def renew(self):
        """Make the connection that the last test lacked."""
        if self._wanted:
            url, self._wanted = self._wanted, None
            self.close()
            self.calls = PostgresCalls(url)

    def close(self):
        if self.calls is not None:
            self.calls.close()
            self.calls = None


kept = Kept()


@pytest.fixture
def postgres_server(postgres_process):
    """A PostgreSQL server whose schema is empty, of all tests together."""
    url = postgres_process.url()
    if calls := kept.want(url):
        calls.empty()
    else:
        calls = PostgresCalls(url)
        calls.empty()
        calls.close()
    return postgres_process


@pytest.fixture
def inline_postgres(postgres_server):
    """Makes engines in the test's time: `inline_postgres(clock)`."""
    made = []

    def make(clock, cap=256):
        over = None if made else kept.want(postgres_server.url())
        made.append(PostgresCalls(postgres_server.url(), clock, cap, over))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
