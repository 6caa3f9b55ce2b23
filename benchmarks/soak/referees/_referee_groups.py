"""Referees of groups of tasks: each in its order, and turns in their shares. Each group is a subject of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from math import inf
from typing import cast

from ._history import BEGAN, Event, Name
from ._referees import Breach, judge, spans, unpaused

_Stretch = tuple[float, float]


def in_order(history: Iterable[Event], *, paused: Collection[str] = ()) -> int:
    """Raise `RefereeError` unless the tasks of each subject were worked on in the order of their puts; return how many.

    It judges `putting` and `taken`, for each subject: the name of a group whose tasks are done one at a time. Once an
    item was taken, none that was put before it is taken again, however the tries of that one ended. An item was put
    before another if its put ended well before the other began. That no two are worked on at once, `capacity()` judges.

    What those (`by`) took that were `paused` for longer than their lease does not count: they may note it too late.
    """
    events = list(history)
    began, acknowledged = _puts(events)
    breaches: list[Breach] = []
    latest: dict[str, tuple[int, Event]] = {}
    judged = 0
    for event in _takings(events, paused):
        item = event.subject, cast("Name", event.facts["item"])
        begin = began.get(item)
        if begin is None:
            continue
        judged += 1
        last = latest.get(event.subject)
        if last is not None and acknowledged.get(item, inf) < last[0]:
            text = f"{event.subject}: {item[1]!r} was taken after one that was put later"
            breaches.append(Breach(text, (events[began[item]], events[last[0]], last[1], event)))
        if last is None or begin > last[0]:
            latest[event.subject] = begin, event
    judge(breaches)
    return judged


def fair(history: Iterable[Event], weights: Mapping[str, float], *, within: int = 1) -> int:
    """Raise `RefereeError` unless these subjects took turns by their weights; return the number of turns.

    It judges `putting` and `taken`. While two subjects both have items that wait, in any window, the turns of each
    divided by its weight are equal, to `within` turns of each. Each `taken` is a turn, whatever becomes of the item.
    Several takers may note their turns in another order: then `within` has to be greater by their number. A subject
    surely has an item that waits from the end of its put until it is taken for the first time.

    Raises `ValueError` for a weight that is not above 0 and a `within` below 1.
    """
    if within < 1:
        raise ValueError(f"within: at least 1, not {within!r}")
    for subject, weight in weights.items():
        if not weight > 0:
            raise ValueError(f"weights[{subject!r}]: above 0, not {weight!r}")
    events = list(history)
    turns: dict[str, list[int]] = {subject: [] for subject in weights}
    for position, event in enumerate(events):
        if event.kind == "taken" and event.subject in turns:
            turns[event.subject].append(position)
    waits = _stretches(events)
    breaches: list[Breach] = []
    for group, other in combinations(weights, 2):
        allowed = within / weights[group] + within / weights[other] + 1e-9
        for begin, end in _common(waits[group], waits[other]):
            steps = [(p, 1 / weights[group]) for p in turns[group] if begin < p <= end]
            steps += [(p, -1 / weights[other]) for p in turns[other] if begin < p <= end]
            window = _widest(sorted(steps))
            if window is not None and window[0] > allowed:
                inside = [p for p, _ in sorted(steps) if window[1] < p <= window[2]]
                count = sum(events[p].subject == group for p in inside)
                text = (
                    f"{group} had {count} turns and {other} {len(inside) - count}, while both had items that waited, "
                    f"for weights of {weights[group]:g} and {weights[other]:g}"
                )
                breaches.append(Breach(text, tuple(events[p] for p in inside)))
    judge(breaches)
    return sum(map(len, turns.values()))


def _takings(events: list[Event], paused: Collection[str]) -> Iterator[Event]:
    """The takings by processes that were not paused. Raises `TypeError`."""
    unpaused((), paused)
    return (event for event in events if event.kind == "taken" and event.by not in paused)


def _puts(events: list[Event]) -> tuple[dict[tuple[str, Name], int], dict[tuple[str, Name], int]]:
    """The positions at which the put of each item began first, and ended well last."""
    began: dict[tuple[str, Name], int] = {}
    acknowledged: dict[tuple[str, Name], int] = {}
    for position, event in enumerate(events):
        if event.kind == "put" and event.phase == BEGAN:
            began.setdefault((event.subject, cast("Name", event.facts["item"])), position)
    for puts in spans(events, "put").values():
        for put in puts:
            if put.ended_well:
                acknowledged[put.first.subject, cast("Name", put.first.facts["item"])] = put.until
    return began, acknowledged


def _stretches(events: list[Event]) -> defaultdict[str, list[_Stretch]]:
    """The stretches in which a subject has an item that waits for its first turn, in order and apart."""
    _, acknowledged = _puts(events)
    waits: defaultdict[str, list[_Stretch]] = defaultdict(list)
    for position, event in enumerate(events):
        if event.kind == "taken":
            begin = acknowledged.pop((event.subject, cast("Name", event.facts["item"])), inf)
            if begin < position:
                waits[event.subject].append((begin, position))
    for subject, stretches in waits.items():
        joined: list[_Stretch] = []
        for begin, end in sorted(stretches):
            if joined and begin <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((begin, end))
        waits[subject] = joined
    return waits


def _common(first: list[_Stretch], other: list[_Stretch]) -> Iterator[_Stretch]:
    """The stretches in which both have an item that waits."""
    for begin, end in first:
        for start, stop in other:
            if max(begin, start) < min(end, stop):
                yield max(begin, start), min(end, stop)


def _widest(steps: list[tuple[int, float]]) -> tuple[float, float, float] | None:
    """The window in which the sum of the steps changes the most: by how much, and between which positions."""
    total, low, high = 0.0, (0.0, -1.0), (0.0, -1.0)
    widest: tuple[float, float, float] | None = None
    for position, step in steps:
        total += step
        low, high = min(low, (total, position)), max(high, (total, position))
        for value, since in (low, high):
            if widest is None or abs(total - value) > widest[0]:
                widest = abs(total - value), since, position
    return widest
