"""How many replicas have to acknowledge what was done before it counts."""

from __future__ import annotations

from dataclasses import replace

from tenure.arguments import check_count
from tenure.engine import Hint, Notice


def replicas_in(url: str, replicas: int | None) -> tuple[str, int]:
    """The URL without its option `replicas`, and the number: the argument's, else the URL's, else 0.

    Raises `TypeError`, `ValueError`.
    """
    where, _, query = url.partition("?")
    options = [option.partition("=") for option in query.split("&") if option]
    told = [value for name, _, value in options if name == "replicas"]
    rest = "&".join("".join(option) for option in options if option[0] != "replicas")
    if replicas is None:
        if not all(value.isascii() and value.isdigit() for value in told):
            raise ValueError(f"replicas must be a number in the URL, not {told[-1]!r}")
        replicas = int(told[-1]) if told else 0
    return f"{where}?{rest}" if rest else where, check_count("replicas", replicas, least=0)


def to_be_asked(hint: Hint) -> Hint:
    """A hint that carries no answer: what a message says has not waited for the replicas, what is asked for has."""
    return hint if isinstance(hint.news, Notice) else replace(hint, news=Notice.ASK)
