"""Looking around: names by kind, and what sessions have."""

from __future__ import annotations

import json
from collections.abc import Callable

from tenure.engine import (
    FAMILIES,
    CheckHealth,
    DescribeSession,
    Health,
    KeyPage,
    ListKeys,
    Reply,
    SessionItem,
    SessionPage,
)

from ._claims import Claims
from ._counters import Barriers
from ._holds import Holds
from ._state import ItemKey, State
from ._tasks import Tasks


class Introspection:
    """What is asked about all families together."""

    def __init__(self, state: State, holds: Holds, claims: Claims, barriers: Barriers, tasks: Tasks) -> None:
        self._state = state
        self._kinds = {
            "holds": holds.in_use,
            "pools": claims.in_use,
            "queues": tasks.in_use,
            "sessions": lambda: list(state.sessions),
        }
        self._has: dict[str, Callable[[ItemKey], bool]] = {
            "holds": holds.has,
            "claims": claims.has,
            "arrivals": barriers.has,
            "producers": tasks.has_slots,
            "tasks": lambda _: True,
            "takers": lambda _: False,
        }
        self._token: dict[str, Callable[[ItemKey], int]] = {
            "holds": holds.token,
            "claims": claims.token,
            "tasks": tasks.token,
        }

    def list_keys(self, op: ListKeys) -> KeyPage:
        names = sorted(n for n in self._kinds[op.kind]() if n > op.after and n.startswith(op.prefix))
        page = tuple(names[: op.limit])
        return KeyPage(page, page[-1] if len(names) > len(page) else "")

    def describe_session(self, op: DescribeSession) -> SessionPage | Reply:
        session = self._state.sessions.get(op.key)
        if session is None:
            return Reply.UNKNOWN
        found = sorted(
            (rank, *item) for rank, family in enumerate(self._has) for item in session.items[family]
        )
        after = tuple(json.loads(op.after)) if op.after else ()
        rest = [place for place in found if place > after]
        page = rest[: op.limit]
        return SessionPage(
            session.process,
            tuple(self._session_item(*place) for place in page),
            json.dumps(page[-1]) if len(rest) > len(page) else "",
        )

    def _session_item(self, rank: int, *item: str) -> SessionItem:
        family, (key, *names) = FAMILIES[rank], item
        held = self._has[family](item)
        token = self._token[family](item) if held and family in self._token else 0
        if family == "tasks":
            names.append(str(token))
        return SessionItem(family, key, " ".join(names), held, token)

    def check_health(self, _op: CheckHealth) -> Health:
        facts = (
            ("engine", "memory: gone when this process ends, not visible to others"),
            ("sessions", f"{len(self._state.sessions):,}"),
        )
        return Health(0.0, facts, ())
