"""The rules that all engines share, as plain functions."""

from __future__ import annotations

from itertools import product

import pytest

from tenure.engine import (
    A_FEW,
    Ends,
    GoesBack,
    Settle,
    Verdict,
    Waits,
    after_verdict,
    how_many_to_forget,
    without_verdict,
)

VERDICTS = {
    Verdict.DONE: Ends("done", 2, b"result", 9.0),
    Verdict.DISCARD: Ends("discarded", 2, b"result", 9.0),
    Verdict.CANCEL: Ends("cancelled", 2, b"result", 9.0),
    Verdict.DEAD: Ends("dead", 3, b"result", 9.0),
    Verdict.RETRY: GoesBack(3, 3, 7.0),
    Verdict.GIVE_BACK: GoesBack(2, 4, None),
    Verdict.POSTPONE: GoesBack(2, 4, 7.0),
    Verdict.WAIT: Waits(prefix="result"),
    Verdict.WAIT_FOR: Waits("result", timeout=7.0),
}
CANCELLED = Ends("cancelled", 2, b"", 60.0)


@pytest.mark.parametrize(("verdict", "stop"), list(product(VERDICTS, (False, True))))
def test_what_follows_a_verdict(verdict, stop):
    settle = Settle(1, 1, verdict, b"result", delay=7.0, ttl=9.0)
    expected = VERDICTS[verdict]
    if stop and isinstance(expected, GoesBack | Waits):
        expected = CANCELLED
    assert after_verdict(settle, 2, 5, stop=stop, stop_ttl=60.0) == expected


def test_a_task_that_began_is_innocent_of_earlier_deaths():
    settle = Settle(1, 1, Verdict.POSTPONE, delay=7.0)
    assert after_verdict(settle, 2, 5, stop=False, stop_ttl=None) == GoesBack(2, 2, 7.0)


@pytest.mark.parametrize(("stop", "expected"), [(False, Waits(rest=3)), (True, CANCELLED)])
def test_a_wait_for_an_end(stop, expected):
    settle = Settle(1, 1, Verdict.WAIT_FOR_END, b"3")
    assert after_verdict(settle, 2, 5, stop=stop, stop_ttl=60.0, unfinished=4) == expected


@pytest.mark.parametrize(("stop", "expected"), [(False, Waits()), (True, CANCELLED)])
def test_done_with_an_unfinished_child_waits(stop, expected):
    settle = Settle(1, 1, Verdict.DONE, b"result", ttl=9.0)
    assert after_verdict(settle, 2, 5, stop=stop, stop_ttl=60.0, unfinished=1) == expected


@pytest.mark.parametrize(
    ("deliveries", "limit", "error"),
    [
        (4, 3, None),
        (5, 3, b"delivered 3 times without a verdict: process p died or lost its session"),
        (
            3,
            0,
            b"delivered once without a verdict: process p died or lost its session while the task ran alone in it",
        ),
    ],
)
def test_a_task_is_dead_after_so_many_deliveries_without_a_verdict(deliveries, limit, error):
    expected = GoesBack(2, deliveries, None) if error is None else Ends("dead", 2, error, 8.0)
    assert without_verdict(2, deliveries, limit, "p", stop=False, stop_ttl=None, dead_ttl=8.0) == expected


@pytest.mark.parametrize("deliveries", [3, 30])
def test_a_task_that_shall_stop_is_cancelled_when_its_session_ends(deliveries):
    assert without_verdict(2, deliveries, 3, "p", stop=True, stop_ttl=60.0, dead_ttl=8.0) == CANCELLED


def test_more_is_forgotten_than_made():
    assert how_many_to_forget(0) == A_FEW
    assert all(how_many_to_forget(made) > made for made in range(1000))
