from __future__ import annotations

import pytest

from tenure.waiting import Backoff, jittered


async def test_pauses_double_up_to_the_longest_and_are_shortened_by_up_to_half(virtual_clock):
    backoff = Backoff(0.1, 1.0)
    for longest in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        began = virtual_clock.now()
        await backoff.pause()
        assert longest / 2 <= virtual_clock.now() - began <= longest


async def test_after_a_success_the_first_pause_comes_again(virtual_clock):
    backoff = Backoff(0.1, 1.0)
    for _ in range(3):
        await backoff.pause()
    backoff.reset()
    began = virtual_clock.now()
    await backoff.pause()
    assert 0.05 <= virtual_clock.now() - began <= 0.1


@pytest.mark.parametrize(("seconds", "least", "most"), [(0, 0.05, 0.055), (1, 1, 1.1), (60, 60, 60.2)])
def test_a_period_is_lengthened_by_up_to_a_tenth(seconds, least, most):
    found = [jittered(seconds, least=0.05) for _ in range(100)]
    assert least <= min(found) < max(found) <= most + 1e-9
