"""Answers for programs."""

from __future__ import annotations

import json
from typing import Any


def answer(document: dict[str, Any], code: int = 0) -> int:
    """Print one JSON document; returns the exit code."""
    print(json.dumps(document, ensure_ascii=False, indent=2))
    return code
