"""The variants of a test: the loops and the engines that it runs on. One fixed table decides, `TABLE`.

Memory is in each row of the table, since the other engines are compared with it. In half of the rows one of the three
others is with it; the name of the test chooses the row. With --full a test runs on all of them.
"""

from __future__ import annotations

from inspect import ismodule
from pathlib import Path
from zlib import crc32

import depth

LOOPS = ("asyncio", "trio")
OTHERS = ("sqlite", "redis", "postgres")
"""Engines that are asked by blocking calls in virtual time, which know no loop."""

TABLE = [
    (("memory", "asyncio"), ("sqlite", "trio")),
    (("memory", "trio"), ("redis", "asyncio")),
    (("memory", "asyncio"), ("postgres", "trio")),
    *[(("memory", "asyncio"), ("memory", "trio"))] * 3,
]
"""The pairs of an engine and a loop that a test runs on without --full; its name chooses the row."""

FULL = {"shared": ("memory", "wire", *OTHERS), "processor": ("memory", "sqlite", "redis")}
"""The engines of `engine` with --full, by the folder of the test; over a wire memory is asked in batches."""

TESTS = Path(__file__).parent


def parametrize(metafunc):
    """Choose the loops of an async test, and its engines if its folder has several."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    named = {
        name.strip() for names in marks for name in (names.split(",") if isinstance(names, str) else names)
    }
    wants = {"anyio_backend", "engine"} & set(metafunc.fixturenames) - named
    folder = next((name for name in FULL if metafunc.definition.path.is_relative_to(TESTS / name)), None)
    own = getattr(metafunc.module, "engine", None)  # a fixture of the module's, which needs no choice
    engines = FULL[folder] if folder and "engine" in wants and (own is None or ismodule(own)) else ()
    if engines and "anyio_backend" in wants:
        metafunc.parametrize(("engine", "anyio_backend"), _pairs(metafunc, engines), indirect=True)
    elif engines:
        chosen = engines if depth.full else dict.fromkeys(engine for engine, _ in _row(metafunc, engines))
        metafunc.parametrize("engine", chosen, indirect=True)
    elif "anyio_backend" in wants and not _is_chosen_later(metafunc, named - {"engine"}):
        metafunc.parametrize("anyio_backend", loops(metafunc.definition), indirect=True)


def loops(item):
    """The loops that a test may run on."""
    mark = item.get_closest_marker("backends")
    return mark.args if mark else LOOPS


def loop_of(item):
    """The loop of one variant of a test whose other parameters are enough to run on both: its name decides."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if is_native(given):
        return "asyncio"
    mark = item.get_closest_marker("one_loop")
    names = loops(item)
    return names[(crc32(item.name.encode()) + sum(mark.args if mark else ())) % len(names)]


def is_native(given):
    """Whether the parameters of a variant ask for a cancellation of asyncio's own."""
    return given.get("native") is True or given.get("how") == "native"


def is_senseless(given):
    """Whether a variant would cancel natively on trio, which knows no such thing."""
    return is_native(given) and given.get("anyio_backend") == "trio"


def _is_chosen_later(metafunc, named):
    fixtures = metafunc.definition._fixtureinfo.name2fixturedefs
    others = (names[-1].params for name, names in fixtures.items() if name not in ("anyio_backend", "engine"))
    return metafunc.definition.get_closest_marker("one_loop") or (not depth.full and (named or any(others)))


def _row(metafunc, engines):
    """The row of the table for a test; an engine that its folder lacks gives way to the folder's second."""
    row = TABLE[crc32(metafunc.function.__name__.encode()) % len(TABLE)]
    return [(engine if engine in engines else engines[1], loop) for engine, loop in row]


def _pairs(metafunc, engines):
    names = loops(metafunc.definition)
    if not depth.full:
        row = _row(metafunc, engines)
        if names == LOOPS:
            return row
        pairs = ((row[min(n, 1)][0], names[n % len(names)]) for n in range(max(2, len(names))))
        return list(dict.fromkeys(pairs))
    if metafunc.definition.get_closest_marker("one_loop"):
        alone = engines
    else:
        alone = ("wire", *OTHERS) if "virtual_clock" in metafunc.fixturenames else ("wire",)
    turn = crc32(metafunc.function.__name__.encode())
    return [
        (engine, loop)
        for n, engine in enumerate(engines)
        for loop in ((names[(turn + n) % len(names)],) if engine in alone else names)
    ]
