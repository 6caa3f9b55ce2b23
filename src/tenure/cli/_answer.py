"""Answers of commands: JSON for programs, or a line for people."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tenure.observe import printable


def as_json(value: Any, indent: int | None = None) -> str:
    """A value as JSON, in ASCII if a character is not printable: a terminal has nothing to obey."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    fits = text.replace("\n", "").isprintable() and _is_encodable(text)
    return text if fits else json.dumps(value, indent=indent)


def _is_encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def answer(document: dict[str, Any], code: int = 0) -> int:
    print(as_json(document, indent=2))
    return code


def say(args: argparse.Namespace, document: dict[str, Any], text: str, code: int = 0) -> int:
    print(as_json(document, indent=2) if args.json else printable(text))
    return code
