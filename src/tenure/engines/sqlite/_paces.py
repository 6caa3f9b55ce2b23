"""The rows of the paces of one queue. They are written at once, since few change in a transaction."""

from __future__ import annotations

from math import inf

from tenure.engines.rules import Pace, decoded_name, encoded_name

from ._sql import GROUPS
from ._state import State


class Paces:
    """The paces of a queue, of which those that were read are known until the end of the transaction."""

    def __init__(self, state: State, queue: int) -> None:
        self._state = state
        self._queue = queue
        self._known: dict[str, Pace | None] = {}

    @property
    def now(self) -> float:
        return self._state.now

    def find(self, group: str) -> Pace | None:
        if group not in self._known:
            row = self._state.one(GROUPS.pace, queue=self._queue, name=encoded_name(group))
            self._known[group] = row and Pace(group, *row)
        return self._known[group]

    def save(self, pace: Pace, former: Pace | None) -> None:
        self._known[pace.group] = pace
        self._state.run(
            GROUPS.add_pace if former is None else GROUPS.change_pace,
            queue=self._queue,
            name=encoded_name(pace.group),
            starts_at=pace.starts_at,
            awaited=pace.awaited,
            paced_at=pace.paced_at,
        )

    def remove(self, pace: Pace) -> None:
        self._known[pace.group] = None
        self._state.run(GROUPS.remove_pace, queue=self._queue, name=encoded_name(pace.group))

    def until(self, awaited: bool, time: float, limit: int) -> tuple[list[Pace], float]:
        found: list[Pace] = []
        for count in (2, limit + 1):  # most often one is due
            rows = self._state.all(GROUPS.paces, queue=self._queue, awaited=awaited, count=count)
            paces = [Pace(decoded_name(name), starts_at, awaited, alone) for name, starts_at, alone in rows]
            found = [pace for pace in paces[:limit] if pace.starts_at <= time]
            if len(found) < len(paces) or len(paces) < count:
                break
        self._known.update((pace.group, pace) for pace in found)
        return found, paces[len(found)].starts_at if len(found) < len(paces) else inf

    def each(self) -> list[Pace]:
        rows = self._state.all(GROUPS.all_paces, queue=self._queue)
        found = [Pace(decoded_name(name), *row) for name, *row in rows]
        self._known.update((pace.group, pace) for pace in found)
        return found
