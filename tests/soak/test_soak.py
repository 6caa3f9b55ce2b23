"""The command runs, and says what it saw."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_short_soak():
    command = [sys.executable, "-m", "tests.soak", "redis", "--faults", "40"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"40 faults, \d+ grants, .*, 0 violations", ran.stdout), ran.stdout
