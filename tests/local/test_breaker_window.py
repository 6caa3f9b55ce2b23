"""What a breaker remembers: the last calls, or those of the last seconds."""

from collections import deque

import pytest
from hypothesis import given, strategies as st

from tenure.local._breaker_window import FAILED, SLOW, CountWindow, TimeWindow

MARKS = st.sampled_from([0, FAILED, SLOW, FAILED | SLOW])


def counts(window):
    return window.calls, window.failures, window.slow


def counted(marks):
    return len(marks), sum(mark & FAILED for mark in marks), sum(bool(mark & SLOW) for mark in marks)


@given(st.integers(1, 7), st.lists(MARKS, max_size=40))
def test_a_count_window_holds_the_last_so_many_calls(size, marks):
    window, last = CountWindow(size), deque(maxlen=size)
    for mark in marks:
        window.add(mark, 0.0)
        last.append(mark)
        assert counts(window) == counted(last)


@given(
    st.sampled_from([0.5, 10.0, 3.0]),
    st.lists(st.tuples(st.floats(0, 25, allow_subnormal=False), MARKS), max_size=60),
    st.sampled_from([0.0, 123_456.7]),
)
def test_a_time_window_holds_all_calls_of_nine_tenths_of_its_time_and_none_that_are_older_than_all_of_it(
    seconds, steps, now
):
    window, seen = TimeWindow(seconds), []
    for pause, mark in steps:
        now += pause * seconds / 10
        seen.append((now, mark))
        window.add(mark, now)
        sure = counted([mark for when, mark in seen if now - when < 0.9 * seconds - 1e-6])
        most = counted([mark for when, mark in seen if now - when <= seconds + 1e-6])
        assert all(low <= n <= high for low, n, high in zip(sure, counts(window), most, strict=True))


def test_the_slices_of_a_time_window_begin_with_the_first_call():
    window = TimeWindow(10)
    window.add(FAILED, 0.5)
    window.add(0, 10.4)
    assert counts(window) == (2, 1, 0)
    window.add(0, 10.5)
    assert counts(window) == (2, 0, 0)


@pytest.mark.parametrize("back", [3.0, 10_000.0])
def test_a_clock_that_steps_back_keeps_the_calls_and_lets_them_grow_old_from_there(back):
    window = TimeWindow(10)
    window.add(FAILED, 10_000.0)
    window.add(FAILED, 10_000.0 - back)
    assert counts(window) == (2, 2, 0)
    window.add(0, 10_009.9 - back)
    assert counts(window) == (3, 2, 0)
    window.add(0, 10_011.0 - back)
    assert counts(window) == (2, 0, 0)
