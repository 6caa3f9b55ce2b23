"""Checked arguments: what is taken, as plain values, and what is refused by name."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from math import inf, nan

import pytest

from tenure import arguments, engine
from tenure.arguments import (
    LONGEST,
    check_count,
    check_name,
    check_number,
    check_seconds,
    check_task_id,
    check_timeout,
)


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    JOBS = "jobs"


class Index:
    """As the integers of numpy: no int, but one that can be used as such."""

    def __index__(self):
        return 3


class Share(float):
    pass


@pytest.mark.parametrize("value", [3, Level.HIGH, Index()])
def test_whole_numbers_become_plain_ones(value):
    for check in (check_count, check_task_id):
        number = check("n", value)
        assert number == 3
        assert type(number) is int


@pytest.mark.parametrize("value", [3, 3.0, Level.HIGH, Share(3), Fraction(3)])
def test_numbers_become_plain_ones(value):
    for check in (check_number, check_seconds, check_timeout):
        number = check("n", value)
        assert number == 3.0
        assert type(number) is float


def test_texts_become_plain_ones():
    assert check_name("name", Word.JOBS) == "jobs"
    assert type(check_name("name", Word.JOBS)) is str


def test_no_limit():
    assert check_timeout("timeout", None) is None


WRONG = [
    (check_count, True, TypeError, "n must be an int, not bool"),
    (check_count, "3", TypeError, "n must be an int, not str"),
    (check_count, 3.0, TypeError, "n must be an int, not float"),
    (check_count, None, TypeError, "n must be an int, not NoneType"),
    (check_count, 0, ValueError, "n must be at least 1, not 0"),
    (check_count, 2**31, ValueError, "n must be at most 2147483647, not 2147483648"),
    (check_task_id, True, TypeError, "n must be an int, not bool"),
    (check_task_id, "1", TypeError, "n must be an int, not str"),
    (check_task_id, 0, ValueError, "n must be the id of a task, above 0 and below 2**63, not 0"),
    (check_task_id, 2**63, ValueError, "n must be the id of a task"),
    (check_number, True, TypeError, "n must be a number, not bool"),
    (check_number, "1", TypeError, "n must be a number, not str"),
    (check_number, Decimal(1), TypeError, "n must be a number, not Decimal"),
    (check_number, 1j, TypeError, "n must be a number, not complex"),
    (check_number, 0, ValueError, "n must be above 0, not 0"),
    (check_number, nan, ValueError, "n must be above 0, not nan"),
    (check_number, inf, ValueError, "n must be at most 1e+12, not inf"),
    (check_number, 10**400, ValueError, "n must be at most 1e+12, not inf"),
    (check_seconds, "1", TypeError, "n must be a number of seconds or a timedelta, not str"),
    (check_seconds, None, TypeError, "n must be a number of seconds or a timedelta, not NoneType"),
    (check_seconds, -1, ValueError, "n must be at least 0 seconds, not -1"),
    (check_seconds, nan, ValueError, "n must be at least 0 seconds, not nan"),
    (check_seconds, inf, ValueError, "n must be at most 1e+09 seconds, not inf"),
    (check_timeout, -1, ValueError, "n must be at least 0 seconds, not -1; None means no limit"),
    (check_timeout, inf, ValueError, "n must be at most 1e+09 seconds, not inf; None means no limit"),
    (
        check_timeout,
        "1",
        TypeError,
        "n must be a number of seconds or a timedelta, not str; None means no limit",
    ),
    (check_name, 5, TypeError, "n must be a str, not int"),
    (check_name, b"a", TypeError, "n must be a str, not bytes"),
    (check_name, "", ValueError, "n must not be empty"),
    (check_name, "a\ud800", ValueError, r"n must not have lone surrogates: 'a\ud800'"),
    (check_name, "é" * 257, ValueError, "n must have at most 512 bytes in UTF-8, not 514: 'éé"),
]


@pytest.mark.parametrize(("check", "value", "error", "message"), WRONG)
def test_what_is_wrong_is_named(check, value, error, message):
    with pytest.raises(error) as caught:
        check("n", value)
    assert str(caught.value).startswith(message)


def test_the_longest_are_taken():
    assert check_seconds("n", LONGEST) == LONGEST == engine.LONGEST
    assert check_name("n", "é" * 256)
    assert check_task_id("n", 2**63 - 1)


def test_every_check_is_exported():
    checks = {name for name in vars(arguments) if name.startswith("check_")}
    assert checks <= set(vars(arguments))
