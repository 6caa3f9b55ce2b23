"""The fleet: each process holds a place under one key, whose value is its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import anyio

import tenure.engine as e
from tenure.errors import LeaseLost
from tenure.observe import Sketch
from tenure.shared import Hold, HoldRequest, Lease, QueueStatistics, ResourcePoolStatistics
from tenure.store import StoreHandle, read_pages

from ._metrics import Latencies, times_of
from ._minutes import Minute
from ._window import Tally

_MOST = 2**20


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the fleet: its `workers`, of which `busy` had a task at its last report, and tasks done per second.

    It has belonged to the fleet for `age` seconds.
    """

    process: str
    age: float
    workers: int
    busy: int
    throughput: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """The processors of one name, in all processes (at most 1,000 of them).

    `queues` (by kind) and `claims` are the engine's own figures of this moment. The rest adds up the last reports of
    the processes, which come every five seconds; the quantiles of `latency` cover all tasks together.
    """

    members: tuple[Member, ...]
    queues: Mapping[str | None, QueueStatistics]
    claims: ResourcePoolStatistics | None
    workers: int
    busy: int
    throughput: float
    latency: Latencies


@dataclass(frozen=True, slots=True)
class Report:
    workers: int
    busy: int
    throughput: float
    tally: Tally
    minutes: Sequence[Minute] = ()

    def to_data(self) -> dict[str, Any]:
        sketches = {name: self.tally.sketches[name].to_data() for name in Latencies.__dataclass_fields__}
        figures = {name: getattr(self, name) for name in ("workers", "busy", "throughput", "minutes")}
        return {**figures, "sketches": sketches}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Report:
        tally = Tally()
        for name, sketch in data["sketches"].items():
            tally.sketches[name] = Sketch.from_data(sketch)
        minutes = [Minute(*map(float, minute)) for minute in data["minutes"]]
        return cls(data["workers"], data["busy"], data["throughput"], tally, minutes)


class Fleets:
    def __init__(self, store: StoreHandle, name: str, report: Callable[[], Report]) -> None:
        self._store = store
        self._key = store.key("processor", name)
        self._report = report

    async def belong(self, every: float) -> None:
        store = self._store
        while True:
            request = HoldRequest(self._key, _MOST, value=self._value())
            with suppress(LeaseLost):
                async with (hold := Hold(Lease, store, request, ttl=store.ttl, timeout=None)) as lease:
                    while True:
                        await anyio.sleep(every)
                        await store.call(e.SetValue(self._key, hold.grant.name, lease.token, self._value()))

    async def read(
        self, queues: Mapping[str | None, QueueStatistics], claims: ResourcePoolStatistics | None
    ) -> Fleet:
        answer = await read_pages(self._store, e.Scan(e.HOLDERS, self._key))
        reports = [Report.from_data(json.loads(holder.value)) for holder in answer.holders]
        return Fleet(
            members=tuple(
                Member(holder.process, holder.age, report.workers, report.busy, report.throughput)
                for holder, report in zip(answer.holders, reports, strict=True)
            ),
            queues=MappingProxyType(queues),
            claims=claims,
            workers=sum(report.workers for report in reports),
            busy=sum(report.busy for report in reports),
            throughput=sum(report.throughput for report in reports),
            latency=times_of(Latencies, Tally(report.tally for report in reports)),
        )

    def _value(self) -> bytes:
        return json.dumps(self._report().to_data(), separators=(",", ":")).encode()
