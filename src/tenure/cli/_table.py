"""Tables for people: columns that line up, and nothing in them that a terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str) -> str:
    """Rows below a header; numbers stand to the right. Without rows, `nothing`."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return nothing
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    right = [
        all(text.rstrip("%")[:1] in set("-0123456789") for text in column)
        for column in zip(*cells, strict=True)
    ]
    lines = [header, *cells]
    return "\n".join(
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def printable(text: str) -> str:
    """A text without control characters: what is stored may come from anybody."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(value: Any, width: int = 60) -> str:
    """A value on one line, cut."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= width else f"{text[: width - 3]}..."


def spoken(seconds: float) -> str:
    """A duration, as one says it."""
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
