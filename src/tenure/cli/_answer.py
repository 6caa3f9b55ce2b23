"""Answers of commands as JSON, for programs."""

from __future__ import annotations

import json
from typing import Any


def as_json(value: Any, indent: int | None = None) -> str:
    """A value as JSON: in ASCII if a character is not printable, so that a terminal has nothing to obey."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def answer(document: dict[str, Any], code: int = 0) -> int:
    """Print one JSON document; returns the exit code."""
    print(as_json(document, indent=2))
    return code
