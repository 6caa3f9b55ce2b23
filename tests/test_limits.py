"""Limits, and what costs mean for them."""

from __future__ import annotations

import copy
import pickle
from math import inf, nan

import pytest

from tenure import Limit
from tenure.limits import Available, Limits, Spending

LLM = Limits([Limit(60, per=60), Limit(1000, per=3600), Limit(90_000, per=60, unit="tokens")])
TOKENS = Limits([Limit(90_000, per=60, unit="tokens")])
BYTES = Limits([Limit(10, unit="tokens"), Limit(5, unit="bytes")])


def test_a_number_is_of_the_usual_unit():
    assert LLM.costs(2) == {"requests": 2, "tokens": 0}
    assert TOKENS.costs(800) == {"tokens": 800}
    with pytest.raises(ValueError, match="cost must name its units: there is no limit of 'requests'"):
        BYTES.costs(1)
    assert BYTES.costs({}) == {"tokens": 0, "bytes": 0}


def test_a_call_is_one_request_unless_it_says_otherwise():
    assert LLM.costs({"tokens": 800}) == {"requests": 1, "tokens": 800}
    assert LLM.costs({"requests": 0}) == {"requests": 0, "tokens": 0}
    assert TOKENS.costs({"tokens": 800}) == {"tokens": 800}


@pytest.mark.parametrize(
    ("cost", "error", "says"),
    [
        (61, ValueError, "cost must be at most the burst of 60 requests, not 61"),
        ({"tokens": 90_001}, ValueError, "burst of 90000 tokens"),
        ({"token": 1}, ValueError, "cost has the unit 'token', for which there is no limit"),
        (0, ValueError, "cost must be above 0"),
        (-1, ValueError, "cost must be above 0"),
        (nan, ValueError, "cost must be above 0"),
        (True, TypeError, "cost must be a number, not bool"),
        ("1", TypeError, "cost must be a number, not str"),
        ({"tokens": -1}, ValueError, "cost of 'tokens' must be at least 0"),
        ({"tokens": nan}, ValueError, "cost of 'tokens' must be at least 0"),
        ({"tokens": True}, TypeError, "cost of 'tokens' must be a number, not bool"),
        ({1: 1}, ValueError, "cost has the unit 1"),
    ],
)
def test_odd_costs_are_refused(cost, error, says):
    with pytest.raises(error, match=says):
        LLM.costs(cost)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"rate": 0}, ValueError, "rate must be above 0"),
        ({"rate": inf}, ValueError, "rate must be at most 1e"),
        ({"rate": True}, TypeError, "rate must be a number"),
        ({"rate": 1, "per": 0}, ValueError, "per must be above 0"),
        ({"rate": 1, "burst": 0.5}, ValueError, "burst must be at least 1"),
        ({"rate": 1, "unit": ""}, ValueError, "unit must not be empty"),
        ({"rate": 1, "unit": 5}, TypeError, "unit must be a str"),
        ({"rate": 1e-9, "burst": 1e9}, ValueError, "bring the burst"),
    ],
)
def test_odd_limits_are_refused(options, error, says):
    with pytest.raises(error, match=says):
        Limit(**options)


def test_limits_are_told_apart_by_unit_and_time():
    Limits([Limit(60, per=60), Limit(1000, per=3600)])
    with pytest.raises(ValueError, match="limits must not have two of 'requests' per 1 s"):
        Limits([Limit(1), Limit(2, unit="requests")])
    with pytest.raises(ValueError, match="limits must not have two of 'requests' per 60 s"):
        Limits([Limit(60, per=60), Limit(50, per=60.0, burst=1)])
    with pytest.raises(TypeError, match=r"must have a limit: write Limit\(100\)"):
        Limits([])
    with pytest.raises(TypeError, match=r"limits must be of tenure\.Limit, not int"):
        Limits([60])


def test_a_state():
    state = LLM.state((10.0, 999.5, 0.0), 0.0)
    assert state.available == 0.5
    assert state.available["tokens"] == 90_000
    assert state.retry_after == pytest.approx(0.5 * 3.6)
    assert LLM.state((0.0, 0.0, 90_000.0), 0.0).retry_after == 0
    held = LLM.state((0.0, 0.0, 0.0), 2.0)
    assert (held.available, held.available["tokens"], held.retry_after, held.held_off) == (0, 0, 2, 2)
    assert BYTES.state((0.0, 7.0), 0.0).available == 0
    assert BYTES.state((0.0, 7.0), 0.0).retry_after == pytest.approx(2 / 5)


def test_available_is_a_number():
    available = Available(3.5, {"requests": 3.5, "tokens": 7.0})
    assert available + 1 == 4.5
    for same in (copy.copy(available), pickle.loads(pickle.dumps(available))):
        assert (same, same["tokens"]) == (3.5, 7.0)
    with pytest.raises(KeyError, match="bytes"):
        available["bytes"]
    assert repr(available) == "Available(3.5, {'requests': 3.5, 'tokens': 7.0})"


def test_of_several_corrections_the_last_one_counts():
    def back(*costs):
        spending = Spending(LLM, LLM.costs({"tokens": 800}))
        for cost in costs:
            spending.correct(cost)
        return spending.ended()

    assert back() == ()
    assert back({"tokens": 655}) == (0, 0, 145)
    assert back({"tokens": 655}, {"tokens": 900, "requests": 0}) == (1, 1, -100)
    assert back({"tokens": 900}, {"requests": 3}) == (-2, -2, 0)
    assert back({"tokens": 900}, 1) == ()
    with pytest.raises(ValueError, match="no limit"):
        back({"bytes": 1})


def test_a_spending_is_not_corrected_after_its_block():
    spending = Spending(LLM, LLM.costs({"tokens": 800}))
    spending.correct({"tokens": 900, "requests": 0})
    assert spending.ended() == (1, 1, -100)
    with pytest.raises(RuntimeError, match="the block of this spending has ended"):
        spending.correct(5)
    assert spending.cost == {"requests": 0, "tokens": 900}
