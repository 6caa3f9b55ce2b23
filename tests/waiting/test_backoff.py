from __future__ import annotations

from tenure.waiting import Backoff


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
