"""What a run left: the lines of its file, which are JSON, one for each row and in the order in which they came."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks._measure import Row

RECORDED = Path(__file__).with_name("recorded")
"""The folder of the figures on record: a file for each benchmark, of its latest full run."""

TEXTS = ("benchmark", "work", "loop", "peer_name", "unit", "goal")
NUMBERS = ("ours", "peer", "ratio")
"""What each row has."""


@dataclass
class Record:
    """The rows of a run, and what is known of it besides."""

    header: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: list[Row] = field(default_factory=list[Row])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """By benchmark, why it ended early."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """By benchmark, how long it took; those that ended."""
    damaged: list[int] = field(default_factory=list[int])
    """The numbers of lines of its file that could not be read."""

    def take(self, line: dict[str, Any]) -> None:
        """Add a line of the file."""
        if "surroundings" in line:
            self.header = line
        elif "failed" in line:
            self.failures[line["benchmark"]] = line["failed"]
        elif "seconds" in line:
            self.seconds[line["benchmark"]] = line["seconds"]
        else:
            self.rows.append(line)

    def of(self, name: str) -> list[Row]:
        """The rows of a benchmark."""
        return [row for row in self.rows if row["benchmark"] == name]

    def damage(self) -> str:
        """How many lines were left out; nothing if none was."""
        return f"{len(self.damaged)} damaged lines, the first is {self.damaged[0]}" if self.damaged else ""

    def benchmarks(self) -> list[str]:
        """Those that have rows, in order."""
        return list(dict.fromkeys(row["benchmark"] for row in self.rows))


class NoRows(Exception):
    """A file has no rows."""


def read(path: Path) -> Record:
    """The record in a file; lines that are damaged are left out, and a last one that was cut short. Raises NoRows."""
    record = Record()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if line.endswith("\n"):
            try:
                record.take(_checked(json.loads(line)))
            except ValueError:
                record.damaged.append(number)
    if not record.rows:
        raise NoRows(": ".join(filter(None, (f"{path} has no rows", record.damage()))))
    return record


def recorded(folder: Path = RECORDED) -> dict[str, Record]:
    """The runs on record, by benchmark."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.jsonl"))}


def keep(record: Record, folder: Path = RECORDED) -> list[str]:
    """Put a run on record, a file for each benchmark that came to its end; returns their names."""
    kept = [name for name in record.benchmarks() if name not in record.failures]
    folder.mkdir(exist_ok=True)
    for name in kept:
        lines = [record.header, *record.of(name)]
        if name in record.seconds:
            lines.append({"benchmark": name, "seconds": record.seconds[name]})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return kept


def _checked(line: object) -> dict[str, Any]:
    """A line that a run can have written; raises ValueError."""
    fields = cast(dict[str, Any], line) if isinstance(line, dict) else {}
    if "surroundings" in fields:
        whole = type(fields["surroundings"]) is dict
    elif "failed" in fields or "seconds" in fields:
        whole = "benchmark" in fields
    else:
        whole = all(type(fields.get(key)) is str for key in TEXTS)
        whole = whole and all(type(fields.get(key)) in (int, float) for key in NUMBERS)
    if not whole:
        raise ValueError("no line of a run")
    return fields
