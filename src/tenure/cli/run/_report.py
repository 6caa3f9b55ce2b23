"""The report at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.cli._table import cut
from tenure.observe import printable
from tenure.shared import QueueStatistics, TaskRecord

from ._tally import RunTotals


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run when this command ends; `finished` means that nothing is left to be done.

    This command has logged the errors of the dead tasks with the ids in `logged`.
    """

    name: str
    finished: bool
    statistics: QueueStatistics
    tally: RunTotals
    dead: tuple[TaskRecord, ...] = ()
    logged: frozenset[int] = frozenset()
    results: str | None = None
    queue: str = ""

    @property
    def all_done(self) -> bool:
        return self.finished and self.statistics.done == self.statistics.put

    @property
    def ended(self) -> int:
        return self.statistics.put - self.statistics.unfinished


def table(outcome: Outcome) -> str:
    s, tally = outcome.statistics, outcome.tally
    rows = [
        ("run", f"{outcome.name}, {'finished' if outcome.finished else 'unfinished'}"),
        ("inputs", f"{s.put:,}{'' if outcome.finished else ' so far'}"),
        ("done", f"{s.done:,}"),
        ("retried", f"{tally.retried:,}"),
        ("dead", f"{s.dead:,}"),
    ]
    rows += [
        (name, f"{n:,}")
        for name, n in (("discarded", s.discarded), ("cancelled", s.cancelled), ("expired", s.expired))
        if n
    ]
    if tally.times.count:
        rows += [(f"p{percent}", _time(tally.times.quantile(percent / 100))) for percent in (50, 95, 99)]
    if tally.seconds:
        rows += [("rate", f"{outcome.ended / tally.seconds:,.1f}/s"), ("seconds", f"{tally.seconds:,.1f}")]
    if outcome.results is not None:
        rows.append(("results", outcome.results))
    return "\n".join(printable(f"{name:<10} {value}") for name, value in rows)


def dead_letters(outcome: Outcome) -> list[str]:
    lines: list[str] = []
    for record in outcome.dead:
        logged = record.id in outcome.logged
        error = " (its error is in the log above)" if logged else f": {_short(record.error or '', 400)}"
        lines.append(f"dead: {_short(repr(record.payload), 120)}{error}")
    more = outcome.statistics.dead - len(lines)
    return [*lines, f"dead: and {more:,} more"] if lines and more > 0 else lines


def advice(outcome: Outcome, store: str) -> list[str]:
    lines: list[str] = []
    if outcome.finished and not outcome.statistics.put:
        lines.append("tenure: the input is empty, so there was nothing to do")
    if outcome.statistics.dead:
        lines.append(f"tenure: to see what is dead: tenure queue dead {outcome.queue}{store}")
        again = f"tenure queue requeue {outcome.queue} --yes{store}, then the same command"
        lines.append(f"tenure: to try it again: {again}")
    if not outcome.finished:
        lines.append("tenure: stopped before the end; the same command continues from here")
    return lines


def _short(text: str, room: int) -> str:
    return cut(printable(" ".join(text.split())), room)


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"
