"""Signals: the first one asks to stop, the second one stops."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope
from anyio.abc import TaskStatus

from tenure.serving import ending_signals, is_hangup


@contextmanager
def handled(handlers: Mapping[signal.Signals, Any]) -> Generator[None]:
    """A block in which signals have these handlers."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            # None: it was not installed by Python, which cannot put it back
            signal.signal(number, signal.SIG_DFL if old is None else old)


class Stop:
    def __init__(self, everything: CancelScope, say: Callable[[str], object]) -> None:
        self.asked = False
        self._everything = everything
        self._say = say
        self._scopes: set[CancelScope] = set()

    async def listen(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Heed SIGINT, SIGTERM and SIGHUP until cancelled. Cancellation: the signals do again what they did before."""
        with ExitStack() as stack:
            try:
                signals = stack.enter_context(anyio.open_signal_receiver(*ending_signals()))
            except NotImplementedError:  # asyncio on Windows: Ctrl-C cancels everything at once
                task_status.started()
                return
            task_status.started()
            async for number in signals:
                if self.asked and is_hangup(number):
                    continue
                if self.asked:
                    self._say("stops at once")
                    self._everything.cancel()
                    return
                self.ask()

    def ask(self) -> None:
        self.asked = True
        self._say("finishes what has begun; a second signal stops at once")
        for scope in self._scopes:
            scope.cancel()

    @contextmanager
    def ends(self) -> Generator[CancelScope]:
        with CancelScope() as scope:
            self._scopes.add(scope)
            if self.asked:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def spare(self, scope: CancelScope) -> None:
        self._scopes.discard(scope)
