"""Values of the contract: what they share besides their fields."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from enum import Enum

import pytest

from tenure import engine as e
from tenure.engine import NAMES, Ask, Granted, NewTask, Release, Scan

NO_MESSAGES = {e.Batches, e.Engine, e.Enlisted, e.Index, e.Limiter, e.Operation, e.Remote}
"""The classes of the contract that do not travel: interfaces, and what an engine is made of."""


def test_every_message_is_a_value():
    """Operations, their parts, answers and rows of pages are one kind of class: no named tuple, no other dataclass."""
    classes = {one for one in map(vars(e).get, e.__all__) if isinstance(one, type)}
    values = {one for one in classes if vars(one).get("__eq__") is vars(Granted)["__eq__"]}
    assert {one for one in classes - values if not issubclass(one, Enum | Exception)} == NO_MESSAGES


@pytest.mark.parametrize("use", [iter, len, lambda made: made[0]])
def test_a_value_is_no_tuple(use):
    with pytest.raises(TypeError):
        use(NewTask(b"payload"))


def test_values_are_equal_if_class_and_fields_are():
    assert Release("key", "holder") == Release("key", "holder")
    assert Release("key", "holder") != Release("key", "other")
    assert Granted(1) != (1,)
    assert Granted(1).__eq__(1) is NotImplemented
    assert len({Release("key", "holder"), Release("key", "holder"), Release("key", "other")}) == 2


def test_a_value_shows_its_fields():
    assert repr(Granted(token=7)) == "Granted(token=7)"
    assert (
        repr(Scan(NAMES["holds"]))
        == "Scan(index=<Index holds>, key='', after='', limit=256, only='', watch='')"
    )


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))]
)
def test_a_value_can_be_copied(duplicate):
    ask = Ask("session", "key", ("a", "b"))
    assert duplicate(ask) == ask


def test_a_copy_may_have_other_fields():
    assert replace(Granted(1), token=2) == Granted(2)


def test_a_value_has_slots_and_patterns():
    assert not hasattr(Granted(1), "__dict__")
    match Release("key", "holder"):
        case Release(key, holder):
            assert (key, holder) == ("key", "holder")
