from __future__ import annotations

import subprocess
import sys

WITHOUT = "import sys; sys.modules['{}'] = None; import tenure.sql as room; print(room.__all__)"


def imported_without(module):
    command = [sys.executable, "-c", WITHOUT.format(module)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_sqlalchemy_the_extra_is_named():
    said = imported_without("sqlalchemy").stderr
    assert (
        said.splitlines()[-1] == "ModuleNotFoundError: tenure.sql needs SQLAlchemy: pip install 'tenure[sql]'"
    )
    assert "During handling" not in said


def test_something_else_that_is_missing_is_said_as_it_is():
    assert "anyio" in imported_without("anyio").stderr.splitlines()[-1]


def test_greenlet_is_needed_for_async_sessions_alone():
    assert "get_or_create" in imported_without("greenlet").stdout
