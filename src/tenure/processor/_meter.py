"""The meter of one kind of task: events are counted here, and reported to the observer."""

from __future__ import annotations

from tenure.observe import Observer
from tenure.shared import QueueStatistics
from tenure.waiting import now

from ._window import Window


class Meter(Window):
    """The window of one kind of task in this process, with its queue and its locks."""

    def __init__(self, processor: str, kind: str | None, observer: Observer) -> None:
        super().__init__()
        self.kind = kind
        self._names = {"processor": processor, "kind": kind}
        self._observer = observer
        self._polled_at = self._born
        self._depth = 0
        self.suspended: int = 0
        self.ending: int = 0
        self._oldest = 0.0
        self._lock_waits: dict[str, int] = {}  # how many wait for it here
        self._lock_left: dict[str, float] = {}  # when it was left, if a task waits here

    # tasks

    def taken(self) -> float:
        """A task was taken; returns when."""
        self._depth -= 1
        return now()

    def ran(self, at: float, queued: float, running: float) -> None:
        """The handler of a task has ended, after `queued` seconds in the queue and `running` in the handler."""
        sketches = self.at(at).sketches
        sketches["queued"].record(queued)
        sketches["running"].record(running)
        sketches["total"].record(queued + running)

    def lasted(self, name: str, since: float) -> float:
        """Record a duration from `since` until now, and return the time of its end."""
        ended = now()
        self.record(name, ended - since)
        return ended

    def report(self, event: str, /, **fields: object) -> None:
        """Count an event, which is called `processor.` and its name, and report it to the observer."""
        self.count(event)
        self._observer.notice(f"processor.{event}", **self._names, **fields)

    # the queue

    def queued(self, by: int) -> None:
        """Note that this process has added tasks to the queue."""
        self._depth += by

    def polled(self, counts: QueueStatistics) -> None:
        """The engine has returned the state of the queue."""
        self._depth = counts.waiting + counts.delayed
        self.suspended, self.ending = counts.suspended, counts.ending
        self._oldest = counts.oldest
        self._polled_at = now()

    @property
    def depth(self) -> int:
        """The number of tasks that wait in the queue."""
        return max(0, self._depth)

    @property
    def oldest(self) -> float:
        """The seconds for which the longest waiting task had been ready when the engine was asked."""
        return self._oldest if self.depth else 0.0

    @property
    def since_poll(self) -> float:
        """The seconds since the engine was asked."""
        return now() - self._polled_at

    # locks

    def lock_awaited(self, name: str) -> float:
        """A task waits for a lock; returns since when."""
        self._lock_waits[name] = self._lock_waits.get(name, 0) + 1
        return now()

    def lock_entered(self, name: str, since: float) -> float:
        """A task that has waited for a lock since then has it; returns since when."""
        at = self.lasted("lock_wait", since)
        left = self._lock_left.pop(name, None)
        if left is not None and left >= since:
            self.record("lock_handover", at - left)
        return at

    def lock_no_longer_awaited(self, name: str) -> None:
        """A task no longer waits for a lock, with it or without."""
        self._lock_waits[name] -= 1
        if not self._lock_waits[name]:
            del self._lock_waits[name]
            self._lock_left.pop(name, None)

    def lock_left(self, name: str, since: float) -> None:
        """A task that has held a lock since then leaves it."""
        at = self.lasted("lock_hold", since)
        if name in self._lock_waits:
            self._lock_left[name] = at
