"""The schedules of all queues for the page: their ticks, without their payloads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import anyio

import tenure.engine as e
from tenure.shared import Schedule, schedules_in
from tenure.store import Codec

from ._tasks import Texts

_FRESH = 5.0
"""Seconds for which ticks are not calculated again while no schedule has changed."""

_HIDDEN = Texts(lambda _: "")


class SeenSchedules:
    def __init__(self, codec: Codec[Any]) -> None:
        self._codec = codec
        self._cursors: Mapping[str, object] = {}
        self._seen: tuple[float, list[dict[str, Any]]] = (0.0, [])

    def read(self, queues: Mapping[str, e.QueueCounts]) -> list[dict[str, Any]]:
        cursors = {name: counts.cursors for name, counts in queues.items() if counts.cursors}
        now = anyio.current_time()
        if cursors != self._cursors or now - self._seen[0] >= _FRESH:
            self._cursors = cursors
            self._seen = (
                now,
                [
                    _described(name, record)
                    for name in sorted(cursors)
                    for record in schedules_in(queues[name], self._codec, _HIDDEN)
                ],
            )
        return self._seen[1]


def _described(queue: str, record: Schedule[Any]) -> dict[str, Any]:
    fields = ("name", "every", "cron", "tz", "paused", "kept_in_store")
    known: dict[str, Any] = {"queue": queue, **{name: getattr(record, name) for name in fields}}
    try:
        last, coming, late = record.last(), record.coming(), record.late()
    except (ModuleNotFoundError, ValueError, TypeError) as problem:
        # no cronsim, or a time zone that only others know
        return {**known, "last": None, "next": None, "next_in": None, "late": 0.0, "problem": str(problem)}
    due = coming[0] if coming else None
    return {
        **known,
        "last": _text(last),
        "next": _text(due),
        "next_in": None if due is None else due.timestamp() - record.now,
        "late": late,
        "problem": None,
    }


def _text(tick: datetime | None) -> str | None:
    return None if tick is None else tick.isoformat(timespec="auto")
