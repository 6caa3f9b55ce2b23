"""Looking around: names by kind, and the health of the engine."""

from __future__ import annotations

import tenure.engine as e
from tenure.engines.rules import page_of, place_in

from ._queue import MemoryQueues
from ._state import MemoryState


class MemorySurvey:
    def __init__(self, state: MemoryState, queues: MemoryQueues) -> None:
        self._state = state
        self._kinds = {
            "holds": lambda: [line.key for line in state.tables["line"].rows.values() if line.held],
            "limiters": lambda: [
                row.key for row in state.tables["limiter"].rows.values() if row.limiter.delays(state.now)
            ],
            "pools": lambda: [pool.key for pool in state.tables["pool"].rows.values() if pool.size],
            "queues": queues.in_use,
            "sessions": lambda: list(state.sessions),
        }

    def names(self, op: e.Scan[e.Page[str]]) -> e.Page[str]:
        (after,) = place_in(op, "") or ("",)
        names = sorted(n for n in self._kinds[op.index.name]() if n > after and n.startswith(op.only))
        return page_of(op, [((name,), name) for name in names[: op.limit + 1]])

    def health(self, _op: e.Scan[e.Page[e.Health]]) -> e.Page[e.Health]:
        facts = (
            ("engine", "memory: gone when this process ends, not visible to others"),
            ("sessions", f"{len(self._state.sessions):,}"),
        )
        return e.Page((e.Health(0.0, facts, ()),))
