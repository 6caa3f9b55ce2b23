"""The records of ended tasks, in the order of the endings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import tenure.engine as e
from tenure.engines import rules


def ran(token: int, until: float) -> float | None:
    return max(0.0, until - token / 1e6) if token else None


@dataclass(slots=True)
class Ended:
    seq: int
    id: int
    state: str
    payload: bytes
    priority: int
    key: str | None
    attempts: int
    deliveries: int
    result: bytes
    ended_at: float
    token: int
    expires: float | None
    progress: bytes
    failure: bytes
    meta: bytes
    group: str
    kin: bool

    def is_over(self, now: float) -> bool:
        return self.expires is not None and self.expires <= now

    def show(self, now: float, tree: rules.Tree = rules.ALONE) -> e.Record:
        return e.Record(
            *(self.seq, self.id, self.state, self.payload, self.priority, self.key),
            *(self.attempts, self.deliveries, self.result, max(0.0, now - self.ended_at)),
            ran(self.token, self.ended_at),
            *(self.progress, self.failure, self.meta, self.group),
            *tree,
        )


class Records:
    def __init__(self, queue: rules.Queue) -> None:
        self._queue = queue
        self._ended: dict[int, Ended] = {}
        self._log: list[Ended] = []

    def get(self, task: int) -> Ended | None:
        return self._ended.get(task)

    def valid(self, task: int, now: float) -> Ended | None:
        ended = self._ended.get(task)
        return None if ended is None or ended.is_over(now) else ended

    def add(self, ended: Ended) -> None:
        if len(self._log) > 2 * len(self._ended) + 64:
            self._log = [record for record in self._log if self._ended.get(record.id) is record]
        self._log.append(ended)
        self._ended[ended.id] = ended

    def remove(self, ended: Ended) -> None:
        del self._ended[ended.id]
        self._queue.lasting -= ended.expires is None

    def after(self, seq: int, now: float, state: str) -> Iterator[Ended]:
        for i in range(bisect_right(self._log, seq, key=lambda record: record.seq), len(self._log)):
            record = self._log[i]
            if (
                not record.is_over(now)
                and self._ended.get(record.id) is record
                and state in (record.state, "ended")
            ):
                yield record

    def count(self, state: str) -> int:
        return sum(ended.state == state for ended in self._ended.values())

    def __len__(self) -> int:
        return len(self._ended)
