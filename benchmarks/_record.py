"""What a run left: the lines of its file, which are JSON, one for each row and in the order in which they came."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._measure import Row


@dataclass
class Record:
    """The rows of a run, and what is known of it besides."""

    header: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: list[Row] = field(default_factory=list[Row])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """By benchmark, why it ended early."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """By benchmark, how long it took; those that ended."""

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

    def benchmarks(self) -> list[str]:
        """Those that have rows, in order."""
        return list(dict.fromkeys(row["benchmark"] for row in self.rows))


def read(path: Path) -> Record:
    """The record in a file; a last line that was cut short is left out."""
    record = Record()
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            record.take(json.loads(line))
    return record
