"""What the contestants of `benchmarks.children` have to do: put no-op children, wait for all, gather their results."""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib.metadata import version
from typing import NoReturn


def words() -> tuple[str, str, int]:
    """The server, the loop and the number of children that the command line names."""
    logging.disable(logging.CRITICAL)
    path, loop, _, n = sys.argv[1:]
    return path, loop, int(n)


def finish(package: str, n: int, seconds: float, gathered: int) -> NoReturn:
    """Print the children a second, and end: not every peer's worker can be stopped."""
    assert gathered == n * (n - 1) // 2, gathered
    figures = {"name": f"{package} {version(package)}", "children": n / seconds}
    print(json.dumps(figures), flush=True)
    os._exit(0)
