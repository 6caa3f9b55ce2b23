"""How long what a dead process had was stranded, as a history tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.soak.referees import Event

DISTURBANCES = {"killed", "frozen", "told", "away", "back"}


@dataclass(frozen=True, slots=True)
class Stranded:
    """A task that a process had when it was killed: after how many `seconds` it was taken again.

    After so many since the last `disturbance`, which is that kill or a later fault.
    """

    item: str
    seconds: float
    since_disturbance: float


def strandings(history: Iterable[Event]) -> list[Stranded]:
    """The tasks that killed processes had, and that were taken again.

    It judges `taken`, `settled` (by whom the verdict was accepted) and `killed`. A task whose last verdict was accepted
    while its process died is not taken again, and does not count.
    """
    holders: dict[object, str] = {}
    stranded: dict[object, float] = {}
    disturbed = 0.0
    found: list[Stranded] = []
    for event in history:
        if event.kind == "taken":
            item = event.facts["item"]
            holders[item] = event.by
            if (since := stranded.pop(item, None)) is not None:
                found.append(Stranded(str(item), event.at - since, event.at - disturbed))
        elif event.kind == "settled" and holders.get(event.subject) == event.by:
            del holders[event.subject]
        elif event.kind == "killed":
            left = [item for item, by in holders.items() if by == event.subject]
            for item in left:
                del holders[item]
                stranded[item] = event.at
        if event.kind in DISTURBANCES:
            disturbed = event.at
    return found
