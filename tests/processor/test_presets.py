"""Presets are plain data; what cannot work is refused, and the reason is told."""

from __future__ import annotations

import dataclasses
from functools import partial
from math import inf

import anyio
import pytest

import tenure
from tenure import ResourcePool, Retry
from tenure.local import CircuitBreaker, Pool
from tenure.processor import PRESETS, Adaptive, Claims, Context, Preset, Processor


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
    assert make(store, preset=name).workers == PRESETS[name].workers
    make(store, preset=name, pool=connect)


WRONG = [
    (
        {"preset": "huge"},
        ValueError,
        "preset must be one of small, medium, large, xlarge, or a Preset, not 'huge'",
    ),
    ({"workers": 0}, ValueError, "workers must be at least 1, not 0"),
    ({"workers": 1.5}, TypeError, "workers must be an int, not float"),
    ({"workers": True}, TypeError, "workers must be an int, not bool"),
    ({"rate": 0}, ValueError, "rate must be above 0, not 0"),
    ({"rate": -1}, ValueError, "rate must be above 0"),
    ({"preset": "small", "workers": 0}, ValueError, "workers must be at least 1, not 0"),
    ({"rate": 0, "preset": "small"}, ValueError, "rate must be above 0, not 0"),
    ({"around": 3}, TypeError, "around must be a list of functions of a task, not 3"),
    ({"on_dead": 3}, TypeError, "on_dead"),
    ({"rate": "fast"}, TypeError, "rate must be a number, not str"),
    ({"worker": 3}, TypeError, "worker"),
    (
        {"kinds": {"a": 30, "b": 21}, "workers": 50},
        ValueError,
        "kinds must not have more than the 50 workers together, not 51",
    ),
    ({"kinds": {"a": 0}}, ValueError, "kinds: a must be at least 1, not 0"),
    ({"kinds": ["a"]}, TypeError, "kinds must be a mapping of names to numbers of workers, not ['a']"),
    ({"kinds": {"": 1}}, ValueError, "kinds: a name must not be empty"),
    ({"timeout": 0}, ValueError, "timeout must be above 0 seconds, not 0; None means no limit"),
    ({"timeout": -1}, ValueError, "timeout must be above 0 seconds, not -1"),
    ({"pool": 3}, TypeError, "pool must be a function that makes one, not 3"),
    ({"breaker": CircuitBreaker()}, TypeError, "breaker must be a function that makes one"),
    ({"handler": takes_more}, TypeError, "nothing fills its parameter more"),
    ({"adaptive": 3}, TypeError, "adaptive must be True, False or an Adaptive, not 3"),
    ({"claims": "keys"}, TypeError, "claims must be a ResourcePool or Claims, not 'keys'"),
    ({"retry": 3}, TypeError, "retry must be a Retry, not 3"),
]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda pool: Claims("keys"), TypeError, "pool must be a ResourcePool, not 'keys'"),
        (lambda pool: Claims(pool, 3), TypeError, "where must be a mapping, or a function"),
        (lambda pool: Claims(pool, timeout=-1), ValueError, "timeout"),
        (lambda pool: Preset(3, 1, 1, 2), ValueError, "queue_size must be at least the 3 workers, not 2"),
        (lambda pool: Preset(3, 0, 1, 9), ValueError, "connections must be at least 1, not 0"),
    ],
    ids=range(5),
)
def test_parts_that_make_no_sense_are_refused(store, make, error, message):
    with pytest.raises(error, match=message):
        make(ResourcePool(store, "keys"))


@pytest.mark.parametrize(("options", "error", "message"), WRONG, ids=["-".join(each[0]) for each in WRONG])
def test_what_makes_no_sense_is_refused_by_name(store, options, error, message):
    with pytest.raises(error) as caught:
        make(store, **options)
    assert message in str(caught.value)


def test_a_retry_of_its_own_is_taken(store):
    make(store, retry=Retry(attempts=1), adaptive=Adaptive(tolerance=3))


async def test_without_a_preset_nothing_is_limited(virtual_clock):
    """A thousand tasks that take no time, by ten workers, take no time."""
    async with tenure.open_store("memory:") as store:
        async with Processor(store, "p", handler) as processor:
            began = virtual_clock.now()
            await processor.submit_many(range(1000))
            await processor.join()
            metrics = processor.metrics()
    assert virtual_clock.now() - began < 1 and metrics.workers == 10
    assert metrics.waits.rate.count == 0


@pytest.mark.parametrize(
    ("options", "workers", "connections", "rate"),
    [
        ({"preset": "small"}, 10, 5, 20),
        ({"preset": "small", "workers": 4, "rate": 7}, 4, 5, 7),
        ({"preset": "small", "rate": inf}, 10, 5, None),
        ({"preset": dataclasses.replace(PRESETS["small"], connections=3)}, 10, 3, 20),
        ({}, 10, 10, None),
        ({"kinds": {"a": 2, "b": 1}}, 3, 10, None),
    ],
)
async def test_a_preset_gives_the_sizes_that_are_not_given(
    options, workers, connections, rate, virtual_clock
):
    starts, pool = [], partial(Pool, Connected().__aenter__, close=Connected().__aexit__)

    async def note(payload, connection: str):
        starts.append(virtual_clock.now())
        await anyio.sleep(0.01)

    kind = next(iter(options.get("kinds", {None: 0})))
    async with tenure.open_store("memory:") as store:
        around = [lambda task: Connected()]
        async with Processor(store, "p", note, pool=pool, around=around, **options) as processor:
            await processor.submit_many(range(200), kind)
            await processor.join()
            metrics = processor.metrics()
            assert (metrics.workers, processor._parts.pool.statistics().max_size) == (workers, connections)
            size = (await processor.queue(kind).settings()).max_size
    assert size == (1000 if "preset" in options else 10_000)
    if rate is None:
        assert starts[-1] - starts[0] < 10
    else:
        assert 150 / rate < starts[-1] - starts[0] < 210 / rate


class Connected:
    async def __aenter__(self):
        return "connected"

    async def __aexit__(self, *_):
        pass
