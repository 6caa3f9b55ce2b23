"""Quantiles within one percent, whatever the values, and merged as if one sketch had seen them all."""

from __future__ import annotations

import json
from math import floor

import pytest
from hypothesis import example, given, strategies as st

from tenure.observe._sketch import ACCURACY, Sketch

SECONDS = st.one_of(st.just(0.0), st.floats(2e-6, 1e8))


def sketch_of(values):
    sketch = Sketch()
    for value in values:
        sketch.record(value)
    return sketch


def exact(values, share):
    return sorted(values)[floor(share * (len(values) - 1))]


@given(st.lists(SECONDS, min_size=1), st.sampled_from([0, 0.5, 0.95, 0.99, 1]))
@example([1.0] * 100 + [5.0], 0.99)
def test_a_quantile_is_within_one_percent(values, share):
    true = exact(values, share)
    assert sketch_of(values).quantile(share) == pytest.approx(true, rel=ACCURACY * 1.0001)


@given(st.lists(SECONDS), st.lists(SECONDS))
def test_merged_sketches_are_the_sketch_of_all(some, others):
    merged = sketch_of(some)
    merged.merge(sketch_of(others))
    whole = sketch_of(some + others)
    assert (merged.buckets, merged.count, merged.greatest) == (whole.buckets, whole.count, whole.greatest)
    assert merged.total == pytest.approx(whole.total)


@given(st.lists(SECONDS))
def test_a_sketch_travels_as_plain_data(values):
    sketch = sketch_of(values)
    came = Sketch.from_data(json.loads(json.dumps(sketch.to_data())))
    assert (came.buckets, came.count, came.total) == (sketch.buckets, sketch.count, sketch.total)
    assert came.quantile(0.5) == sketch.quantile(0.5)


def test_an_empty_sketch_says_0():
    assert Sketch().quantile(0.5) == 0


def test_memory_is_bounded_by_the_spread_and_not_the_number_of_values():
    assert len(sketch_of(0.001 * 1.0001**i for i in range(100_000)).buckets) < 520
    assert len(sketch_of(1e-6 * 10**i for i in range(14)).buckets) == 14
