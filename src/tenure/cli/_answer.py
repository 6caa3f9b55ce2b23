"""Answers of commands: JSON for programs, or a line for people."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tenure.observe import printable


def as_json(value: Any, indent: int | None = None) -> str:
    """A value as JSON: in ASCII if a character is not printable, so that a terminal has nothing to obey."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def answer(document: dict[str, Any], code: int = 0) -> int:
    """Print one JSON document; returns the exit code."""
    print(as_json(document, indent=2))
    return code


def say(args: argparse.Namespace, document: dict[str, Any], text: str, code: int = 0) -> int:
    """Print a line of text, or the document if `--json` asks for it; returns the exit code."""
    print(as_json(document, indent=2) if args.json else printable(text))
    return code
