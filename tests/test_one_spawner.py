"""Who may start tasks, look at a wall clock, or know which loop it runs on."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "tenure"

SPAWNING = {
    "TaskGroup",
    "create_task",
    "create_task_group",
    "ensure_future",
    "open_nursery",
    "run_coroutine_threadsafe",
    "spawn_system_task",
}
# Files and folders that may start tasks.
SPAWNERS = ("upkeep.py", "local/_threads.py", "testing/")

WALL_CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
# Time is the engine's; in the process it is the loop's. `put(at=)` counts from the clock of the host, as it says, and
# the ages of a setting and of a copy of a store are shown.
CLOCK_READERS = (
    "engines/",
    "testing/",
    *("shared/queue/_new_task.py", "shared/queue/_settings.py", "cli/queue/_settings.py", "cli/_backup.py"),
)

LOOPS = {"asyncio", "trio", "uvloop", "winloop", "sniffio"}
# The parking shim, the watch for blocked loops, and what only tests use.
LOOP_KNOWERS = ("waiting/_park.py", "waiting/_trio_readers.py", "local/_blocking_watch.py", "testing/")

# Answers come outside any task, where anyio knows no loop: `waiting.now` does.
ASKERS = ("engines/", "local/", "testing/", "processor/", "web/", "cli/")


def allowed(path, places):
    return any(path.startswith(place) if place.endswith("/") else path == place for place in places)


@cache
def offences(source):
    """Pairs of what a source does and where: "spawns", "reads a wall clock", "knows the loop"."""
    return tuple(_offences(source))


def _offences(source):
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in SPAWNING:
                yield "spawns", f"{name}() in line {node.lineno}"
            case ast.Attribute(value=ast.Name(id="anyio"), attr="current_time"):
                yield "asks anyio for the time", f"line {node.lineno}"
            case ast.ImportFrom(module="anyio", names=names) if "current_time" in {n.name for n in names}:
                yield "asks anyio for the time", f"line {node.lineno}"
            case ast.Attribute(value=ast.Name(id=module) | ast.Attribute(attr=module), attr=name) if (
                module,
                name,
            ) in WALL_CLOCKS:
                yield "reads a wall clock", f"{module}.{name} in line {node.lineno}"
            case ast.ImportFrom(module="time", names=names) if {"time", "time_ns"} & {n.name for n in names}:
                yield "reads a wall clock", f"from time import in line {node.lineno}"
            case ast.Import(names=names):
                for loop in LOOPS & {name.name.partition(".")[0] for name in names}:
                    yield "knows the loop", f"import {loop} in line {node.lineno}"
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in LOOPS:
                yield "knows the loop", f"from {module} import in line {node.lineno}"


@pytest.mark.parametrize(
    ("what", "places"),
    [
        ("spawns", SPAWNERS),
        ("reads a wall clock", CLOCK_READERS),
        ("knows the loop", LOOP_KNOWERS),
        ("asks anyio for the time", ASKERS),
    ],
)
def test_only_where_it_is_allowed(what, places):
    found = [
        f"{path} {kind}: {where}"
        for file in sorted(SOURCES.rglob("*.py"))
        for kind, where in offences(file.read_text("utf-8"))
        if kind == what and not allowed(path := file.relative_to(SOURCES).as_posix(), places)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("async def f():\n    async with anyio.create_task_group() as g: pass", ["spawns"]),
        ("async def f():\n    async with create_task_group(): pass", ["spawns"]),
        ("trio.open_nursery()", ["spawns"]),
        ("asyncio.TaskGroup()", ["spawns"]),
        ("loop.create_task(f())", ["spawns"]),
        ("def f(group: TaskGroup): group.start_soon(f)", []),
        ("import time\ntime.time()", ["reads a wall clock"]),
        ("import time\nclock = time.time", ["reads a wall clock"]),
        ("from time import time", ["reads a wall clock"]),
        ("import datetime\ndatetime.datetime.now()", ["reads a wall clock"]),
        ("from time import monotonic\nmonotonic()", []),
        ("def f():\n    import asyncio", ["knows the loop"]),
        ("import trio.lowlevel", ["knows the loop"]),
        ("from asyncio import Future", ["knows the loop"]),
        ("from .trio import x", []),
        ("import anyio\nanyio.current_time()", ["asks anyio for the time"]),
        ("from anyio import current_time", ["asks anyio for the time"]),
        ("import anyio", []),
    ],
)
def test_the_detector(source, kinds):
    assert [kind for kind, _ in offences(source)] == kinds


def test_folders_and_files_are_distinguished():
    assert allowed("testing/_leaks.py", SPAWNERS)
    assert allowed("upkeep.py", SPAWNERS)
    assert not allowed("shared/upkeep.py", SPAWNERS)
    assert not allowed("shared/queue/_worker.pyx", SPAWNERS)
