"""The PostgreSQL engine: the contract as functions on the server, one call for each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio

import tenure.engine as e
from tenure.arguments import Seconds, check_seconds
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import Parked, park, wake

from ._address import address
from ._codec import answered, arguments
from ._connection import Connection
from ._enlisting import enlistment
from ._errors import error_of, is_read_only
from ._hints import channel, hint
from ._operations import CODECS
from ._pipeline import FAILED, Result, Statement, message_of, rows, state_of
from ._schema import check_name
from ._values import Argument, Columns, Value

__all__ = ("PostgresEngine",)

_BETWEEN_CHORES = 16
"""Operations after which outdated rows are deleted: a few times as many as they can have left."""


class PostgresEngine(e.Remote):
    """Keeps everything in tables of a PostgreSQL database, version 15 or later; many machines may share it.

    `url` is `postgresql://[user:password@]host[:port]/database`, with the options of libpq behind a question mark. It
    may lead to a pooler; then `direct=postgresql://host[:port]` among the options is the server's own address, on which
    hints come. Without one, all that wait ask again once a second, and a `RuntimeWarning` says so. `schema` is where
    the tables and functions are, made if need be. A server that does not answer for `response_timeout` seconds counts
    as gone, and the connections are made anew. `clock` (seconds) replaces the server's time, `cap` the step budget of
    an operation, in tests.
    """

    families = True

    def __init__(
        self,
        url: str,
        *,
        schema: str = "tenure",
        response_timeout: Seconds = e.RESPONSE_TIMEOUT,
        clock: Callable[[], float] | None = None,
        cap: int = e.CAP,
    ) -> None:
        response_timeout = check_seconds("response_timeout", response_timeout, least=None)
        self.response_timeout: float = response_timeout
        self._address = address(url)
        super().__init__(self._address)
        self._schema = check_name(schema)
        self._clock = clock
        self._cap = cap
        self._processes: dict[str, str] = {}
        self._since_chores = 0
        self._batches = e.Batches(self.url)
        self._due = False
        self._sender: Parked | None = None
        self._another = (
            None
            if clock
            else partial(PostgresEngine, url, schema=schema, response_timeout=response_timeout, cap=cap)
        )
        self._connection = Connection(
            self._address,
            self._schema,
            self._on_notification,
            self._missed,
            self._lost,
            response_timeout=response_timeout,
        )

    def another(self) -> e.Engine | None:
        """An engine over the same tables, unless the clock is a test's."""
        return self._another and self._another()

    @property
    def unreachable(self) -> StoreUnavailable | None:
        """The reason why the server cannot be reached, or None."""
        problem = self._connection.problem
        return None if problem is None else StoreUnavailable(problem)

    def _start(self) -> None:
        self._due = True
        if self._sender is not None:
            wake(self._sender)

    async def _send_batches(self) -> None:
        while True:
            if not self._due:
                self._sender = park()
                await self._sender
            await self._connection.opened()
            if self._due:
                self._due = False
                self._send(self._batches.take())

    def _send(self, operations: Sequence[e.Operation[Any]]) -> None:
        answers: list[Any] = [None] * len(operations)
        statements: dict[int, Statement] = {}
        for i, operation in enumerate(operations):
            try:
                statements[i] = self.statement(operation)
            except EngineError as error:
                answers[i] = error
            except Exception as error:  # noqa: BLE001 whatever it is, it concerns this operation alone
                answers[i] = EngineError(
                    f"{self.url}: {type(operation).__name__} cannot be encoded: {error!r}"
                )
        if not statements:
            self._batches.answer(answers)
            return

        def on_over(results: list[Result] | OSError) -> None:
            if isinstance(results, OSError):
                self._batches.fail(StoreUnavailable(f"{self.url}: {results}"))
                return
            for i, result in zip(statements, results, strict=True):
                answers[i] = self._answer(operations[i], result)
            problem = next((answer for answer in answers if isinstance(answer, StoreUnavailable)), None)
            if problem is not None:
                self._batches.fail(problem)
                return
            if any(answer is e.Reply.MORE for answer in answers):
                # it clears up, before the operation comes again
                self._connection.send([self._call("sweep")], _nothing)
            if self._batches.answer(answers):
                self._due = False  # the batch leaves at once: no task that the answers wake adds to it
                self._send(self._batches.take())

        self._connection.send([*statements.values()], on_over)
        if chores := self.chores(len(statements)):
            self._connection.send(chores, _nothing)

    def enlist(self, operation: e.Enlisted[e.A], /) -> e.Enlistment[e.A]:
        """The statement that applies an operation in the user's transaction."""
        return enlistment(self._schema, self._clock, operation)

    def chores(self, operations: int) -> list[Statement]:
        """The statements to send behind `operations` operations: now and then a call of `forget_outdated`."""
        due, self._since_chores = divmod(self._since_chores + operations, _BETWEEN_CHORES)
        return [self._call("forget_outdated")] * due

    def statement(self, operation: e.Operation[Any]) -> Statement:
        """The function call for an operation. Raises `EngineError`, and others for what has no binary form."""
        codec = CODECS[type(operation)]
        return self._call(codec.function, *arguments(codec, operation))

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        """Call one function in a transaction of its own, in the next batch."""
        self._batches.submit(operation, on_answer)

    def _call(self, function: str, *arguments: Argument) -> Statement:
        now = None if self._clock is None else round(self._clock() * 1e6)
        values: list[Value] = []
        places: list[str] = []
        for argument in (now, self._cap, *arguments):
            if isinstance(argument, Columns):
                first = len(values) + 1
                values += argument.arrays
                columns = ", ".join([f"${i}" for i in range(first, len(values) + 1)])
                places.append(f"ROW({columns})::{self._schema}.{argument.kind}")
            else:
                values.append(argument)
                places.append(f"${len(values)}")
        sql = f"SELECT word, n, b FROM {self._schema}.{function}({', '.join(places)})"  # noqa: S608 - plain names
        return Statement.of(sql, *values)

    def _answer(self, operation: e.Operation[Any], result: Result) -> Any:
        if result.status not in FAILED:
            answer = answered(CODECS[type(operation)], rows(result))
            reason = self._connection.polling_reason
            if getattr(operation, "index", None) is e.HEALTH and reason and isinstance(answer, e.Page):
                page = cast("e.Page[e.Health]", answer)
                return e.Page(tuple(replace(row, problems=(*row.problems, reason)) for row in page.rows))
            return answer
        problem = error_of(self.url, state_of(result), message_of(result))
        if is_read_only(state_of(result)):
            self._connection.drop(str(problem))
        return problem

    def _on_notification(self, place: str, payload: str) -> None:
        if (process := self._processes.get(place)) is not None:
            self._deliver(hint(process, payload))

    def _listen(self, process: str) -> None:
        place = channel(self._schema, process)
        self._processes[place] = process
        self._connection.channels[place] = anyio.Event()

    async def _listening(self, process: str) -> None:
        await self._connection.subscribe(channel(self._schema, process))

    def _forget(self, process: str) -> None:
        place = channel(self._schema, process)
        del self._processes[place]
        self._connection.forget(place)

    async def _run(self, started: Callable[[], None] | None) -> None:
        self._due = False
        self._batches.open(self._start)
        try:
            async with unwrapped_task_group() as group:
                group.start_soon(self._send_batches, name="tenure postgres batches")
                await self._connection.run(started)
        finally:
            self._batches.close()


def _nothing(_: object) -> None:
    pass
