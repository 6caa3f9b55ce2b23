"""Outcomes that are shared: the same for all, and no traceback that grows."""

import traceback

import pytest

from tenure.local._outcome import Failed, Returned


def fail():
    raise KeyError("no such")


def failed():
    try:
        fail()
    except KeyError as error:
        return Failed(error)


def ask(outcome):
    with pytest.raises(KeyError) as caught:
        outcome.result()
    return caught.value


def test_what_was_returned_is_returned_to_each():
    outcome = Returned(value := [])
    assert outcome.result() is outcome.result() is value


def test_what_was_raised_is_raised_for_each_with_the_traceback_of_the_call_and_its_own():
    outcome = failed()
    first = ask(outcome)
    names = [frame.name for frame in traceback.extract_tb(first.__traceback__)]
    assert ask(outcome) is first
    again = [frame.name for frame in traceback.extract_tb(first.__traceback__)]
    assert names == again == ["ask", "result", "fail"]
