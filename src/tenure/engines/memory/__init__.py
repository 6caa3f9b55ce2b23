"""The memory engine: the readable reference that all other engines are tested against, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from tenure import engine as e
from tenure.engine import A, Hint, Operation, Reply, within
from tenure.errors import EngineError

from ._claims import Claims
from ._counters import Barriers, Rates
from ._holds import Holds
from ._state import THINGS, Session, State, Thing
from ._survey import Looks
from ._tasks import Tasks

__all__ = ("MemoryEngine",)


class MemoryEngine:
    """Keeps everything in this process's memory; gone with it.

    `clock` gives seconds and never goes back; the default is the clock of the running event loop. Several stores may be
    opened over one engine object: they see each other as processes of a fleet would. `cap` is the step budget of an
    operation, made small by tests. Written to be read, it looks at all tasks of a queue where other engines have an
    index: to count, to browse and to purge.

    Thread safety: none; one engine belongs to one event loop.
    """

    url = "memory:"
    immediate = True

    def __init__(self, *, clock: Callable[[], float] | None = None, cap: int = e.CAP) -> None:
        self._clock = clock or anyio.current_time
        self._state = state = State(cap)
        self._listeners: dict[str, Callable[[Hint], None]] = {}
        self._rates = Rates(state)
        self._barriers = barriers = Barriers(state)
        self._holds = holds = Holds(state)
        self._claims = claims = Claims(state)
        self._tasks = tasks = Tasks(state)
        looks = Looks(state, holds, claims, barriers, tasks)
        self._drop: dict[str, Callable[[Session, Thing], object]] = {
            "holds": lambda _, thing: holds.drop(thing),
            "claims": lambda _, thing: claims.drop(thing),
            "arrivals": lambda _, thing: barriers.drop(thing),
            "producers": lambda _, thing: tasks.drop_producer(thing),
            "tasks": lambda _, thing: tasks.drop(thing),
            "takers": tasks.drop_taker,
            "watches": state.unwatch,
        }
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Any]] = {
            e.Ping: lambda _: Reply.OK,
            e.OpenSession: self._open_session,
            e.RenewSession: self._renew_session,
            e.CloseSession: self._close_session,
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
            e.Put: tasks.put,
            e.Leave: tasks.leave,
            e.Exchange: tasks.exchange,
            e.Progress: tasks.progress,
            e.GetResult: tasks.result,
            e.CancelTask: tasks.cancel,
            e.Requeue: tasks.requeue,
            e.Purge: tasks.purge,
            e.Browse: tasks.browse,
            e.SetPaused: tasks.set_paused,
            e.Count: tasks.count,
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

    def __repr__(self) -> str:
        return f"<MemoryEngine sessions={len(self._state.sessions)}>"

    def apply(self, operation: Operation[A], /) -> A:
        """Apply one operation at once. Raises `EngineError`. Cancellation: not a checkpoint."""
        state = self._state
        state.now = max(state.now, self._clock())
        state.steps_left, state.unfinished = state.cap, False
        answer: Any = None
        if self._clear_up():
            try:
                answer = self._handlers[type(operation)](within(operation))
            except (ValueError, TypeError, LookupError) as problem:
                raise EngineError(
                    f"{self.url} {type(operation).__name__} cannot be applied: {problem!r}"
                ) from problem
        if state.unfinished:
            answer = Reply.MORE
        hints, state.hints = state.hints, []
        for hint in hints:
            deliver = self._listeners.get(hint.process)
            if deliver is not None:
                deliver(hint)
        return answer

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations in order. Cancellation: all of them were applied."""
        answers: list[Any] = []
        for operation in operations:
            try:
                answers.append(self.apply(operation))
            except EngineError as problem:
                answers.append(problem)
        await checkpoint()
        return answers

    async def serve(
        self,
        process: str,
        deliver: Callable[[Hint], None],
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

    # clearing up and sessions

    def _clear_up(self) -> bool:
        """Do what time has made due; False if the cap was reached before all was done."""
        state = self._state
        state.forget_given()
        self._rates.forget()
        self._barriers.forget()
        self._tasks.forget()
        unserved, state.unserved = state.unserved, {}
        for key in unserved:
            self._holds.serve(key)
        # one after the other: a task that an ended session still seems to have would not expire
        if not state.unfinished and state.soonest_expiry <= state.now:
            self._end_expired()
        if not state.unfinished:
            self._tasks.clear_up()
        if not state.unfinished:
            self._claims.clear_up()
        return not state.unfinished

    def _end_expired(self) -> None:
        state = self._state
        expired = [session for session in state.sessions.values() if session.expires <= state.now]
        for session in sorted(expired, key=lambda s: (s.expires, s.id)):
            for family in THINGS:
                things = session.things[family]
                drop = partial(self._drop[family], session)
                while things:
                    if not state.step():
                        return
                    thing = next(iter(things))
                    del things[thing]
                    drop(thing)
            state.forget(session)

    def _open_session(self, op: e.OpenSession) -> Reply:
        session = self._state.sessions.get(op.session)
        if session is None:
            session = self._state.open(op.session, op.process)
        session.ttl = op.ttl
        self._state.renew(session)
        return Reply.OK

    def _renew_session(self, op: e.RenewSession) -> Reply:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        self._state.renew(session)
        return Reply.OK

    def _close_session(self, op: e.CloseSession) -> Reply:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        session.expires = self._state.soonest_expiry = -1.0
        self._end_expired()
        return Reply.OK
