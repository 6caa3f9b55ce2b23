"""The totals of a run, in this process and in all processes together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

import tenure.engine as e
from tenure.errors import OutcomeUnknown
from tenure.observe import Sketch
from tenure.shared import Task, WorkQueue

from ._departed import own_identity

PREFIX = "tally:"
SHOWN = 3
"""The number of dead letters that are named at the end."""

_EVERY = 1.0


@dataclass(slots=True)
class RunTotals:
    retried: int = 0
    seconds: float = 0.0
    times: Sketch = field(default_factory=Sketch)
    died: list[int] = field(default_factory=list[int])

    def settled(self, task: Task, settle: e.Settle, refused: str | None) -> None:
        if refused is None and settle.verdict is e.Verdict.RETRY:
            self.retried += 1
        elif refused is None and settle.verdict is e.Verdict.DEAD and len(self.died) < SHOWN:
            self.died.append(task.id)

    def value(self) -> dict[str, Any]:
        return {"retried": self.retried, "seconds": round(self.seconds, 3), "times": self.times.to_data()}


def total(cursors: Mapping[str, Any], *, without: str = "") -> RunTotals:
    sum_ = RunTotals()
    for name, value in cursors.items():
        if name.startswith(PREFIX) and name != PREFIX + without:
            sum_.retried += value["retried"]
            sum_.seconds += value["seconds"]
            sum_.times.merge(Sketch.from_data(value["times"]))
    return sum_


class Keeper:
    """Stores this process's tally with the run, once a second while it changes, and the identity by which others see
    its death.

    A process that ends in peace takes the identity away.
    """

    def __init__(self, queue: WorkQueue, tally: RunTotals, began: float) -> None:
        self._queue = queue
        self._tally = tally
        self._began = began
        self._stored = 0
        self._who = own_identity()

    async def keep(self) -> None:
        while True:
            await anyio.sleep(_EVERY)
            if self._tally.times.count != self._stored:
                await self.store()

    async def store(self, *, leaving: bool = False) -> None:
        """Store the totals now; `leaving` without the identity. Cancellation: they may or may not be stored."""
        name = PREFIX + self._queue.store.process
        stored = False
        while not stored:
            self._stored = self._tally.times.count
            self._tally.seconds = anyio.current_time() - self._began
            # after an outage it may be stored already; once more does no harm
            with suppress(OutcomeUnknown):
                who = None if leaving else self._who
                await self._queue.put_many([], cursor=(name, self._tally.value() | {"who": who}))
                stored = True
