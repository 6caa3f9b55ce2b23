from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType

import anyio
import anyio.lowlevel

from tenure.arguments import Seconds, check_seconds
from tenure.errors import EngineError, StoreUnavailable
from tenure.observe import Sample
from tenure.store import Store, handle_of, names, read_counts, together

from ._child_records import queue_in
from ._records import QueueStatistics, statistics_of
from ._schedule import Alarm

_STATES = ("waiting", "delayed", "leased", "suspended", "ending", "held", "dead")
_TIMEOUT = 10.0
_OUTCOMES = ("done", "discarded", "cancelled", "expired", "purged")


class QueueFigures:
    """The figures of all queues of a store's namespace, from the engine: no processor and no worker is needed.

    `run()` reads every `every` seconds, for `serve`. `samples()` returns the last reading, for
    `PrometheusObserver().watch(figures)` and `tenure.observe.exposition`.

    Thread safety: `samples` works from any thread; the rest belongs to the event loop of the store.
    """

    def __init__(self, store: Store, *, every: Seconds = 5.0) -> None:
        self._store = handle = handle_of(store)
        self._every = check_seconds("every", every, least=0.1)
        self._alarm = handle.listen(handle.key("figures", "all"), Alarm)
        self._scope: anyio.CancelScope | None = None
        self._samples = tuple(_samples({}))
        self.problem: str | None = "not read yet"
        """The reason why the figures are older than the last reading, in words, or None."""

    def __repr__(self) -> str:
        return f"<QueueFigures of {self._store.url} every {self._every:g} s>"

    async def statistics(self) -> Mapping[str, QueueStatistics]:
        """Read the statistics of all queues now, by name. Raises `StoreClosed`, `EngineError`."""
        store = self._store
        keys = await names(store, "queues")
        counts = map(statistics_of, await together(*(partial(read_counts, store, key) for key in keys)))
        queues = {queue_in(store, key): count for key, count in zip(keys, counts, strict=True)}
        self._samples = tuple(_samples(queues))
        self.problem = None
        return MappingProxyType(queues)

    async def run(self) -> None:
        """Read every `every` seconds, until cancelled or drained.

        While the engine does not answer, `samples` stays as it was, and `problem` says why. Raises `StoreClosed`.
        Cancellation: this is how it ends.
        """
        with anyio.CancelScope() as self._scope:
            while True:
                try:
                    with anyio.fail_after(_TIMEOUT):
                        await self.statistics()
                except (EngineError, StoreUnavailable, TimeoutError) as problem:
                    self.problem = str(problem) or f"{self._store.url}: no answer within {_TIMEOUT:g} s"
                await self._alarm.sleep(self._every)

    async def drain(self) -> None:
        """End `run`. Cancellation: it ends all the same."""
        if self._scope is not None:
            self._store.home.check()
            self._scope.cancel("drained")
        await anyio.lowlevel.checkpoint()

    def samples(self) -> tuple[Sample, ...]:
        """The figures of the last reading, for collectors. Works from any thread."""
        return self._samples

    def _templates(self) -> tuple[Sample, ...]:
        return tuple(_samples({"": _NOTHING}))


_NOTHING = QueueStatistics(*[0] * 12, paused=False, oldest=0.0)


def _samples(queues: Mapping[str, QueueStatistics]) -> Iterator[Sample]:
    yield Sample("queues", "gauge", "Queues that are not forgotten.", {}, len(queues))
    for name, s in queues.items():
        of = {"queue": name}
        for state in _STATES:
            yield Sample("queue_tasks", "gauge", "Tasks by state.", {**of, "state": state}, getattr(s, state))
        yield Sample(
            "queue_oldest_seconds", "gauge", "For how long the first waiting task is ready.", of, s.oldest
        )
        yield Sample("queue_producers", "gauge", "Producers that wait for room.", of, s.producers)
        yield Sample("queue_paused", "gauge", "1 while the queue is paused.", of, s.paused)
        yield Sample("queue_put", "counter", "Tasks that were put.", of, s.put)
        for outcome in _OUTCOMES:
            ended = getattr(s, outcome)
            yield Sample(
                "queue_ended", "counter", "Tasks that have ended.", {**of, "outcome": outcome}, ended
            )
