"""The wire to the engine: what arrives while a batch is on its way forms the next one.

An engine that can be posted to gets each operation at once instead; batches are then for what has to be sent again, and
for what comes while the engine is away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import uniform
from threading import get_ident
from typing import Any, Generic, Protocol

import anyio
from anyio.lowlevel import checkpoint

from tenure.engine import CAP, A, Engine, Operation, Reply
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.local._line import Line, Waiter

from ._home import Home

_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 1.0

MOST_REPEATS = 100_000
"""How often an operation may be answered MORE: each time the engine has done `CAP` steps of its clearing up."""


class Source(Protocol):
    """Something that gathers what it has to say until the turn of the loop is over, and then makes it one operation."""

    def compose(self) -> None:
        """Send what was gathered."""
        ...


Post = Callable[[Operation[Any], Callable[[Any], object]], bool]


class Call(Generic[A]):
    """One operation under way; a caller that no longer wants it clears `wanted`.

    `tries` counts how often it was sent, `repeats` how often the answer was MORE.
    """

    __slots__ = ("on_answer", "operation", "repeats", "tries", "wanted")

    def __init__(self, operation: Operation[A], on_answer: Callable[[A | Exception], object]) -> None:
        self.operation = operation
        self.on_answer = on_answer
        self.tries = 0
        self.repeats = 0
        self.wanted = True


class Wire:
    """Sends operations, posted or in batches, one batch at a time, and again whenever the outcome of one is unknown.

    Order is kept: an operation reaches the engine after all that were sent before it, also when they are sent again.

    Thread safety: none.
    """

    def __init__(self, engine: Engine, home: Home | None = None) -> None:
        self._engine = engine
        self._home = home or Home()
        self._immediate = engine.immediate
        self._post: Post = getattr(engine, "post", _refused)
        self._calls: deque[Call[Any]] = deque()
        self._again: deque[Call[Any]] = deque()
        self._posted: dict[Call[Any], None] = {}
        self._sources: dict[Source, None] = {}
        self._idle: Line[None, None] = Line(_nothing)
        self._callers: Line[Call[Any], Any] = Line(_unwant)
        self._idle_watchers: Line[None, None] = Line(_nothing)
        self._in_flight: list[Call[Any]] = []
        self._fault: Exception | None = None
        self._closed: str | None = None
        self.down: StoreUnavailable | None = None
        """Why the engine cannot be reached at the moment."""

    @property
    def pending(self) -> int:
        """How many operations are not yet answered."""
        return len(self._again) + len(self._calls) + len(self._in_flight) + len(self._posted)

    def send(
        self, operation: Operation[A], on_answer: Callable[[A | Exception], object], *, urgent: bool = False
    ) -> Call[A]:
        """Send an operation; `on_answer` is called once with its answer or its error, and must not raise.

        The error is its `EngineError`, or `StoreClosed` when nothing is carried any more. An immediate engine answers
        before this returns, unless by a fault, and so does a wire that is closed. Raises `RuntimeError` in another
        thread or process than the store's.
        """
        call = Call(operation, on_answer)
        if self._closed is not None:
            on_answer(StoreClosed(self._closed))
            return call
        if get_ident() != self._home.thread:
            raise self._home.error()
        if self._immediate:
            try:
                answer = self.apply(operation)
            except EngineError as problem:
                on_answer(problem)
            except Exception as fault:  # noqa: BLE001 it ends the store, and is none of the caller's
                self._failed(fault, call)
            else:
                on_answer(answer)
        else:
            self._carry(call, urgent)
        return call

    def apply(self, operation: Operation[A]) -> A:
        """Apply one operation on an immediate engine, to its final answer. Raises `EngineError`."""
        for _ in range(MOST_REPEATS):
            if (answer := self._engine.apply(operation)) is not Reply.MORE:
                return answer
        raise self._endless(operation)

    def compose_soon(self, source: Source) -> None:
        """Have `source.compose()` called once before the next batch leaves, at the end of the loop's turn."""
        if source not in self._sources and self._closed is None:
            self._home.check()
            self._sources[source] = None
            self._wake()

    async def call(self, operation: Operation[A], *, urgent: bool = False) -> A:
        """Send an operation and wait for its answer. Raises `EngineError`, `StoreClosed`.

        Cancellation: what had not yet been sent is not sent; otherwise the operation may or may not be applied.
        """
        if self._closed is not None:
            await checkpoint()
            raise StoreClosed(self._closed)
        self._home.check()
        call = Call(operation, _nothing)
        if self._immediate:
            try:
                answer = self.apply(operation)
            except EngineError:
                raise
            except Exception as fault:  # noqa: BLE001 as in `send`
                self._failed(fault, call)
            else:
                await checkpoint()
                return answer
        else:
            self._carry(call, urgent)
        waiter = self._callers.join(call)
        call.on_answer = partial(self._callers.grant, waiter)
        answer = await self._callers.wait(waiter)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def settled(self) -> None:
        """Wait until nothing is pending. Cancellation: has no effect."""
        while self.pending or self._sources:
            await self._idle_watchers.wait(self._idle_watchers.join(None))

    def close(self, why: str) -> None:
        """Nothing is carried any more: whoever still waits for an answer gets `StoreClosed`."""
        if self._closed is not None:
            return
        self._closed = why
        unanswered = [*self._posted, *self._in_flight, *self._again, *self._calls]
        for calls in (self._posted, self._in_flight, self._again, self._calls):
            calls.clear()
        self._callers.fail_all(lambda: StoreClosed(why))
        for call in unanswered:
            call.on_answer(StoreClosed(why))
        # what has gathered is told the same
        sources, self._sources = self._sources, {}
        for source in sources:
            source.compose()
        self._tell_idle()

    async def run(self) -> None:
        """Carry batches until cancelled. Raises what the engine raises by a fault of its own, which no engine should.

        Cancellation: the batch on its way may or may not be applied.
        """
        backoff = _FIRST_BACKOFF
        while True:
            while not (self._calls or self._again or self._sources or self._fault):
                self._tell_idle()
                await self._idle.wait(self._idle.join(None))
            if self._fault is not None:
                raise self._fault
            sources, self._sources = self._sources, {}
            for source in sources:
                source.compose()
            if not (batch := self._next_batch()):
                continue
            try:
                answers = await self._engine.execute([call.operation for call in batch])
            except StoreUnavailable as problem:
                self.down = problem
                self._send_again(batch)
                await anyio.sleep(uniform(0.5, 1) * backoff)
                backoff = min(2 * backoff, _LONGEST_BACKOFF)
                continue
            except EngineError as problem:  # no engine should; its store must not end by it
                answers = [problem] * len(batch)
            if self._closed is not None:
                return
            backoff, self.down, self._in_flight = _FIRST_BACKOFF, None, []
            answered = [
                (call, self._final(call, answer)) for call, answer in zip(batch, answers, strict=True)
            ]
            self._calls.extendleft(call for call, answer in reversed(answered) if answer is Reply.MORE)
            for call, answer in answered:
                if answer is not Reply.MORE:
                    call.on_answer(answer)

    def _carry(self, call: Call[Any], urgent: bool) -> None:
        # what has to be sent again goes before it
        free = not (self._calls or self._again or self._in_flight or self._fault)
        try:
            posted = free and self._post(call.operation, partial(self._came_back, call))
        except Exception as fault:  # noqa: BLE001 as in `send`
            self._failed(fault, call)
            return
        if posted:
            call.tries += 1
            self._posted[call] = None
            return
        if urgent:
            self._calls.appendleft(call)
        else:
            self._calls.append(call)
        self._wake()

    def _came_back(self, call: Call[Any], answer: Any) -> None:
        if call not in self._posted:
            return
        del self._posted[call]
        answer = self._final(call, answer)
        if answer is Reply.MORE or isinstance(answer, StoreUnavailable):
            if answer is not Reply.MORE:
                self.down = answer
            if call.wanted:
                self._again.append(call)
            self._wake()
        else:
            self.down = None
            call.on_answer(answer)
            if not self._posted and len(self._idle_watchers):
                self._wake()

    def _final(self, call: Call[Any], answer: Any) -> Any:
        """An answer that is not MORE for ever."""
        if answer is Reply.MORE:
            call.repeats += 1
            if call.repeats >= MOST_REPEATS:
                return self._endless(call.operation)
        return answer

    def _endless(self, operation: Operation[Any]) -> EngineError:
        return EngineError(
            f"{self._engine.url}: the engine has answered {type(operation).__name__} {MOST_REPEATS} times with "
            "MORE; its clearing up never ends, and whether the operation was applied is unknown"
        )

    def _next_batch(self) -> list[Call[Any]]:
        batch: list[Call[Any]] = []
        self._calls.extendleft(reversed(self._again))
        self._again.clear()
        while self._calls and len(batch) < CAP:
            call = self._calls.popleft()
            if call.wanted:
                call.tries += 1
                batch.append(call)
        self._in_flight = batch
        return batch

    def _send_again(self, batch: list[Call[Any]]) -> None:
        self._calls.extendleft(call for call in reversed(batch) if call.wanted)
        self._in_flight = []

    def _failed(self, fault: Exception, call: Call[Any]) -> None:
        """Have `run` raise it; the call is answered when the store has heard of it."""
        self._fault = self._fault or fault
        self._calls.append(call)
        self._wake()

    def _tell_idle(self) -> None:
        for watcher in self._idle_watchers:
            self._idle_watchers.grant(watcher, None)

    def _wake(self) -> None:
        if (sleeper := self._idle.head()) is not None:
            self._idle.grant(sleeper, None)


def _nothing(_: object) -> None:
    pass


def _refused(*_: object) -> bool:
    return False


def _unwant(waiter: Waiter[Call[Any], Any]) -> None:
    waiter.want.wanted = False
