"""Build the environments, explore every scenario in each, print the table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import benchmarks.bugs
from benchmarks.bugs._cases import BOTH, CASES, TRIO, Case
from benchmarks.bugs._environments import python_with

Row = dict[str, Any]

ROOT = Path(__file__).parents[2]
HEADINGS = ("bug", "release", "loop", "seeds that fail", "first", "how", "found in", "seeds/s")


def places(case: Case) -> Iterator[tuple[str, str, bool]]:
    """Where a scenario is to run: the release, the loop, and whether it has to fail there."""
    for release in case.broken:
        for backend in case.backends:
            yield release, backend, True
    for release in case.clean:
        for backend in BOTH if case.cancel is True else case.backends:
            yield release, backend, False


def row(case: Case, release: str, backend: str, *, broken: bool, runs: int, python: Path) -> Row:
    """Explore a scenario in an environment of its own."""
    ran = subprocess.run(
        [
            python,
            "-m",
            "benchmarks.bugs._inside",
            case.module,
            case.scenario,
            backend,
            str(runs),
            str(case.cancel),
        ],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return {
        "bug": case.bug,
        "scenario": case.scenario,
        "release": release.replace("==", " "),
        "loop": backend,
        "broken": broken,
        "runs": runs,
        **json.loads(ran.stdout),
    }


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table."""
    share = f"{row['failed']:,} of {row['runs']:,}"
    if row["failed"]:
        share += f" ({100 * row['failed'] / row['runs']:.2g} %)"
    return (
        row["bug"],
        row["release"],
        row["loop"],
        share,
        "" if row["first"] is None else str(row["first"]),
        ", ".join(sorted(row["errors"])),
        row["window"],
        f"{row['per_second']:,.0f}",
    )


def table(rows: Sequence[Row]) -> str:
    """All rows, as Markdown."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Run what was asked for; 1 if a bug was not found, or one that should be gone was."""
    names = sorted({case.name for case in CASES})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bugs", description=benchmarks.bugs.__doc__)
    parser.add_argument("names", nargs="*", help=f"which scenarios (default: all): {', '.join(names)}")
    parser.add_argument(
        "--runs", type=int, default=10_000, metavar="N", help="seeds for each (default: 10000)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the rows to FILE as well, with traces"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="keep the environments (else: temporary ones)"
    )
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(names)):
        parser.error(f"no scenario called {', '.join(unknown)}; there are {', '.join(names)}")

    rows: list[Row] = []
    with TemporaryDirectory() as temporary:
        cache = (arguments.cache or Path(temporary)).resolve()
        for case in CASES:
            if arguments.names and case.name not in arguments.names:
                continue
            for release, backend, broken in places(case):
                if (python := python_with(case, release, cache)) is None:
                    print(f"{case.bug}: {release} cannot be had here, left out", file=sys.stderr, flush=True)
                    continue
                rows.append(row(case, release, backend, broken=broken, runs=arguments.runs, python=python))
                print(" ".join(cells(rows[-1])), file=sys.stderr, flush=True)

    print(table(rows))
    print(f"\nPython {platform.python_version()}, {TRIO.replace('==', ' ')}, {os.cpu_count()} cores.")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return int(any(bool(row["failed"]) != row["broken"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
