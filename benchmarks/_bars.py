"""Drawings with bars, of rows on record; they have the colours of the page, as the other drawings of the docs."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks._answers import ANSWERS, SIX, Answer, nearest, short, shown, with_figures
from benchmarks._measure import Row
from benchmarks._peers import ROOT
from benchmarks._record import Record

LEFT, RIGHT, STEP = 150, 400, 24
"""Where bars begin, where the longest one ends, and the height of a bar with its gap."""


LACKS = {"dramatiq": "no results", "huey": "no leases, no results", "pgqueuer": "no fence, no results"}
"""What a peer of the six bars does not do in its benchmark; tenure leases, fences and stores a result for each task."""


class Bar(NamedTuple):
    label: str
    value: float
    unit: str
    ours: bool = False
    lacks: str = ""


Group = tuple[str, Sequence[Bar]]
"""A heading, which may be empty, and its bars."""


def drawing(name: str, title: str, groups: Sequence[Group], foot: str) -> Any:
    """Horizontal bars of one scale below each other."""
    height = 74 + sum(STEP * (len(bars) + bool(heading)) for heading, bars in groups)
    d = runpy.run_path(str(ROOT / "docs" / "site" / "draw.py"))["Drawing"](name, height)
    d.text(6, 16, title, kind="bold", anchor="start")
    y, most = 46, max(bar.value for _, bars in groups for bar in bars)
    for heading, bars in groups:
        if heading:
            d.text(6, y, heading, kind="small", anchor="start")
            y += STEP
        for bar in bars:
            width = (RIGHT - LEFT) * bar.value / most
            d.text(LEFT - 8, y, bar.label, kind="small bold" if bar.ours else "small", anchor="end")
            d.bar(LEFT, y - 8, width, 16, "good" if bar.ours else "line")
            d.text(LEFT + width + 6, y, _figure(bar), kind="small", anchor="start")
            y += STEP
    d.text(6, y + 4, foot, kind="small", anchor="start")
    return d


def drawings(records: dict[str, Record]) -> list[Any]:
    """The drawings of the answers, and the six bars."""
    made = [_of(answer, records) for answer in ANSWERS if answer.plot and answer.rows(records)]
    groups = [(place, _two(rows)) for place, rows in _six(records)]
    foot = f"ours beside the nearest peer; asyncio, {_when(records[SIX[0][1].benchmark])}"
    return [drawing("speed", "Jobs a second, with tasks that do nothing", groups, foot), *made]


def says(answer: Answer, records: dict[str, Record]) -> str:
    """The words of a drawing, for those who do not see it."""
    return f"Bars. {answer.asks}: {_words(_bars(answer, records))}."


def six_say(records: dict[str, Record]) -> str:
    """The words of the six bars."""
    parts = [f"{place}: {_words(_two(rows))}" for place, rows in _six(records)]
    return f"Six bars, jobs a second with tasks that do nothing. {'; '.join(parts)}."


def _of(answer: Answer, records: dict[str, Record]) -> Any:
    title = answer.asks.partition(":")[0]
    return drawing(
        answer.plot, title, [("", _bars(answer, records))], f"asyncio, {_when(records[answer.benchmark])}"
    )


def _bars(answer: Answer, records: dict[str, Record]) -> list[Bar]:
    rows = with_figures(answer.rows(records))
    return [
        _ours(rows),
        *sorted(map(_theirs, rows), key=lambda bar: bar.value, reverse=rows[0]["unit"] == "1/s"),
    ]


def _six(records: dict[str, Record]) -> list[tuple[str, list[Row]]]:
    return [(place, with_figures(answer.rows(records))) for place, answer in SIX]


def _two(rows: Sequence[Row]) -> list[Bar]:
    peer = _theirs(nearest(rows))
    return [_ours(rows), peer._replace(lacks=LACKS.get(peer.label.partition(",")[0], ""))]


def _ours(rows: Sequence[Row]) -> Bar:
    return Bar("tenure", rows[0]["ours"], rows[0]["unit"], ours=True)


def _theirs(row: Row) -> Bar:
    return Bar(short(row["peer_name"]), row["peer"], row["unit"])


def _words(bars: Sequence[Bar]) -> str:
    return ", ".join(f"{bar.label} {_figure(bar)}" for bar in bars)


def _figure(bar: Bar) -> str:
    return f"{shown(bar.value, bar.unit)} ({bar.lacks})" if bar.lacks else shown(bar.value, bar.unit)


def _when(record: Record) -> str:
    around = record.header["surroundings"]
    return f"{around['date']}, {around['cpus']} cores, {around['python']}"
