"""The rules that all engines share, as plain functions."""

from __future__ import annotations

from itertools import product

import pytest

from tenure.arguments import LONGEST
from tenure.engine import (
    A_FEW,
    ROUNDING,
    Ends,
    GoesBack,
    Refund,
    Settle,
    Spend,
    SpendRequest,
    Verdict,
    after_verdict,
    book_spending,
    how_many_to_forget,
    refunded,
    without_verdict,
)

VERDICTS = {
    Verdict.DONE: Ends("done", 2, b"result", 9.0),
    Verdict.DISCARD: Ends("discarded", 2, b"result", 9.0),
    Verdict.CANCEL: Ends("cancelled", 2, b"result", 9.0),
    Verdict.DEAD: Ends("dead", 3, b"result", 9.0),
    Verdict.RETRY: GoesBack(3, 5, 7.0),
    Verdict.GIVE_BACK: GoesBack(2, 4, None),
    Verdict.POSTPONE: GoesBack(2, 4, 7.0),
}
CANCELLED = Ends("cancelled", 2, b"", 60.0)


@pytest.mark.parametrize(("verdict", "stop"), list(product(Verdict, (False, True))))
def test_what_follows_a_verdict(verdict, stop):
    settle = Settle(1, 1, verdict, b"result", delay=7.0, ttl=9.0)
    expected = VERDICTS[verdict]
    if stop and isinstance(expected, GoesBack):
        expected = CANCELLED
    assert after_verdict(settle, 2, 5, stop=stop, stop_ttl=60.0) == expected


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [(4, GoesBack(2, 4, None)), (5, Ends("dead", 2, b"delivered 3 times without a verdict", 8.0))],
)
def test_a_task_is_dead_after_so_many_deliveries_without_a_verdict(deliveries, expected):
    assert without_verdict(2, deliveries, 3, stop=False, stop_ttl=None, dead_ttl=8.0) == expected


@pytest.mark.parametrize("deliveries", [3, 30])
def test_a_task_that_shall_stop_is_cancelled_when_its_session_ends(deliveries):
    assert without_verdict(2, deliveries, 3, stop=True, stop_ttl=60.0, dead_ttl=8.0) == CANCELLED


def test_more_is_forgotten_than_made():
    assert how_many_to_forget(0) == A_FEW
    assert all(how_many_to_forget(made) > made for made in range(1000))


def spend(*, rate=2.0, burst=4.0):
    return Spend("s", 1, "k", (), rate, burst)


def book(before, *, cost=1.0, max_wait=None, **rate):
    """Book at time 100."""
    return book_spending(spend(**rate), SpendRequest(cost, max_wait), before, 100.0)


@pytest.mark.parametrize("before", [None, 7.0, 100.0])
def test_an_idle_key_has_its_burst_and_no_more(before):
    arrival = before
    for booked in range(1, 5):
        spending = book(arrival)
        assert spending == (True, 0.0, 100.0 + booked / 2)
        arrival = spending.booking
    assert book(arrival) == (True, 0.5, 102.5)


def test_a_longer_wait_than_allowed_books_nothing():
    assert book(102.0, max_wait=0.4) == (False, 0.5, 0.0)
    assert book(102.0, max_wait=0.5) == (True, 0.5, 102.5)


@pytest.mark.parametrize(("over", "delay"), [(ROUNDING / 2, 0.0), (ROUNDING * 2, ROUNDING * 2)])
def test_a_delay_of_less_than_the_rounding_is_none(over, delay):
    assert book(101.5 + over).delay == pytest.approx(delay, abs=1e-9)


def test_no_booking_takes_longer_than_the_longest_duration():
    assert book(None, cost=1e300, rate=1e-9).booking == 100.0 + LONGEST


@pytest.mark.parametrize(
    ("later", "arrival"),
    [(0.0, 100.0), (0.5, 101.0), (1.5, 103.0), (9.0, 110.5)],
    ids=["nothing used it", "a third of it was used", "all of it was used", "more came later"],
)
def test_a_refund_leaves_what_later_bookings_have_used(later, arrival):
    # 3 units at 2 per second were booked, up to 101.5
    assert refunded(Refund("s", 1, "k", 3.0, 101.5, 2.0), 101.5 + later) == arrival
