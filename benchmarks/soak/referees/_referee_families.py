"""The referee of families: a task ends after its children and its releases, and nothing of it begins afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ._history import BEGAN, Event
from ._referees import Breach, judge


@dataclass(frozen=True, slots=True)
class Families:
    """The findings of the referee of families: the numbers of tasks, of their tries and of tasks that have ended."""

    tasks: int
    tries: int
    ended: int


def structured(history: Iterable[Event], *, paused: Collection[str] = (), whole: bool = True) -> Families:
    """Raise `RefereeError` unless each task ended once, after its children, and nothing of it began afterwards.

    It judges `trying`, `named` and `ended`. After the end of a task, no handler of the task, or of a task below it,
    begins or shows a sign; a task has one end; and a task that is done is not tried again. Once a release has begun
    that `undoes`, nothing of its owner begins or shows a sign but releases; and each release that was `named` has
    begun, or has an end, before the end of its owner. `ended` is noted by a process that has seen the end, with
    `queue.result` for instance. With `whole`, the history is complete: each task of which a handler has begun has to
    have an end, so nothing waits for ever.

    The tries of the processes (`by`) that were `paused` for longer than their lease do not count: they may note too
    late.
    """
    if isinstance(paused, str):
        raise TypeError(f"paused: the names of those that were paused, not {paused!r}")
    parents: dict[str, str] = {}
    began: dict[str, Event] = {}
    ended: dict[str, Event] = {}
    undone: dict[str, Event] = {}
    owners: dict[str, str] = {}
    held: dict[str, dict[str, Event]] = {}
    breaches: list[Breach] = []
    releases: set[str] = set()
    tries = 0
    for event in history:
        if event.kind == "trying":
            task = event.subject
            held.get(owners.get(task, ""), {}).pop(task, None)
            if event.by in paused:
                continue
            if event.phase == BEGAN:
                tries += 1
                began.setdefault(task, event)
                if (parent := event.facts.get("parent")) is not None:
                    parents[task] = str(parent)
                    if event.facts.get("undoes"):
                        undone.setdefault(parents[task], event)
                        releases.add(task)
            breaches += _after_the_end(task, event, parents, ended)
            breaches += _undone(task, event, parents, undone, releases)
        elif event.kind == "named":
            if event.by in paused or event.subject in began or event.subject in ended:
                continue
            owner = owners[event.subject] = str(event.facts["parent"])
            held.setdefault(owner, {}).setdefault(event.subject, event)
        elif event.kind == "ended":
            if (before := ended.get(event.subject)) is None:
                ended[event.subject] = event
                held.get(owners.get(event.subject, ""), {}).pop(event.subject, None)
                breaches += (
                    Breach(f"{name} has not begun before the end of its owner", (named, event))
                    for name, named in held.pop(event.subject, {}).items()
                )
            elif before.facts.get("state") != event.facts.get("state"):
                breaches.append(Breach(f"{event.subject} has two ends", (before, event)))
    if whole:
        breaches += (
            Breach(f"{task} has no end", (event,)) for task, event in began.items() if task not in ended
        )
    judge(breaches)
    return Families(len(began.keys() | ended.keys()), tries, len(ended))


def _after_the_end(
    task: str, event: Event, parents: dict[str, str], ended: dict[str, Event]
) -> Iterable[Breach]:
    """The breach, if the task or a task above it has ended."""
    above: str | None = task
    while above is not None:
        if (end := ended.get(above)) is not None:
            what = "it" if above == task else above
            yield Breach(f"{task} is worked on after {what} has ended", (end, event))
            return
        above = parents.get(above)


def _undone(
    task: str, event: Event, parents: dict[str, str], undone: dict[str, Event], releases: set[str]
) -> Iterable[Breach]:
    """The breach, if what the task works with is being undone."""
    above: str | None = task
    while above is not None:
        if (begun := undone.get(above)) is not None:
            yield Breach(f"{task} is worked on after a release of {above} has begun", (begun, event))
            return
        above = None if above in releases else parents.get(above)
