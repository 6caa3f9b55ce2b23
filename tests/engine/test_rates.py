"""The arithmetic of rates."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from tenure.arguments import LONGEST
from tenure.engine import (
    ROUNDING,
    Booking,
    Debt,
    Limiter,
    RateLimit,
    RefundRequest,
    Spend,
    SpendRequest,
    clamp_durations,
)
from tenure.errors import EngineError

NOW = 100.0


def book(limiter, *costs, max_wait=None, rate=2.0, burst=4.0):
    """Book in one limit at time 100; returns the delays."""
    limits = (RateLimit("", rate, burst),)
    requests = tuple(SpendRequest((cost,), max_wait) for cost in costs)
    return [spending.delay for spending in limiter.spend(limits, requests, NOW)]


def test_an_idle_limiter_has_its_burst_and_no_more():
    assert book(Limiter(), 1, 1, 1, 1, 1, 2) == [0, 0, 0, 0, 0.5, 1.5]


def test_a_longer_wait_than_allowed_books_nothing():
    limiter = Limiter()
    book(limiter, 4)
    for allowed, booked in ((0.4, False), (0.5, True)):
        (spending,) = limiter.spend((RateLimit("", 2.0, 4.0),), (SpendRequest((1.0,), allowed),), NOW)
        assert (spending.booked, spending.delay) == (booked, 0.5)
        assert len(spending.bookings) == booked


@pytest.mark.parametrize(("over", "delay"), [(ROUNDING / 2, 0.0), (ROUNDING * 2, ROUNDING * 2)])
def test_a_delay_of_less_than_the_rounding_is_none(over, delay):
    assert book(Limiter(), 4 + 2 * over)[0] == pytest.approx(delay, abs=1e-9)


def test_no_booking_takes_longer_than_the_longest_duration():
    limits = (RateLimit("", 1e-9, 1.0), RateLimit("x", 1.0, 1e300))
    operation = clamp_durations(Spend("s", 1, "k", (SpendRequest((1e300, 1.0)),), limits))
    assert operation.requests[0].costs == (1e-9 * LONGEST, 1.0)
    assert [limit.burst for limit in operation.limits] == [1.0, LONGEST]


@pytest.mark.parametrize("costs", [(), (1.0, 2.0)])
def test_there_is_one_cost_for_each_limit(costs):
    with pytest.raises(EngineError, match="one amount for each limit"):
        clamp_durations(Spend("s", 1, "k", (SpendRequest(costs),), (RateLimit("", 1.0, 1.0),)))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_is_a_number_above_zero(rate):
    with pytest.raises(EngineError, match="above zero"):
        clamp_durations(Spend("s", 1, "k", (), (RateLimit("", rate, 1.0),)))


@pytest.mark.parametrize(
    ("later", "left"),
    [(0.0, 0.0), (1.0, 4.0), (3.0, 6.0), (9.0, 12.0)],
    ids=["nothing", "less than it", "as much", "more"],
)
def test_a_refund_gives_back_nothing_of_what_another_booking_is_behind(later, left):
    limiter, limits = Limiter(), (RateLimit("", 2.0, 4.0),)
    (spending,) = limiter.spend(limits, (SpendRequest((3.0,)),), NOW)
    book(limiter, later)
    limiter.refund(limits, RefundRequest(spending.bookings), NOW)
    assert sum(debt.amount for debt in limiter.status(NOW).debts) == left


def test_a_refund_of_what_nobody_knows_is_nothing():
    limiter, limits = Limiter(), (RateLimit("", 2.0, 4.0),)
    for amounts in ((), (1.0,)):
        limiter.refund(limits, RefundRequest((Booking(101.0, 1.0),), amounts), NOW)
        assert not limiter.is_used(NOW)
    limiter.refund(limits, RefundRequest((Booking(101.0, 1.0),), (-1.0,)), NOW)
    assert limiter.status(NOW).debts == (Debt("", 1.0),)


@pytest.mark.parametrize("now", [1e-9, 1.0, 1e9])
def test_corrections_make_no_debt_that_lasts_for_longer_than_the_longest_duration(now):
    """At the rate of the booking and at the rate of now, which it may have changed to."""
    limiter, bookings = Limiter(), (Booking(101.0, 1.0),)
    for rate in (1.0, now):
        amounts = (-rate * LONGEST,)
        for _ in range(3):
            limiter.refund((RateLimit("", rate, 1.0),), RefundRequest(bookings, amounts), NOW)
    assert limiter.used_until() <= NOW + LONGEST
    (spending,) = limiter.spend((RateLimit("", now, 1.0),), (SpendRequest((1e-9,)),), NOW)
    assert spending.delay <= LONGEST


@pytest.mark.parametrize(
    ("burst", "horizon", "booked"), [(1.0, 1.0, 4), (1.0, 0.0, 2), (4.0, 1.0, 7), (4.0, 0.2, 5)]
)
def test_no_request_is_booked_behind_the_horizon(burst, horizon, booked):
    """It counts up to the time at which an amount above zero is there, whatever the request wants."""
    limiter, limits = Limiter(), (RateLimit("", 2.0, burst),)
    request = SpendRequest((1.0,))
    answers = [limiter.spend(limits, (request,), NOW, "", horizon)[0].booked for _ in range(9)]
    assert answers == [True] * booked + [False] * (9 - booked)


def test_the_horizon_is_compared_with_what_was_booked_before_the_operation():
    limiter, limits = Limiter(), (RateLimit("", 2.0, 1.0),)
    requests = (SpendRequest((1.0,)),) * 9
    assert all(spending.booked for spending in limiter.spend(limits, requests, NOW, "", 0.0))
    assert not any(spending.booked for spending in limiter.spend(limits, requests, NOW, "", 3.9))


def test_the_last_booking_ends_with_its_session_unless_it_is_due():
    limiter, limits = Limiter(), (RateLimit("", 2.0, 4.0),)
    for _ in range(2):
        limiter.spend(limits, (SpendRequest((4.0,)),), NOW, "a")
    limiter.drop_ended(limits, {"a"}.__contains__, NOW + 1)
    limiter.drop_ended(limits, set().__contains__, NOW + 2)
    assert limiter.status(NOW + 2).debts == (Debt("", 4.0),)
    limiter.spend(limits, (SpendRequest((2.0,)),), NOW + 2, "b")
    limiter.drop_ended(limits, set().__contains__, NOW + 2)
    assert limiter.status(NOW + 2).debts == (Debt("", 4.0),)


def test_limits_that_are_full_again_are_forgotten_one_by_one():
    limiter = Limiter()
    for n in range(5):
        limiter.spend((RateLimit(f"{n}", 1.0, 1.0),), (SpendRequest((1.0,)),), NOW + 2 * n)
    assert list(limiter.booked) == ["4"]


amounts = st.integers(0, 8).map(lambda n: n / 2)
limits = st.tuples(
    st.builds(RateLimit, st.just("a"), st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from([4.0, 8.0])),
    st.builds(RateLimit, st.just("b"), st.sampled_from([0.25, 2.0]), st.sampled_from([4.0, 16.0])),
)
steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.0, 0.25, 1.0, 7.0]),
        st.sampled_from(["spend", "spend", "spend", "hold off", "give up"]),
        st.tuples(amounts, amounts),
        st.integers(0, 9),
    ),
    max_size=40,
)


A_B_AND_ANOTHER = (
    (RateLimit("a", 4.0, 4.0), RateLimit("b", 0.25, 16.0)),
    [
        *((0.0, "spend", (0.0, cost), 0) for cost in (1.5, 2.0, 2.5, 3.0, 3.0, 4.0)),
        (0.0, "spend", (0.5, 1.0), 0),
        (0.0, "spend", (4.0, 0.5), 0),
        (0.0, "give up", (0.0, 0.0), 0),
        (0.0, "spend", (0.5, 0.5), 0),
    ],
)
"""The limit "b" lets a caller start, who takes the whole burst of "a"; and a caller before that gives up."""


@example(*A_B_AND_ANOTHER)
@given(limits, steps)
def test_no_span_of_time_gets_more_than_the_burst_and_what_the_rate_gives(limits, steps):
    """Also while it is held off and others give up waiting."""
    limiter, now = Limiter(), 50.0
    began = []  # when (on the limiter's clock, which never runs faster than time), and its costs
    holds = []
    for pause, what, costs, n in steps:
        now += pause
        if what == "hold off":
            limiter.hold_off(pause, now)
            holds.append((now, now + pause))
        elif what == "spend":
            (spending,) = limiter.spend(limits, (SpendRequest(costs),), now)
            due = limiter.time(now) + spending.delay - max(0.0, limiter.held_until - now)
            began.append((due, costs, spending.bookings))
        elif waiting := [one for one in began if one[0] > limiter.time(now)]:
            one = waiting[n % len(waiting)]
            began.remove(one)
            limiter.refund(limits, RefundRequest(one[2]), now)
    for i, limit in enumerate(limits):
        spent = sorted((due, costs[i]) for due, costs, _ in began if costs[i])
        for first in range(len(spent)):
            total = 0.0
            for due, cost in spent[first:]:
                total += cost
                assert total <= limit.burst + limit.rate * (due - spent[first][0]) + 1e-6, (limit, spent)


@given(limits, steps)
def test_first_come_first_served_in_each_limit(limits, steps):
    """A big one is not overtaken in a limit of which it needs something, except by those that fit in beside it."""
    limiter, last = Limiter(), 0.0
    for _, _, costs, _ in steps:
        (spending,) = limiter.spend(limits[:1], (SpendRequest(costs[:1]),), NOW)
        if costs[0]:
            assert spending.delay >= last
            last = spending.delay


def test_the_clock_of_a_limiter_stands_still_while_it_is_held_off():
    limiter, limits = Limiter(), (RateLimit("", 1.0, 1.0),)
    assert limiter.hold_off(5.0, NOW)
    assert not limiter.hold_off(4.0, NOW + 1)
    assert limiter.time(NOW) == limiter.time(NOW + 5) == NOW
    spendings = limiter.spend(limits, (SpendRequest((1.0,)),) * 2, NOW + 2)
    assert [spending.delay for spending in spendings] == [3, 4]
    assert limiter.hold_off(4.0, NOW + 3)
    assert limiter.status(NOW + 3) == (limiter.status(NOW + 3))
    assert (limiter.held, limiter.held_until) == (7.0, NOW + 7)
    assert limiter.used_until() == NOW + 9
