"""When a schedule is due: the same moments however one asks, around the changes of summer time above all."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, strategies as st

from tenure.shared.queue._ticks import Cron, ticks

CHANGES = (
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("America/Santiago", "2026-09-06"),  # a midnight that does not exist
    ("America/Santiago", "2026-04-04"),
    ("America/Havana", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-10-04"),  # by half an hour
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Pacific/Chatham", "2026-09-27"),  # at 2:45
    ("Pacific/Chatham", "2026-04-05"),
    ("Antarctica/Troll", "2026-03-29"),  # by two hours
    ("Antarctica/Troll", "2026-10-25"),
    ("Pacific/Easter", "2026-04-04"),
    ("America/St_Johns", "2006-10-29"),  # from 00:01 back to 23:01
    ("America/St_Johns", "2010-03-14"),
    ("America/St_Johns", "2010-11-07"),
    ("America/Moncton", "2006-10-29"),
    ("America/Goose_Bay", "2010-11-07"),
    ("Asia/Kathmandu", "1986-01-01"),  # a quarter of an hour, for good
    ("Pacific/Apia", "2011-12-30"),  # a day that does not exist
    ("Pacific/Kwajalein", "1993-08-21"),  # another
    ("Pacific/Kwajalein", "1969-09-30"),  # a day that comes twice
)
"""Zones, and days on which their clocks change."""

EXPRESSIONS = (
    *(
        "* * * * *",
        "*/7 * * * *",
        "30 * * * *",
        "0 */2 * * *",
        "0 */6 * * *",
        "29-45 */3 * * *",
        "*/20 1,6 * * *",
    ),
    *("* 3 * * *", "* 1,4 * * *", "*/10 2 * * 0", "30 2 * * *", "0,15,30,45 2 * * *", "30 1,2,3 * * *"),
    *(
        "0 0 * * *",
        "1 0 * * *",
        "59 23 * * 6",
        "15 0-4 * * *",
        "0 12 1 * *",
        "0 0-23/3 */2 * 0",
        "45 3 1-7 * 0,1",
    ),
)


def at(zone, text, fold=0):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def said(zone, moments):
    return [datetime.fromtimestamp(one, ZoneInfo(zone)).strftime("%d %H:%M %z") for one in moments]


def between(of, begin, end):
    """All that come after the beginning, until the end."""
    return list(takewhile(lambda tick: tick <= end, of.after(begin)))


class Model:
    """Debian's cron, a minute at a time: what it would start, and when."""

    def __init__(self, zone, begin, end):
        zone = ZoneInfo(zone)
        self.minutes = [
            (moment, datetime.fromtimestamp(moment, zone).replace(tzinfo=None))
            for moment in range(int(begin) // 60 * 60, int(end) + 1, 60)
        ]

    def ticks(self, expression):
        minute, hour, day, month, weekday = expression.split()
        numbers = [
            self.numbers(field, first, last)
            for field, first, last in (
                *((minute, 0, 59), (hour, 0, 23), (day, 1, 31), (month, 1, 12), (weekday, 0, 7)),
            )
        ]
        both = all if "*" in (day[0], weekday[0]) else any
        wildcard = "*" in (minute[0], hour[0])

        def matches(wall):
            days = (wall.day in numbers[2], bool({wall.isoweekday(), wall.isoweekday() % 7} & numbers[4]))
            return (
                wall.minute in numbers[0]
                and wall.hour in numbers[1]
                and wall.month in numbers[3]
                and both(days)
            )

        step = timedelta(minutes=1)
        reached = self.minutes[0][1]
        for moment, wall in self.minutes[1:]:
            if wildcard:
                due = matches(wall)
            else:  # each minute of the clock once: those that it leaves out right after them
                due = False
                while reached < wall:
                    reached += step
                    due = due or matches(reached)
            if due:
                yield moment

    def numbers(self, field, first, last):
        found = set()
        for term in field.split(","):
            span, _, step = term.partition("/")
            low, _, high = (f"{first}-{last}" if span == "*" else span).partition("-")
            found.update(range(int(low), int(high or low) + 1, int(step or 1)))
        return found


def check_against_model(zone, begin, end, expressions=EXPRESSIONS):
    model = Model(zone, begin, end)
    for expression in expressions:
        expected = list(model.ticks(expression))
        assert between(ticks(None, expression, zone), begin, end) == expected, (zone, begin, expression)


@pytest.mark.parametrize(("zone", "day"), CHANGES, ids=lambda text: text.replace("/", "-"))
def test_the_ticks_around_a_change_are_those_of_debians_cron(zone, day):
    noon = at(zone, f"{day}T12:00")
    check_against_model(zone, noon - 30 * 3600, noon + 30 * 3600)


def changes(zone, year):
    """The days, as moments, in which the clocks of a zone change, and by how much."""
    of = ZoneInfo(zone)
    begin = int(datetime(year, 1, 1, tzinfo=ZoneInfo("UTC")).timestamp())
    offsets = [
        (day, datetime.fromtimestamp(day, of).utcoffset()) for day in range(begin, begin + 367 * 86400, 86400)
    ]
    return tuple((day, before, after) for (day, before), (_, after) in pairwise(offsets) if before != after)


@pytest.mark.full
@pytest.mark.parametrize("year", range(2026, 2031))
def test_the_ticks_around_the_changes_of_a_fifth_of_the_zones_are_those_of_debians_cron(year):
    zones = {changes(zone, year): zone for zone in sorted(available_timezones())}
    assert len(zones) > 20
    for days, zone in list(zones.items())[year % 5 :: 5]:
        for day, _, _ in days:
            check_against_model(zone, day - 86400, day + 2 * 86400)


moments_near_a_change = st.builds(
    lambda change, offset: (change[0], at(change[0], f"{change[1]}T02:00") + offset),
    st.sampled_from(CHANGES),
    st.floats(-1.5 * 86400, 1.5 * 86400),
)


@given(moments_near_a_change, st.sampled_from(EXPRESSIONS))
@example(("Europe/Berlin", at("Europe/Berlin", "2026-03-29T03:00")), "0,15,30,45 2 * * *")
@example(("Europe/Berlin", at("Europe/Berlin", "2026-10-25T02:30", fold=1)), "30 2 * * *")
@example(("Pacific/Chatham", at("Pacific/Chatham", "2026-04-05T03:44")), "* 3 * * *")
def test_the_last_tick_is_the_one_before_the_next(near, expression):
    zone, moment = near
    of = ticks(None, expression, zone)
    last = of.last(moment)
    assert last <= moment < next(of.after(moment))
    assert of.last(last) == last
    assert next(of.after(last)) == next(of.after(moment))
    assert of.last(next(of.after(moment))) == next(of.after(moment))


@given(
    st.sampled_from(CHANGES),
    st.sampled_from(EXPRESSIONS),
    st.lists(st.floats(-86400, 86400), min_size=1, max_size=3),
)
def test_the_moments_are_the_same_from_wherever_one_begins(change, expression, offsets):
    zone, day = change
    change = at(zone, f"{day}T02:00")
    of = ticks(None, expression, zone)
    begin, end = change - 86400, change + 86400
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


def test_seconds_come_first():
    of = ticks(None, "*/20 59 1-3 * * *", "Europe/Berlin")
    spring = between(of, at("Europe/Berlin", "2026-03-29T00:00"), at("Europe/Berlin", "2026-03-30T00:00"))
    assert [tick - spring[0] for tick in spring] == [0, 20, 40, 60, 3600, 3620, 3640], (
        "2:59 comes once, at 3:00"
    )
    autumn = between(of, at("Europe/Berlin", "2026-10-25T02:00"), at("Europe/Berlin", "2026-10-25T04:00"))
    assert [tick - autumn[0] for tick in autumn] == [0, 20, 40, 7200, 7220, 7240]
    each = ticks(None, "5 */30 * * * *", "Europe/Berlin")
    autumn = between(each, at("Europe/Berlin", "2026-10-25T02:00"), at("Europe/Berlin", "2026-10-25T03:00"))
    assert said("Europe/Berlin", autumn) == [f"25 02:{n} +0{h}00" for h in (2, 1) for n in ("00", "30")]
    assert {tick % 60 for tick in autumn} == {5}


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @Annually ", "0 0 1 1 *"),
    ],
)
def test_a_name_stands_for_an_expression(name, expression):
    of, spelled = (ticks(None, cron, "America/Havana") for cron in (name, expression))
    assert list(islice(of.after(1.78e9), 50)) == list(islice(spelled.after(1.78e9), 50))
    assert of.described() == {"cron": name}


@pytest.mark.parametrize(
    ("expression", "day"),
    [
        ("* * * * 1-11 *", "2026-12-30"),  # a million seconds before the last one
        ("* * 29 2 */7", "2026-12-30"),  # a wildcard, every 28 years
        ("0 0 29 2 */7", "2099-12-30"),  # every 40 years
        ("* 2 */1 3 SUN#2", "2026-12-30"),  # in a gap in most zones, on that day
        ("0-59 0-59 0-23 * * *", "2011-12-29"),  # 86,400 times that a zone leaves out
    ],
)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia"])
def test_no_expression_takes_many_steps(expression, day, zone, monkeypatch):
    of = ticks(None, expression, zone)
    steps = []
    match = Cron._match
    monkeypatch.setattr(Cron, "_match", lambda self, wall: steps.append(wall) or match(self, wall))
    moment = at(zone, f"{day}T23:59:59")
    assert of.last(moment) <= moment < next(of.after(moment))
    assert len(steps) < 1000


@given(st.lists(st.text("0123456789*/,-#LWSUNMON ", max_size=8), min_size=5, max_size=6).map(" ".join))
@example("0 0 L/2,5/3 * 5L")
@example("0 0 * * \u00b2L")
@example("0 0 5-1 * *")
def test_any_text_is_an_expression_or_a_value_error(expression):
    with suppress(ValueError):
        of = ticks(None, expression, "Pacific/Chatham")
        moment = 1.8e9
        assert of.last(moment) <= moment < next(of.after(moment))


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
        (None, "* * * *", "UTC", ValueError, "five fields .*, or six .*@hourly, @daily.*: '[* ]*'$"),
        (None, "* * * * * * *", "UTC", ValueError, "five fields"),
        (None, "@reboot", "UTC", ValueError, "five fields"),
        (None, "61 * * * *", "UTC", ValueError, "cron must have 0 to 59 as its minute: '61"),
        (None, "x * * * * *", "UTC", ValueError, "cron must have 0 to 59 as its second: 'x"),
        (None, "* 24 * * *", "UTC", ValueError, "cron must have 0 to 23 as its hour"),
        (
            None,
            "0 0 12 ? * 6L",
            "UTC",
            ValueError,
            "cron must have \\* in place of \\?, and days of the week from 0",
        ),
        (
            None,
            "CRON_TZ=Europe/Berlin 0 6 * * *",
            "UTC",
            ValueError,
            "cron must have no time zone; give it as tz",
        ),
        (None, "cron(0 12 * * ? *)", "UTC", ValueError, "cron must have \\* in place of"),
        (None, "cron(0 12 * * *)", "UTC", ValueError, "cron must have five fields without cron"),
        (None, "* * 0 * *", "UTC", ValueError, "cron must have 1 to 31, L or LW, .* as its day-of-month"),
        (None, "* * * 13 *", "UTC", ValueError, "cron must have 1 to 12 or JAN to DEC as its month"),
        (None, "* * * * 8", "UTC", ValueError, "cron must have 0 to 7 or SUN to SAT, .* as its day-of-week"),
        (None, "0 0 30 2 *", "UTC", ValueError, "a day that its months have, as its day-of-month"),
        (None, "0 0 */40 * MON#5", "UTC", ValueError, "comes true: .* in UTC"),
        (None, "* 2 */1 3 SUN#2", "America/New_York", ValueError, "comes true: .* in America/New_York"),
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
