"""Deadlocks: the waiters that wait for one another, and so for ever.

The method is graph reduction (Holt 1972): let every task that waits for nothing finish and give back what it holds,
serve the lines from their heads, and so on. The tasks that are left can never go on, unless a wait has a time limit or
a task is cancelled. Since the names of holders contain their tasks, a circle of tasks is certain, as far as the
readings belong to one time.

A task that holds something may wait for another task of its process, which waits for a key; this is not seen. So
lasting circles of processes are reported too, as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, TypeVar

import tenure.engine as e

_Node = TypeVar("_Node", bound=tuple[Any, ...])

_LASTING = 5.0
"""Seconds after which a circle of processes is reported."""


class Key(NamedTuple):
    name: str
    capacity: int
    holders: Sequence[e.Holder]
    waiting: Sequence[e.Holder]


class Wait(NamedTuple):
    process: str
    task: str
    key: str
    seconds: float
    holds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A circle: each waits for something that the next one holds, or stands in line for ahead of it, and so on around.

    It is `certain` or only possible; `behind` more wait in vain because of it.
    """

    waits: tuple[Wait, ...]
    certain: bool
    behind: int = 0

    @property
    def seconds(self) -> float:
        return min(wait.seconds for wait in self.waits)


class _Agent(NamedTuple):
    process: str
    task: str


def deadlocks(keys: Iterable[Key]) -> list[Deadlock]:
    keys = [key for key in keys if key.waiting]
    certain = _certain(keys)
    blocked = {(wait.process, wait.key) for deadlock in certain for wait in deadlock.waits}
    return [
        *certain,
        *(d for d in _possible(keys) if blocked.isdisjoint((w.process, w.key) for w in d.waits)),
    ]


def task_of(holder: e.Holder) -> str:
    return holder.holder.rpartition("@")[2] if "@" in holder.holder else ""


def _agent(holder: e.Holder) -> _Agent:
    # without a task, each holder stands for itself: too few circles rather than false ones
    return _Agent(holder.process, task_of(holder) or holder.holder)


# certain ones


def _certain(keys: Sequence[Key]) -> list[Deadlock]:
    stuck = _stuck(keys)
    held = _held(keys)
    waits = {
        _agent(holder): Wait(
            holder.process, task_of(holder), key.name, holder.age, held.get(_agent(holder), ())
        )
        for key in keys
        for holder in key.waiting
        if _agent(holder) in stuck
    }
    graph: dict[_Agent, set[_Agent]] = {agent: set() for agent in stuck}
    for key in keys:
        owners = [holder for holder in key.holders if _agent(holder) in stuck]
        room = key.capacity - sum(holder.weight for holder in owners)
        ahead: _Agent | None = None
        for holder in key.waiting:
            if _agent(holder) in stuck:
                # it would fit, but for the waiter that stands ahead of it
                if holder.weight <= room and ahead is not None:
                    graph[_agent(holder)].add(ahead)
                else:
                    graph[_agent(holder)].update(map(_agent, owners))
                ahead = _agent(holder)
    circles = list(_circles(graph))
    results = [Deadlock(tuple(waits[agent] for agent in circle), certain=True) for circle in circles]
    behind = len(stuck) - len({agent for circle in circles for agent in circle})
    return [Deadlock(d.waits, certain=True, behind=0 if i else behind) for i, d in enumerate(results)]


def _stuck(keys: Sequence[Key]) -> set[_Agent]:
    open_waits = {(key.name, waiter.holder): _agent(waiter) for key in keys for waiter in key.waiting}
    waits = Counter(open_waits.values())
    got: dict[_Agent, dict[str, int]] = {}  # granted to agents that still wait for something else
    changed = True
    while changed:
        changed = False
        blocked = {agent for agent, number in waits.items() if number}
        for key in keys:
            room = key.capacity - sum(holder.weight for holder in key.holders if _agent(holder) in blocked)
            room -= sum(mine.get(key.name, 0) for agent, mine in got.items() if agent in blocked)
            for waiter in key.waiting:
                if (key.name, waiter.holder) not in open_waits:
                    continue
                if waiter.weight > room:
                    break
                agent = open_waits.pop((key.name, waiter.holder))
                changed = True
                waits[agent] -= 1
                if waits[agent]:
                    mine = got.setdefault(agent, {})
                    mine[key.name] = mine.get(key.name, 0) + waiter.weight
                    room -= waiter.weight
    return set(open_waits.values())


def _held(keys: Sequence[Key]) -> dict[_Agent, tuple[str, ...]]:
    held: dict[_Agent, tuple[str, ...]] = {}
    for key in keys:
        for holder in key.holders:
            held[_agent(holder)] = (*held.get(_agent(holder), ()), key.name)
    return held


# possible ones


def _possible(keys: Sequence[Key]) -> Iterator[Deadlock]:
    """Circles of waits: each for a key whose one holder is the process of the next, which began to wait later."""
    # in a long line the waiters of one process are alike: each line and process is one node, not each waiter
    waits: dict[tuple[str, str], list[e.Holder]] = {}
    lines: dict[str, list[str]] = {}
    for key in keys:
        for waiter in key.waiting:
            if waiter.age >= _LASTING:
                waits.setdefault((waiter.process, key.name), []).append(waiter)
    for process, key in waits:
        lines.setdefault(process, []).append(key)
    owners = {key.name: key.holders[0] for key in keys if len(key.holders) == 1}
    latest = {node: min(waiter.age for waiter in alike) for node, alike in waits.items()}
    graph = {
        (process, key): {
            (owner.process, other)
            for other in lines.get(owner.process, ())
            if owner.process != process and latest[owner.process, other] <= owner.age
        }
        if (owner := owners.get(key)) is not None
        else set[tuple[str, str]]()
        for process, key in waits
    }
    held: dict[str, tuple[str, ...]] = {}
    for key, owner in owners.items():
        held[owner.process] = (*held.get(owner.process, ()), key)
    for circle in _circles(graph):
        chain: list[Wait] = []
        for i, (process, key) in enumerate(circle):
            since = owners[circle[i - 1][1]].age
            waiter = max(
                (waiter for waiter in waits[process, key] if waiter.age <= since),
                key=lambda waiter: waiter.age,
            )
            chain.append(Wait(process, task_of(waiter), key, waiter.age, held.get(process, ())))
        yield Deadlock(tuple(chain), certain=False)


def _circles(graph: Mapping[_Node, set[_Node]]) -> Iterator[list[_Node]]:
    left = dict(graph)
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            # the same node comes first and last, and each is waited for by the next
            circle: list[_Node] = error.args[1][:0:-1]
            yield circle
            left = {node: others.difference(circle) for node, others in left.items() if node not in circle}
        else:
            return
