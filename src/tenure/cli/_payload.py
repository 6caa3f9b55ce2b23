"""The payload of a task, as a command gets it."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from ._errors import UsageError


def read_payload(text: str) -> Any:
    return _value(_read(), "standard input") if text == "-" else _value(text, "the payload")


def read_payloads(text: str) -> list[Any]:
    """As `read_payload`; standard input may also be lines with a value each."""
    if text != "-":
        return [read_payload(text)]
    text = _read()
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    try:
        return [_value(text, "standard input")]
    except UsageError:
        # one value over several lines, or lines of which some are wrong
        if len(lines) < 2 or not _is_value(lines[0][1]):
            raise
    return [_value(line, f"line {number} of standard input") for number, line in lines]


def _read() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as problem:
        raise UsageError("standard input is not UTF-8") from problem


def _value(text: str, source: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{source} is not JSON: {problem}; quote a text as '\"text\"'") from problem


def _is_value(text: str) -> bool:
    try:
        _value(text, "")
    except UsageError:
        return False
    return True


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")
