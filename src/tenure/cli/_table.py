"""Tables for people: aligned columns, without control characters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Any
from unicodedata import category, east_asian_width

from tenure.observe import printable

_NARROWEST = 16


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str, columns: int | None = None
) -> str:
    """Rows below a header; numbers stand to the right. Without rows, `nothing`.

    If the lines are longer than `columns`, the longest cells are cut, but not below 16.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return nothing
    widths = [max(map(width, column)) for column in zip(header, *cells, strict=True)]
    while columns is not None and sum(widths) + 2 * len(widths) - 2 > columns and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    right = [
        all(text.rstrip("%")[:1] in set("-0123456789") for text in column)
        for column in zip(*cells, strict=True)
    ]
    lines = [header, *cells]
    return "\n".join(
        "  ".join(
            padded(cut(text, room), room, right=number)
            for text, room, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def columns_of_terminal() -> int | None:
    return get_terminal_size().columns if sys.stdout.isatty() else None


def width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(text: str, room: int) -> str:
    """A printable text of at most `room` columns: a ~ replaces its middle, since names often begin or end alike."""
    if width(text) <= room:
        return text
    if room < 1:
        return ""
    end = (room - 1) // 2
    return f"{_begin(text, room - 1 - end)}~{_begin(text[::-1], end)[::-1]}"


def _begin(text: str, room: int) -> str:
    for n, character in enumerate(text):
        room -= _columns_of(character)
        if room < 0:
            return text[:n]
    return text


def padded(text: str, room: int, *, right: bool = False) -> str:
    spaces = " " * (room - width(text))
    return spaces + text if right else text + spaces


def many(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def one_line(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def short(value: Any, room: int = 60) -> str:
    text = one_line(value)
    return text if width(text) <= room else f"{_begin(text, room - 3)}..."


def spoken(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, hours = seconds / 60, seconds / 3600
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 100 else f"{hours / 24:.0f} d"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
