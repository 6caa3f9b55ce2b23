from __future__ import annotations

from math import inf
from weakref import WeakValueDictionary

from tenure.observe import Observer
from tenure.shared import QueueStatistics
from tenure.waiting import now

from ._window import Window


class LockUse:
    __slots__ = ("__weakref__", "left")

    def __init__(self) -> None:
        self.left: float = -inf


class Meter(Window):
    def __init__(self, processor: str, kind: str | None, observer: Observer) -> None:
        super().__init__()
        self.kind = kind
        self._names = {"processor": processor, "kind": kind}
        self._observer = observer
        self.polled_at: float = -inf
        self.depth: int = 0
        """The number of tasks that wait in the queue: the engine's, with what this process has changed since."""
        self.suspended: int = 0
        self.ending: int = 0
        self._oldest = 0.0
        self._locks: WeakValueDictionary[str, LockUse] = WeakValueDictionary()

    def ran(self, at: float, queued: float, running: float) -> None:
        sketches = self.at(at).sketches
        sketches["queued"].record(queued)
        sketches["running"].record(running)
        sketches["total"].record(queued + running)

    def lasted(self, name: str, since: float) -> float:
        ended = now()
        self.record(name, ended - since)
        return ended

    def report(self, event: str, /, **fields: object) -> None:
        self.count(event)
        self._observer.notice(f"processor.{event}", **self._names, **fields)

    def polled(self, queue: QueueStatistics) -> None:
        self.depth = queue.waiting + queue.delayed
        self.suspended, self.ending = queue.suspended, queue.ending
        self._oldest = queue.oldest
        self.polled_at = now()

    @property
    def oldest(self) -> float:
        return self._oldest if self.depth > 0 else 0.0

    def lock(self, name: str) -> LockUse:
        return self._locks.setdefault(name, LockUse())

    def lock_entered(self, use: LockUse, since: float) -> float:
        at = self.lasted("wait", since)
        if use.left >= since:
            self.record("handover", at - use.left)
        return at
