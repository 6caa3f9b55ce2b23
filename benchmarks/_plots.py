"""Plots of rows as SVG, whose ink follows the reader's light or dark page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks import _table
from benchmarks._measure import NOBODY, Row

INK = "#0a0b0c"
"""Stands for the colour of the page's text, until the SVG is written."""
STYLE = "<style>.plot{color:#1f2328}@media (prefers-color-scheme:dark){.plot{color:#e6edf3}}</style>"
COLOURS = ("#3b82f6", "#f59e0b", "#10b981", "#ec4899", "#8b5cf6", "#94a3b8", "#ef4444", "#06b6d4", "#a16207")
RC: dict[str, Any] = {
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 9, "font.size": 8, "legend.frameon": False,
    # the same rows make the same file
    "svg.fonttype": "none", "svg.hashsalt": "tenure",
}  # fmt: skip
WIDTH = 10.0


def plots(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """By the end of a file's name: what the plot shows, and the SVG; those that these rows have something for."""
    flat = [row for row in rows if "x" not in row]
    grown = [row for row in rows if "x" in row]
    compared = [row for row in flat if _is_figure(row["ratio"])]
    with_cpu = [row for row in compared if "cpu" in row and "peer_cpu" in row]
    made: dict[str, tuple[str, str]] = {}
    with rc_context(RC):
        if compared:
            made["ratio"] = "ratios, with their spread; right of the line ours is ahead", _ratios(compared)
        if flat:
            made["figures"] = "ours and the peers, by loop", _bars(flat, "ours", "peer")
        if with_cpu:
            title = "CPU seconds of this process for a round, by loop"
            made["cpu"] = title, _bars(with_cpu, "cpu", "peer_cpu", "CPU s")
        if grown:
            made["growth"] = "how it grows", _growth(grown)
    return made


def _is_figure(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _svg(figure: Figure) -> str:
    FigureCanvasSVG(figure)
    buffer = StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    head, body = text[text.index("<svg") + 4 :].split(">", 1)
    return f'<svg class="plot"{head}>{STYLE}{body}'.replace(INK, "currentColor")


def _colours(names: Iterable[str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(names) if name not in ("ours", NOBODY)]
    return {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(["ours", *others])}


def _legend(figure: Figure, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    columns = min(4, len(handles))
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)


def _ratios(rows: Sequence[Row]) -> str:
    """A point for each peer, with the range of the rounds, below each other by contest."""
    groups = list(_table.contests(rows))
    colours = _colours(row["peer_name"] for row in rows)
    del colours["ours"]
    figure = Figure(figsize=(WIDTH, 0.9 + 0.24 * len(groups)))
    axes: Any = figure.add_subplot()
    figure.subplots_adjust(top=1 - 0.1 / (0.9 + 0.24 * len(groups)))
    for at, group in enumerate(groups):
        for row in group:
            low, high = row.get("ratio_range", (row["ratio"], row["ratio"]))
            colour = colours[row["peer_name"]]
            axes.plot([low, high], [at, at], color=colour, linewidth=1.5, solid_capstyle="butt")
            axes.plot([row["ratio"]], [at], "o", color=colour, markersize=5)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_plain)
    axes.xaxis.set_minor_formatter(_nothing)
    axes.set_yticks(range(len(groups)), [f"{group[0]['work']}, {group[0]['loop']}" for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlabel("ratio, ours to the peer")
    _legend(figure, colours)
    return _svg(figure)


def _plain(value: float, _at: int | None = None) -> str:
    return _table.number(value)


def _short(value: float, _at: int | None = None) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _nothing(_value: float, _at: int | None = None) -> str:
    return ""


def _panels(titles: Sequence[str], height: float = 2.1) -> tuple[Figure, list[Any]]:
    """Small plots, three beside each other."""
    lines = math.ceil(len(titles) / 3)
    figure = Figure(figsize=(WIDTH, height * lines))
    all_axes: list[Any] = []
    for at, title in enumerate(titles):
        axes: Any = figure.add_subplot(lines, 3, at + 1)
        axes.set_title("\n".join(textwrap.wrap(title, 38)))
        all_axes.append(axes)
    figure.subplots_adjust(hspace=0.75, wspace=0.3, top=1 - 0.4 / (height * lines), bottom=0.02)
    return figure, all_axes


def _bars(rows: Sequence[Row], own: str, other: str, unit: str | None = None) -> str:
    """For each work, the bars of ours and of the peers beside each other, by loop."""
    works = list(dict.fromkeys(row["work"] for row in rows))
    colours = _colours(row["peer_name"] for row in rows)
    figure, panels = _panels(works)
    for work, axes in zip(works, panels, strict=True):
        here = [row for row in rows if row["work"] == work]
        loops = list(dict.fromkeys(row["loop"] for row in here))
        values: dict[str, dict[str, float]] = {}
        for row in here:
            if math.isfinite(row[own]):
                values.setdefault("ours", {})[row["loop"]] = row[own]
            if _is_figure(row[other]):
                values.setdefault(row["peer_name"], {})[row["loop"]] = row[other]
        width = 0.8 / max(1, len(values))
        for at, (name, by_loop) in enumerate(values.items()):
            places = [loops.index(loop) + width * (at + 0.5) - 0.4 for loop in by_loop]
            axes.bar(places, list(by_loop.values()), width * 0.9, color=colours[name])
        axes.set_xticks(range(len(loops)), loops)
        axes.set_ylabel(here[0]["unit"] if unit is None else unit)
        axes.yaxis.set_major_formatter(_plain)
    _legend(figure, colours)
    return _svg(figure)


def _growth(rows: Sequence[Row]) -> str:
    """For each work, a line for each loop: ours, and dashed the peer."""
    works = list(dict.fromkeys(row["work"] for row in rows))
    loops = list(dict.fromkeys(row["loop"] for row in rows))
    figure, panels = _panels(works, 2.3)
    peers: set[str] = set()
    for work, axes in zip(works, panels, strict=True):
        here = [row for row in rows if row["work"] == work]
        for loop, colour in zip(loops, COLOURS, strict=False):
            points = sorted((row["x"], row["ours"], row["peer"]) for row in here if row["loop"] == loop)
            peers |= {row["peer_name"] for row in here} - {NOBODY}
            xs = [x for x, _, _ in points]
            axes.plot(xs, [ours for _, ours, _ in points], "o-", color=colour, markersize=3)
            axes.plot(xs, [peer for _, _, peer in points], "--", color=colour, linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks(sorted({row["x"] for row in here}))
        axes.xaxis.set_minor_formatter(_nothing)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(here[0]["unit"])
        axes.xaxis.set_major_formatter(_short)
        axes.yaxis.set_major_formatter(_plain)
    dashed = f" (dashed: {', '.join(sorted(peers))})" if peers else ""
    _legend(figure, dict(zip([f"{loop}{dashed}" for loop in loops], COLOURS, strict=False)))
    return _svg(figure)
