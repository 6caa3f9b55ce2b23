"""Find the benchmarks, run them, print ratios, write JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import benchmarks

Row = dict[str, Any]

HEADINGS = ("work", "loop", "ours", "peer", "", "unit", "ratio", "CPU s", "reach")
RIGHT = {"ours", "peer", "ratio", "CPU s"}
INVOLVED = (
    *("anyio", "trio", "uvloop", "huey", "aiobreaker", "aiolimiter", "aiologic", "aiorwlock", "async-lru"),
    *(
        "circuitbreaker",
        "coredis",
        "generic-connection-pool",
        "interlock-cb",
        "purgatory",
        "redis",
        "tricycle",
    ),
)


def found() -> list[str]:
    """The names of all benchmarks: the modules beside this one."""
    modules = pkgutil.iter_modules(benchmarks.__path__)
    # packages are commands of their own
    return sorted(m.name for m in modules if not m.ispkg and not m.name.startswith("_"))


def number(value: float | None) -> str:
    """A figure with three digits that count."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table; what is behind its peer is marked."""
    ratio = f"{row['ratio']:.2f}"
    cpu = " / ".join(number(row[key]) for key in ("cpu", "peer_cpu") if row.get(key) is not None)
    return (
        row["work"],
        row["loop"],
        number(row["ours"]),
        number(row["peer"]),
        row["peer_name"],
        row["unit"],
        f"behind {ratio}" if row["ratio"] < 1 else ratio,
        cpu,
        row.get("goal") or "",
    )


def table(rows: list[Row]) -> str:
    """All rows under their headings."""
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if heading in RIGHT else cell.ljust(width)
            for heading, cell, width in zip(HEADINGS, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def surroundings() -> dict[str, Any]:
    """What the figures depend on."""
    versions: dict[str, str] = {}
    for name in INVOLVED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "versions": versions,
    }


def main() -> int:
    """Run what was asked for; 1 if a benchmark could not run, 2 if there is none of that name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones (default: all): {', '.join(found())}")
    parser.add_argument(
        "--smoke", action="store_true", help="only see that they run; the figures mean nothing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE as well")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(found())):
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(found())}")

    rows: list[Row] = []
    failed = False
    for name in arguments.names or found():
        began = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            module = importlib.import_module(f"benchmarks.{name}")
        except ModuleNotFoundError as error:
            print(f"{name}: {error}; pip install -e '.[bench]'", file=sys.stderr)
            failed = True
            continue
        rows += [{"benchmark": name, **row} for row in module.run(smoke=arguments.smoke)]
        print(f"{name} took {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)

    print(table(rows))
    if arguments.smoke:
        print("\nOnly a smoke run: these figures mean nothing.")
    if arguments.json is not None:
        report = {"smoke": arguments.smoke, "surroundings": surroundings(), "rows": rows}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
