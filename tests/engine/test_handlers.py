"""Every operation belongs to one family, and its name is that of the method that applies it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tenure import engine as e
from tenure.engine import OPERATIONS, Operation, handlers

METHODS = """
ping open_session renew_session close_session acquire ask release set_value break_hold resize add_resource
remove_resource claim give_back edit_claim put leave exchange progress get_result set_paused configure move count
put_children set_entry spend refund hold_off scan
"""
ALL = [one for family in OPERATIONS.values() for one in family]


def test_every_operation_belongs_to_one_family():
    exported = {one for one in vars(e).values() if isinstance(one, type) and issubclass(one, Operation)}
    assert set(ALL) == exported - {Operation}
    assert len(ALL) == len(set(ALL))


def test_there_are_few_operations():
    """A new one has a line in the contract on why `Scan`, `Move` or `Exchange` will not do."""
    assert len(ALL) <= 30


def test_an_operation_is_applied_by_the_method_of_its_name():
    families = {family: SimpleNamespace() for family in OPERATIONS}
    with pytest.raises(AttributeError, match="ping"):
        handlers(**families)
    methods = METHODS.split()
    for family in families.values():
        vars(family).update(zip(methods, methods, strict=True))
    assert list(handlers(**families).values()) == methods


def test_a_family_must_not_be_missing():
    with pytest.raises(KeyError, match="holds"):
        handlers(
            sessions=SimpleNamespace(
                **dict.fromkeys(("ping", "open_session", "renew_session", "close_session"), 0)
            )
        )
