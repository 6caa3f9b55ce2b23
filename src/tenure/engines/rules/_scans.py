"""Scans: what reads each index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tenure.engine as e

from ._claims import CLAIMERS, Claims
from ._families import Families
from ._holds import HOLDS, Holds
from ._pages import Position, page_of, place_in
from ._rates import Rates
from ._room import PRODUCERS, Room
from ._rows import TaskRows
from ._state import State
from ._takers import TAKERS, Takers
from ._tasks import Tasks


class Survey(Protocol):
    def names(self, scan: e.Scan[e.Page[str]], /) -> e.Page[str]: ...

    def health(self, scan: e.Scan[e.Page[e.Health]], /) -> e.Page[e.Health]: ...


class Scans:
    def __init__(
        self,
        state: State,
        holds: Holds,
        claims: Claims,
        rates: Rates,
        room: Room,
        takers: Takers,
        tasks: Tasks,
        families: Families,
        rows: TaskRows,
        survey: Survey,
    ) -> None:
        self._state = state
        self._rows = rows
        self._families = (
            (state.table(HOLDS), holds.item),
            (state.table(CLAIMERS), claims.item),
            (state.table(PRODUCERS), room.item),
            None,
            (state.table(TAKERS), takers.item),
        )
        """The tables of all families of `FAMILIES` but the tasks."""
        self._readers: dict[e.Index[Any], Callable[[Any], Any]] = {
            **dict.fromkeys(e.NAMES.values(), survey.names),
            e.SESSION: self._items,
            e.HEALTH: survey.health,
            e.HOLDERS: holds.holders,
            e.RESOURCES: claims.resources,
            e.LIMITER: rates.limiter,
            **dict.fromkeys(e.TASKS.values(), tasks.listed),
            e.TASK: tasks.one,
            e.KEYED_TASK: tasks.one,
            e.GROUPS: tasks.groups,
            **dict.fromkeys((e.ENTRIES, e.UNFINISHED_CHILDREN), families.entries),
        }

    def scan(self, op: e.Scan[Any]) -> Any:
        if op.watch and self._state.session(op.watch) is None:
            return e.Reply.GONE
        return self._readers[op.index](op)

    def _items(self, op: e.Scan[e.SessionPage]) -> e.SessionPage | e.Reply:
        session = self._state.session(op.key)
        if session is None:
            return e.Reply.UNKNOWN
        first, rank = place_in(op, 0, 0) or (0, 0)
        placed: list[tuple[Position, e.SessionItem]] = []
        for place, family in list(enumerate(self._families))[first:]:
            left = op.limit + 1 - len(placed)
            if family is None:
                found = self._rows.held_by(session, rank, left)
            else:
                table, item = family
                rows = table.some("session", session.number, limit=left, after=(rank,))
                found = [(row.rank, item(row)) for row in rows]
            placed += [((place, of_item), shown) for of_item, shown in found]
            rank = 0
        return page_of(op, placed, process=session.process)
