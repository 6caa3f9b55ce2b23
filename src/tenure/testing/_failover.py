"""A memory engine that fails over to a lagging replica: it forgets what was applied last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

import tenure.engine as e
from tenure.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    import tenure.engine as e
    from tenure.engines.memory import MemoryEngine


class _Applied(NamedTuple):
    at: float
    operations: Sequence[e.Operation[Any]]


class Failover:
    """The past of a memory engine, from which a replica is made that has missed the last of it.

    A replica applies the operations of the past again, at their times. At most the operations of the last `lag` seconds
    are missing; nobody answers for `outage` seconds.
    """

    def __init__(
        self, engine: e.Engine, clock: Callable[[], float] | None, lag: float, outage: float
    ) -> None:
        # Explorations of other code have no use for it.
        from tenure.engines.memory import MemoryEngine

        if not 0 <= lag < math.inf:
            raise ValueError(f"lose: seconds, zero or more, not {lag!r}")
        if type(engine) is not MemoryEngine:
            raise ValueError(f"lose: only the past of a MemoryEngine can be repeated, not of {engine!r}")
        self.over = anyio.Event()
        """Set by the next failover."""
        self.down: StoreUnavailable | None = None
        self._clock = clock or anyio.current_time
        self._lag = lag
        self._outage = outage
        self._past: list[_Applied] = []
        self._repeated: float | None = None
        self._up_at = -math.inf

    def note(self, operations: Sequence[e.Operation[Any]]) -> None:
        self._past.append(_Applied(self._clock(), operations))

    def replica(self, random: Random, url: str) -> MemoryEngine:
        """The engine that takes over now, as of a moment in the last `lag` seconds that chance chooses."""
        from tenure.engines.memory import MemoryEngine

        now = self._clock()
        lost = sum(applied.at >= now - self._lag for applied in reversed(self._past))
        del self._past[len(self._past) - random.randint(0, lost) :]
        engine = MemoryEngine(clock=self._time, cap=e.CAP)
        for at, operations in self._past:
            self._repeated = at
            for operation in operations:
                engine.apply(operation)
        self._repeated = None
        self._up_at = now + self._outage
        self.down = StoreUnavailable(f"{url}: failover")
        self.over.set()
        self.over = anyio.Event()
        return engine

    async def up(self) -> None:
        while (left := self._up_at - self._clock()) > 0:  # noqa: ASYNC110 # another failover makes it longer
            await anyio.sleep(left)
        self.down = None

    def _time(self) -> float:
        return self._clock() if self._repeated is None else self._repeated
