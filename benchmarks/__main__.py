"""Find the benchmarks, run them, and show and keep the rows as they come."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import benchmarks
from benchmarks import _table
from benchmarks._against import NoRevision, rows_against, sources_of
from benchmarks._measure import Row
from benchmarks._pages import write_pages
from benchmarks._record import NoRows, Record, keep, read
from benchmarks._report import write
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
    """The rows of a run: shown, and written to the files, when they come."""

    def __init__(
        self, screen: Screen, files: Sequence[TextIO], header: dict[str, Any], record: Record
    ) -> None:
        self._record = record
        self._screen = screen
        self._files = files
        self._take(header)

    def benchmark(self, name: str, rows: Iterator[Row | str]) -> None:
        """Take all rows of one benchmark."""
        self._screen.begin(name)
        began, cpu = time.perf_counter(), _cpu_of_children()
        try:
            for row in rows:
                if isinstance(row, str):
                    self._screen.message(f"{name}: {row}")
                else:
                    self._take(row)
                    self._screen.row(row)
                self._screen.begin(name)
        except Failed as error:
            self._take({"benchmark": name, "failed": str(error)})
            self._screen.message(f"{name} failed: {error}")
        finally:
            self._screen.flush()
        took, cpu = round(time.perf_counter() - began, 1), round(_cpu_of_children() - cpu, 1)
        self._take({"benchmark": name, "seconds": took, "cpu": cpu})
        self._screen.message(f"{name} took {took} s, {cpu} s of CPU")

    def _take(self, line: dict[str, Any]) -> None:
        self._record.take(line)
        for file in self._files:
            file.write(json.dumps(line) + "\n")
            file.flush()


def _cpu_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> int:
    """Do what was asked for; 1 if a benchmark failed, 2 if that cannot be done."""
    arguments = _arguments()
    with interruptible():
        try:
            return _main(arguments)
        except Interrupted as interruption:
            print(f"\nInterrupted ({interruption}).", file=sys.stderr)
            return 128 + interruption.number
        except (NoRevision, NoRows, OSError) as error:
            print(error, file=sys.stderr)
            return 2


def _main(arguments: argparse.Namespace) -> int:
    if arguments.pages:
        write_pages()
        return 0
    record = Record() if arguments.rows is None else read(arguments.rows)
    try:
        if arguments.rows is None:
            _measure(arguments, record)
        return _write(arguments, record)
    except Interrupted as interruption:
        # more signals are ignored from here on
        print(f"\nInterrupted ({interruption}) after {len(record.rows)} rows.", file=sys.stderr)
        _write(arguments, record, ended=False)
        return 128 + interruption.number


def _measure(arguments: argparse.Namespace, record: Record) -> None:
    """Run the benchmarks; raises NoRevision and OSError before any file is made, and Interrupted."""
    with ExitStack() as stack:
        sources = stack.enter_context(sources_of(arguments.against)) if arguments.against else None
        paths: list[Path] = [arguments.json] if arguments.json else []
        paths += [arguments.report / "rows.jsonl"] if arguments.report else []
        files: list[TextIO] = []
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.append(stack.enter_context(path.open("w", encoding="utf-8")))
        header = {"size": arguments.size, "against": arguments.against, "surroundings": surroundings()}
        run = Run(Screen(arguments.names), files, header, record)
        environment: dict[str, str] = {}
        if arguments.size == "smoke" and len(arguments.names) > 1:
            # without PostgreSQL, what needs it says so
            with suppress(ModuleNotFoundError):
                from benchmarks._postgres_server import shared

                environment = stack.enter_context(shared())
        for name in arguments.names:
            if sources is None:
                run.benchmark(name, rows_of(name, arguments.size, environment=environment))
            else:
                run.benchmark(name, rows_against(name, arguments.size, arguments.against, sources))


def _write(arguments: argparse.Namespace, record: Record, *, ended: bool = True) -> int:
    """Write the report and the record, where asked for; 1 if something is not as it should be."""
    if arguments.report is not None:
        write(arguments.report, record, with_plots=ended)
        print(f"\n{arguments.report / 'index.html'}")
        if not ended:
            rows = arguments.rows or arguments.report / "rows.jsonl"
            print(f"Without plots; with them: python -m benchmarks --rows {rows} --report {arguments.report}")
    if arguments.record and ended:
        print(f"On record: {', '.join(keep(record))}")
        write_pages()
    if record.damaged:
        print(f"{arguments.rows}: {record.damage()}", file=sys.stderr)
    if record.header.get("size") == "smoke":
        print("\nOnly a smoke run: these figures mean nothing.")
    return int(bool(record.failures or record.damaged))


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
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="write index.html, report.md, plots and the rows to DIR"
    )
    parser.add_argument(
        "--record", action="store_true", help="put the rows on record, and write the pages of the docs anew"
    )
    parser.add_argument(
        "--pages", action="store_true", help="run nothing: write the pages of the docs of what is on record"
    )
    parser.add_argument(
        "--against", metavar="REV", help="compare with another revision of ours, in turn, and without peers"
    )
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="run nothing: report the rows of FILE, which --json wrote"
    )
    arguments = parser.parse_args()
    if arguments.report and find_spec("matplotlib") is None:
        parser.error("--report needs matplotlib: pip install -e '.[bench]'")
    if arguments.record and (arguments.against or arguments.size == "smoke"):
        parser.error("--record is for figures beside the peers: without --against, --smoke")
    if unknown := sorted(set(arguments.names) - set(found())):
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(found())}")
    arguments.names = arguments.names or found()
    return arguments


if __name__ == "__main__":
    sys.exit(main())
