"""A pytest plugin for runs on a mutant: it makes sure that the mutant is what is tested, and tells what happened."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import hypothesis
import pytest

SRC = Path(os.environ["MUTANT_SRC"])
_log = Path(os.environ["MUTANT_LOG"]).open("a", encoding="utf-8", buffering=1)
# a mutant may well eat memory without end
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))


def _tell(*parts):
    _log.write("\t".join(str(part).replace("\t", " ").replace("\n", " ") for part in parts) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    # that a test fails is enough to know, how simply it could fail does not matter
    hypothesis.settings.register_profile(
        "mutants", database=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
    )
    hypothesis.settings.load_profile("mutants")


def pytest_collection_modifyitems(items):
    first = os.environ["MUTANT_FIRST"].split()

    def distance(item):
        scenario = getattr(item, "callspec", None) and item.callspec.params.get("scenario")
        if scenario is None:
            return 3
        # a machine's is a method of a class
        near = getattr(scenario.run, "__self__", scenario.run).__module__.rpartition(".")[2] in first
        return (1 if "test_explored" in item.nodeid else 2) if near else 4

    # what the catalogue lacks tells nothing about a mutant
    items[:] = [item for item in items if "scenario" in item.fixturenames or "explored" not in item.nodeid]
    items.sort(key=distance)
    if os.environ["MUTANT_NEAR"]:
        items[:] = [item for item in items if distance(item) < 4]


def pytest_runtest_logstart(nodeid):
    _tell("started", nodeid)


def pytest_runtest_logreport(report):
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _tell("failed", report.nodeid, crash.message if crash else str(report.longrepr)[-300:])
        os._exit(1)  # a loop that hangs would not even let its test be torn down


def pytest_collectreport(report):
    if report.failed:
        _tell("broken", report.nodeid, str(report.longrepr)[-300:])


def pytest_sessionfinish():
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("tenure", "_tenure_pytest"):
            file = Path(getattr(module, "__file__", None) or "/")
            if not file.is_relative_to(SRC):
                _tell("broken", name, f"imported from {file}, not from {SRC}")
    _tell("finished", len(sys.modules))
