"""Durations: every public parameter in seconds takes a timedelta, too, and nothing keeps a timedelta."""

from __future__ import annotations

import importlib
import inspect
import re
from datetime import timedelta
from typing import Any

import anyio
import pytest

import tenure
import tenure.types
from tenure import local, processor, testing
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultProxy, FaultyEngine, LeapingClock, VirtualClock

ROOMS = ("tenure", "tenure.types", "tenure.local", "tenure.processor", "tenure.testing", "tenure.blocking")
DURATION = re.compile(
    r"(^|_)(ttl|timeout|delay|interval|window|within|every|margin|seconds|linger|grace|threshold|wait|lifetime"
    r"|quarantine|aging|older_than|backoff|deadline|expires|after|per|idle|results|dead|keys|lose)($|_)"
)
MADE_BY_TENURE = {
    # what tenure makes and a user reads
    *(name for name in tenure.types.__all__ if not name.endswith("Options")),
    *(
        "Blocked",
        "BlockingWatchStatistics",
        "Leak",
        "Metrics",
        "Member",
        "Errors",
        "Report",
        "Monitor",
        "LeakCheck",
    ),
}
SECONDS, SAME = 7.25, timedelta(seconds=7.25)


def _durations(room):
    """The parameters of a room that are durations by name or annotation: owner, parameter, annotation."""
    for name in importlib.import_module(room).__all__:
        thing = getattr(importlib.import_module(room), name)
        if name in MADE_BY_TENURE or not callable(thing):
            continue
        if inspect.isclass(thing) and issubclass(thing, dict):
            options = {option: str(hint) for option, hint in thing.__annotations__.items()}
            options.pop("on_dead", None)
            yield from ((name, option, hint) for option, hint in options.items() if DURATION.search(option))
            continue
        members = {name: thing}
        if inspect.isclass(thing):
            if issubclass(thing, BaseException) and "Seconds" not in str(
                getattr(thing.__init__, "__annotations__", "")
            ):
                members = {}
            public = (member for member in vars(thing) if not member.startswith("_"))
            members |= {f"{name}.{member}": getattr(thing, member) for member in public}
        for path, member in members.items():
            try:
                parameters = inspect.signature(member).parameters
            except (TypeError, ValueError):
                continue
            for parameter in parameters.values():
                hint = str(parameter.annotation)
                if "Seconds" in hint or ("float" in hint and DURATION.search(parameter.name)):
                    yield path, parameter.name, hint


@pytest.mark.parametrize("room", ROOMS)
def test_a_duration_is_annotated_as_seconds(room):
    found = list(_durations(room))
    assert found or room == "tenure.types"
    assert [each for each in found if "Seconds" not in each[2]] == []


async def nothing(*_: object) -> None:
    pass


def _queue(**options: Any) -> Any:
    return tenure.WorkQueue(tenure.open_store("memory:"), "q", **options)


def _store() -> Any:
    return tenure.open_store("memory:")


MAKERS: dict[str, Any] = {
    "Adaptive": processor.Adaptive,
    "BatchWorker": lambda **o: tenure.BatchWorker(_queue(), nothing, size=2, **o),
    "BlockingWatch": local.BlockingWatch,
    "CircuitBreaker": lambda **o: local.CircuitBreaker(**{"open_seconds": 1.0, **o}),
    "CircuitBreaker.consecutive": lambda **o: local.CircuitBreaker.consecutive(
        3, **{"open_seconds": 1.0, **o}
    ),
    "Claims": lambda **o: processor.Claims(tenure.ResourcePool(_store(), "p"), **o),
    "Coalescer": lambda **o: local.Coalescer(nothing, **{"window": 0.5, **o}),
    "FaultyEngine": lambda **o: FaultyEngine(MemoryEngine(), clock=LeapingClock(), **o),
    "Key": lambda **o: tenure.Key("k", "replace", **o),
    "Keep": tenure.Keep,
    "KeyedPool": lambda **o: local.KeyedPool(nothing, close=nothing, check=nothing, **o),
    "KeyedPool.acquire": lambda **o: local.KeyedPool(nothing, close=nothing).acquire("k", **o),
    "KeyedLock.hold": lambda **o: local.KeyedLock().hold("k", **o),
    "Bulkhead.enter": lambda **o: local.Bulkhead(1).enter(**o),
    "Limit": lambda **o: tenure.Limit(1, **o),
    "Lock": lambda **o: tenure.Lock(_store(), "k", **o),
    "Lock.hold": lambda **o: tenure.Lock(_store(), "k").hold(**o),
    "Pool": lambda **o: local.Pool(nothing, close=nothing, check=nothing, **o),
    "Pool.acquire": lambda **o: local.Pool(nothing, close=nothing).acquire(**o),
    "PriorityQueue": lambda **o: local.PriorityQueue(1, **o),
    "Retry": tenure.Retry,
    "RetryLater": tenure.RetryLater,
    "Schedule": lambda **o: tenure.Schedule(_queue(), "s", **{"every": 60.0, **o}),
    "Selection": tenure.Selection,
    "Semaphore": lambda **o: tenure.Semaphore(_store(), "k", 1, **o),
    "VirtualClock": VirtualClock,
    "WorkQueue": _queue,
    "Worker": lambda **o: tenure.Worker(_queue(), nothing, **o),
}


def _constructed():
    for room in ("tenure", "tenure.local", "tenure.processor", "tenure.testing"):
        for owner, parameter, _ in _durations(room):
            # the options of a schedule's puts are converted by each put
            if owner in MAKERS and not (
                owner == "Schedule" and parameter in tenure.types.PutOptions.__annotations__
            ):
                yield owner, parameter


def _numbers(thing: Any, path: str = "", seen: set[int] | None = None):
    """Where an object of tenure, and those that it is made of, have the duration of this test."""
    seen = set() if seen is None else seen
    assert not isinstance(thing, timedelta), path
    if thing == SECONDS and isinstance(thing, float):
        yield path
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, dict):
        for name, value in list(thing.items()):
            yield from _numbers(value, f"{path}.{name}", seen)
    elif isinstance(thing, (list, tuple, set, frozenset)):
        for value in list(thing):
            yield from _numbers(value, path, seen)
    elif type(thing).__module__.startswith("tenure") or inspect.isfunction(thing):
        slots = (slot for cls in type(thing).__mro__ for slot in (getattr(cls, "__slots__", ()) or ()))
        names = {*slots, *getattr(thing, "__dict__", {})}
        for name in sorted(names - {"__weakref__", "__dict__"}):
            own = name if not name.startswith("__") else f"_{type(thing).__name__}{name}"
            if (value := getattr(thing, own, None)) is not None:
                yield from _numbers(value, f"{path}.{name}", seen)


def test_each_object_with_a_duration_is_made_here():
    made = {
        owner for room in ("tenure", "tenure.local", "tenure.processor") for owner, *_ in _durations(room)
    }
    methods = {owner for owner in made if "." in owner}
    assert made - methods - MAKERS.keys() <= {
        # tested where they are
        *(
            "Election",
            "Processor",
            "RWLock",
            "ResourcePool",
            "Barrier",
            "Item",
            "serve",
            "open_store",
            "Threads",
        ),
        *("TokenBucket", "QueueFigures", "Job", "Store"),
    }


@pytest.mark.parametrize(("owner", "parameter"), sorted(set(_constructed())))
@pytest.mark.backends("asyncio")
async def test_a_timedelta_means_its_seconds(owner, parameter):
    make = MAKERS[owner]
    one, other = make(**{parameter: SECONDS}), make(**{parameter: SAME})
    assert set(_numbers(one)) == set(_numbers(other))


async def test_calls_take_a_timedelta(virtual_clock):
    bucket = local.TokenBucket(1, burst=5)
    await bucket.hold_off(SAME)
    await bucket.acquire()
    assert virtual_clock.now() == SECONDS
    await virtual_clock.advance(SAME)
    assert virtual_clock.now() == 2 * SECONDS
    limiter = tenure.RateLimiter(
        store := tenure.open_store("memory:"), "k", tenure.Limit(1, per=SAME, burst=1)
    )
    async with store:
        await limiter.hold_off(SAME)
        await limiter.acquire()
        assert virtual_clock.now() == 3 * SECONDS
        await limiter.acquire()
        assert virtual_clock.now() == 4 * SECONDS
    proxy = FaultProxy("127.0.0.1", 1)
    proxy.latency(SAME, jitter=SAME)
    proxy.trickle(1, every=SAME)
    clock = LeapingClock()
    clock.jump(SAME)
    assert clock() == anyio.current_time() + SECONDS
    testing.assert_no_leaks(grace=SAME)
