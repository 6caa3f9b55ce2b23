"""The options of a put with a key, checked."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from tenure.arguments import check_seconds
from tenure.engine import NewTask, OnDuplicate

_WORDS: tuple[OnDuplicate, ...] = get_args(OnDuplicate)


def check_key_ttl(key_ttl: float | None) -> float | None:
    """Raises `TypeError`, `ValueError`."""
    return None if key_ttl is None else check_seconds("key_ttl", key_ttl)


def check_on_duplicate(on_duplicate: object) -> OnDuplicate:
    """Raises `ValueError` for any other word."""
    for word in _WORDS:
        if word == on_duplicate:
            return word
    raise ValueError(f"on_duplicate must be 'refuse', 'keep' or 'replace', not {on_duplicate!r}")


def with_key(
    task: NewTask,
    on_duplicate: OnDuplicate | None,
    key_ttl: float | None,
    max_wait: float | None,
    usual_ttl: float | None,
) -> NewTask:
    """The task with the options of its key. Raises `TypeError`, `ValueError`."""
    on_duplicate = "refuse" if on_duplicate is None else check_on_duplicate(on_duplicate)
    key_ttl = check_key_ttl(key_ttl)
    if task.key is None and (on_duplicate != "refuse" or key_ttl is not None):
        raise ValueError("on_duplicate and key_ttl need a key")
    if max_wait is not None:
        if on_duplicate != "replace":
            raise ValueError(f"max_wait needs on_duplicate='replace', not {on_duplicate!r}")
        max_wait = check_seconds("max_wait", max_wait)
        if max_wait < task.delay:
            raise ValueError(f"max_wait must be at least the delay, {task.delay:g} seconds, not {max_wait:g}")
    return replace(
        task, on_duplicate=on_duplicate, key_ttl=usual_ttl if key_ttl is None else key_ttl, max_wait=max_wait
    )
