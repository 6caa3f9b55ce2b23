"""One frame of `tenure top`: a view as lines of text that fit a screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tenure.web._flows import Flow
from tenure.web._view import SeenKey, SeenProcess, View

from ._holders import told
from ._table import printable, spoken

BOLD, RED, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"

Rows = list[tuple[str, ...]]

_LEAST = 4


def frame(
    url: str,
    view: View,
    flows: Mapping[str, Flow],
    columns: int,
    lines: int,
    *,
    trouble: str = "",
    colour: bool = True,
) -> list[str]:
    """At most so many lines of at most so many columns, not counting colours."""
    tasks = sum(counts.leased for counts in view.queues.values())
    title = (
        f"{url}  round trip {spoken(view.ping)}  {tasks:,} tasks running, {len(view.processes):,} processes"
    )
    shown = [_line(trouble or title, columns, BOLD + RED * bool(trouble), colour=colour)]
    for deadlock in view.deadlocks:
        style = RED if deadlock.certain else ""
        shown += [_line(text, columns, style, colour=colour) for text in told(deadlock, _who).splitlines()]
    del shown[max(1, lines // 4) :]
    sections = [
        section
        for section in (_queues(view, flows), _processors(view), _processes(view), _keys(view), _pools(view))
        if section[1:]
    ]
    if not sections:
        return [*shown, "", "nothing is in this store yet"][:lines]
    left = lines - len(shown)
    # an empty line, a header, a row, and how many more there are
    del sections[max(1, left // _LEAST) :]
    for section, room in zip(sections, _rooms([len(s) for s in sections], left), strict=True):
        shown += ["", *_columns(section, room - 1, columns, colour=colour)]
    return shown[:lines]


def _rooms(wanted: Sequence[int], lines: int) -> list[int]:
    """How many lines each section gets, an empty one before it included: small ones all, the others equal shares."""
    rooms = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for done, i in enumerate(order):
        rooms[i] = min(wanted[i] + 1, lines // (len(wanted) - done))
        lines -= rooms[i]
    return rooms


def _columns(rows: Rows, room: int, columns: int, *, colour: bool) -> Iterator[str]:
    """The header, and as many rows as there is room for; the first column is cut if the rest needs the place."""
    hidden = len(rows) - room
    rows = rows if hidden <= 0 else rows[: max(1, room - 1)]
    widths = [max(len(printable(row[i])) for row in rows) for i in range(len(rows[0]))]
    widths[0] = max(8, min(widths[0], columns - sum(widths[1:]) - 2 * (len(widths) - 1)))
    for n, row in enumerate(rows):
        cells = [_cut(printable(row[0]), widths[0]).ljust(widths[0])]
        cells += [printable(text).rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        yield _line("  ".join(cells), columns, "" if n else BOLD, colour=colour)
    if hidden > 0:
        yield f"and {hidden + 1:,} more"


def _line(text: str, columns: int, style: str, *, colour: bool) -> str:
    text = _cut(printable(text), columns).rstrip()
    return f"{style}{text}{PLAIN}" if style and colour else text


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}~"


def _who(process: str) -> str:
    """A process's host, cut, and its number."""
    host, _, rest = process.partition(":")
    return f"{_cut(host, 12)}:{rest.partition(':')[0]}" if rest else _cut(host, 18)


def _queues(view: View, flows: Mapping[str, Flow]) -> Rows:
    rows: Rows = [
        ("queue", "waiting", "delayed", "running", "dead", "in/s", "out/s", "waits", "runs", "oldest")
    ]
    for name, c in sorted(
        view.queues.items(), key=lambda item: -(item[1].waiting + item[1].leased + item[1].delayed)
    ):
        f = flows[name]
        counts = (f"{n:,}" for n in (c.waiting, c.delayed, c.leased, c.dead))
        times = ("-" if t is None else f"~{spoken(t)}" for t in (f.waits, f.runs))
        oldest = spoken(c.oldest) if c.oldest else "-"
        shown = f"{name} (paused)" if c.paused else name
        rows.append((shown, *counts, _rate(f.put), _rate(f.ended), *times, oldest))
    return rows


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.2g}"


def _processors(view: View) -> Rows:
    times = [f"{what} {share}" for what in ("wait", "run") for share in ("p50", "p95", "p99")]
    rows: Rows = [("processor", "busy", "out/s", *times)]
    for one in view.processors:
        latencies = (one.latency.queued, one.latency.running)
        shown = [spoken(t) if n.count else "-" for n in latencies for t in (n.p50, n.p95, n.p99)]
        rows.append((one.name, f"{one.busy:,}/{one.workers:,}", _rate(one.throughput), *shown))
    return rows


def _processes(view: View) -> Rows:
    def order(one: SeenProcess) -> tuple[int, str]:
        return -sum(one.tasks.values()), one.process

    rows: Rows = [("process", "tasks", "idle at", "holds", "claims", "waits")]
    for one in sorted(view.processes, key=order):
        numbers = (f"{n:,}" for n in (one.holds, one.claims, one.waits))
        rows.append(
            (
                one.process,
                f"{sum(one.tasks.values()):,}",
                _cut(", ".join(sorted(one.idle)), 20) or "-",
                *numbers,
            )
        )
    return rows


def _keys(view: View) -> Rows:
    def order(key: SeenKey) -> tuple[int, str, str]:
        return -len(key.waiting), key.kind, key.name

    rows: Rows = [("held", "by", "for", "waiting", "first in line", "for")]
    for key in sorted(view.keys, key=order):
        owner = key.holders[0] if key.holders else None
        by = (
            "-"
            if owner is None
            else _who(owner.process)
            if len(key.holders) == 1
            else f"{len(key.holders):,} holders"
        )
        head = key.waiting[0] if key.waiting else None
        rows.append(
            (
                f"{key.kind} {key.name}",
                by,
                "-" if owner is None else spoken(owner.age),
                f"{len(key.waiting):,}",
                "-" if head is None else _who(head.process),
                "-" if head is None else spoken(head.age),
            )
        )
    return rows


def _pools(view: View) -> Rows:
    states = ("free", "claimed", "resting", "retired")
    rows: Rows = [("pool", *states, "waiting")]
    for pool in view.pools:
        rows.append((pool.name, *(f"{pool.count(state):,}" for state in states), f"{pool.page.waiting:,}"))
    return rows
