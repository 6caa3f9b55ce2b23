"""The settings of a queue's groups, and how the engine learns of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tenure.arguments import check_count, check_name, check_number
from tenure.engine import OF_CHILDREN, GroupCounts, Rate, SetGroups
from tenure.errors import EngineError
from tenure.limits import REQUESTS, Limit
from tenure.store import Session, Store

OnRetry = Literal["hold", "pass"]

_MOST_WEIGHTS = 1000


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


def group_statistics(counts: GroupCounts) -> GroupStatistics:
    """The engine's counts of a group, for the user."""
    name, is_of_children = shown_group(counts.group), counts.group.startswith(OF_CHILDREN)
    return GroupStatistics(
        *(name, counts.waiting, counts.delayed, counts.leased, is_of_children),
        *(counts.starts_in, counts.held_off, counts.weight),
    )


def check_group(name: str, group: object) -> str:
    """The group of a task: a name that says nothing of children."""
    checked = check_name(name, group)
    if checked.startswith(OF_CHILDREN):
        raise ValueError(f"{name} must not begin with a null character: {checked[:50]!r}")
    return checked


def group_of_children(group: str) -> str:
    """The group that the engine keeps for the children that have this group; "" for none."""
    return group and OF_CHILDREN + group


def shown_group(group: str) -> str:
    """The group, of a child or not, as the user has named it."""
    return group.removeprefix(OF_CHILDREN)


def settings(
    key: str,
    per_group: object,
    weights: Mapping[str, float] | None,
    max_group_size: object,
    on_retry: object,
    rate: Limit | None,
    group_rate: Limit | None,
) -> SetGroups | None:
    """The settings of groups in the description of a queue; None if it sets nothing."""
    if on_retry not in ("hold", "pass"):
        raise ValueError(f"on_retry must be 'hold' or 'pass', not {on_retry!r}")
    if per_group is weights is max_group_size is rate is group_rate is None:
        return None
    return SetGroups(
        key,
        0 if per_group is None else check_count("per_group", per_group),
        0 if max_group_size is None else check_count("max_group_size", max_group_size),
        _weights({} if weights is None else weights),
        on_retry == "hold",
        _rate("rate", rate),
        _rate("group_rate", group_rate),
    )


def _rate(name: str, limit: object) -> Rate | None:
    if limit is None:
        return None
    if not isinstance(limit, Limit):
        raise TypeError(f"{name} must be a Limit, such as Limit(100, per=1), not {type(limit).__name__}")
    if limit.unit != REQUESTS:
        raise ValueError(f"{name} counts tasks, and has no unit: {limit.unit!r}")
    return Rate(1 / limit.per_second, limit.most)


def _weights(weights: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    if not isinstance(weights, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"weights must be a mapping of groups to numbers, not {type(weights).__name__}")
    if len(weights) > _MOST_WEIGHTS:
        raise ValueError(f"weights must have at most {_MOST_WEIGHTS} groups, not {len(weights)}")
    checked = {
        "" if group == "" else check_group("weights: the group", group): check_number(
            f"weights[{group!r}]", weight, least=0.001, most=1000
        )
        for group, weight in weights.items()
    }
    of_children = {group_of_children(group): weight for group, weight in checked.items()}
    return tuple((checked | of_children).items())


class GroupSettings:
    """The settings that this process has for the groups of a queue: sent once in each session, before it is used."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._settings: SetGroups | None = None
        self.sent_in: Session | None = None
        """The session whose operations come behind the settings; `send` has been called in it."""

    def send(self, session: Session) -> None:
        """Send the settings, if there are some: operations that are submitted next take effect after them.

        What the engine refuses is logged, and sent again with the next operation.
        """
        self.sent_in = session
        if self._settings is not None:
            self._store.send(self._settings, self._on_answer)

    async def send_now(self, new: SetGroups) -> None:
        """Replace the settings at once; older ones are not sent after them. Raises `StoreClosed`, `EngineError`."""
        before, self._settings = self._settings, new
        if before is None:
            self.sent_in = None
        try:
            await self._store.call(new)
        except EngineError:
            if self._settings is new:
                self._settings = before
            raise

    def change(self, new: SetGroups | None) -> None:
        """Replace the settings, unless there are no new ones; the next operation sends them."""
        if new is not None and new != self._settings:
            self._settings, self.sent_in = new, None

    def _on_answer(self, answer: object) -> None:
        if isinstance(answer, EngineError):
            self.sent_in = None
            name = self._key.removeprefix(self._store.prefix("queue"))
            self._store.reporter.warn("queue.settings_refused", queue=name, error=answer)
