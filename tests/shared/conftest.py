"""Every engine that is there, stores over it, and a cancellation at every single suspension."""

from __future__ import annotations

import asyncio
import types
from functools import partial

import anyio
import pytest

import tenure
from tenure import EngineError, StoreUnavailable
from tenure.engine import HOLDERS, Engine, Holdings, Scan
from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.testing import FaultyEngine


@pytest.fixture
def engine(request):
    """One engine, of `variants.py`: memory, memory behind a wire on which batches travel, a file, or a server."""
    if request.param == "memory":
        return MemoryEngine()
    if request.param == "wire":
        return FaultyEngine(MemoryEngine())
    if request.param == "redis":
        if "virtual_clock" in request.fixturenames:
            clock = request.getfixturevalue("virtual_clock").now
            return request.getfixturevalue("inline_redis")(clock)
        return RedisEngine(request.getfixturevalue("redis_server").url)
    if request.param == "postgres":
        if "virtual_clock" in request.fixturenames:
            clock = request.getfixturevalue("virtual_clock").now
            return request.getfixturevalue("inline_postgres")(clock)
        return PostgresEngine(request.getfixturevalue("postgres_server").url())
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
    """An open store with a ttl of 3 seconds: beats at 1, lost 2.7 seconds after the last beat that got through."""
    async with open_store_on(ttl=3.0) as opened:
        yield opened


class Breakable(FaultyEngine):
    """Can be away (`down`), and refuse every operation of a type (`refused`)."""

    down = False
    refused = ()

    async def execute(self, operations):
        if self.down:
            await anyio.lowlevel.checkpoint()
            raise StoreUnavailable("down")
        refused = self.refused  # a test may change it meanwhile
        let_through = [operation for operation in operations if not isinstance(operation, refused)]
        answers = iter(await super().execute(let_through) if let_through else ())
        return [
            EngineError("refused") if isinstance(operation, refused) else next(answers)
            for operation in operations
        ]


@pytest.fixture
def faulty():
    """Memory behind a wire that can fail."""
    return Breakable(MemoryEngine())


@pytest.fixture
async def faulty_store(faulty):
    """An open store on `faulty`, with a ttl of 3 seconds."""
    async with tenure.open_store(faulty, ttl=3.0) as opened:
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


@pytest.fixture
def sleep_of_the_machine(virtual_clock, monkeypatch):
    """Lets seconds pass on the clock that runs on while the machine is suspended, and on no other."""
    asleep = [0.0]
    monkeypatch.setattr("tenure.store._sessions.boot_time", lambda: virtual_clock.now() + asleep[0])

    def pass_by(seconds):
        asleep[0] += seconds

    return pass_by


@pytest.fixture
def nothing_of():
    """Asserts that the engine of a store knows nobody who holds a key or waits for it."""
    return _nothing_of


async def _nothing_of(store, key):
    # what was handed over before this call reaches the engine before it
    assert await store._handle.call(Scan(HOLDERS, key)) == Holdings(())


@pytest.fixture
def cancelled_at_every_step():
    """Runs a scenario again and again, cancelled at its first suspension, its second, and so on.

    `async for k in cancelled_at_every_step(scenario, native=False)`: the scenario was just cancelled at its k-th
    suspension (and ended). Ends when it gets through before its k-th; the cancellation is a scope's, or asyncio's own.
    """
    return _cancelled_at_every_step


async def _cancelled_at_every_step(scenario, *, native=False):
    k = 0
    cancelled = True
    while cancelled:
        k += 1
        cancelled = await (_cancelled_natively if native else _cancelled_by_scope)(scenario, k)
        yield k


async def _cancelled_by_scope(scenario, k):
    steps = _Steps(k)
    with anyio.CancelScope() as scope:
        steps.cancel = scope.cancel
        await steps.through(scenario())
    return steps.reached


async def _cancelled_natively(scenario, k):
    steps = _Steps(k)
    task = asyncio.get_running_loop().create_task(steps.through(scenario()))
    steps.cancel = task.cancel
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return steps.reached


class _Steps:
    def __init__(self, k):
        self.left = k
        self.cancel = None

    @property
    def reached(self):
        return self.left <= 0

    async def through(self, coroutine):
        return await self._through(coroutine)

    @types.coroutine
    def _through(self, coroutine):
        # what `yield from` does, but for the count
        value = error = None
        while True:
            try:
                trap = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            self.left -= 1
            if self.left == 0:
                self.cancel()
            value = error = None
            try:
                value = yield trap
            except BaseException as thrown:
                error = thrown


@pytest.fixture
def recording(engine):
    """The engine of the test, noting what passes."""
    return _Recording(engine)


class _Recording(Engine):
    def __init__(self, engine):
        self.operations = []
        # for one store
        self._engine = engine.link()

    @property
    def url(self):
        return self._engine.url

    def submit(self, operation, on_answer):
        self.operations.append(operation)
        self._engine.submit(operation, on_answer)

    async def serve(self, process, deliver, *, task_status):
        await self._engine.serve(process, deliver, task_status=task_status)

    def take(self, *kinds):
        """The operations of these kinds so far, which are forgotten."""
        found = [operation for operation in self.operations if isinstance(operation, kinds or object)]
        self.operations.clear()
        return found
