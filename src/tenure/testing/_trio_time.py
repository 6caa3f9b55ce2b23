"""Virtual time on trio: its own `MockClock`, and a watch for deadlocks, in which that clock would spin for ever."""

# trio's runner has no public door to its clock.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenure.lazy import extra

from ._deadlock import DeadlockError, deadlock, no_thread_can_help

if TYPE_CHECKING:
    from collections.abc import Generator

    import trio

    from ._director import Director

# Trio's own task for calls from other threads always waits for its pipe.
OWN_PIPES = 1


class TrioTime:
    """The time of a `VirtualClock` on trio; also the instrument that watches for deadlocks."""

    backend = "trio"
    director: Director | None = None

    def __init__(self, settle: float, deadlock_timeout: float) -> None:
        extra("trio", "trio")
        from trio.testing import MockClock

        self.idle_for = settle
        self.deadlock_timeout = deadlock_timeout
        self.is_ordered = False
        self._mock = MockClock(autojump_threshold=settle)
        self.deadlock: DeadlockError | None = None
        self._stuck_since: float | None = None
        self._alone = False

    def options(self) -> dict[str, Any]:
        return {"clock": self._mock, "instruments": [self]}

    def now(self) -> float:
        return self._mock.current_time()

    async def settle(self) -> None:
        from trio.testing import wait_all_tasks_blocked

        await wait_all_tasks_blocked(self.idle_for)

    def before_run(self) -> None:
        self.deadlock = None
        self._stuck_since = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._stuck_since = None
        if self.director is not None:
            self.director.before_step(task, now=self._mock.current_time())

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 # the instrument's signature
        import trio

        if self.director is not None and self._directed(self.director):
            return
        statistics = trio.lowlevel.current_statistics()
        if (
            statistics.tasks_runnable
            or statistics.seconds_to_next_deadline < math.inf
            or _waiting_for_io(statistics.io_statistics) > OWN_PIPES
        ):
            self._stuck_since = None
            return
        now = time.perf_counter()
        # Only another thread could still help.
        alone = self.is_ordered and no_thread_can_help()
        if self._stuck_since is None or alone is not self._alone:
            # A thread that has just become idle may have helped since trio last looked.
            self._stuck_since, self._alone = now, alone
        elif alone or now - self._stuck_since >= self.deadlock_timeout:
            self._stuck_since = None
            self._give_up()
        else:
            # The clock polls without a pause while it has nothing to jump to.
            time.sleep(0.001)

    def _directed(self, director: Director) -> bool:
        runner = _runner()
        now = self._mock.current_time()
        if runner.runq:
            timers = _timers(runner, now + director.lateness)
            chosen = director.hurry(timers) if timers else None
            if chosen is not None:
                self._mock.jump(max(0.0, timers[chosen] - now))
            return True
        if director.idle():
            return True
        first = runner.deadlines.next_deadline()
        if first == math.inf or runner.waiting_for_idle:
            return False
        timers = _timers(runner, first + director.lateness)
        self._mock.jump(max(0.0, timers[director.late(timers)] - now))
        return True

    @contextmanager
    def ordered(self) -> Generator[None]:
        from trio._core import _run

        private: Any = _run
        saved = private._r, private._ALLOW_DETERMINISTIC_SCHEDULING
        private._r, private._ALLOW_DETERMINISTIC_SCHEDULING = _Order(self), True
        self.is_ordered = True
        try:
            yield
        finally:
            self.is_ordered = False
            private._r, private._ALLOW_DETERMINISTIC_SCHEDULING = saved

    def _give_up(self) -> None:
        import trio

        root = trio.lowlevel.current_root_task()
        if root is None:
            return
        # Root holds three nurseries, one inside the other; the innermost runs the main task.
        main = root.child_nurseries[-1]
        tasks = _below(main)
        if self.deadlock is not None:
            # The cancellation did not reach them: they wait in shielded scopes.
            _break_shields(tasks)
            return
        self.deadlock = deadlock(tasks, self.director)
        if self.director is not None:
            self.director.note("nothing can go on")
            self.director = None
        main.cancel_scope.cancel(reason=str(self.deadlock))


class _Order:
    """Stands in for trio's source of randomness, of which it asks nothing but the order of a batch."""

    def __init__(self, time: TrioTime) -> None:
        self._time = time

    def shuffle(self, batch: list[Any]) -> None:
        director = self._time.director
        if director is not None:
            order = director.arrange(batch, now=self._time.now())
            # A batch is taken from its end.
            batch[:] = [batch[place] for place in reversed(order)]

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


def _runner() -> Any:
    from trio._core import _run

    private: Any = _run
    return private.GLOBAL_RUN_CONTEXT.runner


def _timers(runner: Any, until: float) -> list[float]:
    heap: list[tuple[float, int, Any]] = runner.deadlines._heap
    if not heap or heap[0][0] > until:
        return []
    return sorted({when for when, _, scope in heap if when <= until and scope._registered_deadline == when})


def _break_shields(tasks: list[trio.lowlevel.Task]) -> None:
    for task in tasks:
        status: Any = task._cancel_status
        while status is not None and status._scope is not None:
            status._scope.shield = False
            status = status._parent


def _waiting_for_io(io_statistics: Any) -> int:
    if io_statistics.backend == "epoll":
        return io_statistics.tasks_waiting_read + io_statistics.tasks_waiting_write
    return getattr(io_statistics, "tasks_waiting", 0)


def _below(nursery: trio.Nursery) -> list[trio.lowlevel.Task]:
    tasks: list[trio.lowlevel.Task] = []
    for task in sorted(nursery.child_tasks, key=lambda task: task.name):
        tasks.append(task)
        for inner in task.child_nurseries:
            tasks += _below(inner)
    return tasks
