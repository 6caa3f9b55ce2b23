"""Every public name has one home, under which it is known, and says what a user has to know."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import tenure

# Rooms that users meet only through others, or from the command line.
INTERNAL = {
    "arguments",
    "cli",
    "dbapi",
    "django",
    "handlers",
    "limits",
    "pydantic_ai",
    "store",
    "upkeep",
    "waiting",
    "web",
}


def public_rooms():
    yield tenure
    for found in pkgutil.iter_modules(tenure.__path__, "tenure."):
        short = found.name.rpartition(".")[2]
        if not short.startswith("_") and short not in INTERNAL:
            yield importlib.import_module(found.name)


ROOMS = list(public_rooms())
EXPORTS = [(room, name, getattr(room, name, None)) for room in ROOMS for name in getattr(room, "__all__", ())]
LONGEST = 1_200
"""The most characters of a docstring, as an editor shows it: more rules stand on the pages of the reference."""

TOP = (tenure, tenure.types)
AT_THE_TOP = {id(value) for room, _, value in EXPORTS if room in TOP}
# What the front door and `types` export is at home there, everything else in its room.
THINGS = [
    (f"{room.__name__}.{name}", value)
    for room, name, value in EXPORTS
    if (inspect.isclass(value) or inspect.isroutine(value)) and (room in TOP or id(value) not in AT_THE_TOP)
]


def methods(cls):
    """The public methods that tenure itself defines, with their qualified names."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if isinstance(method, classmethod | staticmethod):
            method = method.__func__
        own = inspect.isfunction(method) and method.__module__.startswith("tenure")
        # What a test shows is said by its name.
        if own and not name.startswith(("_", "test_")):
            yield f"{cls.__name__}.{name}", inspect.getdoc(getattr(cls, name)) or ""


def faults(value):
    """What the docstrings of a public class or function lack."""
    found = []
    doc = value.__doc__ or ""
    if not doc:
        found.append(f"{value.__name__} has no docstring")
    if inspect.isclass(value):
        found += [f"{name} has no docstring" for name, text in methods(value) if not text]
    return found


def long(value):
    """The docstrings of a public class or function, its methods included, that are too long to be read at a glance."""
    described = [(value.__name__, inspect.getdoc(value) or "")]
    described += methods(value) if inspect.isclass(value) else []
    return [f"{name}: {len(text)} characters" for name, text in described if len(text) > LONGEST]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_a_room_says_what_it_exports(room):
    assert (room.__doc__ or "").strip(), "no docstring"
    assert isinstance(getattr(room, "__all__", None), tuple), "__all__ is a tuple"
    assert len(set(room.__all__)) == len(room.__all__)
    assert [name for name in room.__all__ if not hasattr(room, name)] == []


def test_every_name_has_one_home():
    homes = {}
    for name, value in THINGS:
        homes.setdefault(value, []).append(name)
    assert [names for names in homes.values() if len(names) > 1] == []


def test_each_thing_is_known_by_its_home():
    known = {name: f"{value.__module__}.{value.__name__}" for name, value in THINGS}
    assert {name: home for name, home in known.items() if name != home} == {}


def test_all_of_shared_stands_at_the_top_or_is_a_type():
    assert set(tenure.shared.__all__) <= {*tenure.__all__, *tenure.types.__all__}
    assert len(tenure.__all__) <= 50


def test_each_thing_is_described():
    assert [fault for _, value in THINGS for fault in faults(value)] == []


def test_no_docstring_is_long():
    # `engine` is for authors of engines: its docstrings are the contract
    assert [
        text for name, value in THINGS if not name.startswith("tenure.engine.") for text in long(value)
    ] == []


# ----------------------------------------------------------------------------------- the tests above, tested themselves


class Planted:
    """Has a docstring."""

    async def silent(self): ...

    def plain(self) -> int:
        """Does not wait."""

    @property
    def value(self) -> int:
        """A property."""

    async def _private(self): ...


def planted(): ...


def test_planted_faults_are_seen():
    Planted.__module__ = "tenure.planted"
    for name in ("silent", "plain", "_private"):
        getattr(Planted, name).__module__ = "tenure.planted"
    assert faults(Planted) == ["Planted.silent has no docstring"]
    assert faults(planted) == ["planted has no docstring"]


def test_a_long_docstring_is_seen(monkeypatch):
    monkeypatch.setattr(planted, "__doc__", "x" * (LONGEST + 1))
    monkeypatch.setattr(Planted.silent, "__doc__", "x" * (LONGEST + 1))
    monkeypatch.setattr(Planted.silent, "__module__", "tenure.planted")
    assert long(planted) == ["planted: 1201 characters"]
    assert long(Planted) == ["Planted.silent: 1201 characters"]
    monkeypatch.setattr(planted, "__doc__", "x" * LONGEST)
    assert long(planted) == []
