"""Runs the tests against mutants of our own code, and says which are caught: see README.md."""
# ruff: noqa: T201 it prints

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from patches import Mutant, mutants

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENGINES = ("sqlite",)
REAL_TIME = ("watchdog",)
"""Areas that explored scenarios do not reach, because their threads look at the system's clock."""
UNIT = {
    "line": ["local"],
    "slots": ["local"],
    "threads": ["local"],
    "patterns": ["local"],
    "store": ["store", "shared"],
    "shared": ["shared"],
    "sqlite": ["engines"],
    "watchdog": ["store/test_watchdog.py"],
}
FIRST = {
    "waiting/_line": "lines",
    "local/_slots": "lines",
    "waiting/_park": "lines holds",
    "local/_threads": "threads",
    "local/_barrier": "local_barrier",
    "local/_rwlock": "local_rwlock",
    "local/_queue": "local_queue",
    "local/_token_bucket": "local_token_bucket",
    "local/_bulkhead": "local_bulkhead",
    "local/_breaker": "local_breaker",
    "local/_pool": "local_pool",
    "local/_lending": "local_pool",
    "waiting/_deadlines": "lines local_bulkhead",
    "local/_subpool": "local_pool",
    "local/_single_flight": "local_single_flight",
    "local/_coalescer": "local_coalescer",
    "local/_router": "local_router",
    "store/": "hints outages losses holds stores",
    "upkeep": "stores outages",
    "shared/limits/_limiter": "rates hints",
    "shared/queue/_groups": "groups",
    "shared/queue/_queue": "groups queues takers",
    "shared/holds/_claim": "groups claims",
    "shared/queue/_puts": "queues hints",
    "shared/queue/_batch": "worker_batches",
    "shared/queue/_takes": "takers groups workers worker_batches hints",
    "shared/queue/_demand": "takers workers hints",
    "shared/_watch": "results hints",
    "shared/queue/_task": "takers losses hints",
    "shared/queue/_results": "results hints",
    "shared/queue/_runners": "workers",
    "engines/rules/_holds": "holds barriers outages losses",
    "engines/rules/_rates": "rates hints",
    "engines/rules/_claims": "claims",
    "engines/rules/_groups": "groups queues takers",
    "engines/rules/_room": "queues groups",
    "engines/rules/_producers": "queues groups",
    "engines/rules/_keys": "keys queues",
    "engines/rules/_takers": "takers workers hints",
    "engines/rules/_settling": "queues groups takers workers hints",
    "engines/rules/_tasks": "queues groups takers workers hints",
    "engines/memory/_tasks": "queues groups takers workers hints",
    "engines/sqlite/_replies": "batches",
    "engines/sqlite/_state": "holds batches",
    "engines/sqlite": "queues takers workers",
    "": "holds outages losses",
}
"""Which modules of scenarios are near, by the start of the mutated file's name: they come first, which saves time."""
LIMIT = 3600.0
"""Seconds for one mutant; a test that hangs is ended much sooner, by its own time limit."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `caught` by `test`, or not."""

    name: str
    caught: bool
    how: str
    """failed, hung, crashed, survived or broken."""
    test: str
    message: str
    seconds: float
    tests: int


def first(file: str) -> str:
    """The modules of scenarios that are near a file."""
    return next(modules for start, modules in FIRST.items() if file.startswith(start))


def tests_of(project: Path, suite: str, area: str) -> list[str]:
    """The paths that a suite has for an area, as far as they are there."""
    tests = project / "tests"
    unit = [tests / room for room in UNIT[area]]
    explored = unit if area in REAL_TIME else [tests / "explored"]
    if area in ENGINES:
        contract = sorted((tests / "engines").glob("test_contract*.py"))
        explored = [*contract, tests / "engines" / "test_model.py", *explored]
    chosen = {
        "unit": unit,
        "explored": explored,
        "all": unit + [path for path in explored if path.parent not in unit],
    }
    return [str(path.relative_to(project)) for path in chosen[suite] if path.exists()]


def try_out(
    name: str,
    pristine: Path,
    mutant: Mutant | None,
    tests: list[str],
    *,
    near: bool = False,
    quick: bool = False,
) -> Outcome:
    """Run tests against a copy with a mutant (None: without one), until the first fails."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        project, log = Path(folder, "project"), Path(folder, "log")
        shutil.copytree(pristine, project)
        file = ""
        if mutant is not None:
            file, text = mutant.applied()
            (project / "src" / "tenure" / file).write_text(text, encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": f"{project / 'src'}{os.pathsep}{HERE}",
            "MUTANT_SRC": str(project / "src"),
            "MUTANT_LOG": str(log),
            "MUTANT_FIRST": first(file) if file else "",
            "MUTANT_NEAR": "1" if near else "",
            "HYPOTHESIS_STORAGE_DIRECTORY": folder,
        }
        # no mutant is in the engines of these servers
        options = [
            "-k",
            "not redis and not postgres",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "witness",
            f"--basetemp={folder}/tmp",
        ]
        level = ["-m", "not heavy"] if quick else ["--full"]
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *level, "--hypothesis-seed=0", *tests],
            cwd=project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            _end(process)
            output, _ = process.communicate()
        finally:
            _end(process)
        seconds = time.monotonic() - start
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    events = [line.split("\t") for line in lines]
    return _judge(name, events, process.returncode, output, seconds)


def _end(process: subprocess.Popen[str]) -> None:
    """End it and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _judge(name: str, events: list[list[str]], status: int, output: str, seconds: float) -> Outcome:
    count = sum(event[0] == "started" for event in events)
    for kind in ("broken", "failed"):
        for event in events:
            if event[0] == kind:
                hung = "Timeout" in event[2] and "pytest-timeout" in event[2]
                how = "hung" if hung else kind
                return Outcome(name, kind == "failed", how, event[1], event[2], seconds, count)
    if status == 0 and events and events[-1][0] == "finished":
        return Outcome(name, False, "survived", "", "", seconds, count)
    if not count or status == 5:
        return Outcome(name, False, "broken", "", output[-2000:], seconds, count)
    how = "hung" if status == -signal.SIGKILL else "crashed"
    last = [event[1] for event in events if event[0] == "started"][-1]
    return Outcome(name, True, how, last, f"status {status}", seconds, count)


def sound(pristine: Path, suite: str, areas: set[str], *, quick: bool) -> bool:
    """Whether the tests pass without any mutant."""
    tests = sorted({test for area in areas for test in tests_of(pristine, suite, area)})
    outcome = try_out("no mutant", pristine, None, tests, quick=quick)
    print(_row(outcome), flush=True)
    if outcome.how != "survived":
        print(f"  {outcome.message}")
    return outcome.how == "survived"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants or areas (default: all)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--suite", choices=("explored", "unit", "all"), default="all")
    parser.add_argument("--table", type=Path, metavar="F", help="write the outcomes there")
    parser.add_argument(
        "--near", action="store_true", help="only the scenarios near the mutant: a first look"
    )
    parser.add_argument(
        "--quick", action="store_true", help="only the quick tests: what survives, heavy tests alone catch"
    )
    parser.add_argument(
        "--no-sanity-run", action="store_true", help="do not first run the tests without mutants"
    )
    given = parser.parse_args()

    # those for the contract tests/engines/test_cheats.py tries, in one process
    known = [mutant for mutant in mutants() if mutant.area != "contract"]
    strange = set(given.names) - {m.name for m in known} - {m.area for m in known}
    if strange:
        parser.error(f"no such mutant or area: {', '.join(sorted(strange))}")
    chosen = [m for m in known if not given.names or m.name in given.names or m.area in given.names]

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        # others may be at work in the tree meanwhile
        pristine = Path(folder, "project")
        for part in ("src", "tests", "benchmarks", "docs"):
            shutil.copytree(ROOT / part, pristine / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", pristine)
        if not given.no_sanity_run and not sound(
            pristine, given.suite, {m.area for m in chosen}, quick=given.quick
        ):
            return 2

        outcomes: list[Outcome] = []

        def one(mutant: Mutant) -> None:
            tests = tests_of(pristine, given.suite, mutant.area)
            outcome = try_out(mutant.name, pristine, mutant, tests, near=given.near, quick=given.quick)
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
            if given.table:  # what is known by now: it is a long way to the end
                given.table.write_text(_table(outcomes), encoding="utf-8")

        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(one, chosen))

    missed = {outcome.name: outcome for outcome in outcomes if not outcome.caught}
    print(f"\n{_verdict(outcomes)}")
    for mutant in chosen:
        if mutant.name in missed:
            print(f"{missed[mutant.name].how}: {mutant.name} ({mutant.place}): {mutant.why}")
    return 1 if missed else 0


def _verdict(outcomes: list[Outcome]) -> str:
    return f"{sum(outcome.caught for outcome in outcomes)} of {len(outcomes)} caught"


def _row(outcome: Outcome) -> str:
    test = outcome.test.removeprefix("tests/")
    return f"{outcome.name:48} {outcome.how:9} {outcome.seconds:6.1f} s  {test}"


def _table(outcomes: list[Outcome]) -> str:
    by_scenarios = sum("explored" in outcome.test for outcome in outcomes)
    lines = [
        "# What became of the mutants",
        "",
        f"{_verdict(outcomes)}: {by_scenarios} by scenarios, the rest by what the runner's other tests are.",
        f"Written by `python tests/mutants/run.py {' '.join(sys.argv[1:])}`, of Python {platform.python_version()}.",
        "",
        "| mutant | outcome | first noticed by | under |",
        "|---|---|---|---|",
    ]
    for outcome in outcomes:
        test = outcome.test.rpartition("::")[2] or outcome.test
        under = re.search(
            r"seed=\d+(?=: replay)|(?<=\non )\w+, block .*?(?=,? \d+ switches)|seed=\S+", outcome.message
        )
        lines.append(f"| {outcome.name} | {outcome.how} | {test} | {under[0] if under else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
