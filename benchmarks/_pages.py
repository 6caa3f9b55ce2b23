"""What the docs show of the figures on record: the page about performance, all figures, and the drawings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks import _bars
from benchmarks._answers import ANSWERS
from benchmarks._measure import LOOPS, NOBODY, Row
from benchmarks._peers import ROOT
from benchmarks._record import Record, recorded
from benchmarks._report import FLOORS, OURS, markdown_table, run, summary, versions, what_is_missing
from benchmarks._surroundings import found
from benchmarks._table import behind, number, ratio, verdict

DOCS = ROOT / "docs"
PERFORMANCE, FIGURES = DOCS / "explanations/performance.md", ROOT / "benchmarks/FIGURES.md"

AREAS = {
    "Queues and workers": (
        *("redis_queue", "postgres", "queues", "held_transaction", "groups", "batches", "processor"),
        *("schedules", "children", "owners", "costs", "full_queue"),
    ),
    "Locks and limits over a store": (
        "locks",
        "redis_locks",
        "redis_handover",
        "limiters",
        "scale",
        "client_cost",
    ),
    "Synchronous code": ("from_threads",),
    "One process": (
        *("line", "barrier", "rwlock", "local_queues", "token_bucket", "limits", "circuit_breaker"),
        *("bulkhead", "pools", "keyed_pool", "singleflight", "threads", "blocking", "exploring"),
    ),
    "What grows with what": ("growth",),
}
"""The benchmarks by area, in the order of the pages."""

HEAD = """\
# All figures

`python -m benchmarks --pages` writes this page. It has the rows of each benchmark's latest run on record. [The page
about performance](../docs/explanations/performance.md) has the short answers, and says how figures are measured.

A ratio above 1 means that tenure is ahead. It is **behind** where each round is below 1, and equal where the spread
holds 1. Shares of a rate have no ratio. Versions stand where they change."""

BEHIND = """\
## Where tenure is behind

All works of all benchmarks in which a peer has the better figure in each round, on at least one loop. Bold ratios are
behind. [What costs what](COSTS.md) has the causes that we know, and what was tried."""

COSTS = """\
## What an option costs

Works of ours beside ours without the option: tasks with a group each beside tasks without groups, calls of
`tenure.blocking` beside the same calls on the loop, and a held transaction beside none. Beside "goal" is a goal that is
not reached."""

PART = re.compile(r"(<!-- (\w+) of the record: begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)


SIX = re.compile(r"!\[[^]]*\](?=\([\w./]*drawings/speed\.svg\))")


def write_pages() -> None:
    """Write the pages and the drawings anew, of what is on record."""
    for path, text in pages(recorded()).items():
        path.write_text(text, encoding="utf-8")


def pages(records: dict[str, Record]) -> dict[Path, str]:
    """The text of each file."""
    made = {
        PERFORMANCE: rewrite(PERFORMANCE.read_text(encoding="utf-8"), records),
        FIGURES: all_figures(records),
    }
    words = f"![{_bars.six_say(records)}]"
    for path in (ROOT / "README.md", DOCS / "index.md"):
        made[path] = SIX.sub(lambda _: words, path.read_text(encoding="utf-8"))
    for drawing in _bars.drawings(records):
        made[DOCS / "drawings" / f"{drawing.name}.svg"] = drawing.svg()
    return made


def rewrite(page: str, records: dict[str, Record]) -> str:
    """A page in which each part between markers is what the record says."""
    parts = {"answers": answers}
    return PART.sub(lambda part: f"{part[1]}\n{parts[part[2]](records)}\n\n{part[3]}", page)


def answers(records: dict[str, Record]) -> str:
    """The twelve rows, and the drawings that say more."""
    cells = [("question", "tenure", "beside it: the ratio, and its spread", "command"), ("---",) * 4]
    cells += [(a.asks, a.figure(records), a.beside(records), a.command()) for a in ANSWERS]
    shown = [a for a in ANSWERS if a.plot and a.rows(records)]
    six = f"![{_bars.six_say(records)}](../drawings/speed.svg)"
    return "\n\n".join(
        [six, _table(cells), *(f"![{_bars.says(a, records)}](../drawings/{a.plot}.svg)" for a in shown)]
    )


def what_is_behind(records: dict[str, Record]) -> str:
    """By area, each work in which a peer has the better figure, in all of its rounds."""
    return "\n\n".join(
        f"### {area}\n\n{_losses(rows)}"
        for area, rows in _by_area(records)
        if any(_is_loss(row) for row in rows)
    )


def what_it_costs(records: dict[str, Record]) -> str:
    """Each work that is slower than ours without the option, or misses its goal."""
    rows = [row for _, rows in _by_area(records) for row in rows]
    return _table(_by_work(rows, lambda row: behind(row) and row["peer_name"] in {*OURS, "goal"}))


def all_figures(records: dict[str, Record]) -> str:
    """The works that are behind, the costs of options, and all rows of all benchmarks, folded by area."""
    parts = [HEAD, BEHIND, what_is_behind(records), COSTS, what_it_costs(records), "## All rows"]
    said = ""
    for area, names in AREAS.items():
        here = [name for name in names if name in records]
        count = sum(len(records[name].rows) for name in here)
        parts.append(f'<details markdown="1">\n<summary>{area}: {count} rows</summary>')
        for name in here:
            record = records[name]
            when = " ".join([f"`python -m benchmarks {name}`.", *run(record)])
            if (took_part := versions(record)) != said:
                when, said = f"{when} {took_part}", took_part
            parts += [f"### {name}", summary(name), when, markdown_table(record.rows)]
            if missing := what_is_missing(record):
                parts.append("\n".join(f"- missing: {line}" for line in missing))
        parts.append("</details>")
    left = [name for name in found() if name not in records]
    parts += [f"Not on record: {', '.join(f'`python -m benchmarks {name}`' for name in left)}."] * bool(left)
    return "\n\n".join(parts) + "\n"


def _by_area(records: dict[str, Record]) -> Iterator[tuple[str, list[Row]]]:
    for area, names in AREAS.items():
        yield area, [row for name in names if name in records for row in records[name].rows]


def _is_loss(row: Row) -> bool:
    return (
        behind(row)
        and row["peer_name"] not in {*FLOORS, *OURS, "goal", NOBODY}
        and row["goal"] != "the floor"
    )


def _losses(rows: Sequence[Row]) -> str:
    return _table(_by_work(rows, _is_loss))


def _by_work(rows: Iterable[Row], is_one: Callable[[Row], bool]) -> list[tuple[str, ...]]:
    """A line for each work and peer of which a loop is asked for, with the ratio on each loop."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        work = row["work"] if row.get("x") is None else f"{row['work']}: {number(row['x'])}"
        if ":" not in row["work"]:
            work = f"{row['benchmark']}: {work}"
        found.setdefault((work, row["peer_name"]), {})[row["loop"]] = row
    lines = [("work", "beside", *LOOPS), ("---",) * (2 + len(LOOPS))]
    for (work, peer), by_loop in found.items():
        if any(map(is_one, by_loop.values())):
            lines.append((work, peer, *(_cell(by_loop.get(loop)) for loop in LOOPS)))
    return lines


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return f"**{ratio(row).removeprefix('behind ')}**" if behind(row) else ratio(row) or verdict(row)


def _table(lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
