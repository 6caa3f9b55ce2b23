from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import Discard, Retry, RetryLater

SECONDS = st.floats(0, 1e6)


@given(
    backoff=SECONDS,
    factor=st.floats(1, 1e3),
    most=SECONDS,
    jitter=st.floats(0, 1),
    failures=st.integers(1, 100_000),
)
def test_the_rest_lies_within_its_bounds(backoff, factor, most, jitter, failures):
    try:
        full = min(most, backoff * factor ** (failures - 1))
    except OverflowError:
        full = most
    rest = Retry(backoff=backoff, factor=factor, max_backoff=most, jitter=jitter).delay(failures)
    assert full * (1 - jitter) * (1 - 1e-9) <= rest <= full


def test_without_jitter_it_doubles_up_to_the_most():
    retry = Retry(backoff=1, factor=2, max_backoff=10, jitter=0)
    assert [retry.delay(k) for k in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_spreads():
    retry = Retry(backoff=1, jitter=0.5)
    rests = [retry.delay(1) for _ in range(200)]
    assert len(set(rests)) > 190
    assert 0.5 <= min(rests) < 0.6
    assert 0.9 < max(rests) <= 1


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"backoff": -1},
        {"backoff": inf},
        {"backoff": nan},
        {"factor": 0.5},
        {"factor": nan},
        {"max_backoff": -1},
        {"max_backoff": inf},
        {"jitter": 1.1},
        {"jitter": -0.1},
        {"jitter": nan},
    ],
)
def test_wrong_options_are_refused_by_name(options):
    with pytest.raises((ValueError, TypeError), match=f"^{next(iter(options))} must be"):
        Retry(**options)


@pytest.mark.parametrize("delay", [-1, inf, nan])
def test_a_wrong_delay_is_refused(delay):
    with pytest.raises(ValueError, match="delay"):
        RetryLater(delay)


def test_what_they_say():
    assert str(RetryLater(5)) == "try again in 5 s"
    assert str(RetryLater(5, "busy")) == "busy"
    assert Discard("spam").reason == "spam"
    assert Discard(ValueError("odd")).reason == "odd"
