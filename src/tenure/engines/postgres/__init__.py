"""The PostgreSQL engine: the contract as functions on the server, one call for each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio

from tenure.engine import CAP, A, Examined, Joined, Joining, Operation, Reply
from tenure.engine._remote import Remote
from tenure.errors import EngineError, StoreUnavailable

from ._address import address
from ._calls import answered, channel, hint, row_of
from ._joining import joining
from ._link import PATIENCE, Link
from ._operations import CALLS
from ._refusals import is_read_only, refusal
from ._schema import check_name
from ._wire import Result, Statement, failed, message_of, rows, state_of

__all__ = ("CALLS", "PostgresEngine")


class PostgresEngine(Remote):
    """Keeps everything in tables of a PostgreSQL database, version 15 or later; many machines may share it.

    `url` is `postgresql://[user:password@]host[:port]/database`, with the options of libpq behind a question mark. It
    may be that of a pooler; then `direct=postgresql://host[:port]` among the options is the server's own address, on
    which hints come: without one everybody who waits asks again once a second, and a `RuntimeWarning` says so.
    `schema` is where the tables and functions are, made if need be. A server that does not answer for `patience`
    seconds counts as gone, and the connections are made anew. `clock` (seconds) replaces the server's time, `cap` the
    step budget of an operation, in tests.

    Thread safety: none; one engine belongs to one event loop.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "tenure",
        patience: float = PATIENCE,
        clock: Callable[[], float] | None = None,
        cap: int = CAP,
    ) -> None:
        if not patience > 0:
            raise ValueError(f"patience: seconds, more than zero, not {patience!r}")
        self._address = address(url)
        super().__init__(self._address)
        self._schema = check_name(schema)
        self._clock = clock
        self._cap = cap
        self._processes: dict[str, str] = {}
        self._link = Link(
            self._address, self._schema, self._hear, self._resync, self._all_missed, patience=patience
        )

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations in order, each by one call in a transaction of its own, all sent together.

        Waits while the server cannot be reached. Raises `StoreUnavailable` when the connection breaks meanwhile, or the
        server asks to try again.
        Cancellation: they may or may not have been applied.
        """
        if not self._listeners:
            raise StoreUnavailable(f"{self.url}: the engine does not serve")
        answers: list[Any] = [None] * len(operations)
        statements: dict[int, Statement] = {}
        for i, operation in enumerate(operations):
            try:
                statements[i] = self.statement(operation)
            except Exception as error:  # noqa: BLE001 whatever it is, it concerns this operation alone
                answers[i] = EngineError(
                    f"{self.url}: {type(operation).__name__} cannot be encoded: {error!r}"
                )
        if statements:
            results = await self._link.execute(list(statements.values()))
            for i, result in zip(statements, results, strict=True):
                answers[i] = self._answer(operations[i], result)
        for answer in answers:
            if isinstance(answer, StoreUnavailable):
                raise answer
        if any(answer is Reply.MORE for answer in answers):
            await self._link.execute([self._call("sweep")])
        return answers

    def join(self, operation: Joined[A], /) -> Joining[A]:
        """How an operation is applied in a transaction of the user's, on a connection to the same database."""
        return joining(self._schema, self._clock, operation)

    def statement(self, operation: Operation[Any]) -> Statement:
        """The call that an operation is."""
        call = CALLS[type(operation)]
        return self._call(call.function, *call.arguments(operation))

    def _call(self, function: str, *arguments: Any) -> Statement:
        now = None if self._clock is None else round(self._clock() * 1e6)
        values = (now, self._cap, *arguments)
        places = ", ".join(f"${i}" for i in range(1, len(values) + 1))
        return Statement.of(f"SELECT word, n, b FROM {self._schema}.{function}({places})", *values)  # noqa: S608 - plain names

    def _answer(self, operation: Operation[Any], result: Result) -> Any:
        if not failed(result):
            answer = answered(CALLS[type(operation)], [row_of(row) for row in rows(result)])
            if isinstance(answer, Examined) and self._link.deaf:
                return replace(answer, problems=(*answer.problems, self._link.deaf))
            return answer
        problem = refusal(self.url, state_of(result), message_of(result))
        if is_read_only(state_of(result)):
            self._link.drop(str(problem))
        return problem

    def _hear(self, place: str, payload: str) -> None:
        if (process := self._processes.get(place)) is not None:
            self._deliver(hint(process, payload))

    def _listen(self, process: str) -> None:
        place = channel(self._schema, process)
        self._processes[place] = process
        self._link.channels[place] = anyio.Event()

    async def _listening(self, process: str) -> None:
        await self._link.subscribe(channel(self._schema, process))

    def _forget(self, process: str) -> None:
        place = channel(self._schema, process)
        del self._processes[place]
        self._link.forget(place)

    async def _run(self, started: Callable[[], None] | None) -> None:
        await self._link.run(started)
