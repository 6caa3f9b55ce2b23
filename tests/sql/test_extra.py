from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['{}'] = None; {}"
ROW = (
    "import sqlite3; from tenure.sql import StaleSnapshot, get_or_create_row_sync;"
    " db = sqlite3.connect(':memory:'); db.execute('CREATE TABLE t (a UNIQUE)');"
    " print(get_or_create_row_sync(db, 't', where={'a': 1})); db.close()"
)


def run_without(module, program):
    command = [sys.executable, "-c", WITHOUT.format(module, program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["claim_rows", "get_or_create", "in_session"])
def test_without_sqlalchemy_the_extra_is_named(name):
    said = run_without("sqlalchemy", f"from tenure.sql import {name}").stderr
    assert said.splitlines()[-1] == (
        f"ModuleNotFoundError: tenure.sql.{name} needs SQLAlchemy: pip install 'tenure[sql]'"
    )
    assert "During handling" not in said


def test_with_a_driver_alone_a_row_can_be_had():
    assert run_without("sqlalchemy", ROW).stdout == "({'a': 1}, True)\n"


def test_what_there_is_not_is_said_as_always():
    said = run_without("sqlalchemy", "from tenure.sql import nothing").stderr.splitlines()[-1]
    assert said.startswith("ImportError: cannot import name 'nothing'")


def test_something_else_that_is_missing_is_said_as_it_is():
    assert "anyio" in run_without("anyio", "import tenure.sql").stderr.splitlines()[-1]


def test_greenlet_is_needed_for_async_sessions_alone():
    program = "import tenure.sql as room; print(room.__all__)"
    assert "get_or_create" in run_without("greenlet", program).stdout
