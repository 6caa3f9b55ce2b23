"""The table on the terminal: at most 110 columns, a row for each contest, with all peers side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from benchmarks._measure import NOBODY, Row

WIDTH = 110
WORK, LOOP, OURS = 36, 7, 13
INDENT = WORK + LOOP + OURS + 4
RED, DIM, PLAIN = "\x1b[31m", "\x1b[2m", "\x1b[0m"
HEADING = f"{'work':{WORK}} {'loop':{LOOP}} {'ours':>{OURS}}  to each peer (above 1: ours is ahead)"


def number(value: float | None) -> str:
    """A figure with three digits that count."""
    if value is None or math.isnan(value):
        return ""
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}" if math.isfinite(value) else f"{value:g}"
    return f"{value:.3g}"


SHARE = "share"
"""The unit of shares of a rate: they are compared with a goal, and have no ratio."""


def verdict(row: Row) -> str:
    """How ours compares: "ahead", "behind", "equal" where the spread that is shown holds 1, or "" without a ratio."""
    if "missing" in row or row["peer_name"] == NOBODY or row["unit"] == SHARE or math.isnan(row["ratio"]):
        return ""
    low, high = (round(end, 2) for end in row.get("ratio_range", (row["ratio"], row["ratio"])))
    if low <= 1 <= high:
        return "equal"
    return "behind" if row["ratio"] < 1 else "ahead"


def ratio(row: Row) -> str:
    """Ours to the peer, with its spread, after its verdict unless ours is ahead; of a share, nothing."""
    if "missing" in row:
        return f"- ({row['missing']})"
    if not (says := verdict(row)):
        return ""
    text = f"{row['ratio']:.2f}"
    if "ratio_range" in row:
        low, high = row["ratio_range"]
        text += f" ({low:.2f} to {high:.2f})"
    return text if says == "ahead" else f"{says} {text}"


def behind(row: Row) -> bool:
    """Whether ours has the worse figure, in each round."""
    return verdict(row) == "behind"


def contest(row: Row) -> tuple[object, ...]:
    """What the rows of one contest have in common."""
    return row["benchmark"], row["work"], row["loop"], row.get("x"), row["unit"], str(row["ours"])


def contests(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Neighbouring rows of one contest together."""
    together: list[Row] = []
    for row in rows:
        if together and contest(together[0]) != contest(row):
            yield together
            together = []
        together.append(row)
    if together:
        yield together


def lines(rows: Sequence[Row], *, colours: bool = False) -> list[str]:
    """A contest as a row of the table; it takes more than one line if the peers are many."""
    first = rows[0]
    title = first["work"] if first.get("x") is None else f"{first['work']}: {number(first['x'])}"
    work = textwrap.wrap(title, WORK) or [""]
    peers: list[tuple[str, str]] = []
    width = 0
    cells: list[list[tuple[str, str]]] = [peers]
    for row in rows:
        if row["peer_name"] == NOBODY:
            continue
        name, of = row["peer_name"], ratio(row) or number(row["peer"])
        if len(text := f"{name} {of}") > WIDTH - INDENT:
            text = f"{name[: WIDTH - INDENT - len(of) - 1].rstrip()} {of}"[: WIDTH - INDENT]
        if peers and width + 2 + len(text) > WIDTH - INDENT:
            peers, width = [], 0
            cells.append(peers)
        width += len(text) + (2 if peers else 0)
        peers.append((text, RED if behind(row) else DIM if "missing" in row else ""))
    figure = "-" if math.isnan(first["ours"]) else f"{number(first['ours'])} {first['unit']}".strip()
    result: list[str] = []
    for at in range(max(len(work), len(cells))):
        left = work[at] if at < len(work) else ""
        middle = (first["loop"], figure) if at == 0 else ("", "")
        shown = [
            f"{colour}{text}{PLAIN}" if colours and colour else text
            for text, colour in (cells[at] if at < len(cells) else [])
        ]
        line = f"{left:{WORK}} {middle[0]:{LOOP}} {middle[1]:>{OURS}}  {', '.join(shown)}"
        result.append(line.rstrip())
    return result


def bar(done: int, of: int, name: str, seconds: float) -> str:
    """How far a run is."""
    full = 30 * done // max(of, 1)
    return f"[{'#' * full}{'.' * (30 - full)}] {done} of {of}, {seconds:.0f} s: {name}"[: WIDTH - 1]
