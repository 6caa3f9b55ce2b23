"""A pipelined connection to a PostgreSQL server: psycopg's wrapper of libpq, with anyio to wait for its socket.

Only `psycopg.pq` is used, whose calls neither block nor know an event loop. A Sync follows each statement, so that each
is a transaction of its own and fails alone.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anyio
from psycopg import Error, pq

from tenure.upkeep import unwrapped_task_group
from tenure.waiting import Parked, now, on_readable, park, wake

from ._values import Value, packed

Result = pq.abc.PGresult
_POLLING = pq.PollingStatus
_BINARY = pq.Format.BINARY

FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
"""The status of a result if the server refused the statement."""


class Statement(NamedTuple):
    sql: str
    types: tuple[int, ...] = ()
    values: tuple[bytes | None, ...] = ()

    @classmethod
    def of(cls, sql: str, *values: Value) -> Statement:
        """Pack the values. Raises `struct.error` for a number beyond 64 bits."""
        pairs = list(map(packed, values))
        return cls(sql, tuple([kind for kind, _ in pairs]), tuple([raw for _, raw in pairs]))


OnOver = Callable[["list[Result] | OSError"], object]


class Batch:
    __slots__ = ("count", "on_over", "results", "sent")

    def __init__(self, count: int, on_over: OnOver) -> None:
        self.count = count
        self.on_over = on_over
        self.sent = now()
        self.results: list[Result] = []


class Pipeline:
    def __init__(self, connection: pq.abc.PGconn, on_notification: Callable[[bytes, bytes], None]) -> None:
        self.before: Statement | None = Statement("SELECT")
        """Precedes each statement in its transaction, since a pooler may use another server connection for each. None:
        the server connection is ours alone, and keeps settings and prepared statements.
        """
        self.sent = 0
        """The number of calls of `send`, the last of them at `last_sent`."""
        self.last_sent = now()
        self._connection = connection
        self._on_notification = on_notification
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._pending: deque[Batch] = deque()
        # by statement: how many results it has, and whether the last one has rows
        self._expected: deque[tuple[int, bool]] = deque()
        self._current: list[Result] = []
        self._idle_writer: Parked | None = None
        self._more_to_write = False

    @property
    def server_version(self) -> int:
        return self._connection.server_version

    @property
    def pid(self) -> int:
        """The server's process as reported at connecting; a pooler reports a number of its own."""
        return self._connection.backend_pid

    def parameter(self, name: str) -> str:
        return (self._connection.parameter_status(name.encode()) or b"").decode()

    @property
    def oldest(self) -> float | None:
        return self._pending[0].sent if self._pending else None

    def send(self, statements: Sequence[Statement], on_over: OnOver) -> None:
        """Send statements, in this order and behind all that were sent before. Raises `OSError`.

        `on_over` is called once: with the results of all statements, or with the error if the pipeline is closed
        before. It runs outside any task, and must not raise.
        """
        try:
            for statement in statements:
                self._send(statement)
            if self._connection.flush() and not self._more_to_write:
                self._more_to_write = True
                if self._idle_writer is not None:
                    wake(self._idle_writer)
        except Error as error:
            raise OSError(_first_line(error)) from error
        finally:
            self._pending.append(batch := Batch(len(statements), on_over))
            self.sent += 1
            self.last_sent = batch.sent

    async def ask(self, statement: Statement) -> Result:
        """Send a statement and wait for its result. Raises `OSError`. Cancellation: it is executed all the same."""
        answers: list[list[Result] | OSError] = []
        parked = park()

        def on_over(answer: list[Result] | OSError) -> None:
            answers.append(answer)
            wake(parked)

        self.send([statement], on_over)
        await parked
        (answer,) = answers
        if isinstance(answer, OSError):
            raise answer
        (result,) = answer
        return result

    def _send(self, statement: Statement) -> None:
        connection = self._connection
        if self.before is None:
            # a statement that is prepared for other types would misread the values
            known = (statement.sql, statement.types)
            name = self._names.get(known)
            count = 1 if name is not None else 2
            if name is None:
                name = self._names[known] = f"s{len(self._names)}".encode()
                connection.send_prepare(name, statement.sql.encode(), list(statement.types))
            values = list(statement.values)
            connection.send_query_prepared(name, values, [_BINARY] * len(values), _BINARY)
        else:
            count = 2
            for each in (self.before, statement):
                values = list(each.values)
                connection.send_query_params(
                    each.sql.encode(), values, list(each.types), [_BINARY] * len(values), _BINARY
                )
        connection.pipeline_sync()
        self._expected.append((count, statement.sql.startswith("SELECT")))

    async def run(self) -> None:
        """Read and write until the connection breaks; then raises `OSError`. Cancellation: call `close`."""
        async with unwrapped_task_group() as group:
            group.start_soon(self._write, name="tenure postgres writer")
            try:
                # libpq closes its socket itself when the connection breaks, so the loop gets a duplicate. Its family is
                # of no account, since nothing is read from it.
                with socket.fromfd(self._connection.socket, socket.AF_INET, socket.SOCK_STREAM) as duplicate:
                    await on_readable(duplicate, self._take_in)
            except Error as error:
                raise OSError(_first_line(error)) from error

    def close(self, reason: str) -> None:
        """Close the connection without waiting; waiting callers get an `OSError` with the reason."""
        pending, self._pending = self._pending, deque()
        for batch in pending:
            batch.on_over(OSError(reason))
        if self._connection.status == pq.ConnStatus.OK and self._connection.socket >= 0:
            anyio.notify_closing(self._connection.socket)
        self._connection.finish()

    def _take_in(self) -> None:
        connection = self._connection
        connection.consume_input()
        ended = False
        while self._pending and not connection.is_busy():
            result = connection.get_result()
            if result is None:
                # the end of one statement; twice: there is nothing more yet
                if ended:
                    break
                ended = True
                continue
            ended = False
            if result.status != pq.ExecStatus.PIPELINE_SYNC:
                self._current.append(result)
                continue
            parts, self._current = self._current, []
            result = next((part for part in parts if part.status in FAILED), parts[-1] if parts else result)
            found = len(parts), result.status == pq.ExecStatus.TUPLES_OK
            # PgBouncer 1.18 may hand a client the answer to a SET of its own: all after it would be shifted by one
            if found != self._expected.popleft() and result.status not in FAILED:
                raise OSError("the server sent a result that nothing had asked for")
            batch = self._pending[0]
            batch.results.append(result)
            if len(batch.results) == batch.count:
                self._pending.popleft()
                batch.on_over(batch.results)
        while notification := connection.notifies():
            self._on_notification(notification.relname, notification.extra)

    async def _write(self) -> None:
        while True:
            if not self._more_to_write:
                self._idle_writer = park()
                await self._idle_writer
            await anyio.wait_writable(self._connection.socket)
            try:
                self._more_to_write = bool(self._connection.flush())
            except Error as error:
                raise OSError(_first_line(error)) from error


async def connect(conninfo: str, on_notification: Callable[[bytes, bytes], None]) -> Pipeline:
    """Open a connection. Raises `OSError` with the words of libpq. Cancellation: nothing is left open."""
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        while True:
            if connection.status == pq.ConnStatus.BAD:
                raise OSError(connection.get_error_message())
            match connection.connect_poll():
                case _POLLING.READING:
                    await anyio.wait_readable(connection.socket)
                case _POLLING.WRITING:
                    await anyio.wait_writable(connection.socket)
                case _POLLING.OK:
                    break
                case _:
                    raise OSError(connection.get_error_message())
        connection.nonblocking = 1
        connection.enter_pipeline_mode()
    except BaseException:
        connection.finish()
        raise
    return Pipeline(connection, on_notification)


def state_of(result: Result) -> str:
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()


def message_of(result: Result) -> str:
    return _first_line(result.get_error_message())


def rows(result: Result) -> list[Any]:
    return [
        [result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)
    ]


def _first_line(problem: object) -> str:
    return str(problem).strip().partition("\n")[0]
