"""The plan of a run, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from tenure.cli._arguments import Options
from tenure.cli._errors import UsageError

from ._lines import STANDARD_INPUT, Lines
from ._names import Names

Plan = dict[str, Any]
"""The work of a run, as JSON: `handler`, `inputs` or `from` (and `in`, if relative), `retries`, `timeout`."""


InputSource = Lines | Names
"""A sequence of inputs that can be read again from any position.

Its methods block, and raise `UsageError` when the input is not what it was, or cannot be read. They may be called in
any thread, one at a time.
"""


def make_plan(options: Options) -> Plan:
    plan: Plan = {"handler": options.handler}
    if options.globs:
        plan["from"] = list(options.globs)
        if not all(Path(glob).is_absolute() for glob in options.globs):
            plan["in"] = str(Path.cwd())
    else:
        plan["inputs"] = [p if p == STANDARD_INPUT else os.path.realpath(p) for p in options.inputs]
    return plan | {"retries": options.retries, "timeout": options.timeout}


def name_of(plan: Plan) -> str:
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    function = re.sub(r"[^A-Za-z0-9._-]", "-", plan["handler"].rpartition(":")[2])[:60]
    return f"{function}-{digest[:8]}"


def same_work(plan: Plan, other: Plan) -> bool:
    # the number and the time limit of tries may differ
    return all(plan.get(part) == other.get(part) for part in ("handler", "inputs", "from", "in"))


def open_source(options: Options) -> InputSource:
    return Names(options.globs) if options.globs else Lines(options.inputs)


def check_results(options: Options) -> None:
    if options.results is None:
        return
    path = Path(options.results)
    if path.is_dir():
        raise UsageError(f"--results {path} is a directory; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"--results {path}: there is no directory {path.parent}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--results {path}: this user may not write there; name another file")
    if any(p != STANDARD_INPUT and os.path.realpath(p) == os.path.realpath(path) for p in options.inputs):
        raise UsageError(f"--results {path} is an input too; name another file")
