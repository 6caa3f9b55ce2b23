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
    text, values = _read(), list[Any]()
    try:
        return [_value(text, "standard input")]
    except UsageError:
        for number, line in enumerate(text.split("\n"), 1):
            try:
                values += [_value(line, f"line {number} of standard input")] if line.strip() else []
            except UsageError:
                if values:
                    raise
                break
        if not values:  # it was meant to be one value
            raise
    return values


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


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")
