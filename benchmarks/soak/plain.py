"""Writes a history of the soaks in the format of `benchmarks.soak.check`, and has it judged there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.soak.check import check
from benchmarks.soak.referees import Event

NEMESIS = {"killed", "frozen", "blocked"}
MOMENTS = {"taken": "take", "completed": "complete", "found": "find", "ended": "end"}
HOLDS = {"began": ("ok", "acquire"), "still": ("info", "hold")}
"""A hold begins after it was granted, and ends before it is given back."""
CALLS = {"write": "write", "put": "put", "trying": "try"}
TYPES = {"began": "invoke", "ended": "ok", "refused": "fail"}
FIELDS = {"token": "token", "state": "state", "item": "value", "parent": "value", "weight": "value"}


def plain(
    events: Iterable[Event], limits: Mapping[str, int] | None = None, excused: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """The lines of a history: `limits` has how much may be held of a subject at once, `excused` who is not compared."""
    for key, value in (limits or {}).items():
        yield {"type": "info", "op": "limit", "key": key, "value": value}
    for process in sorted(excused):
        yield {"type": "info", "op": "excuse", "process": process}
    begun: dict[str, Event] = {}
    for event in events:
        if event.kind == "hold":
            kind, op = HOLDS.get(event.phase, ("invoke", "release"))
        elif event.kind in CALLS:
            kind, op = TYPES.get(event.phase, "info"), CALLS[event.kind]
        elif event.kind in MOMENTS:
            kind, op = "ok", MOMENTS[event.kind]
        elif event.kind in NEMESIS:
            kind, op = "info", "nemesis"
        else:
            continue
        line = {"time": round(event.at, 6), "process": event.by, "type": kind, "op": op, "key": event.subject}
        if event.call:
            line["call"] = event.call
        if op == "nemesis":
            line["value"] = event.kind
        # what is said of a call in its first line alone is said in each
        facts = {**begun.setdefault(event.call, event).facts, **event.facts} if event.call else event.facts
        line |= {FIELDS[name]: fact for name, fact in facts.items() if name in FIELDS and fact is not None}
        yield line


def judged(
    folder: Path | None,
    name: str,
    events: Iterable[Event],
    limits: Mapping[str, int] | None = None,
    excused: Collection[str] = (),
) -> list[str]:
    """The breaches that the checker finds in a history, which is written to the folder if there is one."""
    lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in plain(events, limits, excused)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with gzip.open(folder / f"{name.replace(' ', '-')}.jsonl.gz", "wt") as file:
            file.writelines(lines)
    return [f"{name}: {breach}" for breach in check(map(json.loads, lines))]
