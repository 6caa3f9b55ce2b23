"""Engines, stores over them, and what the tests of the processor have in common."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

import tenure
from tenure.engines.memory import MemoryEngine
from tenure.engines.redis import RedisEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.local import Pool


@pytest.fixture
def engine(request):
    """One engine, of `variants.py`: memory, a file, or a server."""
    if request.param == "memory":
        return MemoryEngine()
    if request.param == "redis":
        if "virtual_clock" in request.fixturenames:
            clock = request.getfixturevalue("virtual_clock").now
            return request.getfixturevalue("inline_redis")(clock)
        return RedisEngine(request.getfixturevalue("redis_server").url)
    if request.param == "postgres":  # only where a test asks for it, in virtual time
        return request.getfixturevalue("inline_postgres")(request.getfixturevalue("virtual_clock").now)
    path = request.getfixturevalue("tmp_path") / "store.db"
    if "virtual_clock" in request.fixturenames:
        return SqliteEngine(path, clock=request.getfixturevalue("virtual_clock").now, inline=True)
    return SqliteEngine(path)


@pytest.fixture
def open_store_on(engine):
    """Opens stores over the one engine of the test: each is what another process would be."""
    return partial(tenure.open_store, engine)


@pytest.fixture
async def store(open_store_on):
    """An open store with a ttl of 3 seconds."""
    async with open_store_on(ttl=3.0) as opened:
        yield opened


@pytest.fixture
async def memory(virtual_clock, request):
    """An open store in memory with a ttl of 3 seconds, in virtual time; its observer is `told`, if the test asks."""
    observer = request.getfixturevalue("told") if "told" in request.fixturenames else None
    async with tenure.open_store("memory:", ttl=3.0, observer=observer) as opened:
        yield opened


@pytest.fixture
def freeze(virtual_clock):
    """Lets seconds pass while nothing can run, as when the process was stopped."""

    def pass_by(seconds):
        if virtual_clock.backend == "trio":
            virtual_clock._time._mock.jump(seconds)
        else:
            virtual_clock._time.seconds += seconds

    return pass_by


class Connections:
    """Makes connections, and knows them all; `pool` is what a processor is given."""

    def __init__(self):
        self.made = []
        self.open = set()
        self.in_use = self.most = 0
        self.broken = False

    def pool(self, **options):
        return Pool(self.create, close=self.close, check_timeout=1.0, **options)

    async def create(self):
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise ConnectionError("refused")
        self.made.append(len(self.made))
        self.open.add(self.made[-1])
        return self.made[-1]

    async def close(self, connection):
        self.open.remove(connection)


@pytest.fixture
def connections():
    return Connections()


class Told:
    """An observer that remembers."""

    def __init__(self):
        self.events = []

    def notice(self, event, /, **fields):
        self.events.append((event, fields))

    def names(self):
        return [event for event, _ in self.events]

    def of(self, name):
        return [fields for event, fields in self.events if event == name]


@pytest.fixture
def told():
    return Told()
