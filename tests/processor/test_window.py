"""What happened in the last minute, and how much of something there was on the mean."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tenure.processor._window import Tally, Window


class Timed(Window):
    """A window whose time is told."""

    def __init__(self, born, **options):
        self.to(born)
        super().__init__(clock=lambda: self.time, **options)
        self.at(born)

    def to(self, time):
        self.time = time
        return self


def test_what_is_older_than_the_window_is_forgotten_slice_by_slice():
    window = Timed(100.0, seconds=60, slices=12)
    for second in range(100):
        window.to(100.0 + second).count("n")
    tally = window.tally(199.9)
    assert tally.totals["n"] == 100
    assert tally.seconds == pytest.approx(59.9) and tally.counts["n"] == 60
    assert window.tally(230).counts["n"] == 25
    assert window.tally(1000).counts["n"] == 0
    assert 55 <= window.tally(1000).seconds <= 60


def test_a_young_window_is_as_long_as_it_is_old():
    window = Timed(0.0)
    window.to(0.5).count("n")
    assert window.tally(0.0).seconds == 0
    assert window.tally(2.0).seconds == 2


def test_a_level_that_does_not_change_has_its_mean_all_the_same():
    window = Timed(0.0)
    window.to(0.0).change("busy", 3)
    assert window.tally(0.0).mean("busy") == 0
    for now in (1, 7, 59, 60, 61, 1000, 1e6):
        assert window.tally(now).mean("busy") == pytest.approx(3)
    assert window.levels["busy"] == 3 and window.levels["other"] == 0


def test_a_mean_forgets_what_is_older_than_the_window():
    window = Timed(0.0)
    window.to(0.0).change("busy", 10)
    window.to(100.0).change("busy", -10)
    assert window.tally(100.0).mean("busy") == pytest.approx(10)
    assert window.tally(130.0).mean("busy") == pytest.approx(10 * 25 / 55)
    assert window.tally(200.0).mean("busy") == 0


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 9)), min_size=1))
def test_the_mean_is_arrivals_times_stay(stays):
    """Little's law, over stays that begin and end within the window."""
    window = Timed(0.0, seconds=60, slices=12)
    changes = sorted([(at, 1) for at, _ in stays] + [(at + length, -1) for at, length in stays])
    for now, by in changes:
        window.to(now).change("busy", by)
    tally = window.tally(59.99)
    arrivals, stay = len(stays) / tally.seconds, sum(length for _, length in stays) / len(stays)
    assert tally.mean("busy") == pytest.approx(arrivals * stay)


def test_tallies_add_up():
    windows = [Timed(0.0), Timed(0.0)]
    for n, window in enumerate(windows, 1):
        window.to(1.0).count("n")
        window.to(1.0).record("s", float(n))
        window.to(0.0).change("busy", n)
    whole = Tally()
    for window in windows:
        whole.add(window.tally(10.0))
    assert (whole.counts["n"], whole.totals["n"], whole.seconds) == (2, 2, 10)
    assert whole.mean("busy") == pytest.approx(3)
    assert whole.sketches["s"].count == 2 and whole.sketches["s"].total == 3
