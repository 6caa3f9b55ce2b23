"""The memory engine: the readable reference, against which all other engines are tested."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

import tenure.engine as e
from tenure.engines.rules import Rules
from tenure.errors import EngineError
from tenure.waiting import now

from ._counts import Counts
from ._lifeline import Lifeline
from ._queue import MemoryQueues
from ._state import MemoryState
from ._survey import MemorySurvey
from ._tasks import MemoryTaskRows

__all__ = ("MemoryEngine",)


class MemoryEngine(e.Engine):
    """Keeps everything in this process's memory; gone with it.

    `clock` returns seconds and never goes back; the default is the clock of the running event loop. Stores over one
    engine object see each other as processes of a fleet do. `cap` is the step budget of an operation, made small by
    tests. To count, to browse and to purge, it looks at all tasks of a queue: it has no indexes.
    """

    url = "memory:"
    families = True

    def __init__(self, *, clock: Callable[[], float] | None = None, cap: int = e.CAP) -> None:
        self._clock = clock or now
        self._state = state = MemoryState(cap)
        self._listeners: dict[str, Callable[[e.Hint], None]] = {}
        self._another = None if clock else partial(Lifeline, state)
        self._queues = queues = MemoryQueues(state)
        self._rows = rows = MemoryTaskRows(state, queues)
        self._rules = Rules(state, queues, rows, MemorySurvey(state, queues), Counts(state, queues).count)
        self._handlers = self._rules.handlers
        self._heaps = (queues.due.heap, state.replies_due.heap, *rows.heaps)

    def __repr__(self) -> str:
        return f"<MemoryEngine sessions={len(self._state.sessions)}>"

    def another(self) -> e.Engine | None:
        """An engine that renews the sessions of this one, unless the clock is a test's."""
        return self._another and self._another()

    def apply(self, operation: e.Operation[e.A], /) -> e.A:
        """Apply one operation at once. Raises `EngineError`."""
        state = self._state
        state.now = max(state.now, self._clock())
        state.steps_left, state.unfinished = state.cap, False
        answer: Any = None
        if self._clear_up():
            try:
                answer = self._handlers[type(operation)](e.clamp_durations(operation))
                if state.next_due <= state.now and state.is_due("sweep"):
                    self._rules.families.sweep()
            except (ValueError, TypeError, LookupError) as problem:
                raise EngineError(
                    f"{self.url} {type(operation).__name__} cannot be applied: {problem!r}"
                ) from problem
        if state.unfinished:
            answer = e.Reply.MORE
        hints, state.hints = state.hints, []
        for hint in hints:
            deliver = self._listeners.get(hint.process)
            if deliver is not None:
                deliver(hint)
        return answer

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        """Apply one operation, and call `on_answer` before this returns."""
        try:
            answer = self.apply(operation)
        except EngineError as problem:
            answer = problem
        on_answer(answer)

    async def serve(
        self,
        process: str,
        deliver: Callable[[e.Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver the hints for `process`. Cancellation: this is how it ends."""
        self._listeners[process] = deliver
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            del self._listeners[process]

    def _clear_up(self) -> bool:
        state = self._state
        kept, state.kept_lately = state.kept_lately, 0
        due = state.next_due <= state.now
        if not due and state.soonest_expiry > state.now:
            for heap in self._heaps:
                if heap and heap[0][0] <= state.now:
                    break
            else:
                return True
        state.replies_due.check(state.now, e.A_FEW)
        if due and state.is_due("limiter"):
            self._rules.rates.forget(e.A_FEW)
        self._rows.forget(e.how_many_to_forget(kept))
        self._queues.due.check(state.now, e.A_FEW)
        if due and state.is_due("line"):
            self._rules.holds.serve_unserved()
        # one after the other: a task that an ended session still seems to have would not expire
        if not state.unfinished and state.soonest_expiry <= state.now:
            self._rules.sessions.end_expired()
        if not state.unfinished:
            self._rules.settling.expire()
        if not state.unfinished:
            self._rows.delete_letters()
        if state.next_due <= state.now:  # what has ended may have begun a sweep
            self._clear_up_families()
        if due and not state.unfinished and state.is_due("rest"):
            self._rules.claims.clear_up()
        return not state.unfinished

    def _clear_up_families(self) -> None:
        state = self._state
        if state.is_due("family"):
            self._rules.families.forget(e.A_FEW)
        if not state.unfinished and state.is_due("sweep"):
            self._rules.families.sweep()
        if not state.unfinished and state.is_due("timeout"):
            self._rules.families.time_out()
