"""Batching, for engines to which operations travel in batches: while a batch is under way, the next batch gathers.

| state     | where       | event                        | goes to                              |
|-----------|-------------|------------------------------|--------------------------------------|
| new       | -           | it is not open               | answered, with `NotSent`             |
|           |             | it is open                   | waiting                              |
| waiting   | `_waiting`  | `take`: at most `CAP`        | under way                            |
|           |             | `fail`, `close`              | answered, with `NotSent`             |
| under way | `_carried`  | `answer`, `fail`, `close`    | answered                             |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from tenure.errors import EngineError, StoreUnavailable
from tenure.waiting import Parked, loop_caller, park, wake

from ._answers import CAP, NotSent, Operation

OnAnswer = Callable[[Any], object]


class Batches:
    """The operations for one shard, or for an engine that has one.

    Either a task runs `run`, or the engine calls `open` first, `take` whenever `start()` is called, `answer` or `fail`
    for each batch that was taken, and `close` in the end.
    """

    def __init__(self, url: str) -> None:
        self.busy: bool = False
        """True while an operation waits or is under way.

        An engine that can also send directly sets it: then the next operations go this way until a batch is applied.
        """
        self._url = url
        self._start: Callable[[], object] | None = None
        self._started = False
        self._waiting: deque[tuple[Operation[Any], OnAnswer]] = deque()
        self._carried: list[tuple[Operation[Any], OnAnswer]] = []
        self._sleeper: Parked | None = None

    def submit(self, operation: Operation[Any], on_answer: OnAnswer) -> None:
        """Put an operation behind all others; see `tenure.engine.Engine.submit`."""
        if self._start is None:
            # not from within `submit`
            problem = NotSent(f"{self._url}: the engine does not serve")
            loop_caller()(partial(_answer, on_answer, problem))
            return
        self._waiting.append((operation, on_answer))
        self.busy = True
        if not self._started:
            self._started = True
            self._start()

    def open(self, start: Callable[[], object]) -> None:
        """From now on, call `start()` when operations wait and no batch is under way."""
        self._start = start

    def take(self) -> list[Operation[Any]]:
        """The next batch."""
        waiting = self._waiting
        self._carried = [waiting.popleft() for _ in range(min(CAP, len(waiting)))]
        return [operation for operation, _ in self._carried]

    def answer(self, answers: Sequence[Any]) -> bool:
        """Answer the operations that were taken, and go on with the others. True: the answers alone led to these."""
        answered = list(zip(self._carried, answers, strict=True))
        self._carried = []
        gathered = bool(self._waiting)
        for (_, on_answer), answer in answered:
            on_answer(answer)
        if self._waiting and self._start is not None:
            self._start()
        else:
            self._started = self.busy = False
        return self._started and not gathered

    def answer_all(self, answer: object) -> None:
        """Give all taken operations the same answer."""
        self.answer([answer] * len(self._carried))

    def fail(self, problem: StoreUnavailable) -> None:
        """Answer the taken operations with the problem, the waiting ones with `NotSent`: they must not overtake the
        former.
        """
        carried, self._carried = self._carried, []
        waiting, self._waiting = self._waiting, deque()
        self._started = self.busy = False
        for _, on_answer in carried:
            on_answer(type(problem)(*problem.args))
        for _, on_answer in waiting:
            on_answer(NotSent(*problem.args))

    def close(self) -> None:
        """Carry no more batches, until it is opened again."""
        self._start = None
        self.fail(StoreUnavailable(f"{self._url}: the engine no longer serves"))

    async def run(
        self,
        apply: Callable[[Sequence[Operation[Any]]], Awaitable[Sequence[Any]]],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Carry batches until cancelled: `await apply(operations)` returns an answer for each.

        If it raises `StoreUnavailable`, the outcome of the whole batch is unknown; an `EngineError` is the answer to
        each. Any other error ends `run`.
        Cancellation: the batch on its way may or may not be applied.
        """
        self.open(self._wake)
        task_status.started()
        try:
            while True:
                if not self._started:
                    self._sleeper = park()
                    await self._sleeper
                try:
                    answers = await apply(self.take())
                except StoreUnavailable as problem:
                    self.fail(problem)
                except EngineError as problem:
                    self.answer_all(problem)
                else:
                    self.answer(answers)
        finally:
            self.close()

    def _wake(self) -> None:
        if self._sleeper is not None:
            wake(self._sleeper)


def _answer(on_answer: OnAnswer, answer: object) -> None:
    on_answer(answer)
