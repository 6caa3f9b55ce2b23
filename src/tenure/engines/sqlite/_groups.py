"""The groups of one queue: read once per transaction, written before a statement reads many groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import fields
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import Any

import tenure.engine as e
from tenure.engines.rules import Group, Groups, GroupSettings, Position, Turn, decoded_name, encoded_name

from ._sql import GROUPS
from ._state import SqliteState

_COLUMNS = tuple(field.name for field in fields(GroupSettings))
_settings_of: attrgetter[tuple[Any, ...]] = attrgetter(*_COLUMNS)
_counts_of: attrgetter[tuple[Any, ...]] = attrgetter(*(field.name for field in fields(Group)[1:]))

_FIRST = [1, 1, 0, 1, 0, False, 0, 0, -inf, None, -inf]
"""The counts and times of a new group whose first task is ready."""


class SqliteGroupRows:
    def __init__(self, state: SqliteState, queue: int) -> None:
        self._state = state
        self._queue = queue
        self._stored: tuple[Any, ...] = ()
        self._are_some = False
        """True if there may be groups in the file."""
        self._groups: dict[str, Group | None] = {}
        self._changed: set[str] = set()
        self._new: set[str] = set()
        """The changed groups of which the file has no row."""

    @property
    def now(self) -> float:
        return self._state.now

    def grouping(self) -> Groups:
        *row, weights = self._state.one(GROUPS.grouping, queue=self._queue)
        groups = Groups(self, *row, _weights(weights))
        self._stored = _settings_of(groups)
        self._are_some = groups.named + groups.idle > 0
        return groups

    def save(self, groups: Groups) -> bool:
        self._write()
        row = _settings_of(groups) if groups.are_kept else ()
        if row and row != self._stored:
            columns = dict(zip(_COLUMNS, row, strict=True))
            columns["weights"] = _text_of(groups.weights)
            self._state.run(GROUPS.save_grouping, queue=self._queue, **columns)
        elif self._stored and not row:
            self._state.run(GROUPS.delete_grouping, queue=self._queue)
        self._stored = row
        return bool(row)

    def read(self, names: AbstractSet[str]) -> AbstractSet[str]:
        unknown = names - self._groups.keys()
        self._groups.update(dict.fromkeys(unknown))
        if self._are_some:
            for row in self._state.many(GROUPS.find, [self._key(name) for name in unknown]):
                name = decoded_name(row[0])
                self._groups[name] = Group(name, *row[1:])
        return {name for name in names if self._groups[name] is not None}

    def find(self, name: str) -> Group | None:
        if name not in self._groups:
            self.read({name})
        return self._groups[name]

    def change(self, name: str) -> Group:
        group = self.find(name)
        assert group is not None
        self._changed.add(name)
        return group

    def add(self, group: Group) -> None:
        self._groups[group.name] = group
        if group.name not in self._changed:  # a group that was removed has its row until that is written
            self._new.add(group.name)
        self._changed.add(group.name)

    def remove(self, name: str) -> None:
        self._groups[name] = None
        self._changed.add(name)
        self._new.discard(name)

    def next(self, count: int) -> list[Turn]:
        self._write()
        self._state.write_tasks()
        rows = self._state.all(GROUPS.next, queue=self._queue, count=count)
        return [Turn(tag, decoded_name(name), waiting, first) for tag, name, waiting, first in rows]

    def take_each(self, turns: Sequence[Turn]) -> None:
        last = turns[-1]
        self._state.run(GROUPS.take_each, queue=self._queue, tag=last.tag, name=encoded_name(last.group))
        self._groups.clear()

    def closed(self, time: float, limit: int) -> tuple[list[str], float]:
        self._write()
        found: list[str] = []
        for count in (2, limit + 1):  # most often one is due
            rows = self._state.all(GROUPS.closed, queue=self._queue, count=count)
            found = [decoded_name(name) for name, closed_until in rows[:limit] if closed_until <= time]
            if len(found) < len(rows) or len(rows) < count:
                break
        self.read(set(found))
        return found, rows[len(found)][1] if len(found) < len(rows) else inf

    def idle(self, time: float, limit: int) -> list[str]:
        self._write()
        rows = self._state.all(GROUPS.idle, queue=self._queue, time=time, limit=limit)
        return [decoded_name(name) for (name,) in rows]

    def each(self) -> list[str]:
        self._write()
        rows = self._state.all(GROUPS.each, queue=self._queue)
        found = [Group(decoded_name(name), *row) for name, *row in rows]
        self._groups.update((group.name, group) for group in found)
        return [group.name for group in found]

    def end(self, tasks: Sequence[int]) -> int:
        self._write()
        self._groups.clear()
        return self._state.run(GROUPS.delete_ended, queue=self._queue, ids=str(list(tasks))).rowcount

    def longest(self, after: Position, limit: int) -> list[tuple[Position, e.GroupCounts]]:
        self._write()
        less, name = after or (-(2**63), "")
        rows = self._state.all(
            GROUPS.longest, queue=self._queue, less=less, name=encoded_name(name), limit=limit
        )
        return [
            ((-unfinished, name), e.GroupCounts(name, *counts))
            for name, unfinished, *counts in ((decoded_name(raw), *row) for raw, *row in rows)
        ]

    def _write(self) -> None:
        gone: list[tuple[Any, ...]] = []
        new: list[tuple[Any, ...]] = []
        kept: list[tuple[Any, ...]] = []
        for name in self._changed:
            group = self._groups[name]
            if group is None:
                gone.append(self._key(name))
                continue
            *counts, tag = _counts_of(group)
            if name in self._new and counts == _FIRST:
                new.append((*self._key(name), tag))
            else:
                kept.append((*self._key(name), *counts, tag))
        self._state.many(GROUPS.delete, gone)
        self._state.many(GROUPS.add, new)
        self._state.many(GROUPS.save, kept)
        self._are_some |= bool(new or kept)
        self._changed.clear()
        self._new.clear()

    def _key(self, name: str) -> tuple[int, bytearray]:
        """The key of a row; sqlite3 looks for an adapter for each parameter of bytes, which is slow."""
        return self._queue, bytearray(encoded_name(name))


def _text_of(weights: Mapping[str, float]) -> str:
    texts = {encoded_name(name).hex(): weight for name, weight in weights.items()}
    return json.dumps(texts) if texts else "{}"  # json.dumps costs as much as a small statement


@lru_cache(maxsize=64)
def _weights(text: str) -> Mapping[str, float]:
    return {decoded_name(bytes.fromhex(name)): weight for name, weight in json.loads(text).items()}
