"""Referees of what is held: by one at a time, by a limited number at once, by one leader a term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from ._history import ENDED, REFUSED, Event
from ._referees import Breach, Span, judge, spans, unpaused


@dataclass(frozen=True, slots=True)
class Holds:
    """The findings of a referee of holds: the number `held`, `unended` of them without an end; writes `accepted`
    and `refused`.
    """

    held: int
    unended: int
    accepted: int
    refused: int


def mutual_exclusion(history: Iterable[Event], *, paused: Collection[str] = ()) -> Holds:
    """Raise `RefereeError` unless each subject was held by one at a time, under tokens that rise.

    It judges `held`: no hold begins before the one before has ended, by the order of the notes, and its token is
    higher than all before, if there are tokens. A hold without an end (its process was killed) lasts up to its last
    sign. It judges `writing`: none is accepted after one with a higher token.

    `paused` names those (`by`) that were frozen or suspended for longer than their lease: they cannot know that they
    hold no more, so that only the writes count. Their holds are not compared with others, but a token is theirs alone.
    """
    return _exclusive(list(history), paused, terms=False)


def one_leader(history: Iterable[Event], *, paused: Collection[str] = ()) -> Holds:
    """Raise `RefereeError` unless there was one leader at a time and in each term.

    It judges `held` with the number of the term as `token` and the leader's name as `by`: terms rise, no two leaders
    have the same, and what they do does not overlap. One leader may note several blocks of a term. For the rest it is
    `mutual_exclusion()`. Raises `ValueError` for a hold without a token.
    """
    return _exclusive(list(history), paused, terms=True)


def capacity(history: Iterable[Event], limit: int, *, paused: Collection[str] = ()) -> int:
    """Raise `RefereeError` unless the weights that were held at once never exceeded `limit`; return the highest.

    It judges `held`, for each subject. A hold without an end (its process was killed) counts up to its last sign, one
    of those that were `paused` (see `mutual_exclusion()`) not at all.
    """
    if limit < 1:
        raise ValueError(f"limit: at least 1, not {limit!r}")
    breaches: list[Breach] = []
    most = 0
    for subject, holds in spans(history, "hold").items():
        over = False
        for used, inside in _moments(unpaused(holds, paused)):
            most = max(most, used)
            if used > limit and not over:
                text = f"{subject}: {used} are held at once, where the limit is {limit}"
                breaches.append(Breach(text, tuple(hold.first for hold in inside.values())))
            over = used > limit
    judge(breaches)
    return most


def _exclusive(events: list[Event], paused: Collection[str], *, terms: bool) -> Holds:
    by_subject = spans(events, "hold")
    breaches: list[Breach] = []
    for subject, holds in by_subject.items():
        breaches += _repeated(subject, holds, terms=terms)
        breaches += _out_of_order(subject, unpaused(holds, paused), terms=terms)
    for subject, writes in spans(events, "write").items():
        breaches += _stale(subject, writes)
    judge(breaches)
    writes = Counter(event.phase for event in events if event.kind == "write")
    return Holds(
        held=sum(map(len, by_subject.values())),
        unended=sum(not hold.end for holds in by_subject.values() for hold in holds),
        accepted=writes[ENDED],
        refused=writes[REFUSED],
    )


def _repeated(subject: str, holds: list[Span], *, terms: bool) -> Iterator[Breach]:
    """Tokens that were given twice."""
    seen: dict[int, Span] = {}
    for hold in holds:
        token = token_of(hold)
        if token is None:
            if terms:
                raise ValueError(f"history: the number of a term as token, not {hold.first}")
            continue
        first = seen.setdefault(token, hold)
        if first is not hold and not (terms and _same_term(first, hold)):
            text = f"two leaders in term {token}" if terms else f"token {token} was given twice"
            yield Breach(f"{subject}: {text}", (first.first, hold.first))


def _out_of_order(subject: str, holds: list[Span], *, terms: bool) -> Iterator[Breach]:
    """Holds that begin before another has ended, or under a token that is not the highest."""
    latest: Span | None = None
    highest: Span | None = None
    for hold in holds:
        token = token_of(hold)
        if latest is not None and hold.begin < latest.until and not (terms and _same_term(latest, hold)):
            yield Breach(f"{subject}: held by two at once", (latest.first, hold.first, latest.last))
        elif highest is not None and token is not None and token < token_of(highest):
            text = f"{subject}: token {token} came after token {token_of(highest)}"
            yield Breach(text, (highest.first, highest.last, hold.first))
        if latest is None or hold.until > latest.until:
            latest = hold
        if token is not None and (highest is None or token > token_of(highest)):
            highest = hold


def _same_term(first: Span, other: Span) -> bool:
    return first.first.by == other.first.by and token_of(first) == token_of(other)


def _stale(subject: str, writes: list[Span]) -> Iterator[Breach]:
    """Writes that were accepted although a write with a higher token was accepted before they began."""
    accepted = [write for write in writes if write.ended_well]
    by_end = sorted(accepted, key=lambda write: write.until)
    before = 0
    highest: Span | None = None
    for write in accepted:
        while by_end[before].until < write.begin:
            if highest is None or token_of(by_end[before]) > token_of(highest):
                highest = by_end[before]
            before += 1
        if highest is not None and token_of(write) < token_of(highest):
            text = f"{subject}: a stale write was accepted, token {token_of(write)} after {token_of(highest)}"
            yield Breach(text, (highest.first, highest.last, write.first, write.last))


def _moments(holds: list[Span]) -> Iterator[tuple[int, dict[int, Span]]]:
    """The weight that is held after each change, and its holder."""
    changes = [(hold.begin, False, hold) for hold in holds] + [(hold.until, True, hold) for hold in holds]
    inside: dict[int, Span] = {}
    used = 0
    for _, leaves, hold in sorted(changes):
        if leaves:
            del inside[hold.begin]
            used -= weight_of(hold)
        else:
            inside[hold.begin] = hold
            used += weight_of(hold)
        yield used, inside


def weight_of(hold: Span) -> int:
    """The weight of a hold."""
    return cast("int", hold.first.facts.get("weight", 1))


def token_of(span: Span) -> Any:
    """The token of a hold or a write; None if it has none."""
    return span.first.facts.get("token")
