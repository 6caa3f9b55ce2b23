from __future__ import annotations

import sqlite3

import pytest

from tenure.sql._refusal import collides, has_code, is_transient, violated


class Coded(Exception):
    def __init__(self, **codes):
        super().__init__("in any language")
        vars(self).update(codes)


def wrapped(error):
    outer = Exception("SQLAlchemy's")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("codes", "collision", "transient"),
    [
        ({"sqlstate": "23505"}, True, False),
        ({"pgcode": "23505"}, True, False),
        ({"sqlstate": "23P01"}, True, False),
        ({"sqlstate": "23503"}, False, False),
        ({"sqlstate": "40001"}, False, True),
        ({"sqlstate": "40P01"}, False, True),
        ({"sqlite_errorcode": sqlite3.SQLITE_CONSTRAINT_UNIQUE}, True, False),
        ({"sqlite_errorcode": sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}, True, False),
        ({"sqlite_errorcode": sqlite3.SQLITE_CONSTRAINT_NOTNULL}, False, False),
        ({"sqlite_errorcode": sqlite3.SQLITE_BUSY}, False, True),
        ({"sqlite_errorcode": sqlite3.SQLITE_BUSY_SNAPSHOT}, False, True),
        ({}, True, False),
    ],
)
def test_a_refusal_is_recognised_by_its_code(codes, collision, transient):
    error = wrapped(wrapped(Coded(**codes)))
    assert (collides(error), is_transient(error), has_code(error)) == (collision, transient, bool(codes))


def test_the_violated_constraint_is_named_by_each_driver():
    names = {"schema_name": "public", "table_name": "account", "constraint_name": "account_email_key"}
    assert violated(wrapped(Coded(**names))) == tuple(names.values())
    assert violated(wrapped(Coded(diag=Coded(**names)))) == tuple(names.values())
    assert violated(wrapped(Coded(diag=Coded(**{**names, "table_name": None})))) is None
