"""How many replicas have to acknowledge what was done before it counts."""

from __future__ import annotations

from dataclasses import replace

from tenure.engine import Hint, Notice


def without_answer(hint: Hint) -> Hint:
    """A hint that carries no answer: what a message says has not waited for the replicas, what is asked for has."""
    return hint if isinstance(hint.news, Notice) else replace(hint, news=Notice.ASK)
