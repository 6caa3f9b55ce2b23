"""A process remembers its last hour in little space."""

from __future__ import annotations

import json

from tenure.processor._fleet import Report
from tenure.processor._minutes import Minute, Minutes
from tenure.processor._window import Tally


def tally(done=0, failures=0, took=0.0):
    made = Tally()
    made.seconds = 60.0
    made.counts.update(done=done, failures=failures)
    if done:
        made.sketches["total"].record(took)
    return made


def test_each_minute_is_sampled_once():
    minutes = Minutes()
    for second in range(0, 200, 5):
        kept = minutes.taken(tally(done=second, took=2.0), 1000.0 + second)
    assert [minute.throughput for minute in kept] == [1.0, 2.0, 3.0]
    assert all(1.9 < minute.p99 < 2.1 for minute in kept)


def test_an_hour_is_kept_in_two_kibibytes():
    minutes = Minutes()
    for minute in range(100):
        kept = minutes.taken(tally(done=7_654_321, failures=1_234_567, took=0.00123456), 60.0 * minute)
    assert len(kept) == 60
    assert len(json.dumps(kept, separators=(",", ":"))) <= 2048


def test_in_minutes_that_were_slept_through_nothing_was_done():
    minutes = Minutes()
    minutes.taken(tally(), 0.0)
    kept = minutes.taken(tally(done=60, failures=3), 200.0)
    assert [minute[:2] for minute in kept] == [(0.0, 0.0), (0.0, 0.0), (1.0, 3.0)]


def test_a_report_carries_them():
    minutes = (Minute(1.5, 2.0, 0.25), Minute(0.0, 0.0, 0.0))
    data = json.loads(json.dumps(Report(1, 0, 0.0, tally(), minutes).to_data()))
    assert tuple(Report.from_data(data).minutes) == minutes
