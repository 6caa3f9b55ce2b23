from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from typing import Any

import anyio
from anyio import CancelScope

from tenure.observe import log
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import now

from ._signals import is_hangup


class _Service:
    def __init__(self, service: Any) -> None:
        if not callable(getattr(service, "run", None)):
            raise TypeError(
                f"a service must have an async method run(), as a Worker has; {service!r} has none"
            )
        self.service = service
        self.drain = getattr(service, "drain", None)
        self.scope = CancelScope()
        self.started = False


class Serving:
    """Runs services once. A line is logged when they begin to drain, and when some are cancelled."""

    def __init__(self, services: Sequence[object], *, grace: float | None = None) -> None:
        if not services:
            raise ValueError(
                "services must not be empty: name at least one object with an async method run()"
            )
        self._running = [_Service(service) for service in services]
        self._grace = grace
        self._everything = CancelScope()
        self._asked = anyio.Event()
        self._problems: list[Exception] = []
        self._cancelled: list[object] = []

    def on_signal(self, number: signal.Signals) -> None:
        """Drain at the first signal, and cancel at the second one, unless it is SIGHUP."""
        if self._asked.is_set() and not is_hangup(number):
            self.cancel(number.name)
        else:
            self.ask(number.name)

    def ask(self, reason: str) -> None:
        if not self._asked.is_set():
            self._asked.set()
            limit = "" if self._grace is None else f", for at most {self._grace:g} s"
            log(logging.INFO, f"{reason}: takes no more, finishes what has begun{limit}")

    def cancel(self, reason: str) -> None:
        self._asked.set()
        if not self._everything.cancel_called:
            log(logging.WARNING, f"{reason}: cancels what has not finished; its tasks are given back")
            self._everything.cancel(reason)

    def unready(self) -> str | None:
        if self._asked.is_set():
            return "drains"
        reasons = [
            f"{running.service!r} {reason}"
            for running in self._running
            if (reason := _unready(running.service)) is not None
        ]
        return "; ".join(reasons) or None

    async def run(self) -> bool:
        async with unwrapped_task_group() as group:
            with self._everything:
                async with unwrapped_task_group() as services:
                    for running in list(self._running):
                        services.start_soon(self._run, running, name=f"tenure serves {running.service!r}")
                    await self._asked.wait()
                    if self._grace is not None and self._running:
                        group.start_soon(self._limit, self._grace)
                    for running in list(self._running):
                        services.start_soon(self._drain, running, name=f"tenure drains {running.service!r}")
            group.cancel_scope.cancel()
        if len(self._problems) > 1:
            raise ExceptionGroup("several services failed", self._problems)
        if self._problems:
            raise self._problems[0]
        return not self._cancelled

    async def _run(self, running: _Service) -> None:
        try:
            if not self._asked.is_set():
                running.started = True
                with running.scope:
                    await running.service.run()
        except Exception as problem:  # noqa: BLE001 - it is raised in the end
            self._fail(running, problem)
        except BaseException:
            self._cancelled.append(running.service)
            raise
        finally:
            self._running.remove(running)
            if not self._running:
                self._asked.set()

    async def _drain(self, running: _Service) -> None:
        if not running.started:  # and it never will
            return
        if running.drain is None:
            running.scope.cancel("it has no drain()")
            return
        try:
            await running.drain()
        except Exception as problem:  # noqa: BLE001 - it is raised in the end
            self._fail(running, problem)
            running.scope.cancel("it cannot be drained")

    def _fail(self, running: _Service, problem: Exception) -> None:
        self._problems.append(problem)
        if len(self._running) > 1:
            self.ask(f"{running.service!r} failed")

    async def _limit(self, grace: float) -> None:
        await anyio.sleep_until(now() + grace)
        self.cancel(f"not done within {grace:g} s")


def _unready(service: Any) -> str | None:
    try:
        reason = getattr(service, "unready", None)
    except Exception as problem:  # noqa: BLE001 - the answer says it
        return f"is not ready: {problem!r} was raised"
    return None if reason is None else f"is not ready: {reason}"
