"""Referees of queues: nothing lost, nothing twice, and the books balance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ._history import BEGAN, REFUSED, Event, Name
from ._referees import Breach, judge, spans

if TYPE_CHECKING:
    from tenure.shared import QueueStatistics

_Item = tuple[str, Name]
_STATES = ("waiting", "delayed", "leased", "done", "dead", "cancelled", "expired", "discarded", "purged")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The findings of the referee of queues.

    Of the puts, `acknowledged` were acknowledged; `recovered` are those whose outcome was unknown. Items were
    taken `taken` times, of which `again` were deliveries of an item that had been taken before; `completed` and
    `found` as noted.
    """

    acknowledged: int
    recovered: int
    taken: int
    again: int
    completed: int
    found: int


def nothing_lost(history: Iterable[Event]) -> Deliveries:
    """Raise `RefereeError` if an item was lost, completed twice, or came from nowhere.

    It judges `putting`, `taken`, `completed` and `found`. An item of which the put was acknowledged has to be
    accounted for: as completed, or found in the end in whatever state. An item that was never put (or refused)
    must not appear, and an item that was put once must not be completed twice, found twice, nor completed and also
    found in another state than "done". A put of which the outcome is unknown may appear or not. Being handed out
    again is no breach.

    Where takers are killed, they could not note all that they completed: then note what is `found` for all states, the
    ended ones too. The idea is the checker "total-queue" of Jepsen.
    """
    events = list(history)
    attempted: Counter[_Item] = Counter()
    acknowledged: Counter[_Item] = Counter()
    for puts in spans(events, "put").values():
        for put in puts:
            attempted[_item(put.first)] += put.end != REFUSED
            acknowledged[_item(put.first)] += put.ended_well
    seen: defaultdict[str, Counter[_Item]] = defaultdict(Counter)
    wrong: dict[_Item, str] = {}
    begun: set[_Item] = set()
    for event in events:
        if event.kind == "put" and event.phase == BEGAN:
            begun.add(_item(event))
        elif event.kind in {"taken", "completed", "found"}:
            item = _item(event)
            seen["done" if event.facts.get("state") == "done" else event.kind][item] += 1
            if item not in begun or not attempted[item]:
                wrong[item] = "unexpected: never put, or not before that"
    recovered = 0
    for item, most in attempted.items():
        least = max(acknowledged[item], min(seen["taken"][item], 1))
        accounted = max(seen["completed"][item], seen["done"][item]) + seen["found"][item]
        recovered += max(0, min(accounted, most) - acknowledged[item])
        if accounted < least:
            wrong.setdefault(item, "lost: neither completed nor found")
        elif accounted > most:
            wrong.setdefault(item, "duplicated: completed or found more often than it was put")
    judge(_breaches(events, wrong))
    return Deliveries(
        acknowledged=acknowledged.total(),
        recovered=recovered,
        taken=seen["taken"].total(),
        again=seen["taken"].total() - len(seen["taken"]),
        completed=seen["completed"].total(),
        found=seen["found"].total() + seen["done"].total(),
    )


def conservation(put: int | QueueStatistics, history: Iterable[Event] | None = None, /, **parts: int) -> None:
    """Raise `RefereeError` unless all that was put is somewhere, once.

    `put` is the statistics of a `WorkQueue`, or a number; `parts` say where that many are now:
    `conservation(sent, received=received, buffered=len(buffer))`. With the `history` of the queue, what was put lies
    between the puts that were acknowledged and those that were attempted, and not less is done than was `completed`.
    """
    if not isinstance(put, int):
        if parts:
            raise ValueError(f"parts: the statistics know them, not {parts!r}")
        parts = {state: getattr(put, state) for state in _STATES}
        put = put.put
    elif not parts:
        raise ValueError("parts: where what was put is now, none given")
    breaches: list[Breach] = []
    parts_shown = " + ".join(f"{name} {count}" for name, count in parts.items())
    if sum(parts.values()) != put:
        breaches.append(Breach(f"put {put}, but {parts_shown} = {sum(parts.values())}", ()))
    if min(parts.values()) < 0:
        breaches.append(Breach(f"less than nothing: {parts_shown}", ()))
    if history is not None:
        breaches += _unlike_the_books(put, parts, list(history))
    judge(breaches)


def _unlike_the_books(put: int, parts: dict[str, int], events: list[Event]) -> Iterator[Breach]:
    puts = [put for several in spans(events, "put").values() for put in several]
    least, most = sum(put.ended_well for put in puts), sum(put.end != REFUSED for put in puts)
    if not least <= put <= most:
        yield Breach(f"put {put}, but {least} of {most} attempts were acknowledged", ())
    completed = sum(event.kind == "completed" for event in events)
    if "done" in parts and "purged" in parts and completed > parts["done"] + parts["purged"]:
        yield Breach(f"done {parts['done']}, but {completed} were completed", ())


def _item(event: Event) -> _Item:
    return event.subject, cast("Name", event.facts["item"])


def _breaches(events: list[Event], wrong: dict[_Item, str]) -> list[Breach]:
    shown: dict[_Item, list[Event]] = {item: [] for item in wrong}
    calls: dict[str, _Item] = {}
    for event in events:
        item = _item(event) if "item" in event.facts else calls.get(event.call)
        if item in shown:
            shown[item].append(event)
            if event.phase == BEGAN:
                calls[event.call] = item
    return [
        Breach(f"{subject}: {name!r} {wrong[subject, name]}", tuple(shown[subject, name]))
        for subject, name in wrong
    ]
