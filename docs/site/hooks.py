"""What the site has beyond MkDocs: the API, files outside docs/, drawings, and a check of all that is built."""

from __future__ import annotations

import logging
import os
import posixpath
import re
import runpy
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
DOCS = HERE.parent
ROOT = DOCS.parent
OUTSIDE = "source"
"""The folder of the site with the pages that are files outside docs/."""

FENCE = re.compile(r"^( *```\w+) +(\S+)$", re.MULTILINE)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
DRAWING = re.compile(r'<img alt="([^"]*)" src="[^"]*drawings/([\w-]+\.svg)" ?/?>')
_SUMMARY = """\
# tenure

> A Python library for processes that share task queues, locks, rate limits or a leader: a program has each of them for
> exactly as long as an `async with` block runs, on asyncio and trio, over memory, SQLite, Redis or PostgreSQL."""
LOG = logging.getLogger("mkdocs.hooks.site")
UNSEARCHED = {
    "contributing.md",
    "explanations/redis-scripts.md",
    *(f"{OUTSIDE}/benchmarks/{name}.md" for name in ("COSTS", "FIGURES", "README", "bugs/README")),
}
"""The pages that the search of the site leaves out: they hold many words, and answer no user's question."""

API = runpy.run_path(str(HERE / "api.py"))
SEARCH = runpy.run_path(str(HERE / "search.py"))


def on_config(config: MkDocsConfig) -> None:
    """Ask for no list of versions where mike has not written one."""
    if "MIKE_DOCS_VERSION" not in os.environ:
        config.extra.pop("version", None)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the API, and the Markdown files outside docs/ that pages link to."""
    for path, text in API["pages"]().items():
        files.append(File.generated(config, path, content=text))
    to_do = [
        DOCS / file.src_uri
        for file in files.documentation_pages()
        if not file.src_uri.startswith(API["FOLDER"])
    ]
    seen = set(to_do)
    while to_do:
        page = to_do.pop()
        for _, target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
            found = (page.parent / target.partition("#")[0]).resolve()
            if found.suffix == ".md" and found.is_file() and found.is_relative_to(ROOT) and found not in seen:
                seen.add(found)
                to_do.append(found)
                if not found.is_relative_to(DOCS):
                    path = f"{OUTSIDE}/{found.relative_to(ROOT).as_posix()}"
                    files.append(File.generated(config, path, abs_src_path=str(found)))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Make a link to a file outside docs/ one to its page, or plain text if it has none; name the file of a block."""
    here = page.file.src_uri
    if here in UNSEARCHED:
        page.meta["search"] = {"exclude": True}
    folder = ROOT / posixpath.dirname(
        here.removeprefix(f"{OUTSIDE}/") if _is_outside(here) else f"docs/{here}"
    )

    def moved(found: re.Match[str]) -> str:
        path, mark, anchor = found[2].partition("#")
        target = (folder / path).resolve()
        if not path or ":" in path or not target.exists():
            return found[0]
        if target.is_relative_to(DOCS):
            uri = target.relative_to(DOCS).as_posix()
        else:
            uri = f"{OUTSIDE}/{target.relative_to(ROOT).as_posix()}"
        if files.get_file_from_path(uri) is None:
            return found[1]
        return f"[{found[1]}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{mark}{anchor})"

    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    parts[1::2] = [FENCE.sub(_named, part) for part in parts[1::2]]
    return "\n".join(_indented("".join(parts)))


def on_page_content(html: str, **_: Any) -> str:
    """Put drawings into the page, in its colours, leave code out of the search, and mend what dialects differ in."""
    html = re.sub(r'(<div class="language-\w+ highlight")', r"\1 data-search-exclude", html)
    html = DRAWING.sub(_drawing, html)
    html = re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace(r"\|", "|"), html)
    # docstrings are for help() too, where a block of code follows two colons
    html = re.sub(r"::</p>", ":</p>", re.sub(r"<p>::</p>\n?", "", html))
    return re.sub(r"<p>(Cancellation|Thread safety):", r"<p><strong>\1:</strong>", html)


def for_machines(nav: list[Any]) -> dict[str, str]:
    """By name, two files for machines that read: a list of the pages, as llmstxt.org describes it, and all pages."""
    lists, pages = [_SUMMARY], [_SUMMARY]
    for heading, uris in _sections(nav):
        lines: list[str] = []
        for uri in uris:
            text = (DOCS / uri).read_text("utf-8")
            title, _, body = text.removeprefix("# ").partition("\n")
            lines.append(f"- [{title}]({_address(uri)}): {_first_sentence(body)}")
            pages.append(f"<!-- {uri} -->\n\n{FENCE.sub(_plain_head, text).strip()}")
        lists.append(f"## {heading}\n\n" + "\n".join(lines))
    return {"llms.txt": "\n\n".join(lists) + "\n", "llms-full.txt": "\n\n".join(pages) + "\n"}


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write the files for machines that read, arrange the search, and check the site."""
    for name, text in for_machines(list(config.nav or [])).items():
        (Path(config.site_dir) / name).write_text(text, "utf-8")
    for address in SEARCH["arrange"](Path(config.site_dir), DOCS / "index.md"):
        LOG.warning("the search has no section for %s, which the index by words names", address)
    _check(config)


def _check(config: MkDocsConfig) -> None:
    """Check every link and anchor as built, also those of docstrings, and that nothing comes from another host."""
    site = Path(config.site_dir)
    pages = {path: _Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            split = urlsplit(link)
            if split.scheme or split.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(split.path)).resolve() if split.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or (
                split.fragment and unquote(split.fragment) not in pages[target].anchors
            ):
                LOG.warning("%s: the link %s leads nowhere", path.relative_to(site), link)
        for address in page.loaded:
            if urlsplit(address).netloc:
                LOG.warning("%s: %s comes from another host", path.relative_to(site), address)
    for room, names in (
        (room, list(API["names"](room))) for rooms in API["PAGES"].values() for room in rooms
    ):
        described = {anchor for path, page in pages.items() if "api" in path.parts for anchor in page.anchors}
        for name in sorted(set(names) - described):
            LOG.warning("%s is not described in the API reference of %s", name, room)


def _sections(nav: list[Any]) -> Iterator[tuple[str, list[str]]]:
    """The headings of the navigation with the pages below each; the API's pages are made when the site is built."""
    for entry in nav:
        heading, below = next(iter(entry.items())) if isinstance(entry, dict) else ("Start", [entry])
        yield heading, [uri for uri in _pages_below(below) if not uri.startswith(API["FOLDER"] + "/")]


def _pages_below(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from _pages_below(entry)


def _address(uri: str) -> str:
    """The address of a page below the site's."""
    path = uri.removesuffix("index.md") if uri.endswith("index.md") else uri.removesuffix(".md") + "/"
    return path or "."


def _first_sentence(body: str) -> str:
    """The first sentence of a page's first paragraph, without links."""
    paragraphs = (" ".join(part.split()) for part in FENCED.sub("", body).split("\n\n"))
    text = next(
        (part for part in paragraphs if (part and part[0] not in "#!<|-`>") or part.startswith("`")), ""
    )
    return re.split(r"(?<=[.:])(?= )", LINK.sub(r"\1", text))[0].rstrip(":")


def _plain_head(found: re.Match[str]) -> str:
    return found[1]


def _is_outside(uri: str) -> bool:
    return uri.startswith(f"{OUTSIDE}/")


def _indented(markdown: str) -> Iterator[str]:
    """The lines of a page, with what belongs to an item of a list indented by four, as Python's dialect wants it."""
    more, fence, blank, parts = 0, False, True, False
    for line in markdown.split("\n"):
        fence ^= line.startswith("```")
        if not fence and (found := re.match(r"(?:-|\d+\.) +", line)):
            if parts and not blank:
                yield ""  # else it would go on with the last paragraph of the item before
            more, parts = 4 - len(found[0]), False
        elif line and not line.startswith(" "):
            more, parts = 0, False
        elif line and blank:
            parts = True
        yield " " * more + line if line.startswith(" ") else line
        blank = not line


def _named(found: re.Match[str]) -> str:
    """The head of a block without its second word, which is for the tests, or with the name of its file."""
    return found[1] + (f' title="{found[2]}"' if "/" in found[2] else "")


def _drawing(found: re.Match[str]) -> str:
    text = (DOCS / "drawings" / found[2]).read_text("utf-8")
    svg = text[text.index("<svg ") :]
    return svg.replace("<svg ", f'<svg role="img" aria-label="{found[1]}" ', 1)


class _Page(HTMLParser):
    """The links and anchors of a built page, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.loaded: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif tag == "a" and name == "href":
                self.links.add(value or "")
            elif name == "src" or (tag == "link" and name == "href"):
                self.loaded.add(value or "")
                self.links.add(value or "")
