from __future__ import annotations

import pytest

from tenure.observe import _rate
from tenure.observe._rate import BURST, Rate


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said():
    return []


@pytest.fixture
def rate(clock, said):
    return Rate(clock, lambda kind, count: said.append((kind, count)))


def test_a_burst_and_then_one_a_second(rate, clock, said):
    passed = 0
    for _ in range(1000):
        passed += rate.allows("x")
        clock.time += 0.01
    assert passed == pytest.approx(BURST + 10, abs=1)
    rate.settle()
    assert passed + sum(count for _, count in said) == 1000


@pytest.mark.parametrize("every", [0.01, 0.5, 7, 60, 61, 100])
def test_an_hour_of_a_fault_is_sixty_lines_at_most(rate, clock, said, every):
    lines = []
    for _ in range(int(3600 / every)):
        clock.time += every
        lines.append(rate.allows("x", lasts=True))
    assert sum(lines) + len(said) <= 60
    rate.settle()
    assert sum(lines) + sum(count for _, count in said) == len(lines)
    clock.time += 61
    assert all(rate.allows("x", lasts=True) for _ in range(BURST)), "it is told again after some quiet"


def test_after_a_pause_there_may_be_a_burst_again(rate, clock):
    assert [rate.allows("x") for _ in range(BURST + 1)] == [True] * BURST + [False]
    clock.time += 1000
    assert [rate.allows("x") for _ in range(BURST + 1)] == [True] * BURST + [False]


def test_it_says_before_the_next_line_how_many_were_left_out(rate, clock, said):
    for _ in range(BURST + 5):
        rate.allows("x")
    assert said == []
    clock.time += 1
    assert rate.allows("x")
    assert said == [("x", 5)]
    rate.settle()
    assert said == [("x", 5)]


def test_each_kind_is_counted_by_itself(rate, said):
    for _ in range(BURST + 2):
        rate.allows("x")
    assert rate.allows("y")
    rate.settle()
    assert said == [("x", 2)]


def test_no_count_is_lost_when_many_kinds_are_forgotten(rate, clock, said, monkeypatch):
    monkeypatch.setattr(_rate, "_MOST_KINDS", 5)
    for kind in range(20):
        for _ in range(BURST + 1):
            rate.allows(str(kind))
        clock.time += 3
    rate.settle()
    assert said == [(str(kind), 1) for kind in range(20)]
    assert len(rate._buckets) <= 5
