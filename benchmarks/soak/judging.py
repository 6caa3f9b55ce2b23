"""What all trials are judged for, whatever their processes do."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from benchmarks.soak.referees import History, RefereeError

STATE = b"tenure:{0}:state"
# what is remembered for some time: answers, what was spent, how queues stand
REMEMBERED = re.compile(rb"(:put|:exchange|:spend|:rate|:queue|:settings|:weights|:queues:..)$")


@dataclass
class Verdict:
    """What happened in a trial, and what was against the rules."""

    suffered: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __iadd__(self, other: Self) -> Self:
        self.suffered += other.suffered
        self.seen += other.seen
        self.violations += other.violations
        return self

    def __str__(self) -> str:
        return ", ".join((f"{self.suffered.total()} faults", *self.figures()))

    def figures(self) -> list[str]:
        seen = (f"{number} {name}" for name, number in self.seen.items() if number)
        return [*seen, f"{len(self.violations)} violations"]


class Judging:
    """Who judges its processes by what they noted and said, and by what is left on the server."""

    server: Any
    fleet: Any
    history: History
    verdict: Verdict

    def _judge_what_was_said(self, since: int) -> None:
        with open(self.fleet.said, errors="replace") as file:
            file.seek(since)
            # a process that was frozen, or whose disk was slow, says so, and should
            text = "".join(line for line in file if "the event loop is blocked" not in line).strip()
            self._breach([text] if text else [])

    def _judge_what_is_left(self, *, own_clock: bool = False) -> None:
        """Nothing but the last numbers, and what expires by itself, which nothing does by another clock."""
        left = [name for name in self.server("KEYS", "*") if name != STATE]
        if own_clock:
            left = [name for name in left if not REMEMBERED.search(name)]
            # the next trial begins with an empty server
            self.server("FLUSHALL")
        else:
            left = [name for name in left if self.server("PTTL", name) == -1]
        self._breach([f"left on the server: {left}"] if left else [])

    def _judge_the_ends(self, events, killed: int) -> None:
        """Each process came to an end, by its own or by a kill, which may tear a line."""
        self._breach(
            f"{event.subject} crashed: {event.facts['trace']}" for event in events if event.kind == "crashed"
        )
        gone = {event.subject for event in events if event.kind in {"left", "killed"}}
        came = {event.subject for event in events if event.kind == "came"}
        self._breach(f"{number} vanished" for number in came - gone)
        torn = self.history.torn
        self._breach([f"{torn} lines are torn"] if torn > killed else [])

    @contextmanager
    def _refereed(self):
        try:
            yield
        except RefereeError as error:
            self._breach(map(str, error.breaches))

    def _breach(self, texts) -> None:
        self.verdict.violations += texts


def unaware(events) -> set[str]:
    """Who may not have known in time that his lease was over, so that only the fence can keep him out."""
    frozen = {event.subject for event in events if event.kind == "frozen"}
    ended = {event.call for event in events if event.kind == "hold" and event.phase in {"ended", "unknown"}}
    return {event.by for event in events if event.kind == "stalled"} | {
        event.by
        for event in events
        if event.kind == "hold" and event.call not in ended and event.by.partition(".")[0] in frozen
    }
