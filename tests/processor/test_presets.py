"""Presets are plain data; what cannot work is refused, and the reason is told."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial
from math import inf

import pytest

import tenure
from tenure import ResourcePool, Retry
from tenure.local import CircuitBreaker, Pool
from tenure.processor import PRESETS, Adaptive, Context, Preset, Processor


async def handler(task: tenure.Task, context: Context): ...


async def takes_more(task: tenure.Task, context: Context, more): ...


@pytest.fixture
def store():
    return tenure.open_store("memory:")


def make(store, handler=handler, **options):
    return Processor(store, "p", handler, **options)


connect = partial(Pool, handler, close=handler)


def test_the_presets_are_those_of_the_book():
    assert {name: dataclasses.astuple(preset) for name, preset in PRESETS.items()} == {
        "small": (10, 5, 20, 1_000),
        "medium": (50, 20, 100, 10_000),
        "large": (200, 50, 500, 100_000),
        "xlarge": (1000, 200, 2000, 1_000_000),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_works_with_and_without_connections(store, name):
    assert make(store, preset=name).preset == PRESETS[name]
    make(store, preset=name, pool=connect)


def test_every_field_can_be_overridden(store):
    processor = make(store, preset="large", workers=7, connections=8, rate=9.5, queue_size=10)
    assert processor.preset == Preset(7, 8, 9.5, 10)
    assert make(store).preset == PRESETS["medium"]
    assert make(store, rate=None).preset.rate == inf
    assert make(store, preset=Preset(1, 2, 3, 4)).preset == Preset(1, 2, 3, 4)


WRONG = [
    (
        {"preset": "huge"},
        ValueError,
        "preset must be one of small, medium, large, xlarge, or a Preset, not 'huge'",
    ),
    ({"workers": 0}, ValueError, "workers must be at least 1, not 0"),
    ({"workers": 1.5}, TypeError, "workers must be an int, not float"),
    ({"workers": True}, TypeError, "workers must be an int, not bool"),
    ({"connections": 0}, ValueError, "connections must be at least 1, not 0"),
    ({"rate": 0}, ValueError, "rate must be above 0, not 0"),
    ({"rate": -inf}, ValueError, "rate must be above 0"),
    ({"rate": "fast"}, TypeError, "rate must be a number, not str"),
    ({"queue_size": 0}, ValueError, "queue_size must be at least 1"),
    (
        {"queue_size": 49},
        ValueError,
        "queue_size must be at least the 50 workers, not 49: a task counts until it is",
    ),
    ({"worker": 3}, TypeError, "worker"),
    (
        {"kinds": {"a": 30, "b": 21}},
        ValueError,
        "kinds must not have more than the 50 workers together, not 51",
    ),
    ({"kinds": {"a": 0}}, ValueError, "kinds: a must be at least 1, not 0"),
    ({"kinds": ["a"]}, TypeError, "kinds must be a mapping of names to numbers of workers, not ['a']"),
    ({"kinds": {"": 1}}, ValueError, "kinds: a name must not be empty"),
    ({"timeout": 0}, ValueError, "timeout must be above 0 seconds, not 0; None means no limit"),
    ({"timeout": -1}, ValueError, "timeout must be above 0 seconds, not -1"),
    ({"lock_timeout": "1"}, TypeError, "lock_timeout must be a number of seconds"),
    ({"claim_timeout": -1}, ValueError, "claim_timeout"),
    ({"grace": -1}, ValueError, "grace"),
    ({"poll_every": 0}, ValueError, "poll_every"),
    ({"pool": 3}, TypeError, "pool must be a function that makes one, not 3"),
    ({"breaker": CircuitBreaker()}, TypeError, "breaker must be a function that makes one"),
    ({"handler": lambda task, context: None}, TypeError, "handler must be an async function"),
    ({"handler": takes_more}, TypeError, "nothing fills its parameter more"),
    ({"adaptive": 3}, TypeError, "adaptive must be True, False or an Adaptive, not 3"),
    ({"claims": "keys"}, TypeError, "claims must be a ResourcePool, not 'keys'"),
    ({"where": {"a": 1}}, ValueError, "where needs claims="),
    (
        {"where": 3, "claims": ResourcePool(tenure.open_store("memory:"), "keys")},
        TypeError,
        "where must be a mapping",
    ),
    ({"retry": 3}, TypeError, "retry must be a Retry, not 3"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG, ids=["-".join(each[0]) for each in WRONG])
def test_what_makes_no_sense_is_refused_by_name(store, options, error, message):
    with pytest.raises(error) as caught:
        make(store, **options)
    assert message in str(caught.value)


def test_fewer_connections_than_workers_need_in_time_are_refused_with_the_reason(store):
    small = partial(make, store, preset="small", pool=connect)
    # five of ten wait for the others to end, which takes them ten seconds at most
    small(connection_timeout=10, timeout=10)
    with pytest.raises(
        ValueError, match=r"10 workers share 5, so one may wait 1 times the timeout of 10 s, which"
    ) as e:
        small(connection_timeout=9, timeout=10)
    assert "have at least 10 connections" in str(e.value)
    small(connection_timeout=9, timeout=10, connections=10)
    with pytest.raises(ValueError, match="have at least 4 connections"):
        small(connection_timeout=20, timeout=10, connections=3)
    small(connection_timeout=20, timeout=10, connections=4)
    with pytest.raises(ValueError, match="without timeout= nothing bounds how long one is kept"):
        small(connection_timeout=60)
    small(connection_timeout=60, connections=10)
    small(timeout=10)  # nobody gives up waiting, so nobody waits in vain
    make(store, preset="small", connection_timeout=60)  # no connections at all


def test_a_retry_of_its_own_is_taken(store):
    make(store, retry=Retry(attempts=1), adaptive=Adaptive(tolerance=3))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "processor p: limited to 100 tasks/s by preset medium; rate=None lifts the limit"),
        (
            {"preset": "small"},
            "processor p: limited to 20 tasks/s by preset small; rate=None lifts the limit",
        ),
        ({"rate": 50}, None),
        ({"rate": None}, None),
        ({"preset": Preset(workers=1, connections=1, rate=7, queue_size=10)}, None),
    ],
)
async def test_a_limit_that_nobody_asked_for_is_logged_once_at_the_start(caplog, options, line):
    caplog.set_level(logging.INFO, "tenure")
    async with tenure.open_store("memory:") as store:
        async with make(store, **options) as processor:
            await processor.submit(1)
            await processor.join()
    said = [record for record in caplog.records if "tasks/s" in record.getMessage()]
    assert [record.getMessage() for record in said] == ([line] if line else [])
    assert all(record.levelno == logging.INFO for record in said)
