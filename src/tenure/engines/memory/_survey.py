"""Looking around: names by kind, and what sessions have."""

from __future__ import annotations

import json
from collections.abc import Callable

from tenure.engine import FAMILIES, Belonging, Examine, Examined, Inspect, Inspected, Reply, Survey, Surveyed

from ._claims import Claims
from ._counters import Barriers
from ._holds import Holds
from ._state import State, Thing
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
        self._token: dict[str, Callable[[Thing], int]] = {
            "holds": holds.token,
            "claims": claims.token,
            "tasks": tasks.token,
        }

    def survey(self, op: Survey) -> Surveyed:
        names = sorted(n for n in self._kinds[op.kind]() if n > op.after and n.startswith(op.prefix))
        page = tuple(names[: op.limit])
        return Surveyed(page, page[-1] if len(names) > len(page) else "")

    def inspect(self, op: Inspect) -> Inspected | Reply:
        session = self._state.sessions.get(op.session)
        if session is None:
            return Reply.UNKNOWN
        found = sorted(
            (rank, *thing) for rank, family in enumerate(self._has) for thing in session.things[family]
        )
        after = tuple(json.loads(op.after)) if op.after else ()
        rest = [place for place in found if place > after]
        page = rest[: op.limit]
        return Inspected(
            session.process,
            tuple(self._belonging(*place) for place in page),
            json.dumps(page[-1]) if len(rest) > len(page) else "",
        )

    def _belonging(self, rank: int, *thing: str) -> Belonging:
        family, (key, *names) = FAMILIES[rank], thing
        held = self._has[family](thing)
        token = self._token[family](thing) if held and family in self._token else 0
        if family == "tasks":
            names.append(str(token))
        return Belonging(family, key, " ".join(names), held, token)

    def examine(self, op: Examine) -> Examined:
        del op
        facts = (
            ("engine", "memory: gone when this process ends, seen by nobody else"),
            ("sessions", f"{len(self._state.sessions):,}"),
        )
        return Examined(0.0, facts, ())
