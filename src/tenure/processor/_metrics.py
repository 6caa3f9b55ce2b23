from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from tenure.observe import Sketch

from ._window import Tally

T = TypeVar("T", "Latencies", "Waits", "LockTimes")


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of times in seconds: how many there were, their mean and maximum, and quantiles within 1 %."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    greatest: float

    @classmethod
    def of(cls, sketch: Sketch) -> Latency:
        """The latencies of a sketch."""
        mean = sketch.total / sketch.count if sketch.count else 0.0
        p50, p95, p99 = map(sketch.quantile, (0.5, 0.95, 0.99))
        return cls(sketch.count, mean, p50, p95, p99, sketch.greatest)


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latencies of tasks: `queued` from ready to the start of the handler, `running` in it, and in `total`."""

    queued: Latency
    running: Latency
    total: Latency


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of tasks before they started: for a `claim`, a `connection`, the `rate`, and a lent `place`.

    `limit` is how long workers waited for a permit of the fleet's limit, before they took a task.
    """

    claim: Latency
    connection: Latency
    rate: Latency
    place: Latency
    limit: Latency


@dataclass(frozen=True, slots=True)
class LockTimes:
    """The times for which handlers waited for locks, held them, and handed them over within this process."""

    wait: Latency
    hold: Latency
    handover: Latency


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The shares of the capacity that were in use on the mean of the window; 0 for parts that are not used at all.

    A share is the rate of arrivals times the mean stay (Little's law), over the capacity. `claims` are this process's
    share of all resources in the pool; so is `limit`, of all permits. A kind that uses lent places has more than 1 of
    its `workers` in use.
    """

    workers: float
    claims: float
    connections: float
    limit: float


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors per minute.

    `failures` are failed tries, `timeouts` tries that took too long. `exhaustion` counts claims and connections that
    were not had in time, `lock_timeouts` locks; `refused` are starts that a circuit breaker did not allow (the task
    waits on), `leases_lost` lost tasks, claims, locks and permits.
    """

    failures: float
    timeouts: float
    exhaustion: float
    lock_timeouts: float
    refused: float
    leases_lost: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """A processor in this process, or one kind of its tasks, over the last `seconds` (a minute, once it is that old).

    - At most `limit` of the `workers` may be `busy` at present; `throughput` is tasks done per second.
    - `queue_depth` tasks wait in the queue, delayed ones included, and `oldest` is for how many seconds the first of
      them has been ready: the engine's figures, `figures_age` seconds old, the depth with what was done here since.
    - `queue_suspended` and `queue_ending` tasks were in these states then.
    - `heartbeats_late` heartbeats came late in the window.
    - `totals` are counts since the start, by name, 0 where nothing was counted. `kinds` has the same for each kind.
    """

    seconds: float
    workers: int
    limit: int
    busy: int
    throughput: float
    latency: Latencies
    waits: Waits
    queue_depth: int
    queue_suspended: int
    queue_ending: int
    oldest: float
    figures_age: float
    utilisation: Utilisation
    errors: Errors
    locks: LockTimes
    heartbeats_late: int
    totals: Mapping[str, int]
    kinds: Mapping[str | None, Metrics] = field(default_factory=dict["str | None", "Metrics"])


def times_of(kind: type[T], tally: Tally) -> T:
    return kind(*(Latency.of(tally.sketches[each.name]) for each in fields(kind)))
