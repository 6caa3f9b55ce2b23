"""Sending: how operations reach the engine, in order, and again whenever the outcome of one is unknown.

There is one dispatcher for each shard of the engine, so that a shard that is away does not stop the others. An
operation travels in one of three ways:

- *immediate*: the engine applies it in a plain call (memory);
- *posted*: the engine sends it at once and answers later, in order (Redis, while its connection stands);
- *batched*: what arrives while a batch is on its way forms the next one, one batch at a time (SQLite, PostgreSQL; every
  engine for what has to be sent again).

Where an operation is, by the container that holds its `Call`:

| state     | container    | event                          | goes to                               |
|-----------|--------------|--------------------------------|---------------------------------------|
| new       | -            | immediate engine               | answered                              |
|           |              | nothing waits, `post` takes it | posted                                |
|           |              | otherwise                      | waiting (at the front if urgent)      |
| waiting   | `_calls`     | its batch leaves               | in flight; dropped if no longer wanted |
| posted    | `_posted`    | an answer                      | answered                              |
|           |              | MORE, or `StoreUnavailable`    | again; dropped if no longer wanted    |
| again     | `_again`     | the next batch is made         | waiting, before all others            |
| in flight | `_in_flight` | an answer                      | answered                              |
|           |              | MORE, or `StoreUnavailable`    | waiting, before all others            |
| any       |              | the dispatcher closes          | answered, with `StoreClosed`          |

While anything is waiting, again or in flight, nothing is posted: so order is kept.
"""

# open question: `execute`, `post` and `apply` are three ways into an engine. If SQLite and PostgreSQL batched in their
# own rooms, one `submit(operation, on_answer)` would do, and `_calls` and `_in_flight` would go.

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Generic

from tenure.engine import CAP, A, Engine, Operation, Reply
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.waiting import Backoff, Line, Waiter, checkpoint

from ._home import Home

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

MOST_REPEATS = 100_000
"""How often an operation may be answered MORE: each time the engine has done `CAP` steps of expiry."""


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


class Dispatcher:
    """Sends the operations for one shard.

    Order is kept: an operation reaches the engine after all that were sent before it, also when they are sent again.
    """

    def __init__(self, engine: Engine, home: Home | None = None) -> None:
        self._engine = engine
        self._home = home or Home()
        self._immediate = engine.immediate
        self._post = engine.post
        self._calls: deque[Call[Any]] = deque()
        self._again: deque[Call[Any]] = deque()
        self._posted: dict[Call[Any], None] = {}
        self._in_flight: list[Call[Any]] = []
        self._soon: dict[Callable[[], object], None] = {}
        self._idle: Line[None, None] = Line(_nothing)
        self._callers: Line[Call[Any], Any] = Line(_unwant)
        self._settling: Line[None, None] = Line(_nothing)
        self._settles = False
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

        The error is its `EngineError`, or `StoreClosed` when the dispatcher has closed. An immediate engine answers
        before this returns, unless by a fault, and so does a dispatcher that has closed. Raises `RuntimeError` in
        another thread or process than the store's.
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
            return call
        # nothing may overtake what has to be sent again
        free = not (self._calls or self._again or self._in_flight or self._fault)
        try:
            posted = free and self._post(operation, partial(self._on_posted_answer, call))
        except Exception as fault:  # noqa: BLE001 as above
            self._failed(fault, call)
            return call
        if posted:
            call.tries = 1
            self._posted[call] = None
            return call
        if urgent:
            self._calls.appendleft(call)
        else:
            self._calls.append(call)
        self._wake()
        return call

    def apply(self, operation: Operation[A]) -> A:
        """Apply one operation on an immediate engine, to its final answer. Raises `EngineError`."""
        for _ in range(MOST_REPEATS):
            if (answer := self._engine.apply(operation)) is not Reply.MORE:
                return answer
        raise self._endless(operation)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a plain function at the end of the loop's turn, before the next batch; equal ones are called once."""
        if function not in self._soon and self._closed is None:
            self._home.check()
            self._soon[function] = None
            self._wake()

    async def call(self, operation: Operation[A], *, urgent: bool = False) -> A:
        """Send an operation and wait for its answer. Raises `EngineError`, `StoreClosed`.

        Cancellation: what had not yet been sent is not sent; otherwise the operation may or may not be applied.
        """
        answers: list[Any] = []
        call = self.send(operation, answers.append, urgent=urgent)
        if answers:
            await checkpoint()
            answer = answers.pop()
        else:
            waiter = self._callers.join(call)
            call.on_answer = partial(self._callers.grant, waiter)
            answer = await self._callers.wait(waiter)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def settled(self) -> None:
        """Wait until nothing is pending."""
        while self.pending or self._soon:
            self._settles = True
            await self._settling.wait(self._settling.join(None))

    def close(self, why: str) -> None:
        """Send nothing any more: every call that is not yet answered gets `StoreClosed`."""
        if self._closed is not None:
            return
        self._closed = why
        unanswered = [*self._posted, *self._in_flight, *self._again, *self._calls]
        for calls in (self._posted, self._in_flight, self._again, self._calls):
            calls.clear()
        self._callers.fail_all(lambda: StoreClosed(why))
        for call in unanswered:
            call.on_answer(StoreClosed(why))
        # what these would send gets `StoreClosed` too
        self._call_functions()
        self._wake_settling()

    async def run(self) -> None:
        """Send batches until cancelled. Raises what the engine raises by a fault of its own, which no engine should.

        Cancellation: the batch on its way may or may not be applied.
        """
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            while not (self._calls or self._again or self._soon or self._fault):
                self._wake_settling()
                await self._idle.wait(self._idle.join(None))
            if self._fault is not None:
                raise self._fault
            self._call_functions()
            if not (batch := self._next_batch()):
                continue
            try:
                answers = await self._engine.execute([call.operation for call in batch])
            except StoreUnavailable as problem:
                self.down = problem
                self._calls.extendleft(call for call in reversed(batch) if call.wanted)
                self._in_flight = []
                await backoff.pause()
                continue
            except EngineError as problem:  # no engine should; its store must not end by it
                answers = [problem] * len(batch)
            if self._closed is not None:
                return
            backoff.reset()
            self.down, self._in_flight = None, []
            answered = [
                (call, self._final(call, answer)) for call, answer in zip(batch, answers, strict=True)
            ]
            self._calls.extendleft(call for call, answer in reversed(answered) if answer is Reply.MORE)
            for call, answer in answered:
                if answer is not Reply.MORE:
                    call.on_answer(answer)

    def _on_posted_answer(self, call: Call[Any], answer: Any) -> None:
        if call not in self._posted:
            return
        del self._posted[call]
        if answer is Reply.MORE:
            answer = self._final(call, answer)
        if answer is Reply.MORE or isinstance(answer, StoreUnavailable):
            if answer is not Reply.MORE:
                self.down = answer
            if call.wanted:
                self._again.append(call)
            self._wake()
            return
        self.down = None
        call.on_answer(answer)
        if self._settles and not self._posted:
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
            "MORE; its expiry never ends, and whether the operation was applied is unknown"
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

    def _failed(self, fault: Exception, call: Call[Any]) -> None:
        """Have `run` raise the fault; the call is answered when the store has closed."""
        self._fault = self._fault or fault
        self._calls.append(call)
        self._wake()

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
    """The dispatchers of an engine: one for each shard and, where there are several, one for what concerns all."""

    def __init__(self, engine: Engine, home: Home | None = None) -> None:
        self._shard = engine.shard
        shards = engine.shards
        home = home or Home()
        self.all = tuple(Dispatcher(engine, home) for _ in range(shards + (shards > 1)))
        self._only = self.all[0] if shards == 1 else None

    @property
    def pending(self) -> int:
        """How many operations are not yet answered."""
        return sum(dispatcher.pending for dispatcher in self.all)

    @property
    def down(self) -> StoreUnavailable | None:
        """Why a part of the engine cannot be reached at the moment."""
        return next((dispatcher.down for dispatcher in self.all if dispatcher.down is not None), None)

    def of(self, name: str) -> Dispatcher:
        """The one for an object or a session of that name; without a name, for what concerns all."""
        return self._only or self.all[self._shard(name) if name else -1]

    async def settled(self) -> None:
        """Wait until nothing is pending."""
        for dispatcher in self.all:
            await dispatcher.settled()

    def close(self, why: str) -> None:
        """Send nothing any more: every call that is not yet answered gets `StoreClosed`."""
        for dispatcher in self.all:
            dispatcher.close(why)


def _nothing(_: object) -> None:
    pass


def _unwant(waiter: Waiter[Call[Any], Any]) -> None:
    waiter.want.wanted = False
