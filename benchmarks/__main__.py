"""Find the benchmarks, run them, and show and keep the rows as they come."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import benchmarks
from benchmarks import _table
from benchmarks._measure import SIZES, Row
from benchmarks._running import Failed, Interrupted, interruptible, rows_of
from benchmarks._surroundings import found, surroundings


class Screen:
    """The table on stdout; messages and, on a terminal, a progress bar on stderr."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._began = time.perf_counter()
        self._colours = sys.stdout.isatty()
        self._bar = sys.stderr.isatty()
        self._contest: list[Row] = []
        print(_table.HEADING, flush=True)

    def begin(self, name: str) -> None:
        """Show how far the run is."""
        if self._bar:
            at = self._names.index(name)
            text = _table.bar(at, len(self._names), name, time.perf_counter() - self._began)
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def message(self, text: str) -> None:
        """Print a line for people."""
        print(f"\r\x1b[K{text}" if self._bar else text, file=sys.stderr, flush=True)

    def row(self, row: Row) -> None:
        """Show a contest when its last row has come, which the next one shows."""
        if self._contest and _table.contest(self._contest[0]) != _table.contest(row):
            self.flush()
        self._contest.append(row)

    def flush(self) -> None:
        """Show the contest that is not shown yet."""
        if self._contest:
            if self._bar:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            print("\n".join(_table.lines(self._contest, colours=self._colours)), flush=True)
            self._contest.clear()


class Run:
    """The rows of a run: shown, and written to a file, when they come."""

    def __init__(self, screen: Screen, file: TextIO | None, header: dict[str, Any]) -> None:
        self.rows: list[Row] = []
        self.header = header
        self.failures: dict[str, str] = {}
        self._screen = screen
        self._file = file
        self._write(header)

    def benchmark(self, name: str, rows: Iterator[Row | str]) -> None:
        """Take all rows of one benchmark."""
        self._screen.begin(name)
        began = time.perf_counter()
        try:
            for row in rows:
                if isinstance(row, str):
                    self._screen.message(f"{name}: {row}")
                    continue
                self.rows.append(row)
                self._write(row)
                self._screen.row(row)
                self._screen.begin(name)
        except Failed as error:
            self.failures[name] = str(error)
            self._write({"benchmark": name, "failed": str(error)})
            self._screen.message(f"{name} failed: {error}")
        finally:
            self._screen.flush()
        took = time.perf_counter() - began
        self._write({"benchmark": name, "seconds": took})
        self._screen.message(f"{name} took {took:.1f} s")

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def main() -> int:
    """Run what was asked for; 1 if a benchmark failed, 2 if there is none of that name."""
    arguments = _arguments()
    names: list[str] = arguments.names or found()
    with ExitStack() as stack:
        stack.enter_context(interruptible())
        file = None
        if arguments.json is not None:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(arguments.json.open("w", encoding="utf-8"))
        run = Run(Screen(names), file, {"size": arguments.size, "surroundings": surroundings()})
        code = 0
        try:
            for name in names:
                run.benchmark(name, rows_of(name, arguments.size))
        except Interrupted as interruption:
            print(f"\nInterrupted ({interruption}) after {len(run.rows)} rows.", file=sys.stderr)
            code = 128 + interruption.number
    if arguments.size == "smoke":
        print("\nOnly a smoke run: these figures mean nothing.")
    return code or int(bool(run.failures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones (default: all): {', '.join(found())}")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--smoke",
        action="store_const",
        const="smoke",
        dest="size",
        default="full",
        help="only see that they run; the figures mean nothing",
    )
    sizes.add_argument(
        "--quick", action="store_const", const="quick", dest="size", help="in a few minutes, less exact"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write each row to FILE too when it comes, as JSON"
    )
    arguments = parser.parse_args()
    assert arguments.size in SIZES
    if unknown := sorted(set(arguments.names) - set(found())):
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(found())}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
