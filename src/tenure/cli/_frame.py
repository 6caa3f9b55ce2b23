"""A frame of `tenure top`: a view as lines of text that fit a screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tenure.observe import printable
from tenure.web import Flow, SeenKey, SeenProcess, View

from ._holders import in_words
from ._table import cut, many, padded, spoken, width as width_of

BOLD, RED, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"

_LEAST = 4
_NAME = 20
"""Columns that names get before other columns do, if they need them."""
_SOON = 5.0
"""Seconds for which a task may wait until a process takes tasks of its queue."""


class _Section(NamedTuple):
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    less: tuple[int, ...]


def _header(*names: str | tuple[str, int]) -> tuple[str, ...]:
    return tuple(name if isinstance(name, str) else name[0].rjust(name[1]) for name in names)


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
    tasks = sum(counts.leased for counts in view.queues.values())
    processes = many(len(view.processes), "process", "processes")
    figures = f"  round trip {spoken(view.ping)}  {many(tasks, 'task', 'tasks')} leased, {processes}"
    end = f": {trouble}" if trouble else figures
    place = cut(printable(url), max(_NAME, columns - width_of(end)))
    shown = [_line(place + end, columns, BOLD + RED * bool(trouble), colour=colour)]
    for deadlock in view.deadlocks:
        style = RED if deadlock.certain else ""
        shown += [
            _line(text, columns, style, colour=colour)
            for text in in_words(deadlock, _short_process).splitlines()
        ]
    shown += [_line(text, columns, RED, colour=colour) for text in _untaken(view)]
    del shown[max(1, lines // 4) :]
    sections = [
        section
        for section in (_queues(view, flows), _processors(view), _processes(view), _keys(view), _pools(view))
        if section.rows
    ]
    if not sections:
        return [*shown, "", "nothing is in this store yet"][:lines]
    left = lines - len(shown)
    # an empty line, a header, a row, and how many more there are
    del sections[max(1, left // _LEAST) :]
    for section, room in zip(sections, _rooms([1 + len(s.rows) for s in sections], left), strict=True):
        shown += ["", *_columns(section, room - 1, columns, colour=colour)]
    return shown[:lines]


def _rooms(wanted: Sequence[int], lines: int) -> list[int]:
    rooms = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for done, i in enumerate(order):
        rooms[i] = min(wanted[i] + 1, lines // (len(wanted) - done))
        lines -= rooms[i]
    return rooms


def _columns(section: _Section, room: int, columns: int, *, colour: bool) -> Iterator[str]:
    hidden = 1 + len(section.rows) - room
    rows = [section.header, *(section.rows if hidden <= 0 else section.rows[: max(0, room - 2)])]
    cells = [[printable(text) for text in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    shown = list(range(1, len(widths)))
    for i in section.less:
        if min(widths[0], _NAME) + sum(widths[j] + 2 for j in shown) <= columns:
            break
        shown.remove(i)
    name = max(1, min(widths[0], columns - sum(widths[j] + 2 for j in shown)))
    for n, row in enumerate(cells):
        parts = [padded(cut(row[0], name), name), *(padded(row[j], widths[j], right=True) for j in shown)]
        yield _line("  ".join(parts), columns, "" if n else BOLD, colour=colour)
    if hidden > 0:
        yield _line(f"and {hidden + 1:,} more", columns, "", colour=colour)


def _line(text: str, columns: int, style: str, *, colour: bool) -> str:
    text = cut(printable(text), columns).rstrip()
    return f"{style}{text}{PLAIN}" if style and colour else text


def _untaken(view: View) -> Iterator[str]:
    for name, counts in view.queues.items():
        if counts.waiting and counts.oldest > _SOON and not counts.paused and view.takers(name) == 0:
            yield f"queue {name}: {many(counts.waiting, 'task waits', 'tasks wait')}, and no process works on it"


def _short_process(process: str) -> str:
    host, _, suffix = process.partition(":")
    return f"{cut(host, 12)}:{suffix.partition(':')[0]}" if suffix else cut(host, 18)


def _queues(view: View, flows: Mapping[str, Flow]) -> _Section:
    apart = [name for name in ("suspended", "ending") if any(getattr(c, name) for c in view.queues.values())]
    header = _header(
        *("queue", "waiting", "delayed", "leased", "dead"),
        *(("in/s", 5), ("out/s", 5), ("waits", 7), ("runs", 7), ("oldest", 6)),
        *apart,
    )
    rows: list[tuple[str, ...]] = []
    for name, c in sorted(
        view.queues.items(), key=lambda item: -(item[1].waiting + item[1].leased + item[1].delayed)
    ):
        f = flows[name]
        counts = (f"{n:,}" for n in (c.waiting, c.delayed, c.leased, c.dead))
        times = ("-" if t is None else f"~{spoken(t)}" for t in (f.waits, f.runs))
        oldest = spoken(c.oldest) if c.oldest else "-"
        shown = f"{name} (paused)" if c.paused else name
        others = (f"{getattr(c, name):,}" for name in apart)
        rows.append((shown, *counts, _rate(f.put), _rate(f.ended), *times, oldest, *others))
    return _Section(header, rows, less=(2, 8, 7, 5, 6, *range(10, len(header)), 4, 3, 1, 9))


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.2g}"


def _processors(view: View) -> _Section:
    times = [f"{what} {share}" for what in ("wait", "run") for share in ("p50", "p95", "p99")]
    rows: list[tuple[str, ...]] = []
    for processor in view.processors:
        latencies = (processor.latency.queued, processor.latency.running)
        shown = [spoken(t) if n.count else "-" for n in latencies for t in (n.p50, n.p95, n.p99)]
        rows.append(
            (processor.name, f"{processor.busy:,}/{processor.workers:,}", _rate(processor.throughput), *shown)
        )
    header = _header("processor", "busy", ("out/s", 5), *times)
    return _Section(header, rows, less=(7, 4, 6, 3, 2, 8, 5, 1))


def _processes(view: View) -> _Section:
    def order(process: SeenProcess) -> tuple[int, str]:
        return -sum(process.tasks.values()), process.process

    rows: list[tuple[str, ...]] = []
    for process in sorted(view.processes, key=order):
        numbers = (f"{n:,}" for n in (process.holds, process.claims, process.waits))
        rows.append(
            (
                process.process,
                f"{sum(process.tasks.values()):,}",
                cut(printable(", ".join(sorted(process.idle))), 20) or "-",
                *numbers,
            )
        )
    header = _header("process", "tasks", "idle at", "holds", "claims", "waits")
    return _Section(header, rows, less=(2, 4, 5, 3, 1))


def _keys(view: View) -> _Section:
    def order(key: SeenKey) -> tuple[int, str, str]:
        return -len(key.waiting), key.kind, key.name

    rows: list[tuple[str, ...]] = []
    for key in sorted(view.keys, key=order):
        owner = key.holders[0] if key.holders else None
        by = (
            "-"
            if owner is None
            else _short_process(owner.process)
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
                "-" if head is None else _short_process(head.process),
                "-" if head is None else spoken(head.age),
            )
        )
    header = _header("held", "by", ("for", 6), "waiting", "first in line", ("for", 6))
    return _Section(header, rows, less=(5, 4, 2, 3, 1))


def _pools(view: View) -> _Section:
    states = ("free", "claimed", "resting", "retired")
    rows = [
        (pool.name, *(f"{pool.count(state):,}" for state in states), f"{pool.page.waiting:,}")
        for pool in view.pools
    ]
    return _Section(("pool", *states, "waiting"), rows, less=(4, 3, 2, 1, 5))
