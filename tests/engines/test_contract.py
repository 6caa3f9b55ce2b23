"""All our engines keep the engine contract."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter

import anyio
import depth
import pytest
from contract import ContractInSetTime, EngineContract, RestContract, SetBackContract, Time, _odd_arguments
from postgres_servers import kept

from tenure.engine import Operation
from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.testing import FaultyEngine


class InSetTime(ContractInSetTime):
    walks = depth.walks(10)

    @pytest.fixture(autouse=True)
    def quick(self, request):
        if not depth.full:
            request.getfixturevalue("fewer_odd_arguments")


@pytest.mark.one_loop(0)
class TestMemory(InSetTime):
    @pytest.fixture
    def engine(self, time):
        return MemoryEngine(clock=time)


@pytest.mark.full
@pytest.mark.one_loop(1)
class TestWire(InSetTime):
    """Over the memory engine too, operations can travel in batches."""

    @pytest.fixture
    def engine(self, time):
        return FaultyEngine(MemoryEngine(clock=time))


@pytest.fixture(scope="module")
def empty_file(tmp_path_factory):
    """A store in which nothing has happened. Making one takes longer than most of the tests."""
    path = tmp_path_factory.mktemp("empty") / "store.db"

    async def make():
        async with anyio.create_task_group() as group:
            await group.start(SqliteEngine(path, clock=Time(), inline=True).serve, "p", lambda hint: None)
            group.cancel_scope.cancel()

    anyio.run(make)
    return path


MANY = ("test_it_answers_as_the_memory_engine_does", "test_an_odd_operation_answers_or_fails_alone")
"""Each of them makes thousands of calls, which take a thread of SQLite several times as long."""


@pytest.mark.one_loop(2)
@pytest.mark.parametrize(
    "inline", [False, pytest.param(True, marks=pytest.mark.full)], ids=["thread", "inline"]
)
class TestSqlite(SetBackContract, InSetTime):
    @pytest.fixture
    def engine(self, request, time, tmp_path, empty_file, inline):
        inline = inline or (not depth.full and request.node.originalname in MANY)
        return SqliteEngine(shutil.copy(empty_file, tmp_path), clock=time, inline=inline)


@pytest.mark.one_loop(1)
class TestRedis(RestContract, SetBackContract, InSetTime):
    @pytest.fixture
    def engine(self, time, redis_server):
        return RedisEngine(redis_server.url, clock=time)


class KeptConnection:
    """The connection that all tests share: on a new one the server compiles each function again."""

    polling_reason = ""

    def __init__(self, calls, on_notification):
        self._calls = calls
        self._on_notification = on_notification
        self.channels = {}

    async def opened(self):
        pass

    def send(self, statements, on_over):
        asyncio.get_running_loop().call_soon(self._send, statements, on_over)

    def _send(self, statements, on_over):
        results = [self._calls.send(statement) for statement in statements]
        for place, payload in self._calls.notifications():
            self._on_notification(place, payload)
        on_over(results)

    async def subscribe(self, channel):
        self._calls.run(f'LISTEN "{channel}"')

    def forget(self, channel):
        self._calls.run(f'UNLISTEN "{channel}"')

    async def run(self, opened):
        for channel in self.channels:
            await self.subscribe(channel)
        opened()
        await anyio.sleep_forever()


# what depends on the loop is the link: tests/engines/test_postgres.py
@pytest.mark.backends("asyncio")
class TestPostgres(RestContract, SetBackContract, InSetTime):
    @pytest.fixture
    def engine(self, time, postgres_server):
        engine = PostgresEngine(postgres_server.url(), clock=time)
        if not depth.full and (calls := kept.want(postgres_server.url())):
            engine._connection = KeptConnection(calls, engine._on_notification)
        return engine


def test_no_part_of_the_contract_hides_a_test_of_another():
    tests = [name for part in EngineContract.__mro__ for name in vars(part) if name.startswith("test_")]
    assert [name for name, times in Counter(tests).items() if times > 1] == []


def test_every_kind_of_operation_is_tried_with_odd_arguments():
    tried = {type(operation) for family in _odd_arguments.FAMILIES.values() for operation in family}
    assert {kind.__name__ for kind in tried} == {kind.__name__ for kind in Operation.__subclasses__()}
