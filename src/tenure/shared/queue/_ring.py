"""Runners that wait for themselves: to put into full queues that are emptied only by runners that wait likewise."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, NamedTuple

from tenure.store import StoreHandle, Timer
from tenure.waiting import Waiter, now

_PERIOD = 2.0
"""Seconds between two looks at the puts that wait. The second look that finds a put counts it."""

_QUIET = 600.0
"""Seconds after a warning in which a worker gets no further warning."""


class Place(NamedTuple):
    where: object
    key: str
    name: str


class _Wait:
    """A put that waits in line. `looks` have found it there, and no task of its worker settled in between."""

    __slots__ = ("crew", "looks", "place", "settled", "waiter")

    def __init__(self, waiter: Waiter[Any, Any], place: Place, crew: Crew) -> None:
        self.waiter = waiter
        self.place = place
        self.crew = crew
        self.settled = -1
        self.looks = 0

    def look(self) -> None:
        settled = self.crew.settled()
        self.looks = self.looks + 1 if settled == self.settled else 1
        self.settled = settled


class Runner:
    __slots__ = ("crew", "waits")

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.waits: list[_Wait] = []

    def full(self) -> set[Place]:
        return {wait.place for wait in [*self.waits] if wait.looks > 1 and wait.waiter.waiting}


at_work: ContextVar[Runner | None] = ContextVar("tenure.at_work", default=None)
"""The runner in whose handler this code runs, also in tasks and threads that the handler has begun."""


class Crew:
    def __init__(self, store: StoreHandle, key: str, count: int, settled: Callable[[], int]) -> None:
        self.place = place_of(store, key)
        self.settled = settled
        self.runners = [Runner(self) for _ in range(count)]
        self.warned_at = -inf
        self._full: frozenset[Place] = frozenset()

    @contextmanager
    def working(self) -> Generator[None]:
        _crews.add(self)
        try:
            yield
        finally:
            _crews.discard(self)

    def wait_for(self, full: set[Place]) -> None:
        self._full = frozenset(full)

    @property
    def stuck(self) -> str | None:
        if not self._full or not all(runner.full() & self._full for runner in self.runners):
            self._full = frozenset()
            return None
        names = ", ".join(sorted(place.name for place in self._full))
        return f"its {len(self.runners):,} runners all wait to put into what they empty themselves: {names} is full"


_crews: set[Crew] = set()


class Watch:
    def __init__(self, store: StoreHandle, key: str) -> None:
        self._store = store
        self._place = place_of(store, key)
        self._waits: list[_Wait] = []
        self._timer = Timer(store.call_at, self._look)

    def add(self, runner: Runner, waiter: Waiter[Any, Any]) -> None:
        wait = _Wait(waiter, self._place, runner.crew)
        runner.waits = [other for other in runner.waits if other.waiter.waiting] + [wait]
        self._waits.append(wait)
        if len(self._waits) == 1:
            self._timer.set(_PERIOD)

    def _look(self) -> None:
        self._waits = [wait for wait in self._waits if wait.waiter.waiting]
        for wait in self._waits:
            wait.look()
        if not self._waits:
            return
        self._timer.set(_PERIOD)
        for crew, full in _stuck_crews().items():
            crew.wait_for(full)
            if now() - crew.warned_at >= _QUIET:
                crew.warned_at = now()
                self._store.reporter.warn(
                    "queue.waits_for_itself",
                    queue=crew.place.name,
                    runners=len(crew.runners),
                    full=",".join(sorted(place.name for place in full)),
                )


def place_of(store: StoreHandle, key: str) -> Place:
    where = id(store) if store.url.startswith("memory") else store.url
    return Place(where, key, key.removeprefix(store.prefix("queue")))


def _stuck_crews() -> dict[Crew, set[Place]]:
    crews = {crew: [runner.full() for runner in crew.runners] for crew in list(_crews)}
    stuck = {crew for crew, waits in crews.items() if all(waits)}
    while True:
        closed = {crew.place for crew in stuck} - {crew.place for crew in crews.keys() - stuck}
        others = {crew for crew in stuck if not all(full & closed for full in crews[crew])}
        if not others:
            return {crew: set[Place]().union(*crews[crew]) & closed for crew in stuck}
        stuck -= others
