"""One benchmark in a process of its own: `python -m benchmarks._inside NAME SIZE`.

Each row is a line of JSON after a record separator (RFC 7464). All else that the process and its children print is for
people to read.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import replace

from benchmarks._measure import SIZES
from benchmarks._peers import BadHeader

SEPARATOR = "\x1e"


def main(name: str, size: str, *only_ours: str) -> int:
    """Write the rows as they come; 1 if something is not installed, or a peer's header has a mistake."""
    # what is printed meanwhile goes elsewhere than rows
    rows = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        module = importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        print(f"{error}; pip install -e '.[bench]'", file=sys.stderr)
        return 1
    asked = SIZES[size]
    if only_ours:
        asked = replace(asked, rounds=1, peers=False)
    try:
        for row in module.run(asked):
            rows.write(f"{SEPARATOR}{json.dumps({'benchmark': name, **row})}\n")
            rows.flush()
    except BadHeader as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
