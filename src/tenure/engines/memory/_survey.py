"""Looking around: names by kind, and what sessions have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

from tenure.engine import Belongings, Examine, Examined, Inspect, Inspected, Reply, Survey, Surveyed

from ._claims import Claims
from ._counters import Barriers
from ._holds import Holds
from ._state import FAMILIES, State, Thing
from ._tasks import Tasks


class Looks:
    """What is asked about all families together."""

    def __init__(self, state: State, holds: Holds, claims: Claims, barriers: Barriers, tasks: Tasks) -> None:
        self._state = state
        self._kinds = {
            "holds": holds.in_use,
            "pools": claims.in_use,
            "queues": tasks.in_use,
            "sessions": lambda: list(state.sessions),
        }
        self._has: dict[str, Callable[[Thing], bool]] = {
            "holds": holds.has,
            "claims": claims.has,
            "arrivals": barriers.has,
            "producers": tasks.has_slots,
            "tasks": lambda _: True,
            "takers": lambda _: False,
        }

    def survey(self, op: Survey) -> Surveyed:
        names = sorted(n for n in self._kinds[op.kind]() if n > op.after and n.startswith(op.prefix))
        page = tuple(names[: op.limit])
        return Surveyed(page, page[-1] if len(names) > len(page) else "")

    def inspect(self, op: Inspect) -> Inspected | Reply:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.UNKNOWN
        found: list[Belongings] = []
        for family in FAMILIES:
            if (has := self._has.get(family)) is not None:
                counts = Counter((t[0], has(t)) for t in islice(session.things[family], op.limit))
                keys = sorted({key for key, _ in counts})
                found += [Belongings(family, key, counts[key, True], counts[key, False]) for key in keys]
        return Inspected(session.process, tuple(found))

    def examine(self, op: Examine) -> Examined:
        del op
        facts = (
            ("engine", "memory: gone when this process ends, seen by nobody else"),
            ("sessions", f"{len(self._state.sessions):,}"),
        )
        return Examined(0.0, facts, ())
