"""A room imports only rooms to its left, and no module is part of a circle: the table at the top of the package."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "tenure"

TABLE = (
    "lazy < errors < pages < arguments < limits < waiting < observe < upkeep < local < handlers < engine < dbapi"
    " < store < engines/rules < { engines/*, shared, sql } < processor < serving < blocking"
    " < { cli, django, pydantic_ai, web, examples } < front door"
)
FRONT_DOOR = "front door"
# Within braces: who may import whom all the same. What opens a store has to know all the engines.
DOORS = {("cli", "web"), ("engines", "engines/*")}


# Folders inside of a room, on the floor that its own modules are. They do not import one another; only these modules,
# which are the doors, import what is in a folder.
FOLDERS = {"shared": {"holds", "queue", "limits"}, "cli": {"queue", "run", "work"}}
FOLDER_DOORS = {"tenure.shared", "tenure.cli._main"}


def steps(table):
    """The rooms of the table, from left to right; rooms in braces share a step."""
    return [[room.strip() for room in step.strip(" {}").split(",")] for step in table.split(" < ")]


STEP_OF = {room: step for step, rooms in enumerate(steps(TABLE)) for room in rooms}
STEP_OF["engines"] = STEP_OF["engines/*"]


def modules(package):
    """The modules of a package by dotted name, and whether they are packages themselves."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = (package.name, *file.relative_to(package).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = (file, is_package)
    return found


@cache
def import_nodes(source):
    """The statements and calls of a source that may import something."""
    return [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom | ast.Call)]


def imports(package):
    """Who imports whom, as (importer, imported, line); imports in functions and for type checkers count too."""
    known = modules(package)
    for importer, (file, is_package) in known.items():
        for node in import_nodes(file.read_text("utf-8")):
            for target in targets(node, importer, is_package):
                imported = target
                while imported not in known and "." in imported:
                    imported = imported.rpartition(".")[0]
                if imported in known and imported != importer:
                    yield importer, imported, node.lineno


def targets(node, importer, is_package):
    """The dotted names that a statement or a call imports; the last part may be a name inside a module."""
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            parts = importer.split(".")
            base = parts[: len(parts) - level + is_package] if level else []
            return [
                ".".join([*base, *(module or "").split("."), name.name]).replace("..", ".") for name in names
            ]
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(target)), *_]
        ) if name in {"import_module", "__import__"}:
            return [target]
    return []


def room_of(module):
    """The room of a module: the first name below the package, and the second one inside of `engines`."""
    _, _, inside = module.partition(".")
    if inside in {"", "__main__", "types"}:
        return FRONT_DOOR
    first, *rest = inside.split(".")
    if first == "engines" and rest and not rest[0].startswith("_"):
        return f"engines/{rest[0]}"
    return first


def kind_of(room):
    return "engines/*" if room.startswith("engines/") and room not in STEP_OF else room


def wrong_arrows(package):
    """Every import that goes against the table, in words."""
    wrong = []
    for importer, imported, line in imports(package):
        own, other = room_of(importer), room_of(imported)
        if own in {other, "testing"}:
            continue
        if other in {"testing", FRONT_DOOR}:
            wrong.append(f"{importer}:{line} imports {imported}: nothing imports {other}")
        elif STEP_OF[kind_of(own)] <= STEP_OF[kind_of(other)] and (kind_of(own), kind_of(other)) not in DOORS:
            wrong.append(f"{importer}:{line} imports {imported}: {own} stands left of {other}, or beside it")
    return wrong


def private_imports(package):
    """Every import of a private module of another room; the testing room may look into all of them."""
    return [
        f"{importer}:{line} imports {imported}: private to {room_of(imported)}"
        for importer, imported, line in imports(package)
        if room_of(importer) not in {room_of(imported), "testing"} and "._" in imported
    ]


def unasked(package):
    """Every name that a package imports, does not use or export, and that no other module imports from there."""
    asked = {
        target
        for importer, (file, is_package) in modules(package).items()
        for node in import_nodes(file.read_text("utf-8"))
        for target in targets(node, importer, is_package)
    }
    return [
        f"{module} imports {name}: nothing else imports it from there"
        for module, (file, is_package) in modules(package).items()
        if is_package
        for name in doors_in(file.read_text("utf-8"))
        if f"{module}.{name}" not in asked
    ]


def doors_in(source):
    """The names that a source imports, and neither uses nor exports: by `__all__`, or as themselves."""
    nodes = list(ast.walk(ast.parse(source)))
    casts = [
        node.args[0] for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast"
    ]
    exported = [
        node.value for node in nodes if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node)
    ]
    texts = [
        text.value
        for part in (*casts, *exported)
        for text in ast.walk(part)
        if isinstance(text, ast.Constant)
    ]
    used = {word for text in texts for word in re.findall(r"\w+", text)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != "__future__"
        for alias in node.names
        if alias.name != alias.asname
    }
    return sorted(imported - used)


def folder_of(module):
    """The folder of a module inside of its room, or the room itself."""
    if room_of(module) == FRONT_DOOR:
        return FRONT_DOOR
    _, room, *inside = [*module.split("."), "", ""]
    return f"{room}/{inside[0]}" if inside[0] in FOLDERS.get(room, ()) else room


def wrong_folders(package):
    """Every import of what is in a folder by what is neither in it nor a door."""
    return [
        f"{importer}:{line} imports {imported}: {folder_of(imported)} is not below {folder_of(importer)}"
        for importer, imported, line in imports(package)
        if room_of(importer) == room_of(imported)
        and folder_of(imported) not in {room_of(imported), folder_of(importer)}
        and importer not in FOLDER_DOORS
    ]


def circle(package):
    """The modules of one circle of imports, or nothing."""
    graph = {}
    for importer, imported, _ in imports(package):
        graph.setdefault(importer, set()).add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def strangers(package):
    """The modules that stand in no room of the table."""
    return [m for m in modules(package) if kind_of(room_of(m)) not in {*STEP_OF, "testing"}]


def test_every_module_stands_in_a_room():
    assert strangers(SOURCES) == []


def test_no_arrow_goes_against_the_table():
    assert wrong_arrows(SOURCES) == []


def test_no_room_imports_a_private_module_of_another():
    assert private_imports(SOURCES) == []


def test_what_a_room_imports_for_others_is_imported_by_others():
    assert unasked(SOURCES) == []


def test_no_folder_of_a_room_imports_another():
    assert wrong_folders(SOURCES) == []


def test_the_folders_are_there():
    found = {
        room: {folder.parent.name for folder in (SOURCES / room).glob("*/__init__.py")} for room in FOLDERS
    }
    assert found == FOLDERS


def test_no_circle():
    assert circle(SOURCES) == []


def test_the_table_stands_at_the_top_of_the_package():
    text = (SOURCES / "__init__.py").read_text("utf-8")
    assert TABLE.removesuffix(f" < {FRONT_DOOR}") in re.sub(r"[\s#]+", " ", text)


def test_no_module_bears_a_name_that_says_nothing():
    nothing = {"utils", "util", "helpers", "common", "core", "manager", "base", "misc"}
    assert [m for m in modules(SOURCES) if m.rpartition(".")[2].strip("_") in nothing] == []


# ------------------------------------------------------------------------ the tests above, tested on planted houses


@pytest.fixture
def house(tmp_path):
    """A function that builds a house: {module path: source}."""

    def build(sources):
        package = tmp_path / "tenure"
        for room in (
            "",
            "local",
            "engines",
            "engines/memory",
            "engines/sqlite",
            "shared",
            "shared/holds",
            "shared/queue",
            "testing",
            "cli",
            "web",
        ):
            (package / room).mkdir(parents=True, exist_ok=True)
            (package / room / "__init__.py").touch()
        for name, source in sources.items():
            (package / f"{name}.py").write_text(source)
        return package

    return build


WRONG = [
    {"local/_line": "import tenure.engine", "engine": ""},
    {"local/_line": "from tenure import engine", "engine": ""},
    {"local/_line": "from tenure.engine import Engine", "engine": ""},
    {"local/_line": "from ..engine import Engine", "engine": ""},
    {"local/_line": "from .. import engine", "engine": ""},
    {"local/_line": "def f():\n    import tenure.engine", "engine": ""},
    {"local/_line": "def f():\n    class C:\n        from .. import engine", "engine": ""},
    {"local/_line": "import importlib\nimportlib.import_module('tenure.engine')", "engine": ""},
    {
        "local/_line": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tenure.engine import E",
        "engine": "",
    },
    {"errors": "from tenure import observe", "observe": ""},
    {"store": "import tenure"},
    {"store": "from tenure import Lock"},
    {"store": "from . import Lock"},
    {"engines/memory/_x": "import tenure.engines.sqlite"},
    {"engines/memory/_x": "from tenure.engines import open_store"},
    {"shared/_lock": "from tenure.engines.memory import MemoryEngine"},
    {"engines/memory/_x": "from tenure.shared import Lock"},
    {"engines/_url": "from tenure.shared import Lock"},
    {"web/_page": "from tenure.cli import main"},
    {"store": "from tenure.testing import VirtualClock"},
    {"cli/_main": "from tenure import open_store"},
]

RIGHT = [
    {"engine": "from tenure.errors import E\nimport tenure.local", "errors": ""},
    {"shared/_lock": "from . import _lease\nfrom ._lease import Lease", "shared/_lease": ""},
    {"engines/_url": "def f():\n    from .sqlite import SQLite\n    from . import memory"},
    {"cli/_main": "from ..web import serve\nimport tenure.engines"},
    {"testing/_x": "import tenure\nfrom tenure.engines.sqlite import S\nfrom tenure import Lock"},
    {"__init__": "from tenure.shared import Lock\nimport tenure.cli"},
    {"shared/_lock": "import anyio.tenure\nfrom tenure_other import engine"},
]


@pytest.mark.parametrize(
    "sources", WRONG, ids=lambda sources: "; ".join(sources[next(iter(sources))].split("\n"))
)
def test_a_wrong_arrow_is_seen(house, sources):
    assert len(wrong_arrows(house(sources))) == 1


@pytest.mark.parametrize(
    "sources", RIGHT, ids=lambda sources: "; ".join(sources[next(iter(sources))].split("\n"))
)
def test_a_right_arrow_is_let_pass(house, sources):
    package = house(sources)
    assert wrong_arrows(package) == []
    assert circle(package) == []


def test_a_private_module_of_another_room_is_seen(house):
    assert private_imports(house({"testing/_x": "import tenure.shared._lock", "shared/_lock": ""})) == []
    assert len(private_imports(house({"cli/_main": "from tenure.shared._lock import x"}))) == 1


def test_a_name_for_other_rooms_that_none_imports_is_seen(house):
    sources = {"shared/__init__": "from ._lock import Lock, seen, used\n__all__ = ('Lock',)\nused()"}
    assert len(unasked(house(sources))) == 1
    assert unasked(house({**sources, "cli/_main": "def f():\n    from ..shared import seen"})) == []


def test_a_wrong_arrow_between_folders_is_seen(house):
    package = house(
        {
            "shared/holds/_lock": "from ..queue._task import Task\nfrom .._lease import Lease",
            "shared/queue/_task": "from ._takes import Takers",
            "shared/queue/_takes": "",
            "shared/_lease": "from .holds._lock import Lock",
            "shared/__init__": "from .holds._lock import Lock",
        }
    )
    assert [line.partition(":")[0] for line in wrong_folders(package)] == [
        "tenure.shared._lease",
        "tenure.shared.holds._lock",
    ]


def test_a_circle_inside_a_room_is_seen(house):
    package = house(
        {
            "shared/_lock": "from tenure.shared import _lease",
            "shared/_lease": "def f():\n    from ._election import E",
            "shared/_election": "if TYPE_CHECKING:\n    from tenure.shared._lock import Lock",
        }
    )
    assert wrong_arrows(package) == []
    assert set(circle(package)) == {f"tenure.shared._{name}" for name in ("lock", "lease", "election")}


def test_a_circle_through_the_room_itself_is_seen(house):
    package = house(
        {"shared/__init__": "from ._lock import Lock", "shared/_lock": "from tenure.shared import Semaphore"}
    )
    assert set(circle(package)) == {"tenure.shared", "tenure.shared._lock"}


def test_a_module_outside_of_every_room_is_seen(house):
    assert strangers(house({"attic": "", "engines/redis": ""})) == ["tenure.attic"]
