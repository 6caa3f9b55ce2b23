"""The payload of a task, as a command gets it."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from ._errors import UsageError


def read_payload(text: str) -> Any:
    source = "the payload"
    if text == "-":
        source = "standard input"
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError as problem:
            raise UsageError("standard input is not UTF-8") from problem
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{source} is not JSON: {problem}; quote a text as '\"text\"'") from problem


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")
