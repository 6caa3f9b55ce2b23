"""Sending: how operations reach the engine, in order, and again whenever the outcome of one is unknown.

| state     | container    | event                           | goes to                                     |
|-----------|--------------|---------------------------------|---------------------------------------------|
| new       | -            | nothing waits                   | under way                                   |
|           |              | otherwise                       | waiting (at the front if urgent)            |
| waiting   | `_waiting`   | there is room, and no pause     | under way; dropped if no longer wanted      |
| under way | `_under_way` | an answer                       | answered                                    |
|           |              | MORE                            | again; dropped if no longer wanted          |
|           |              | `StoreUnavailable`              | again, and a pause begins; dropped likewise |
| again     | `_again`     | after MORE at once, or after    | waiting, before all others                  |
|           |              | the pause                       |                                             |
| any       |              | the dispatcher closes           | answered, with `StoreClosed`                |
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from threading import get_ident
from typing import Any, Generic
from weakref import WeakSet

import tenure.engine as e
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.observe import Reporter
from tenure.pages import doc_page
from tenure.upkeep import Upkeep
from tenure.waiting import Backoff, Expired, Line, checkpoint, now, this_loop

from ._availability import Availability

_NOWHERE = -1
_NOT_OPEN = "the store is not open: use `async with open_store(...) as store`"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

WINDOW = 2 * e.CAP
"""The number of operations that may be under way: a batch, and the next batch that forms."""

_READS = (e.Count, e.GetResult, e.Ping, e.Scan)

MOST_REPEATS = 100_000
"""The number of times that an operation may be answered MORE: each time the engine has done `CAP` steps of expiry."""


class Home:
    """The home of a store: its process, its thread and its loop, and whether it is open there.

    While another loop of this thread runs, the store's loop does not. `thread` is compared right before anything is
    sent.
    """

    __slots__ = ("__weakref__", "_loop", "closed", "fault", "forked", "thread", "upkeep")

    def __init__(self) -> None:
        self.thread: int = _NOWHERE
        self._loop: object = None
        self.forked: bool = False
        self.upkeep: Upkeep | None = None
        self.closed: bool = False
        self.fault: Exception | None = None
        """The fault that has ended the store."""
        _homes.add(self)

    def settle(self) -> bool:
        forked, self.forked = self.forked, False
        self.thread = get_ident()
        self._loop = this_loop()
        return forked

    def check(self) -> None:
        """Raise `RuntimeError` in any other thread or process, while another loop runs, and before the opening."""
        if get_ident() != self.thread:
            raise self.error()
        loop = this_loop()
        if loop is not self._loop and loop is not None:
            raise RuntimeError(
                "the store was opened in another event loop, which does not run now: open one in each loop, with "
                f"open_store(...), or call anyio.run(...) once, around all; {_help()}"
            )

    def check_open(self) -> Upkeep:
        """The jobs of the open store. Raises `RuntimeError` before the opening, `StoreClosed`. From any thread."""
        if self.upkeep is None:
            raise RuntimeError(_NOT_OPEN)
        if self.closed:
            raise StoreClosed("the store is closed") from self.fault
        return self.upkeep

    def running(self) -> Upkeep:
        if self.upkeep is None or self.closed:
            return self.check_open()
        # `check`, without the call
        if get_ident() != self.thread or this_loop() is not self._loop:
            self.check()
        return self.upkeep

    def error(self) -> RuntimeError:
        if self.forked:
            return RuntimeError(
                "the store was opened before this process was forked, and belongs to the parent: open another one "
                f"here, with open_store(...); {_help()}"
            )
        if self.thread == _NOWHERE:
            return RuntimeError(_NOT_OPEN)
        return RuntimeError(
            "the store was opened in another thread, to whose event loop it belongs: call it there, as with "
            f"anyio.from_thread.run(...) or through a BlockingPortal; {_help()}"
        )


def _help() -> str:
    return f"see {doc_page('how-to/threads-and-processes')}"


_homes: WeakSet[Home] = WeakSet()


def _leave() -> None:
    for home in _homes:
        home.forked, home.thread = True, _NOWHERE


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)


class Call(Generic[e.A]):
    """An operation under way; a caller that no longer wants its answer clears `wanted`."""

    __slots__ = ("on_answer", "operation", "repeats", "resent", "tries", "wanted")

    def __init__(self, operation: e.Operation[e.A], on_answer: Callable[[e.A | Exception], object]) -> None:
        self.operation: e.Operation[e.A] = operation
        self.on_answer: Callable[[e.A | Exception], object] = on_answer
        self.tries: int = 0
        self.repeats: int = 0
        self.resent: bool = False
        self.wanted: bool = True


class Dispatcher:
    def __init__(self, engine: e.Engine, home: Home, availability: Availability | None = None) -> None:
        self._url = engine.url
        self._availability = availability or Availability(engine)
        self._engine_submit = engine.submit
        self._home = home
        self._waiting: deque[Call[Any]] = deque()
        self._again: deque[Call[Any]] = deque()
        self._under_way: dict[Call[Any], None] = {}
        self._submitting = False
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._held_up = False
        """True while nothing is submitted until `run` goes on: there is a pause, or a fault."""
        self._soon: dict[Callable[[], object], None] = {}
        self._idle: Line[None, None] = Line(owner=f"the store {engine.url}")
        self._callers: Line[None, Any] = Line(owner=f"the store {engine.url}")
        self._settling: Line[None, None] = Line(owner=f"the store {engine.url}")
        self._settles = False
        self._fault: Exception | None = None
        self._closed: str | None = None
        self._down = False
        self._down_since = 0.0
        self.response_timeout: float = engine.response_timeout
        """Seconds for which a call waits that is not patient."""

    @property
    def pending(self) -> int:
        return len(self._again) + len(self._waiting) + len(self._under_way)

    def send(
        self,
        operation: e.Operation[e.A],
        on_answer: Callable[[e.A | Exception], object],
        *,
        urgent: bool = False,
    ) -> Call[e.A]:
        """Send an operation; `on_answer` is called once with its answer or its error, and must not raise.

        An engine without I/O, and a dispatcher that has closed, answer before this returns. Raises `RuntimeError` in
        another thread or process than the store's.
        """
        call = Call(operation, on_answer)
        if self._closed is not None:
            on_answer(StoreClosed(self._closed))
            return call
        if get_ident() != self._home.thread:
            raise self._home.error()
        if self._waiting or self._again or self._held_up or len(self._under_way) >= WINDOW:
            # nothing may overtake what has to be sent again
            if urgent:
                self._waiting.appendleft(call)
            else:
                self._waiting.append(call)
            return call
        self._submit(call)
        if self._again:
            self._go_on()
        return call

    def call_soon(self, function: Callable[[], object]) -> None:
        if function not in self._soon and self._closed is None:
            self._home.check()
            self._soon[function] = None
            self._wake()

    async def call(self, operation: e.Operation[e.A], *, urgent: bool = False, patient: bool = True) -> e.A:
        """Send an operation and wait for its answer.

        Raises `EngineError`, `StoreClosed`; if it is not `patient`, `StoreUnavailable` when no answer has come in time.
        """
        answers: list[Any] = []
        call = self.send(operation, answers.append, urgent=urgent)
        if answers:
            await checkpoint()
            answer = answers.pop()
        else:
            try:
                answer = await self._answer_to(call, patient=patient)
            except BaseException:
                call.wanted = False
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _answer_to(self, call: Call[Any], *, patient: bool) -> Any:
        while True:
            waiter, repeats = self._callers.join(None), call.repeats
            call.on_answer = partial(self._callers.grant, waiter)
            try:
                return await self._callers.wait(waiter, inf if patient else self.patience)
            except Expired:
                if call.repeats == repeats:  # else the engine has answered, and clears up what has expired
                    name, reads = type(call.operation).__name__, isinstance(call.operation, _READS)
                    outcome = "had no answer" if reads else outcome_of(sent=call.tries > 0)
                    raise self.no_answer(f"{name} {outcome}") from None

    @property
    def is_down(self) -> bool:
        return self._down

    @property
    def patience(self) -> float:
        """Seconds for which a call waits for an answer alone: 0 once the engine has been away for as long."""
        if not self._down:
            return self.response_timeout
        return max(0.0, self._down_since + self.response_timeout - now())

    def no_answer(self, outcome: str) -> StoreUnavailable:
        trouble = self._availability.trouble or f"has not answered for {self.response_timeout:g} s"
        return StoreUnavailable(f"the store {self._url} {trouble}; {outcome}{self._availability.cause}")

    async def settled(self) -> None:
        while self.pending or self._soon:
            self._settles = True
            await self._settling.wait(self._settling.join(None))

    def close(self, why: str) -> None:
        if self._closed is not None:
            return
        self._closed = why
        unanswered = [*self._under_way, *self._again, *self._waiting]
        for calls in (self._under_way, self._again, self._waiting):
            calls.clear()
        self._callers.fail_all(lambda: StoreClosed(why))
        for call in unanswered:
            call.on_answer(StoreClosed(why))
        # what these would send gets `StoreClosed` too
        self._call_functions()
        self._wake_settling()

    async def run(self) -> None:
        while True:
            while not (self._soon or self._held_up):
                if self._settles:
                    self._wake_settling()
                await self._idle.wait(self._idle.join(None))
            if self._fault is not None:
                raise self._fault
            self._call_functions()
            if self._held_up and self._fault is None:
                await self._backoff.pause()
                self._held_up = self._fault is not None
                self._go_on()
                if self._down and not (self.pending or self._settles):
                    # no caller waits for the operations without an answer: ask whether the engine is back
                    self.send(e.Ping(), _nothing).wanted = False

    def _submit(self, call: Call[Any]) -> None:
        call.tries += 1
        if call.tries - call.repeats > 1 and not call.resent:
            call.resent = True
            operation = call.operation
            fields = {"operation": type(operation).__name__, "key": operation.key}
            self._availability.reporter.inform("operation.resent", **fields, **self._availability.outage())
        self._under_way[call] = None
        self._submitting = True
        try:
            self._engine_submit(call.operation, partial(self._on_answer, call))
        except Exception as fault:  # noqa: BLE001 it ends the store, and is none of the caller's
            # `run` raises it; the call is answered when the store has closed
            self._fault = self._fault or fault
            self._hold_up()
        self._submitting = False

    def _go_on(self) -> None:
        waiting = self._waiting
        while not self._held_up:
            if self._again:
                waiting.extendleft(reversed(self._again))
                self._again.clear()
            if not waiting or len(self._under_way) >= WINDOW:
                break
            call = waiting.popleft()
            if call.wanted:
                self._submit(call)
        if self._settles and not self._under_way:
            self._wake()

    def _on_answer(self, call: Call[Any], answer: Any) -> None:
        if call not in self._under_way:
            return  # closed meanwhile
        del self._under_way[call]
        if answer is e.Reply.MORE:
            call.repeats += 1
            if call.repeats < MOST_REPEATS:
                if call.wanted:
                    self._again.append(call)
                # an engine without I/O has not returned yet: its caller goes on
                if not self._submitting:
                    self._go_on()
                return
            answer = self._endless(call.operation)
        if isinstance(answer, StoreUnavailable):
            if not self._down:
                self._down, self._down_since = True, now()
            self._availability.lost(self, answer)
            call.tries -= isinstance(answer, e.NotSent)
            if call.wanted:
                self._again.append(call)
            self._hold_up()
            return
        if self._down:
            self._down = False
            self._backoff.reset()
            self._availability.back(self)
        call.on_answer(answer)
        if self._waiting or (self._settles and not self._under_way):
            self._go_on()

    def _hold_up(self) -> None:
        self._held_up = True
        self._wake()

    def _endless(self, operation: e.Operation[Any]) -> EngineError:
        return EngineError(
            f"{self._url}: the engine has answered {type(operation).__name__} {MOST_REPEATS} times with "
            "MORE; its expiry never ends, and whether the operation was applied is unknown"
        )

    def _call_functions(self) -> None:
        functions, self._soon = self._soon, {}
        for function in functions:
            function()

    def _wake_settling(self) -> None:
        self._settles = False
        for waiter in self._settling:
            self._settling.grant(waiter, None)

    def _wake(self) -> None:
        if (sleeper := self._idle.head()) is not None:
            self._idle.grant(sleeper, None)


class Dispatchers:
    def __init__(self, engine: e.Engine, home: Home, reporter: Reporter | None = None) -> None:
        self.home = home
        self._shard = engine.shard
        shards = engine.shards
        self.availability: Availability = Availability(engine, reporter)
        self.all: tuple[Dispatcher, ...] = tuple(
            Dispatcher(engine, home, self.availability) for _ in range(shards + (shards > 1))
        )
        self._only = self.all[0] if shards == 1 else None

    @property
    def pending(self) -> int:
        return sum(dispatcher.pending for dispatcher in self.all)

    def of(self, name: str) -> Dispatcher:
        return self._only or self.all[self._shard(name) if name else -1]

    def trouble(self, key: str) -> str | None:
        return self.availability.trouble if self._only or self.of(key).is_down else None

    def be_patient(self) -> None:
        for dispatcher in self.all:
            dispatcher.response_timeout = inf

    async def settled(self) -> None:
        for dispatcher in self.all:
            await dispatcher.settled()

    def close(self, why: str) -> None:
        for dispatcher in self.all:
            dispatcher.close(why)


def outcome_of(*, sent: bool) -> str:
    return "may or may not have been applied" if sent else "was not applied"


def _nothing(_: object) -> None:
    pass
