"""Draws the badges of the README: `python docs/site/badges.py` writes docs/badges/*.svg, out of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "badges"
LETTER, EDGE = 6.2, 7  # the width of a letter, and the room beside the words, in pixels
STYLE = "text{font:11px Verdana,'DejaVu Sans',sans-serif;fill:#fff}"


def words() -> dict[str, str]:
    """What each badge says."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    classifiers = settings["project"]["classifiers"]
    versions = [one.rpartition(" ")[2] for one in classifiers if re.search(r"Python :: 3\.\d+$", one)]
    loops = [loop for loop in ("asyncio", "trio") if f"framework :: {loop}" in map(str.lower, classifiers)]
    return {
        "python": " | ".join(versions),
        "loops": " | ".join(loops),
        "types": settings["tool"]["pyright"]["typeCheckingMode"],
        "licence": settings["project"]["license"],
    }


def badge(name: str, value: str) -> str:
    """Return a badge as SVG."""
    left, right = (2 * EDGE + LETTER * len(text) for text in (name, value))
    whole = left + right
    parts = "".join(
        f'<text x="{x + EDGE:g}" y="14" textLength="{LETTER * len(text):g}">{escape(text)}</text>'
        for x, text in ((0, name), (left, value))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:g}" height="20" role="img"'
        f' aria-label="{name}: {escape(value)}"><style>{STYLE}</style><clipPath id="c"><rect width="{whole:g}"'
        f' height="20" rx="3"/></clipPath><g clip-path="url(#c)"><rect width="{left:g}" height="20" fill="#57606a"/>'
        f'<rect x="{left:g}" width="{right:g}" height="20" fill="#00695c"/>{parts}</g></svg>\n'
    )


if __name__ == "__main__":
    for name, value in words().items():
        (FOLDER / f"{name}.svg").write_text(badge(name, value), "utf-8")
