"""The book: all the state, changed by batches of operations, each batch in one transaction. Synchronous, no waiting.

A batch has no savepoints. If any of its operations fails, all of it is rolled back, and each operation gets a
transaction of its own: the one that fails then fails alone. That is rare, and costs nothing while all goes well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tenure import engine as e
from tenure.engine import CAP, A, Hint, Joined, Operation, Reply, within
from tenure.errors import StoreUnavailable

from ._admin import Admin
from ._claims import Claims
from ._clock import Clocks
from ._counters import Barriers, Rates
from ._endings import Endings
from ._hints import write_hints
from ._holds import Holds
from ._patience import Patience
from ._producers import Producers
from ._queue import Queues
from ._refusals import explain, is_full
from ._room import Room
from ._sessions import Sessions
from ._sql import CLAIMS, COUNTERS, HOLDS, QUEUES, TASKS
from ._state import State
from ._survey import Looks
from ._tasks import Tasks

T = TypeVar("T")


class Book:
    """The state in one connection, which is in autocommit mode and has the schema.

    `served` tells which processes get their hints from here: those for others are written into the file. `path` is for
    messages.

    Thread safety: none; used on the thread of the connection.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        clocks: Clocks,
        *,
        cap: int = CAP,
        patience: Patience | None = None,
        served: Callable[[str], bool] = lambda _: True,
        path: str = "",
    ) -> None:
        self._db = db
        self._patience = patience or Patience(path, 5.0)
        self._served = served
        self._path = path
        self._room = Room(db, path)
        self._state = state = State(db, clocks, cap)
        self._rates = Rates(state)
        self._barriers = barriers = Barriers(state)
        self._holds = holds = Holds(state)
        self._claims = claims = Claims(state)
        self._queues = queues = Queues(state)
        self._endings = endings = Endings(state, queues)
        producers = Producers(state, queues)
        self._tasks = tasks = Tasks(state, queues, endings)
        admin = Admin(state, queues, endings)
        self._sessions = sessions = Sessions(
            state,
            [
                (HOLDS.next_of_session, holds.drop),
                (CLAIMS.next_of_session, claims.drop),
                (COUNTERS.next_of_session, barriers.drop),
                (QUEUES.next_producer_of_session, producers.drop),
                (TASKS.next_of_session, tasks.drop),
                (QUEUES.next_taker_of_session, tasks.drop_taker),
            ],
        )
        looks = Looks(state, queues, path)
        self._handlers: dict[type[Operation[Any] | Joined[Any]], Callable[[Any], Any]] = {
            e.Ping: lambda _: Reply.OK,
            e.OpenSession: sessions.open,
            e.RenewSession: sessions.renew,
            e.CloseSession: sessions.close,
            e.Acquire: holds.acquire,
            e.Ask: holds.ask,
            e.Release: holds.release,
            e.SetValue: holds.set_value,
            e.Resize: holds.resize,
            e.Holders: holds.holders,
            e.AddResource: claims.add,
            e.RemoveResource: claims.remove,
            e.Claim: claims.claim,
            e.GiveBack: claims.give_back,
            e.EditClaim: claims.edit,
            e.Resources: claims.resources,
            e.Put: producers.put,
            e.PutOne: producers.put_one,
            e.Leave: producers.leave,
            e.Exchange: tasks.exchange,
            e.Complete: tasks.complete,
            e.Progress: tasks.progress,
            e.GetResult: tasks.result,
            e.CancelTask: tasks.cancel,
            e.SetPaused: tasks.set_paused,
            e.Requeue: admin.requeue,
            e.Purge: admin.purge,
            e.Browse: admin.browse,
            e.Count: admin.count,
            e.Spend: self._rates.spend,
            e.Refund: self._rates.refund,
            e.Arrive: barriers.arrive,
            e.Withdraw: barriers.withdraw,
            e.ResetBarrier: barriers.reset,
            e.Arrivals: barriers.arrivals,
            e.Survey: looks.survey,
            e.Inspect: looks.inspect,
            e.Examine: looks.examine,
        }

    def execute(self, operations: Sequence[Operation[Any]]) -> tuple[list[Any], list[Hint], bool]:
        """Answers, hints for processes served here, and whether there were hints for others.

        Raises `StoreUnavailable` when another writer did not make way: then nothing was applied. Each operation that
        fails is answered with an `EngineError`, and was not applied.
        """
        try:
            return self._execute_in_room([within(operation) for operation in operations])
        except StoreUnavailable:
            raise
        except Exception as problem:  # noqa: BLE001 whatever it is, it concerns the operation alone
            if len(operations) == 1:
                return [explain(self._path, problem)], [], False
        answers: list[Any] = []
        hints: list[Hint] = []
        others = False
        for operation in operations:
            answer, more_hints, for_others = self.execute([operation])
            answers += answer
            hints += more_hints
            others |= for_others
        return answers, hints, others

    def _execute_in_room(self, operations: Sequence[Operation[Any]]) -> tuple[list[Any], list[Hint], bool]:
        try:
            return self._execute(operations)
        except sqlite3.OperationalError as problem:
            if not is_full(problem):
                raise
        self._room.use_log_again()
        return self._execute(operations)

    def _execute(self, operations: Sequence[Operation[Any]]) -> tuple[list[Any], list[Hint], bool]:
        self._patience.wait_for(self._begin)
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
        state.committed()
        return answers, [hint for hint in state.hints if self._served(hint.process)], others

    def join(self, operation: Joined[A]) -> A:
        """Apply one operation in a transaction that somebody else has begun, and ends."""
        return self._write(partial(self._join, within(operation)))[0]

    def _join(self, operation: Joined[A]) -> A:
        # as far as the step budget goes: a user's transaction shall be short, and what is left does not concern it
        self._state.steps_left = self._state.cap
        self._clear_up()
        return self._handlers[type(operation)](operation)

    def _write(self, step: Callable[[], T]) -> tuple[T, bool]:
        """What `step` gives, its effects written, and whether there were hints for others."""
        state = self._state
        state.begin()
        self._queues.begin()
        self._endings.begin()
        result = step()
        # more than can have come since: a batch has at most CAP operations, most often a few
        few = 16 + 2 * state.operations
        self._tasks.forget_records()
        self._rates.forget(few)
        self._barriers.forget(few)
        self._queues.forget(few)
        self._queues.save()
        others = write_hints(state, [hint for hint in state.hints if not self._served(hint.process)])
        state.save()
        return result, others

    def _apply(self, operation: Operation[Any]) -> Any:
        state = self._state
        state.operations += 1
        state.steps_left, state.unfinished = state.cap, False
        answer: Any = None
        self._clear_up()
        if not state.unfinished:
            answer = self._handlers[type(operation)](operation)
        return Reply.MORE if state.unfinished else answer

    def _clear_up(self) -> None:
        """Do what time has made due, as far as the step budget goes."""
        state = self._state
        if state.unserved:
            self._holds.go_on()
        # one after the other: a task that an ended session still seems to have would not expire
        for due, now, clear_up in (
            (state.soonest_session, state.boot, self._sessions.end_expired),
            (state.soonest_task, state.wall, self._tasks.clear_up),
            (state.soonest_rest, state.wall, self._claims.clear_up),
        ):
            if not state.unfinished and due is not None and due <= now:
                clear_up()

    def _begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def _roll_back(self) -> None:
        # SQLite itself rolls back after some errors, such as a full disk
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
