from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e
from tenure.arguments import check_name


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """A group of a queue at one moment: the number of its tasks in each state.

    A delayed task that is due may still count as delayed, until any taker's next exchange, and so do suspended and
    ending tasks. `children`: these tasks are children; tasks without a parent in the same group are counted apart.
    `starts_in` is for how many seconds no task of the group may start, because of its rate or a hold; the queue may
    have to wait for longer. `held_off` is the same if the group is held off, else 0. `weight` is its weight in the
    turns.
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
    name, is_of_children = shown_group(counts.group), counts.group.startswith(e.OF_CHILDREN)
    return GroupStatistics(
        *(name, counts.waiting, counts.delayed, counts.leased, is_of_children),
        *(counts.starts_in, counts.held_off, counts.weight),
    )


def check_group(name: str, group: object) -> str:
    checked = check_name(name, group)
    if checked.startswith(e.OF_CHILDREN):
        raise ValueError(f"{name} must not begin with a null character: {checked[:50]!r}")
    return checked


def group_of_children(group: str) -> str:
    return group and e.OF_CHILDREN + group


def shown_group(group: str) -> str:
    return group.removeprefix(e.OF_CHILDREN)
