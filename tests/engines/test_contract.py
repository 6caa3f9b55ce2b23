"""All our engines keep the engine contract."""

from __future__ import annotations

import shutil
from collections import Counter

import anyio
import pytest

from tenure.engine import Operation
from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.testing import FaultyEngine
from tenure.testing.contract import EngineContract, _odd_arguments


class Time:
    """The engine's clock, set by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    async def advance(self, seconds):
        self.now += seconds


class InSetTime(EngineContract):
    @pytest.fixture
    def time(self):
        return Time()

    @pytest.fixture
    def advance(self, time):
        return time.advance


class TestMemory(InSetTime):
    @pytest.fixture
    def engine(self, time):
        return MemoryEngine(clock=time)


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


@pytest.mark.parametrize("inline", [False, True], ids=["thread", "inline"])
class TestSqlite(InSetTime):
    @pytest.fixture
    def engine(self, time, tmp_path, empty_file, inline):
        return SqliteEngine(shutil.copy(empty_file, tmp_path), clock=time, inline=inline)


class TestRedis(InSetTime):
    @pytest.fixture
    def engine(self, time, redis_server):
        return RedisEngine(redis_server.url, clock=time)


# what depends on the loop is the link: tests/engines/test_postgres.py
@pytest.mark.backends("asyncio")
class TestPostgres(InSetTime):
    @pytest.fixture
    def engine(self, time, postgres_server):
        return PostgresEngine(postgres_server.url(), clock=time)


def test_no_part_of_the_contract_hides_a_test_of_another():
    tests = [name for part in EngineContract.__mro__ for name in vars(part) if name.startswith("test_")]
    assert [name for name, times in Counter(tests).items() if times > 1] == []


def test_every_kind_of_operation_is_tried_with_odd_arguments():
    tried = {type(operation) for family in _odd_arguments.FAMILIES.values() for operation in family}
    assert {kind.__name__ for kind in tried} == {kind.__name__ for kind in Operation.__subclasses__()}
