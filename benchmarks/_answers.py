"""The twelve questions of the page about performance, and which row on record answers each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks._measure import NOBODY, Row
from benchmarks._record import Record
from benchmarks._table import number, ratio, verdict

LOOP = "asyncio"
"""The loop of the answers; the page with all figures has the other loops."""
SHORT = {"1/s": "/s"}


class Answer(NamedTuple):
    """A question, and the work on record that answers it."""

    asks: str
    benchmark: str
    work: str
    plot: str = ""
    """The name of its drawing; none where a picture would not say more."""
    besides: str = ""
    """Another work of the benchmark, a share, that the answer names too."""

    def rows(self, records: dict[str, Record], work: str = "") -> list[Row]:
        """The rows on record, one for each peer; none if the work is not on record."""
        rows = records[self.benchmark].rows if self.benchmark in records else []
        return [row for row in rows if row["work"] == (work or self.work) and row["loop"] == LOOP]

    def figure(self, records: dict[str, Record]) -> str:
        """Our figure with its unit."""
        if not (rows := self.rows(records)):
            return "not on record"
        text = shown(rows[0]["ours"], rows[0]["unit"])
        if shares := self.rows(records, self.besides) if self.besides else []:
            peers = (f"{short(row['peer_name'])} {number(row['peer'])}" for row in with_figures(shares))
            text += f", {number(shares[0]['ours'])} of its rate before ({', '.join(peers)})"
        return text

    def beside(self, records: dict[str, Record]) -> str:
        """The peer that comes nearest, with the ratio and its figure."""
        if not (compared := with_figures(self.rows(records))):
            return "no peer measured"
        row = nearest(compared)
        says = f"**{ratio(row)}**" if verdict(row) == "behind" else ratio(row)
        rounds = "" if "ratio_range" in row else ", one round"
        others = f"; the nearest of {len(compared)}" if len(compared) > 1 else ""
        return f"{says}{rounds}, to {short(row['peer_name'])}: {shown(row['peer'], row['unit'])}{others}"

    def command(self) -> str:
        """The command that measures it again."""
        return f"`python -m benchmarks {self.benchmark}`"


def shown(value: float, unit: str) -> str:
    """A figure as people say it."""
    return f"{number(value)} {SHORT.get(unit, unit)}".replace(" /s", "/s").strip()


def short(peer: str) -> str:
    """The name of a peer without its version."""
    words = peer.split()
    threads = f", {' '.join(words[-2:])}" if words[-1] == "threads" else ""
    return words[0].removesuffix("'s") + threads


def nearest(rows: Iterable[Row]) -> Row:
    """The row of the peer that is the least behind, or the furthest ahead."""
    return min(rows, key=lambda row: row["ratio"])


def with_figures(rows: Iterable[Row]) -> list[Row]:
    """The rows that have a peer with a figure."""
    return [row for row in rows if "missing" not in row and row["peer_name"] != NOBODY]


ANSWERS: Sequence[Answer] = (
    Answer("Jobs a second on Redis", "redis_queue", "Redis: no-op tasks", "jobs-redis"),
    Answer("Jobs a second on PostgreSQL", "postgres", "PostgreSQL: no-op tasks", "jobs-postgres"),
    Answer("Jobs a second on SQLite, a file", "queues", "SQLite: no-op tasks, one process"),
    Answer("How soon an idle worker starts, Redis, median", "redis_queue", "Redis: idle wake-up, p50"),
    Answer("The same on PostgreSQL", "postgres", "PostgreSQL: idle wake-up, p50"),
    Answer("A lock that is free, taken and given back, Redis", "redis_locks", "Redis: lock cycle, one task"),
    Answer(
        "A lock that 1,000 fight for: from one holder to the next, median",
        "redis_handover",
        "hand-over, 1,000 waiters, 4 processes: median",
        "hand-over-redis",
    ),
    Answer("A rate limit, calls admitted", "limiters", "Redis: admitted at once, 32 callers", "rate-limit"),
    Answer(
        "A transaction that somebody holds open for a minute, PostgreSQL",
        "held_transaction",
        "tasks/s while a transaction is held",
        "held-transaction",
        "part of the tasks/s that is left while a transaction is held",
    ),
    Answer(
        "A handler that blocks its event loop for 3 ttl: tasks that another worker got meanwhile, of 5",
        "costs",
        "Redis: tasks delivered again, loop blocked for 3 ttl",
    ),
    Answer("Memory of a task that waits, payload of 100 bytes", "costs", "Redis: memory of a waiting task"),
    Answer("A session (a process with a store): memory", "costs", "Redis: memory of a session"),
)

SIX = (("Redis", ANSWERS[0]), ("PostgreSQL", ANSWERS[1]), ("SQLite", ANSWERS[2]))
"""The pairs of bars of the README: ours beside the peer that comes nearest."""
