"""The scripts of Redis in the time of the test, and what they cost."""

from __future__ import annotations

from itertools import islice
from zlib import crc32

import pytest
from contract import _odd_arguments

import tenure.engine as e


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def fewer_odd_arguments(request, monkeypatch):
    """A third of them in the contract, which is not the same for each engine; still some of each operation."""
    odd, first = _odd_arguments._odd, crc32(f"{request.module.__name__} {request.cls.__name__}".encode()) % 3

    def some(value):
        return islice(odd(value), first, None, 3) if isinstance(value, e.Operation) else odd(value)

    monkeypatch.setattr(_odd_arguments, "_odd", some)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def scripts(inline_redis, clock):
    return inline_redis(clock)


@pytest.fixture
def ask(scripts):
    """Apply one operation; there is a session "s"."""
    scripts.apply_now(e.OpenSession("s", "p", 1e6))
    return scripts.apply_now


@pytest.fixture
def cost(redis_server, ask):
    """Apply one operation -> its answer, and how many commands its script took."""

    def commands(operation):
        redis_server("CONFIG", "RESETSTAT")
        answer = ask(operation)
        calls = {}
        for line in redis_server("INFO", "commandstats").decode().splitlines():
            name, _, figures = line.removeprefix("cmdstat_").partition(":")
            if figures and not name.startswith("config"):
                calls[name] = dict(figure.split("=") for figure in figures.split(","))
        assert not calls.keys() & {"keys", "scan"}
        commands.seconds = float(calls.pop("evalsha")["usec"]) / 1e6
        return answer, sum(int(one["calls"]) for one in calls.values())

    return commands
