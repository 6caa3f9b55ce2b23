"""The referee of families: a task ends after its children, and no child begins after its root has ended."""

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

    It judges `trying` and `ended`. After the end of a task, no handler of the task, or of a task below it, begins or
    shows a sign; a task has one end; and a task that is done is not tried again. `ended` is noted by a process that
    has seen the end, with `queue.result` for instance. With `whole`, the history is complete: each task of which a
    handler has begun has to have an end, so nothing waits for ever.

    The tries of the processes (`by`) that were `paused` for longer than their lease do not count: they may note too
    late.
    """
    if isinstance(paused, str):
        raise TypeError(f"paused: the names of those that were paused, not {paused!r}")
    parents: dict[str, str] = {}
    began: dict[str, Event] = {}
    ended: dict[str, Event] = {}
    breaches: list[Breach] = []
    tries = 0
    for event in history:
        if event.kind == "trying":
            if event.by in paused:
                continue
            task = event.subject
            if event.phase == BEGAN:
                tries += 1
                began.setdefault(task, event)
                if (parent := event.facts.get("parent")) is not None:
                    parents[task] = str(parent)
            breaches += _after_the_end(task, event, parents, ended)
        elif event.kind == "ended":
            if (before := ended.get(event.subject)) is None:
                ended[event.subject] = event
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
