"""The report of a run: the same page as HTML and as Markdown, with plots beside them."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks._measure import NOBODY, Row
from benchmarks._record import Record
from benchmarks._table import behind, contests, number, ratio

HEADINGS = (
    "work",
    "loop",
    "ours",
    "unit",
    "to each peer (above 1: ours is ahead)",
    "CPU s, ours / peer",
    "goal",
)
FLOORS = {"bare checkpoint", "bare dispatch", "no exploration", "not watched", "tasks that wait for nothing"}
"""What nothing that does the work can pass: being behind them is not counted."""
OURS = {"Worker", "free", "on the loop", "one by one", "without groups"}
"""Ours without what the row adds: being behind them is what it costs."""
CSS = """
:root { color-scheme: light dark; --ink: #1f2328; --page: #fff; --line: #d0d7de; --behind: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --page: #0d1117; --line: #30363d; --behind: #ff8a80; }
}
body { color: var(--ink); background: var(--page); font: 15px/1.5 system-ui, sans-serif; max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
a { color: inherit; }
img { max-width: 100%; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid var(--line); padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }
b { color: var(--behind); }
"""


def cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """A contest as a row of the tables; what is behind stands between asterisks, as in Markdown."""
    first = rows[0]
    work = first["work"] if first.get("x") is None else f"{first['work']}: {number(first['x'])}"
    peers: list[str] = []
    for row in rows:
        if row["peer_name"] != NOBODY:
            figure = f" {number(row['peer'])}" if "missing" not in row else ""
            of = f"**{ratio(row)}**" if behind(row) else ratio(row)
            peers.append(": ".join(filter(None, (f"{row['peer_name']}{figure}", of))))
    cpu = [number(first.get("cpu")), *(number(row.get("peer_cpu")) for row in rows)]
    goals = dict.fromkeys(row["goal"] for row in rows if row["goal"])
    return (
        work,
        first["loop"],
        number(first["ours"]),
        first["unit"],
        "; ".join(peers),
        " / ".join(cpu) if any(cpu) else "",
        "; ".join(goals),
    )


def markdown_table(rows: Sequence[Row]) -> str:
    """The contests of these rows."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, contests(rows))]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def html_table(rows: Sequence[Row]) -> str:
    """The same as HTML."""
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_marked(cell)}</td>" for cell in cells(group)) + "</tr>"
        for group in contests(rows)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _marked(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))


def what_is_behind(rows: Sequence[Row]) -> list[str]:
    """A line for each work and peer that has the better figure, with the ratio on each loop where it has."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if behind(row) and row["peer_name"] not in FLOORS and row.get("goal") != "the floor":
            at = f" at {number(row['x'])}" if "x" in row else ""
            place = found.setdefault((row["benchmark"], row["work"], row["peer_name"]), [])
            place.append(f"{row['loop']}{at} {row['ratio']:.2f}")
    return [f"{name}: {work}: to {peer} {', '.join(where)}" for (name, work, peer), where in found.items()]


def what_is_missing(record: Record) -> list[str]:
    """Why which figures are not there."""
    lines = [f"{name}: {why}" for name, why in record.failures.items()]
    peers = {
        (row["peer_name"], row["missing"])
        for row in record.rows
        if row.get("missing", "left out") != "left out"
    }
    lines += [f"{peer}: {why}" for peer, why in sorted(peers)]
    return lines + [record.damage()] * bool(record.damaged)


def versions(record: Record) -> str:
    """The versions of what took part."""
    around: dict[str, Any] = record.header.get("surroundings", {})
    packages = ", ".join(f"{name} {version}" for name, version in around.get("versions", {}).items())
    return f"{around.get('python')}, {packages}, Redis {around.get('redis')}; other peers have versions in their names."


def about(record: Record) -> list[str]:
    """The run, the machine and the versions."""
    lines = [*run(record), versions(record)]
    if record.seconds:
        lines.append(f"It took {sum(record.seconds.values()):.0f} s.")
    return lines


def run(record: Record) -> list[str]:
    """When and where, after a warning if that makes the figures useless."""
    around: dict[str, Any] = record.header.get("surroundings", {})
    load = around.get("load") or [0.0]
    machine = f"{around.get('system')} {around.get('machine')}, {around.get('cpus')} cores"
    lines = [
        f"{around.get('date')}, size {record.header.get('size')}, {machine}, load at the start {load[0]}."
    ]
    if record.header.get("size") == "smoke":
        lines.insert(0, "A smoke run: these figures mean nothing.")
    elif load[0] > 1:
        lines.insert(0, "The machine was busy: these figures mean little.")
    return lines


def summary(name: str) -> str:
    """The first paragraph of what a benchmark says of itself."""
    source = Path(__file__).with_name(f"{name}.py")
    text = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "") if source.exists() else ""
    return " ".join(text.split("\n\n")[0].split())


def write(folder: Path, record: Record, *, with_plots: bool = True) -> None:
    """Write index.html, report.md and the plots, which take most of the time."""
    if with_plots:
        from benchmarks._plots import plots
    else:

        def plots(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
            del rows
            return {}

    folder.mkdir(parents=True, exist_ok=True)
    lists = {
        "What is behind": what_is_behind(record.rows) or ["nothing"],
        "What is missing": what_is_missing(record) or ["nothing"],
    }
    against = record.header.get("against")
    title = f"Benchmarks of tenure, against {against}" if against else "Benchmarks of tenure"
    markdown = [f"# {title}", *about(record)]
    html = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(line)}</p>" for line in about(record))]
    names = record.benchmarks()
    html.append("<p>" + " · ".join(f'<a href="#{name}">{name}</a>' for name in names) + "</p>")
    for heading, lines in lists.items():
        markdown += [f"## {heading}", "\n".join(f"- {line}" for line in lines)]
        html += [f"<h2>{heading}</h2>", "<ul>", *(f"<li>{escape(line)}</li>" for line in lines), "</ul>"]
    for name in names:
        rows, says = record.of(name), summary(name)
        markdown += [f"## {name}", says]
        html += [f'<h2 id="{name}">{name}</h2>', f"<p>{escape(says)}</p>"]
        for kind, (shows, svg) in plots(rows).items():
            file = f"{name}-{kind}.svg"
            (folder / file).write_text(svg, encoding="utf-8")
            markdown.append(f"![{name}: {shows}]({file})")
            html.append(f'<p>{shows}:</p><img src="{file}" alt="{name}: {escape(shows)}">')
        markdown.append(markdown_table(rows))
        html.append(html_table(rows))
    (folder / "report.md").write_text("\n\n".join(markdown) + "\n", encoding="utf-8")
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{CSS}</style></head>\n<body>\n'
    )
    (folder / "index.html").write_text(page + "\n".join(html) + "\n</body></html>\n", encoding="utf-8")
