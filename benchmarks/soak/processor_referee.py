"""How long what a dead process had was stranded, as a history tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.soak.referees import Event

DISTURBANCES = {"killed", "frozen", "told", "away", "back"}


@dataclass(frozen=True, slots=True)
class Stranded:
    """A task that a process had when it was killed: after how many `seconds` it was taken again.

    `since_disturbance` counts from the last of these: the kill, a later fault, and the moment when another task of that
    process was taken again. From that moment on, the task waits for a runner alone.
    """

    item: str
    seconds: float
    since_disturbance: float


def strandings(history: Iterable[Event]) -> list[Stranded]:
    """The tasks that killed processes had, and that were taken again.

    It judges `taken`, `settled` (by whom the verdict was accepted) and `killed`. A task whose last verdict was accepted
    while its process died is not taken again, and does not count. Nor does a task of which two processes have died: it
    is a suspect, and waits until it runs apart.
    """
    deaths: Counter[object] = Counter()
    holders: dict[object, str] = {}
    stranded: dict[object, tuple[float, str]] = {}
    freed: dict[str, float] = {}
    disturbed = 0.0
    found: list[Stranded] = []
    for event in history:
        if event.kind == "taken":
            item = event.facts["item"]
            holders[item] = event.by
            if item in stranded:
                since, process = stranded.pop(item)
                free = max(disturbed, freed.get(process, 0.0))
                freed.setdefault(process, event.at)
                if deaths[item] < 2:
                    found.append(Stranded(str(item), event.at - since, event.at - free))
        elif event.kind == "settled" and holders.get(event.subject) == event.by:
            del holders[event.subject], deaths[event.subject]
        elif event.kind == "killed":
            left = [item for item, by in holders.items() if by == event.subject]
            for item in left:
                del holders[item]
                deaths[item] += 1
                stranded[item] = event.at, event.subject
        if event.kind in DISTURBANCES:
            disturbed = event.at
    return found
