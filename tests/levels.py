"""The level of a test, quick, heavy, or for `--full` alone, and the variants of it that a run without `--full` has.

A test that takes over 0.2 seconds, its set-up included, is heavy: `heavy.txt` has its name and its time. A run of
everything leaves heavy tests out. A run of some paths, of `-m heavy`, of `--last-failed` or of `--full` does not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from time import perf_counter

import depth
import pytest
from _pytest.config import Config

LIMIT = 0.2
TABLE = Path(__file__).with_name("heavy.txt")

seconds: Counter[str] = Counter()
shared: Counter[str] = Counter()


def known():
    """The names in the table, each with the reason for which it stays quick, or with ""."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split(maxsplit=1)[1].partition("  # ")[::2] for line in lines)


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        config.leaves_out_heavy = config.workerinput["leaves_out_heavy"]
    else:
        asked = config.option.markexpr or config.getoption("lf", False) or config.option.measure or depth.full
        config.leaves_out_heavy = config.args_source != Config.ArgsSource.ARGS and not asked


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tell xdist's workers, which get paths in any case."""
    node.workerinput["leaves_out_heavy"] = node.config.leaves_out_heavy


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what is heavy, and leave out what this run does not have."""
    table = known()
    for item in items:
        variant = item.nodeid.removeprefix("tests/")
        reason = table.get(variant, table.get(variant.partition("[")[0]))
        if reason == "":
            item.add_marker("heavy")
    if depth.full:
        return
    left_out = {item for item in items if item.get_closest_marker("full")}
    left_out |= set(_repeated([item for item in items if item not in left_out]))
    if config.leaves_out_heavy:
        left_out |= {item for item in items if item.get_closest_marker("heavy")}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _repeated(items):
    """The variants without which each value of each parameter of a test is there all the same."""
    tests = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            # an id for each mark and each fixture that has parameters
            tests[item.nodeid.partition("[")[0]].append((item, set(enumerate(item.callspec._idlist))))
    for variants in tests.values():
        seen = set()
        while variants:
            # the quick one of two that are as good
            best = max(variants, key=lambda v: (len(v[1] - seen), not v[0].get_closest_marker("heavy")))
            if best[1] <= seen:
                break
            seen |= best[1]
            variants.remove(best)
        yield from (item for item, _ in variants)


# ------------------------------------------------------------------------------------------------- with --measure


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """Charge no test for what all share, such as a server."""
    begun = perf_counter()
    try:
        return (yield)
    finally:
        if fixturedef.scope == "session":
            shared["setup"] += perf_counter() - begun


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    report = yield
    report.duration -= shared.pop(call.when, 0.0)
    return report


def pytest_runtest_logreport(report):
    seconds[report.nodeid.removeprefix("tests/")] += report.duration


def pytest_sessionfinish(session):
    if session.config.option.measure and not hasattr(session.config, "workerinput"):
        write()


def write():
    """Write the table anew: a line for each heavy variant, or for a test of which half of the variants are heavy."""
    reasons, tests = known(), defaultdict(dict)
    for name in seconds:
        tests[name.partition("[")[0]][name] = seconds[name]
    with TABLE.open("w") as table:
        table.write("# Seconds of each heavy test; a reason behind it keeps it quick. See README.md.\n")
        for test, variants in sorted(tests.items()):
            heavy = {name: spent for name, spent in variants.items() if spent > LIMIT}
            if 2 * len(heavy) >= len(variants):
                heavy = {test: max(heavy.values())}
            for name, spent in sorted(heavy.items()):
                reason = reasons.get(name)
                table.write(f"{spent:.2f} {name}" + (f"  # {reason}" if reason else "") + "\n")
