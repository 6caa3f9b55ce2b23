"""The command runs, and says what it saw."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]


def test_a_short_soak():
    command = [sys.executable, "-m", "benchmarks.soak", "redis", "--faults", "40"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"40 faults, \d+ grants, .*, 0 violations", ran.stdout), ran.stdout


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (
            ["resharding", "--megabytes", "1", "--seconds", "0.5", "--node-timeout", "1"],
            r"moved .*failover, planned .*failover, killed .*counted: (\d+) of \1 tasks",
        ),
        (["sentinel", "--failovers", "1", "--down-after", "1"], r"1: the primary is killed .*longest wait"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_short_move(options, seen):
    # a server that was killed may find its port taken by one of another test, and then nothing goes on
    ran = moved(options) or moved(options)
    assert ran is not None, "it did not end, twice"
    code, output = ran
    assert code == 0, output
    assert re.search(seen + r".*\n0 violations", output, re.DOTALL), output


def moved(options):
    """The exit code and the output of a run; None if it does not end, and then nothing of it is left."""
    ran = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with ran:
        try:
            output, _ = ran.communicate(timeout=55)
        except subprocess.TimeoutExpired:
            os.killpg(ran.pid, signal.SIGKILL)
            return None
    return ran.returncode, output


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_a_gateway_whose_workers_are_killed(store):
    command = [sys.executable, "-m", "benchmarks.soak", "gateway", "--store", store, "--calls", "400"]
    command += ["--kills", "3", "--rate", "40"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"for 400 answers .* 3 kills\n0 violations", ran.stdout), ran.stdout


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_names_leave_nothing(engine):
    command = [
        sys.executable,
        "-m",
        "benchmarks.soak",
        "names",
        "--engine",
        engine,
        "--count",
        "700",
        "--ttl",
        "1",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(": 0 left") == 3, ran.stdout
