"""The page, put together from its parts, and the policy that lets its own script and style work, and no others."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from tenure.pages import doc_page

_SCRIPTS = (
    "words.js",
    "elements.js",
    "charts.js",
    "sparks.js",
    "tables.js",
    "troubles.js",
    "schedules.js",
    "graph.js",
    "panel.js",
    "queue.js",
    "select.js",
    "task.js",
    "actions.js",
    "start.js",
)


def page(*, actions: bool) -> tuple[bytes, str]:
    parts = files(__spec__.parent).joinpath("page")
    style = parts.joinpath("page.css").read_text("utf-8")
    script = '"use strict";\n' + "".join(parts.joinpath(name).read_text("utf-8") for name in _SCRIPTS)
    text = parts.joinpath("page.html").read_text("utf-8")
    for mark, name in (("DOCS", "reference/web"), ("DOCTOR", "reference/cli#tenure-doctor-url")):
        text = text.replace(f'"{mark}"', f'"{_address(name)}"')
    text = text.replace("<style></style>", f"<style>{style}</style>")
    text = text.replace("<script></script>", f"<script>{script}</script>")
    if actions:
        text = text.replace('<html lang="en"', '<html lang="en" data-actions="yes"')
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def _address(name: str) -> str:
    address = doc_page(name)
    return address if address.startswith("https:") else "#"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
