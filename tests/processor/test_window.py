"""What happened in the last minute, and how much of something there was on the mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.processor._window import Tally, Window


def test_what_is_older_than_the_window_is_forgotten_slice_by_slice():
    window = Window(100.0, seconds=60, slices=12)
    for second in range(100):
        window.count("n", 100.0 + second)
    tally = window.tally(199.9)
    assert tally.totals["n"] == 100
    assert tally.seconds == pytest.approx(59.9) and tally.counts["n"] == 60
    assert window.tally(230).counts["n"] == 25
    assert window.tally(1000).counts["n"] == 0
    assert 55 <= window.tally(1000).seconds <= 60


def test_a_young_window_is_as_long_as_it_is_old():
    window = Window(0.0)
    window.count("n", 0.5)
    assert window.tally(0.0).seconds == 0
    assert window.tally(2.0).seconds == 2


def test_a_level_that_does_not_change_has_its_mean_all_the_same():
    window = Window(0.0)
    window.change("busy", 3, 0.0)
    assert window.tally(0.0).mean("busy") == 0
    for now in (1, 7, 59, 60, 61, 1000, 1e6):
        assert window.tally(now).mean("busy") == pytest.approx(3)
    assert window.levels["busy"] == 3 and window.levels["other"] == 0


def test_a_mean_forgets_what_is_older_than_the_window():
    window = Window(0.0)
    window.change("busy", 10, 0.0)
    window.change("busy", -10, 100.0)
    assert window.tally(100.0).mean("busy") == pytest.approx(10)
    assert window.tally(130.0).mean("busy") == pytest.approx(10 * 25 / 55)
    assert window.tally(200.0).mean("busy") == 0


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 9)), min_size=1))
def test_the_mean_is_arrivals_times_stay(stays):
    """Little's law, over stays that begin and end within the window."""
    window = Window(0.0, seconds=60, slices=12)
    changes = sorted([(at, 1) for at, _ in stays] + [(at + length, -1) for at, length in stays])
    for now, by in changes:
        window.change("busy", by, now)
    tally = window.tally(59.99)
    arrivals, stay = len(stays) / tally.seconds, sum(length for _, length in stays) / len(stays)
    assert tally.mean("busy") == pytest.approx(arrivals * stay)


def test_tallies_add_up():
    windows = [Window(0.0), Window(0.0)]
    for n, window in enumerate(windows, 1):
        window.count("n", 1.0)
        window.record("s", float(n), 1.0)
        window.change("busy", n, 0.0)
    whole = Tally()
    for window in windows:
        whole.add(window.tally(10.0))
    assert (whole.counts["n"], whole.totals["n"], whole.seconds) == (2, 2, 10)
    assert whole.mean("busy") == pytest.approx(3)
    assert whole.sketches["s"].count == 2 and whole.sketches["s"].total == 3
