"""An engine's link to its file, open while any `serve` call runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CancelScope

import tenure.engine as e
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import Line, Waiter, checkpoint

from ._busy_retry import BusyRetry
from ._clock import Clocks
from ._file import File
from ._inline import Inline
from ._presence import FileLostError
from ._thread import EngineThread, ThreadCall


class Link:
    def __init__(
        self,
        path: Path,
        clocks: Clocks,
        *,
        synchronous: str,
        retry: BusyRetry,
        inline: bool,
        listeners: dict[str, Callable[[e.Hint], None]],
        batches: e.Batches,
    ) -> None:
        self._retry = retry
        self._batches = batches
        self._listeners = listeners
        self._file: File | None = None
        self._lost: FileLostError | None = None
        self._fault: Exception | None = None
        self._work = False
        self._senders: Line[None, None] = Line(self._on_sender_left, f"the store {path}")
        self._serving: set[CancelScope] = set()
        self._runner = runner = (
            Inline(self._check) if inline else EngineThread(f"tenure {path.name}", self._check)
        )
        self._make = partial(
            File,
            path,
            clocks,
            synchronous=synchronous,
            retry=retry,
            served=listeners.__contains__,
            poke=runner.poke,
        )

    async def open(self) -> None:
        """Open the file. Raises `EngineError`, `StoreUnavailable`. Cancellation: call `close`, always."""
        await self._runner.call(self._open)
        self._batches.open(self._on_work)

    async def serve(
        self, process: str, deliver: Callable[[e.Hint], None], started: Callable[[], None]
    ) -> None:
        """Deliver the hints for a process, until cancelled. Raises `EngineError` once the file was
        deleted or replaced.
        """
        self._listeners[process] = deliver
        assert self._file is not None
        try:
            await self._runner.call(partial(self._begin_serving, process))
            started()
            with CancelScope() as scope:
                self._serving.add(scope)
                try:
                    if self._lost is None and self._fault is None:
                        async with unwrapped_task_group() as group:
                            group.start_soon(self._send_batches, name="tenure sqlite batches")
                            await self._runner.tend(self._file.identity, process)
                finally:
                    self._serving.discard(scope)
            if self._fault is not None:
                raise self._fault
            if self._lost is not None:
                raise EngineError(*self._lost.args)
        finally:
            del self._listeners[process]

    async def close(self) -> None:
        """Close the file, without waiting for its lock any longer. Cancellation: shield it."""
        self._retry.give_up()
        try:
            await self._runner.end(self._close)
        finally:
            self._batches.close()

    # on the thread

    def _open(self) -> None:
        self._file = self._make()

    def _execute(self, operations: Sequence[e.Operation[Any]]) -> list[Any]:
        assert self._file is not None
        try:
            answers, hints = self._file.execute(operations)
        except FileLostError as problem:
            self._lose(problem)
            raise
        self._bring(hints)
        return answers

    def _begin_serving(self, process: str) -> None:
        assert self._file is not None
        self._file.begin_serving(process)
        self._runner.checking = True

    def _check(self) -> bool:
        if self._file is None or self._lost is not None:
            return False
        try:
            changed, hints = self._file.check(self._listeners)
        except FileLostError as problem:
            self._lose(problem)
            return False
        self._bring(hints)
        # hints that no datagram announced come from where datagrams do not: check often
        return bool(hints) if self._runner.woken else changed

    def _close(self) -> None:
        self._runner.checking = False
        if self._file is not None:
            self._file.close()

    def _lose(self, problem: FileLostError) -> None:
        self._lost = problem
        with suppress(RuntimeError):  # as in `_bring`
            self._runner.call_soon(self._stop_serving)

    def _bring(self, hints: Sequence[e.Hint]) -> None:
        if hints:
            # RuntimeError: the loop is closed, and no hints are wanted
            with suppress(RuntimeError):
                self._runner.call_soon(partial(self._deliver, hints))

    # on the loop

    async def _send_batches(self) -> None:
        while True:
            while not self._work:
                await self._senders.wait(self._senders.join(None))
            self._work = False
            self._runner.start(partial(self._execute, self._batches.take()), self._on_executed)
            await checkpoint()

    def _on_work(self) -> None:
        self._work = True
        if (sender := self._senders.head()) is not None:
            self._senders.grant(sender, None)

    def _on_sender_left(self, _: Waiter[None, None]) -> None:
        if self._work:
            self._on_work()

    def _on_executed(self, job: ThreadCall[list[Any]]) -> None:
        try:
            answers = job.result()
        except StoreUnavailable as problem:
            self._batches.fail(problem)
        except EngineError as problem:
            self._batches.answer_all(problem)
        except Exception as fault:  # noqa: BLE001 `serve` raises it
            self._fault = fault
            self._stop_serving()
        else:
            self._batches.answer(answers)

    def _stop_serving(self) -> None:
        for scope in self._serving:
            scope.cancel()

    def _deliver(self, hints: Sequence[e.Hint]) -> None:
        for hint in hints:
            deliver = self._listeners.get(hint.process)
            if deliver is not None:
                deliver(hint)
