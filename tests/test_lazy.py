"""What an import loads: nothing that the name does not need, and the names that a type checker sees."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tenure

ROOMS = ("", "local", "observe", "shared")
LOADED = "import sys; print(*sorted(name for name in sys.modules if name.startswith('tenure.')))"


def source(room):
    return (Path(tenure.__file__).parent / room / "__init__.py").read_text("utf-8")


def for_type_checkers(room):
    """The names that a room imports for type checkers."""
    for node in ast.parse(source(room)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return [name.name for line in node.body for name in line.names if line.module != "tenure"]
    return []


@pytest.mark.parametrize("room", ROOMS)
def test_type_checkers_see_what_is_there_and_what_is_exported(room):
    module = __import__(f"tenure.{room}".strip("."), fromlist=["_"])
    assert set(for_type_checkers(room)) >= set(module.__all__)
    for name in for_type_checkers(room):
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        module.nothing_of_the_kind  # noqa: B018


def loaded(statement):
    ran = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


def test_the_package_alone_loads_nothing():
    assert loaded("import tenure") == ["tenure.lazy"]


def test_a_lock_loads_no_engine_and_nothing_that_is_built_on_it():
    rooms = {name.split(".")[1] for name in loaded("from tenure import Lock")}
    assert rooms.isdisjoint({"engines", "processor", "web", "cli", "testing", "sql", "local", "examples"})


def test_a_room_is_found_without_an_import_of_its_own():
    assert "tenure.local._pool" in loaded("import tenure; tenure.local.Pool")
