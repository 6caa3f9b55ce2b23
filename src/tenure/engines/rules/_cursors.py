"""Cursors: positions that producers store with their tasks."""

from __future__ import annotations

from dataclasses import dataclass

from ._queues import Queue
from ._state import State
from ._tables import Layout, Order, Table


@dataclass(slots=True)
class Cursor:
    queue: str
    name: str
    value: bytes


CURSORS = Layout("cursor", Cursor, ("queue", "name"), name=Order(("queue",), ("name",)))


class Cursors:
    def __init__(self, state: State) -> None:
        self._cursors: Table[Cursor] = state.table(CURSORS)

    def value(self, queue: Queue, name: str) -> bytes:
        cursor = self._cursors.get(queue.name, name)
        return b"" if cursor is None else cursor.value

    def set(self, queue: Queue, name: str, value: bytes) -> None:
        cursor = self._cursors.get(queue.name, name)
        queue.cursors += bool(value) - (cursor is not None)
        if value:
            self._cursors.save(Cursor(queue.name, name, value))
        elif cursor is not None:
            self._cursors.remove(cursor)

    def each(self, queue: str) -> tuple[tuple[str, bytes], ...]:
        return tuple([(cursor.name, cursor.value) for cursor in self._cursors.each("name", queue)])
