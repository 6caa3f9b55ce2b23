"""Places: the rows of holders and waiters of an object, for each family with a line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import tenure.engine as e

from ._state import News, State
from ._tables import Layout, Table


@dataclass(slots=True)
class Place:
    """The place of a name at the object `key`; it goes with its session. Places are ranked as they came."""

    key: str
    name: str
    session: int
    rank: int
    waits: bool


P = TypeVar("P", bound=Place)


class Places(ABC, Generic[P]):
    def __init__(self, state: State, family: str, layout: Layout) -> None:
        self._state = state
        self._family = family
        self._places: Table[P] = state.table(layout)

    def item(self, place: P) -> e.SessionItem:
        return e.SessionItem(self._family, place.key, place.name, not place.waits, self._token(place))

    def _hint(self, place: P, news: News) -> None:
        self._state.hint(self._state.process(place.session), place.key, place.name, news)

    @abstractmethod
    def _token(self, _place: P, /) -> int: ...

    def _with_token(self, key: str, name: str, token: int) -> P | None:
        place = self._places.get(key, name)
        return place if place is not None and self._token(place) == token > 0 else None
