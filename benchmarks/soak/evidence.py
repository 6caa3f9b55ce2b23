"""What the soaks have shown so far: a line of `recorded.jsonl` for each run with `--record`.

A line has the date, the command, the seed, and what the run's referees counted: `kills` of processes, `writes` that a
fence judged, `tasks` (of `families` the roots of trees), and `violations`: a stale write that was accepted, a task that
was lost or ended twice, two holders. A run with violations is on record as any other. The runs before 2026-11-27 were
put on record by hand, from what they had printed. `python -m benchmarks.soak.evidence` prints the sums.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded.jsonl")


def put_on_record(path: Path = RECORDED, /, **counted: int) -> None:
    """Add the line of this run."""
    words = " ".join(word for word in sys.argv[1:] if word != "--record")
    line = {"date": time.strftime("%Y-%m-%d"), "command": f"python -m benchmarks.soak {words}", **counted}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path = RECORDED) -> list[dict[str, Any]]:
    """The runs on record."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def sentence(runs: list[dict[str, Any]]) -> str:
    """The line of evidence: sums over all runs."""
    kills, writes, tasks, wrong = (
        sum(run.get(name, 0) for run in runs) for name in ("kills", "writes", "tasks", "violations")
    )
    if wrong:
        return f"{wrong:,} violations in {writes:,} writes and {tasks:,} tasks, through {kills:,} kills"
    return f"0 stale writes in {writes:,}, 0 tasks lost in {tasks:,}, through {kills:,} kills"


if __name__ == "__main__":
    print(sentence(read()))
