"""The parts that all referees share: how they put calls together again, and how they report a breach of the
rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ._history import BEGAN, ENDED, STILL, Event, Fact

_MOST_SHOWN = 10


class Breach(NamedTuple):
    """A breach of the rules: what is wrong, and the events that show it."""

    text: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        shown = self.events[:_MOST_SHOWN]
        more = len(self.events) - len(shown)
        lines = [self.text, *(f"    {event}" for event in shown)]
        return "\n".join([*lines, f"    and {more} more events"] if more else lines)


class RefereeError(AssertionError):
    """The history breaks the rules; `breaches` says how, each with the events that show it."""

    def __init__(self, breaches: Sequence[Breach]) -> None:
        self.breaches: tuple[Breach, ...] = tuple(breaches)
        shown = [str(breach) for breach in self.breaches[:_MOST_SHOWN]]
        more = len(self.breaches) - len(shown)
        super().__init__("\n".join([*shown, f"and {more} more breaches"] if more else shown))


@dataclass(slots=True)
class Span:
    """A call in a history, from its beginning to its end, or to its last sign if it has none."""

    first: Event
    begin: int
    last: Event
    until: int
    end: str = ""
    """The phase in which it ended; "" if it has no end."""

    @property
    def ended_well(self) -> bool:
        return self.end == ENDED

    def fact(self, name: str) -> Fact:
        return self.last.facts.get(name, self.first.facts.get(name))


def spans(events: Iterable[Event], kind: str) -> dict[str, list[Span]]:
    """The calls of a kind, by subject, in the order in which they began."""
    by_call: dict[str, Span] = {}
    by_subject: defaultdict[str, list[Span]] = defaultdict(list)
    for position, event in enumerate(events):
        if event.kind != kind:
            continue
        if event.phase == BEGAN:
            by_call[event.call] = span = Span(event, position, event, position)
            by_subject[event.subject].append(span)
        elif (span := by_call.get(event.call)) is not None:
            span.last, span.until = event, position
            if event.phase != STILL:
                span.end = event.phase
    return by_subject


def unpaused(holds: Iterable[Span], paused: Collection[str]) -> list[Span]:
    """The calls whose holder knew the time. Raises `TypeError`."""
    if isinstance(paused, str):
        raise TypeError(f"paused: the names of those that were paused, not {paused!r}")
    return [hold for hold in holds if hold.first.by not in paused]


def judge(breaches: Sequence[Breach]) -> None:
    """Raise `RefereeError` if there are any."""
    if breaches:
        raise RefereeError(breaches)
