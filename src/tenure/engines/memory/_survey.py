"""Introspection: names by kind, and the holds of sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

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
from tenure.engines.rules import Barriers, Claims, Holds, Room, Takers

from ._queue import Queues
from ._state import Session, State


class Introspection:
    """The operations that ask about all families together."""

    def __init__(
        self,
        state: State,
        queues: Queues,
        holds: Holds,
        claims: Claims,
        barriers: Barriers,
        room: Room,
        takers: Takers,
    ) -> None:
        self._state = state
        self._kinds = {
            "holds": lambda: [line.key for line in state.tables["line"].rows.values() if line.held],
            "pools": lambda: [pool.key for pool in state.tables["pool"].rows.values() if pool.size],
            "queues": queues.in_use,
            "sessions": lambda: list(state.sessions),
        }
        self._rows = (
            ("holds", state.tables["hold"], holds.item),
            ("claims", state.tables["claim"], claims.item),
            ("arrivals", state.tables["participant"], barriers.item),
            ("producers", state.tables["producer"], room.item),
            ("takers", state.tables["taker"], takers.item),
        )

    def list_keys(self, op: ListKeys) -> KeyPage:
        names = sorted(n for n in self._kinds[op.kind]() if n > op.after and n.startswith(op.prefix))
        page = tuple(names[: op.limit])
        return KeyPage(page, page[-1] if len(names) > len(page) else "")

    def describe_session(self, op: DescribeSession) -> SessionPage | Reply:
        session = self._state.sessions.get(op.key)
        if session is None:
            return Reply.UNKNOWN
        found = sorted(self._items(session), key=itemgetter(0))
        after = tuple(json.loads(op.after)) if op.after else ()
        rest = [(place, item) for place, item in found if place > after]
        page = rest[: op.limit]
        return SessionPage(
            session.process,
            tuple(item for _, item in page),
            json.dumps(page[-1][0]) if len(rest) > len(page) else "",
        )

    def _items(self, session: Session) -> Iterator[tuple[tuple[Any, ...], SessionItem]]:
        """Each item of a session, with its place in the order of all."""
        for family, rows, item_of in self._rows:
            for row in rows.each("session", session.number):
                yield (FAMILIES.index(family), row.rank), item_of(row)
        for task in session.tasks.values():
            name = f"{task.id} {task.token}"
            yield (
                (FAMILIES.index("tasks"), task.token),
                SessionItem("tasks", task.queue, name, True, task.token),
            )

    def check_health(self, _op: CheckHealth) -> Health:
        facts = (
            ("engine", "memory: gone when this process ends, not visible to others"),
            ("sessions", f"{len(self._state.sessions):,}"),
        )
        return Health(0.0, facts, ())
