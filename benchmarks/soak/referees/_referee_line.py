"""The referee of lines: first come, first served."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ._history import QUEUED, Event
from ._referee_holds import token_of, weight_of
from ._referees import Breach, Span, judge, spans


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a line, taken between two moments of the history, and the hold that it led to."""

    asked: Event
    earliest: int
    latest: int
    hold: Span


def fifo(history: Iterable[Event], *, limit: int = 1) -> int:
    """Raise `RefereeError` unless first come was first served; return how many were served.

    It judges `held` with a `place`, for each subject, among those of one priority that were served. One came before
    another if it was `queued` (or, where that was not noted, served) before the other `asked`.

    The tokens show in which order they were served, if all have one. Otherwise it is the order in which they noted it,
    where those that were granted something together may wake in any order: overtaking is fine as long as
    all of them fit within `limit`, by weight.

    It cannot know of places that were rightly lost, by a waiter whose session ended and who came again.
    """
    if limit < 1:
        raise ValueError(f"limit: at least 1, not {limit!r}")
    events = list(history)
    waits = {wait.first.call: wait for several in spans(events, "wait").values() for wait in several}
    queued: dict[str, int] = {}
    for position, event in enumerate(events):
        if event.phase == QUEUED:
            queued.setdefault(event.call, position)
    breaches: list[Breach] = []
    served = 0
    for subject, holds in spans(events, "hold").items():
        lines: defaultdict[object, list[_Place]] = defaultdict(list)
        for hold in holds:
            wait = waits.get(str(hold.first.facts.get("place")))
            if wait is not None:
                latest = min(queued.get(wait.first.call, hold.begin), hold.begin)
                lines[wait.first.facts["priority"]].append(_Place(wait.first, wait.begin, latest, hold))
                served += 1
        fenced = all(token_of(hold) is not None for hold in holds)
        inside = _inside(holds)
        for line in lines.values():
            if fenced:
                line.sort(key=lambda place: token_of(place.hold))
            for place, passed in _overtakings(line):
                needed = inside[place.hold.begin] + sum(weight_of(other.hold) for other in passed)
                if fenced or needed > limit:
                    text = f"{subject}: served before {len(passed)} that came before"
                    others = [event for other in passed for event in (other.asked, other.hold.first)]
                    breaches.append(Breach(text, (place.asked, place.hold.first, *others)))
    judge(breaches)
    return served


def _overtakings(line: list[_Place]) -> Iterator[tuple[_Place, list[_Place]]]:
    """The overtakings: for places in the order of service, those that came before a place and are served after
    it.
    """
    # Looking at the front of a plain dict takes the longer, the more was removed from there.
    waiting = OrderedDict((place.asked.call, place) for place in sorted(line, key=lambda place: place.latest))
    for place in line:
        waiting.pop(place.asked.call, None)
        passed: list[_Place] = []
        for other in waiting.values():
            if other.latest >= place.earliest:
                break
            passed.append(other)
        if passed:
            yield place, passed


def _inside(holds: list[Span]) -> dict[int, int]:
    """The weight that is held when each hold begins, its own too; a holder that may be dead does not count."""
    changes = [(hold.begin, weight_of(hold)) for hold in holds]
    changes += [(hold.until, -weight_of(hold)) for hold in holds if hold.end]
    unended = {hold.begin: weight_of(hold) for hold in holds if not hold.end}
    inside: dict[int, int] = {}
    used = 0
    for position, weight in sorted(changes):
        used += weight
        inside[position] = used
        used -= unended.get(position, 0)
    return inside
