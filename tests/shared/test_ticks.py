"""When a schedule is due: the same moments however one asks, around the changes of summer time above all."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.shared._ticks import ticks

ZONES = {
    "UTC": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "Europe/Berlin": ("2026-03-29T02:00", "2026-10-25T03:00"),
    "America/New_York": ("2026-03-08T02:00", "2026-11-01T02:00"),
    "America/Santiago": ("2026-09-06T00:00", "2026-04-05T00:00"),  # a midnight that does not exist
    "Australia/Lord_Howe": ("2026-10-04T02:00", "2026-04-05T02:00"),  # by half an hour
    "Antarctica/Troll": ("2026-03-29T01:00", "2026-10-25T03:00"),  # by two hours
}
"""Zones, and when their clocks change in spring and in autumn."""

EXPRESSIONS = (
    *("* * * * *", "*/7 * * * *", "30 * * * *", "0 */2 * * *", "30 2 * * *", "0,15,30,45 2 * * *"),
    *("30 1,2,3 * * *", "0 0 * * *", "59 23 * * 6", "15 0-4 * * *", "0 12 1 * *", "*/10 2 * * SUN"),
)


def at(zone, text, fold=0):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def said(zone, moments):
    return [datetime.fromtimestamp(one, ZoneInfo(zone)).strftime("%d %H:%M %z") for one in moments]


def between(of, begin, end):
    """All that come after the beginning, until the end."""
    return list(takewhile(lambda tick: tick <= end, of.after(begin)))


# where time changes by half an hour, what cronsim finds depends on where it begins
@given(
    zone=st.sampled_from(sorted(set(ZONES) - {"Australia/Lord_Howe"})),
    spring=st.booleans(),
    expression=st.sampled_from(EXPRESSIONS),
    offset=st.floats(-1.5 * 86400, 1.5 * 86400),
)
@example("Europe/Berlin", True, "0,15,30,45 2 * * *", 0.0)
@example("Europe/Berlin", False, "30 2 * * *", 1800.0)
def test_the_last_tick_is_the_one_before_the_next(zone, spring, expression, offset):
    of = ticks(None, expression, zone)
    moment = at(zone, ZONES[zone][not spring]) + offset
    last = of.last(moment)
    assert last <= moment < next(of.after(moment))
    assert of.last(last) == last
    assert next(of.after(last)) == next(of.after(moment))
    assert of.last(next(of.after(moment))) == next(of.after(moment))


@given(
    zone=st.sampled_from(sorted(set(ZONES) - {"Australia/Lord_Howe"})),
    spring=st.booleans(),
    expression=st.sampled_from(EXPRESSIONS),
    offsets=st.lists(st.floats(-86400, 86400), min_size=1, max_size=5),
)
def test_the_moments_are_the_same_from_wherever_one_begins(zone, spring, expression, offsets):
    change = at(zone, ZONES[zone][not spring])
    of = ticks(None, expression, zone)
    begin, end = change - 86400, change + 2 * 86400
    every = between(of, begin, end)
    assert all(a < b for a, b in pairwise(every))
    for offset in offsets:
        assert between(of, change + offset, end) == [one for one in every if one > change + offset]


@given(
    st.floats(0.01, 1e9) | st.sampled_from([0.1, 0.3, 1 / 3, 60, 86400]),
    st.floats(0, 4e9) | st.integers(0, 4 * 10**9).map(float),
)
def test_multiples_are_in_order_and_none_is_missing(seconds, moment):
    of = ticks(seconds, None, "UTC")
    last = of.last(moment)
    coming = list(islice(of.after(moment), 3))
    assert last <= moment < coming[0] < coming[1] < coming[2]
    assert list(islice(of.after(last), 3)) == coming
    assert [of.last(one) for one in (last, *coming)] == [last, *coming]
    assert coming[0] - last == pytest.approx(seconds, abs=1e-6)


def test_a_tick_is_not_left_out_because_of_a_moment_just_before_it():
    tick = at("UTC", "2026-01-01T00:00")
    moment = tick - 2.4e-7
    assert moment < tick
    assert next(ticks(None, "0 0 * * *", "UTC").after(moment)) == tick


def test_a_fixed_time_that_is_left_out_comes_after_the_gap():
    of = ticks(None, "30 2 * * *", "Europe/Berlin")
    days = between(of, at("Europe/Berlin", "2026-03-28T00:00"), at("Europe/Berlin", "2026-03-31T00:00"))
    assert said("Europe/Berlin", days) == ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]


def test_several_fixed_times_that_are_left_out_come_once():
    of = ticks(None, "0,20,40 2,3 * * *", "Europe/Berlin")
    day = between(of, at("Europe/Berlin", "2026-03-29T00:00"), at("Europe/Berlin", "2026-03-30T00:00"))
    assert said("Europe/Berlin", day) == ["29 03:00 +0200", "29 03:20 +0200", "29 03:40 +0200"]


def test_a_fixed_time_that_comes_twice_counts_once():
    of = ticks(None, "30 2 * * *", "Europe/Berlin")
    days = between(of, at("Europe/Berlin", "2026-10-24T00:00"), at("Europe/Berlin", "2026-10-27T00:00"))
    assert said("Europe/Berlin", days) == ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]


def test_a_year_has_each_of_its_days():
    of = ticks(None, "30 2 * * *", "Europe/Berlin")
    year = between(of, at("Europe/Berlin", "2026-01-01T00:00"), at("Europe/Berlin", "2027-01-01T00:00"))
    first = datetime(2026, 1, 1, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    wanted = [first + timedelta(days=n) for n in range(365)]
    change = wanted.index(datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
    wanted[change] += timedelta(minutes=30)
    assert year == [day.timestamp() for day in wanted]


def test_what_comes_every_hour_comes_in_every_hour_there_is():
    of = ticks(None, "30 * * * *", "Europe/Berlin")
    spring = between(of, at("Europe/Berlin", "2026-03-29T01:00"), at("Europe/Berlin", "2026-03-29T04:00"))
    assert said("Europe/Berlin", spring) == ["29 01:30 +0100", "29 03:30 +0200"]
    autumn = between(of, at("Europe/Berlin", "2026-10-25T02:00"), at("Europe/Berlin", "2026-10-25T04:00"))
    assert said("Europe/Berlin", autumn) == ["25 02:30 +0200", "25 02:30 +0100", "25 03:30 +0100"]


def test_a_rare_day_is_found_in_both_directions():
    of = ticks(None, "0 0 29 2 */7", "UTC")  # a 29th of February that is a Sunday
    moment = at("UTC", "2026-06-01T00:00")
    assert said("UTC", [of.last(moment), next(of.after(moment))]) == ["29 00:00 +0000"] * 2
    assert datetime.fromtimestamp(of.last(moment), ZoneInfo("UTC")).year == 2004
    assert timedelta(seconds=next(of.after(moment)) - of.last(moment)).days == 28 * 365 + 7


@pytest.mark.parametrize(
    ("every", "cron", "tz", "error", "words"),
    [
        (None, None, "UTC", TypeError, "every or cron"),
        (1, "* * * * *", "UTC", TypeError, "every or cron"),
        (0.001, None, "UTC", ValueError, "every must be at least 0.01 seconds"),
        (float("nan"), None, "UTC", ValueError, "every"),
        (float("inf"), None, "UTC", ValueError, "every"),
        ("60", None, "UTC", TypeError, "every must be a number"),
        (True, None, "UTC", TypeError, "every must be a number"),
        (None, 5, "UTC", TypeError, "cron must be a str"),
        (None, "", "UTC", ValueError, "cron must not be empty"),
        (None, "@daily", "UTC", ValueError, "five fields, not 1"),
        (None, "0 * * * * *", "UTC", ValueError, "five fields, not 6"),
        (None, "61 * * * *", "UTC", ValueError, "cron must be .*minute"),
        (None, "0 0 30 2 *", "UTC", ValueError, "cron must be .*day"),
        (None, "0 0 */40 * MON#5", "UTC", ValueError, "comes true"),
        (None, "* * * * *" + " " * 300, "UTC", ValueError, "cron must have at most"),
        (1, None, "Europe/Nowhere", ValueError, "tz must be the name"),
        (1, None, "Europe", ValueError, "tz must be the name"),
        (1, None, "../etc/passwd", ValueError, "tz must be the name"),
        (1, None, "/etc/passwd", ValueError, "tz must be the name"),
        (1, None, "a\0b", ValueError, "tz must be the name"),
        (1, None, "", ValueError, "tz must not be empty"),
        (1, None, ZoneInfo("UTC"), TypeError, "tz must be a str"),
    ],
)
def test_wrong_arguments_are_named(every, cron, tz, error, words):
    with pytest.raises(error, match=words):
        ticks(every, cron, tz)
