"""The executor: applies batches of operations to the state, each batch in one transaction. Synchronous.

A batch has no savepoints. If an operation fails, the whole batch is rolled back, and each operation gets a transaction
of its own, so that the failing operation fails alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import tenure.engine as e
from tenure.engines.rules import Rules
from tenure.errors import StoreUnavailable

from ._busy_retry import BusyRetry
from ._clock import Clocks
from ._counts import Counts
from ._errors import explain, is_full
from ._hints import write_hints
from ._queue import SqliteQueues
from ._room import Room
from ._state import SqliteState
from ._survey import SqliteSurvey
from ._tasks import SqliteTaskRows

T = TypeVar("T")


class Executor:
    """Applies operations through one connection, which is in autocommit mode and has the schema.

    `served` returns whether a process gets its hints from here; hints for others are written into the file. `path` is
    for messages.

    Thread safety: none; used on the thread of the connection.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        clocks: Clocks,
        *,
        cap: int = e.CAP,
        retry: BusyRetry | None = None,
        served: Callable[[str], bool] = lambda _: True,
        path: str = "",
    ) -> None:
        self._db = db
        self._retry = retry or BusyRetry(path, 5.0)
        self._served = served
        self._path = path
        self._room = Room(db, path)
        self._state = state = SqliteState(db, clocks, cap)
        self._queues = queues = SqliteQueues(state)
        self._rows = rows = SqliteTaskRows(state, queues)
        self._rules = rules = Rules(
            state, queues, rows, SqliteSurvey(state, queues, path), Counts(state, queues, rows).count
        )
        self._handlers = rules.handlers
        self._handlers |= {
            e.PutOne: rules.producers.put_one,
            e.Complete: rules.tasks.complete,
            e.CompleteAll: rules.tasks.complete_all,
        }

    def execute(self, operations: Sequence[e.Operation[Any]]) -> tuple[list[Any], list[e.Hint], set[str]]:
        """The answers, the hints for processes served here, and the other processes with hints in the file.

        Raises `StoreUnavailable`, with nothing applied, when another writer did not make way. An operation that fails
        is not applied; its answer is an `EngineError`.
        """
        try:
            return self._execute_in_room([e.clamp_durations(operation) for operation in operations])
        except StoreUnavailable:
            raise
        except Exception as problem:  # noqa: BLE001 whatever it is, it concerns the operation alone
            if len(operations) == 1:
                return [explain(self._path, problem)], [], set()
        answers: list[Any] = []
        hints: list[e.Hint] = []
        others: set[str] = set()
        for operation in operations:
            answer, more_hints, for_others = self.execute([operation])
            answers += answer
            hints += more_hints
            others |= for_others
        return answers, hints, others

    def _execute_in_room(
        self, operations: Sequence[e.Operation[Any]]
    ) -> tuple[list[Any], list[e.Hint], set[str]]:
        try:
            return self._execute(operations)
        except sqlite3.OperationalError as problem:
            if not is_full(problem):
                raise
        self._room.use_log_again()
        return self._execute(operations)

    def _execute(self, operations: Sequence[e.Operation[Any]]) -> tuple[list[Any], list[e.Hint], set[str]]:
        self._retry.run(self._begin)
        try:
            self._room.begin()
            answers, others = self._write(lambda: [self._apply(operation) for operation in operations])
            self._room.check(operations)
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._room.committed()
        state = self._state
        state.replies.committed()
        return answers, [hint for hint in state.hints if self._served(hint.process)], others

    def apply_enlisted(self, operation: e.Enlisted[e.A]) -> e.A:
        return self._write(partial(self._apply_enlisted, e.clamp_durations(operation)))[0]

    def _apply_enlisted(self, operation: e.Enlisted[e.A]) -> e.A:
        # as far as the step budget goes: the user's transaction is to stay short, and the remaining work does not
        # concern it
        self._state.steps_left = self._state.cap
        self._clear_up()
        answer = self._handlers[type(operation)](operation)
        self._rows.write()
        return answer

    def _write(self, step: Callable[[], T]) -> tuple[T, set[str]]:
        state, rules = self._state, self._rules
        state.begin()
        self._queues.begin()
        self._rows.begin()
        result = step()
        few = e.how_many_to_forget(state.operations)
        self._rows.forget_records()
        for what, forget in (
            ("limiter", rules.rates.forget),
            ("family", rules.families.forget),
        ):
            due = getattr(state.soonest, what)
            if due is not None and due <= state.now:
                forget(few)
        self._queues.forget(few)
        self._queues.save()
        others = write_hints(state, [hint for hint in state.hints if not self._served(hint.process)])
        state.save()
        return result, others

    def _apply(self, operation: e.Operation[Any]) -> Any:
        state = self._state
        state.operations += 1
        state.steps_left, state.unfinished = state.cap, False
        answer: Any = None
        self._clear_up()
        if not state.unfinished:
            answer = self._handlers[type(operation)](operation)
            if state.soonest.sweep is not None and state.soonest.sweep <= state.now:
                self._rules.families.sweep()
            self._rows.write()
        return e.Reply.MORE if state.unfinished else answer

    def _clear_up(self) -> None:
        state, rules = self._state, self._rules
        if state.soonest.line is not None:
            rules.holds.serve_unserved()
        # one after the other: an ended session leaves tasks that expire, and dead letters that may be outdated at once
        for what, now, clear_up in (
            ("session", state.boot, rules.sessions.end_expired),
            ("task", state.moment, rules.settling.expire),
            ("letter", state.moment, self._rows.delete_letters),
            ("sweep", state.now, rules.families.sweep),
            ("timeout", state.now, rules.families.time_out),
            ("rest", state.now, rules.claims.clear_up),
        ):
            due = getattr(state.soonest, what)
            if not state.unfinished and due is not None and due <= now:
                clear_up()
                self._rows.write()

    def _begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def _roll_back(self) -> None:
        # SQLite itself rolls back after some errors, such as a full disk
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
