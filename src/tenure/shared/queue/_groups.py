"""The groups of a queue: their names, and their counts."""

from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e
from tenure.arguments import check_name


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """A group of a queue at one moment: how many of its tasks are in which state.

    A delayed task that is due may still count as delayed; the next exchange of any taker moves it. Suspended and ending
    tasks count as delayed. `children`: these tasks are children of other tasks; tasks without a parent that have the
    same group are counted apart. `starts_in` is how many seconds remain until the next task of the group may start, by
    its rate or since it is held off; the queue may have to wait for longer. `held_off` is the same if the group is held
    off, else 0. `weight` is its weight in the turns.
    """

    group: str
    waiting: int
    delayed: int
    leased: int
    children: bool = False
    starts_in: float = 0.0
    held_off: float = 0.0
    weight: float = 1.0

    @property
    def unfinished(self) -> int:
        """The number of tasks that have not ended."""
        return self.waiting + self.delayed + self.leased


def group_statistics(counts: e.GroupCounts) -> GroupStatistics:
    """The engine's counts of a group, for the user."""
    name, is_of_children = shown_group(counts.group), counts.group.startswith(e.OF_CHILDREN)
    return GroupStatistics(
        *(name, counts.waiting, counts.delayed, counts.leased, is_of_children),
        *(counts.starts_in, counts.held_off, counts.weight),
    )


def check_group(name: str, group: object) -> str:
    """The group of a task: a name that says nothing of children."""
    checked = check_name(name, group)
    if checked.startswith(e.OF_CHILDREN):
        raise ValueError(f"{name} must not begin with a null character: {checked[:50]!r}")
    return checked


def group_of_children(group: str) -> str:
    """The group that the engine keeps for the children that have this group; "" for none."""
    return group and e.OF_CHILDREN + group


def shown_group(group: str) -> str:
    """The group, of a child or not, as the user has named it."""
    return group.removeprefix(e.OF_CHILDREN)
