"""The referee of barriers: all pass, or none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ._history import REFUSED, Event, Fact
from ._referees import Breach, Span, judge, spans


@dataclass(frozen=True, slots=True)
class Generations:
    """The findings of the referee of barriers: the turns in which parties passed, and those in which they were
    broken.
    """

    passed: int
    broken: int


def agreement(history: Iterable[Event], parties: int) -> Generations:
    """Raise `RefereeError` unless all parties of a barrier agree, turn for turn.

    It judges `arriving`: in a turn all pass or all see it broken. None passes before `parties`
    have arrived and are there together, nor more than that pass. Their places are different ones, from 0 to
    `parties - 1`, and their generation is the same, and that of no other turn (where the calls record them). A party of
    which no outcome is known may have passed or not; one whose call raised is there no more.
    """
    if parties < 1:
        raise ValueError(f"parties: at least 1, not {parties!r}")
    breaches: list[Breach] = []
    passed = broken = 0
    for subject, arrivals in spans(list(history), "arrive").items():
        by_turn: defaultdict[Fact, list[Span]] = defaultdict(list)
        for arrival in arrivals:
            by_turn[arrival.first.facts["turn"]].append(arrival)
        generations: dict[Fact, Span] = {}
        for turn, there in by_turn.items():
            winners = [arrival for arrival in there if arrival.ended_well]
            losers = [arrival for arrival in there if arrival.end == REFUSED]
            passed += bool(winners)
            broken += bool(losers)
            name = f"{subject}, turn {turn}"
            breaches += _disagreements(name, winners, losers, there, parties)
            breaches += _wrong_places(name, winners, parties)
            breaches += _mixed_generations(name, winners, generations)
    judge(breaches)
    return Generations(passed, broken)


def _disagreements(
    name: str, winners: list[Span], losers: list[Span], there: list[Span], parties: int
) -> Iterator[Breach]:
    if winners and losers:
        yield Breach(f"{name}: some passed and some were broken", _ends(winners + losers))
    if len(winners) > parties:
        yield Breach(f"{name}: {len(winners)} passed, where {parties} are the parties", _ends(winners))
    if winners:
        first = min(winners, key=lambda winner: winner.until)
        before = [(arrival.begin, 1) for arrival in there if arrival.begin < first.until]
        before += [(a.until, -1) for a in there if a.end and not a.ended_well and a.until < first.until]
        most = present = 0
        for _, change in sorted(before):
            present += change
            most = max(most, present)
        if most < parties:
            text = f"{name}: one passed when at most {most} of {parties} had been there together"
            yield Breach(text, (*(arrival.first for arrival in there), first.last))


def _wrong_places(name: str, winners: list[Span], parties: int) -> Iterator[Breach]:
    placed = [winner for winner in winners if winner.fact("place") is not None]
    times = Counter(winner.fact("place") for winner in placed)
    wrong = [winner for winner in placed if times[winner.fact("place")] > 1]
    if wrong:
        yield Breach(f"{name}: places were given twice", _ends(wrong))
    outside = [winner for winner in placed if winner.fact("place") not in range(parties)]
    if outside:
        yield Breach(f"{name}: there are no such places of {parties}", _ends(outside))


def _mixed_generations(name: str, winners: list[Span], generations: dict[Fact, Span]) -> Iterator[Breach]:
    tripped = {
        winner.fact("generation"): winner for winner in winners if winner.fact("generation") is not None
    }
    if len(tripped) > 1:
        yield Breach(f"{name}: of several generations", _ends(tripped.values()))
    for generation, winner in tripped.items():
        other = generations.setdefault(generation, winner)
        if other is not winner:
            yield Breach(f"{name}: generation {generation} was that of another turn", _ends([other, winner]))


def _ends(arrivals: Iterable[Span]) -> tuple[Event, ...]:
    return tuple(arrival.last for arrival in arrivals)
