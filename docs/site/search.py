"""What the site's search finds first: a section that the index by words names, and how-to pages before the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
BOOSTS = {
    "how-to/": 3.0,
    "reference/api/": 0.3,
    "reference/testing": 0.7,
    "reference/": 1.5,
    "explanations/how-it-is-tested": 0.2,
    "explanations/specification": 0.1,
    "coming-from/": 0.3,
    "source/": 0.1,
    "tutorial/": 1.0,
    "explanations/": 1.0,
    "": 0.2,
}
"""The weight of a section, by the beginning of its address; the first that fits counts."""

TAG = 2000
"""The weight of a word of the index, beside 1 for a word in a text. A title has 1000."""

LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")


def tags(index: str) -> dict[str, list[str]]:
    """By the address of a section, the words under which the index of the first page names it first."""
    found: dict[str, list[str]] = {}
    listed = index.partition("\n## Find it by a word\n\n- ")[2].partition("\n\n")[0]
    for item in re.split(r"\n- |; ", listed):
        words, _, links = " ".join(item.split()).partition(": ")
        if first := LINK.search(links):
            page, mark, anchor = first[1].partition("#")
            address = page.removesuffix(".md") + "/" + mark + anchor
            found.setdefault(address, []).extend(word.strip("`") for word in words.split(", "))
    return found


def arranged(index: str, named: dict[str, list[str]]) -> str:
    """The search index with the words of the index by words, and with a weight for each section."""
    made = json.loads(index)
    made["config"]["fields"]["tags"] = {"boost": TAG}
    for section in made["docs"]:
        address = section["location"]
        section["boost"] = next(boost for start, boost in BOOSTS.items() if address.startswith(start))
        title = section["title"].lower()  # what it says counts already
        if words := [word for word in named.get(address, ()) if word.lower() not in title]:
            section["tags"] = words
    return json.dumps(made, separators=(",", ":"))


def arrange(site: Path, front: Path) -> set[str]:
    """Arrange the search of a built site. Returns the addresses in the index by words that it has no section for."""
    index = site / "search" / "search_index.json"
    named = tags(front.read_text("utf-8"))
    index.write_text(arranged(index.read_text("utf-8"), named), "utf-8")
    before = (HERE / "search.js").read_text("utf-8")
    for worker in (site / "assets" / "javascripts" / "workers").glob("search.*.js"):
        worker.write_text(before + worker.read_text("utf-8"), "utf-8")
    return set(named) - {section["location"] for section in json.loads(index.read_text("utf-8"))["docs"]}
