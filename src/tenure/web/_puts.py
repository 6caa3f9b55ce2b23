"""Puts over HTTP."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, cast

from anyio import WouldBlock

from tenure.arguments import check_name
from tenure.errors import DuplicateTask, PayloadTooLarge, QueueFull
from tenure.local import TokenBucket
from tenure.observe import log
from tenure.shared import queue_of
from tenure.store import Store

from ._answers import Answer, as_json, problem

_FASTEST = 100  # puts a second

_OPTIONS = {"key", "priority", "delay", "at", "group", "expires", "deadline"}


class Puts:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._bucket = TokenBucket(_FASTEST, _FASTEST)

    async def put(self, queue: str, asked: object, by: str) -> Answer:
        """Put a task. Raises `ValueError`, `TypeError`, `EngineError`. Cancellation: it may be put."""
        try:
            self._bucket.acquire_nowait()
        except WouldBlock:
            return _later(429, f"too many puts: at most {_FASTEST} a second")
        name = check_name("the name of the queue", queue)
        payload, options = _parted(asked)
        status = 201
        try:
            task_id = await queue_of(self._store, name).try_put(payload, **options)
        except DuplicateTask as existing:
            status, task_id = 200, existing.task_id
        except PayloadTooLarge as error:
            return problem(413, error)
        except QueueFull as error:
            return _later(503, error)
        # repr: a name cannot begin a line of its own in the log
        log(logging.INFO, f"page.put queue={name!r} task={task_id} status={status} by={by}")
        return as_json(status, {"id": task_id})


def _parted(asked: object) -> tuple[Any, dict[str, Any]]:
    if not isinstance(asked, dict):
        raise TypeError("the body must be a JSON object")
    options = dict(cast("dict[str, Any]", asked))
    if "payload" not in options:
        raise ValueError("payload is missing")
    payload = options.pop("payload")
    if unknown := options.keys() - _OPTIONS:
        raise ValueError(f"a put takes no {min(unknown)!r}; it takes payload, {', '.join(sorted(_OPTIONS))}")
    if options.get("at") is not None:
        try:
            options["at"] = datetime.fromisoformat(options["at"])
        except (ValueError, TypeError):
            raise ValueError(
                f"at must be a time such as 2026-01-31T12:00:00Z, not {options['at']!r}"
            ) from None
    return payload, options


def _later(status: int, text: object) -> Answer:
    return problem(status, text)._replace(headers=(("Retry-After", "1"),))
