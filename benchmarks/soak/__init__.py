"""Trials of hours with processes and servers that are killed: `python -m benchmarks.soak`, not for each change."""

import sys
from pathlib import Path

# for the servers that the tests have
sys.path.append(str(Path(__file__).parents[2] / "tests"))
