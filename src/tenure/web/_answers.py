"""A request and an answer, whichever server carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

Headers = tuple[tuple[str, str], ...]


class Request(NamedTuple):
    """A client's request: `path` is decoded and relative to where the page is; names of headers are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    client: str = ""


class Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: Headers = ()

    @property
    def all_headers(self) -> Headers:
        return (
            ("Content-Type", self.kind),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            *self.headers,
        )


def plain(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    return Answer(status, f"{text}\n".encode(), headers=headers)


def as_json(status: int, document: Any) -> Answer:
    return Answer(status, json.dumps(document).encode(), "application/json")


def problem(status: int, text: object) -> Answer:
    return as_json(status, {"error": str(text)})
