"""The referee of rates: no subject has more deliveries than its limit allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tenure.arguments import check_seconds
from tenure.limits import Limit

from ._history import Event
from ._referees import Breach, judge


def rate(history: Iterable[Event], limit: Limit, *, within: float = 0.0) -> int:
    """Raise `RefereeError` unless the items of each subject were taken at this rate at most; return how many were.

    It judges `taken`, for each subject: a queue, or a group with a rate of its own. In any time, at most the burst of
    the limit is taken, and what the rate brings back in that time. A taker notes its item later than the engine handed
    it out: up to `within` seconds, on one clock. Source: the generic cell rate algorithm (ITU-T I.371).
    """
    within = check_seconds("within", within)
    every = 1 / limit.per_second
    room = (limit.most - 1) * every + within + 1e-6
    ends: defaultdict[str, float] = defaultdict(float)
    former: dict[str, Event] = {}
    breaches: list[Breach] = []
    judged = 0
    for event in sorted(history, key=lambda event: event.at):
        if event.kind != "taken":
            continue
        judged += 1
        if event.at < ends[event.subject] - room:
            early = ends[event.subject] - room - event.at
            text = f"{event.subject}: {event.facts['item']!r} was taken {early:.6f} s too early for {limit}"
            breaches.append(Breach(text, (former[event.subject], event)))
        ends[event.subject] = max(ends[event.subject], event.at) + every
        former[event.subject] = event
    judge(breaches)
    return judged
