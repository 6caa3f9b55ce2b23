"""Virtual time on trio: its own `MockClock`, and a watch for deadlocks, in which that would spin for ever."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from ._deadlock import DeadlockError, describe

if TYPE_CHECKING:
    import trio

# Trio's own task for calls from other threads always waits for its pipe.
OWN_PIPES = 1


class TrioTime:
    """The time of a `VirtualClock` on trio; also the instrument that watches for deadlocks."""

    backend = "trio"

    def __init__(self, settle: float, patience: float) -> None:
        from trio.testing import MockClock

        self.quiet_for = settle
        self.patience = patience
        self._mock = MockClock(autojump_threshold=settle)
        self.deadlock: DeadlockError | None = None
        self._stuck_since: float | None = None

    def options(self) -> dict[str, Any]:
        return {"clock": self._mock, "instruments": [self]}

    def now(self) -> float:
        return self._mock.current_time()

    async def settle(self) -> None:
        from trio.testing import wait_all_tasks_blocked

        await wait_all_tasks_blocked(self.quiet_for)

    def before_run(self) -> None:
        self.deadlock = None
        self._stuck_since = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 # the instrument's signature
        self._stuck_since = None

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 # the instrument's signature
        import trio

        statistics = trio.lowlevel.current_statistics()
        if (
            statistics.tasks_runnable
            or statistics.seconds_to_next_deadline < math.inf
            or _waiting_for_io(statistics.io_statistics) > OWN_PIPES
        ):
            self._stuck_since = None
            return
        now = time.perf_counter()
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > self.patience:
            self._stuck_since = math.inf
            self._give_up()
        else:
            # The clock polls without a pause while it has nothing to jump to.
            time.sleep(0.001)

    def _give_up(self) -> None:
        import trio

        root = trio.lowlevel.current_root_task()
        if root is None:
            return
        # Root holds three nurseries, one inside the other; the innermost runs the main task.
        main = root.child_nurseries[-1]
        report = describe((task.name, task.coro) for task in _below(main))
        self.deadlock = DeadlockError(report)
        main.cancel_scope.cancel(reason=report)


def _waiting_for_io(io_statistics: Any) -> int:
    if io_statistics.backend == "epoll":
        return io_statistics.tasks_waiting_read + io_statistics.tasks_waiting_write
    return getattr(io_statistics, "tasks_waiting", 0)


def _below(nursery: trio.Nursery) -> list[trio.lowlevel.Task]:
    found: list[trio.lowlevel.Task] = []
    for task in sorted(nursery.child_tasks, key=lambda task: task.name):
        found.append(task)
        for inner in task.child_nurseries:
            found += _below(inner)
    return found
