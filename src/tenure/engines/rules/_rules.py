"""The rules put together: each part, and the parts on which it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tenure.engine as e

from ._admin import Admin
from ._claims import CLAIMERS, Claims
from ._families import Families
from ._holds import HOLDS, Holds
from ._producers import Producers
from ._queues import Queues
from ._rates import Rates
from ._room import PRODUCERS, Room
from ._rows import TaskRows
from ._scans import Scans, Survey
from ._sessions import Sessions, SessionState
from ._settling import Settling
from ._state import Session, State
from ._tables import Layout
from ._takers import TAKERS, Takers
from ._tasks import Tasks


class EngineState(State, SessionState, Protocol):
    def first_watch(self, session: Any, /) -> Any: ...

    def unwatch(self, watch: Any, /) -> None: ...


class Rules:
    """The rules over the state, queues and tasks of one engine, and the `handlers` of its operations.

    `count` counts the tasks of queues, which each engine does in its own way.
    """

    rates: Rates
    holds: Holds
    claims: Claims
    settling: Settling
    families: Families
    producers: Producers
    tasks: Tasks
    sessions: Sessions
    handlers: dict[type[Any], Callable[[Any], Any]]

    def __init__(
        self,
        state: EngineState,
        queues: Queues,
        rows: TaskRows,
        survey: Survey,
        count: Callable[[e.Count], e.QueueCounts | e.Reply],
    ) -> None:
        rates = self.rates = Rates(state)
        holds = self.holds = Holds(state)
        claims = self.claims = Claims(state)
        room = Room(state, queues)
        takers = Takers(state, queues, rows)
        settling = self.settling = Settling(state, queues, rows, room, takers)
        families = self.families = Families(state, queues, rows, takers, settling)
        self.producers = Producers(state, queues, rows, room, takers, settling)
        tasks = self.tasks = Tasks(state, queues, rows, room, takers, settling)
        self.sessions = Sessions(
            state,
            [
                (_first_of_session(state, HOLDS), holds.drop),
                (_first_of_session(state, CLAIMERS), claims.drop),
                (_first_of_session(state, PRODUCERS), room.drop),
                (rows.first_of_session, settling.drop),
                (_first_of_session(state, TAKERS), takers.drop),
                (state.first_watch, state.unwatch),
            ],
        )
        readers = (holds, claims, rates, room, takers, tasks, families, rows, survey)
        self.handlers = e.handlers(
            sessions=self.sessions,
            holds=holds,
            claims=claims,
            producers=self.producers,
            tasks=tasks,
            admin=Admin(state, queues, rows, takers, settling, families, count),
            families=families,
            rates=rates,
            scans=Scans(state, *readers),
        )


def _first_of_session(state: State, layout: Layout) -> Callable[[Session], Any]:
    rows = state.table(layout)
    return lambda session: rows.first("session", session.number)
