"""Bytecode of the tests, made once for all processes: rewriting the assertions takes half of the time of collecting."""

from __future__ import annotations

import os
import sys
import tempfile

import pytest

FOLDER = pytest.StashKey[str]()


def begin(config):
    """Where no bytecode shall be written into the sources, have it written into a folder of this run."""
    if not sys.dont_write_bytecode:
        return
    if hasattr(config, "workerinput"):
        folder = config.workerinput["bytecode"]
        # what was imported by now is in memory
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
    else:
        kept = tempfile.TemporaryDirectory(prefix="tenure-bytecode")
        config.add_cleanup(kept.cleanup)
        folder = config.stash[FOLDER] = kept.name
        if config.getoption("dist", "no") != "no":
            return
    # without any, each process that a test starts would compile all it imports
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tell xdist's workers of the folder."""
    node.workerinput["bytecode"] = node.config.stash.get(FOLDER, None)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Let each of xdist's workers begin with other files: later it finds the bytecode that the others have made."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Dir):
        found = report.result
        first = len(found) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = [*found[first:], *found[:first]]
    return report


def sort(config, items):
    """Put the tests into the order that all workers share."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)
