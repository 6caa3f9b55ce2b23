"""The walk of the contract where it is not the contract: operations of a few steps each, and time that nobody sets."""

from __future__ import annotations

import sqlite3

import anyio
import depth
import pytest
from contract._same import Numbers
from contract._walk import WalkContract

from tenure.engine import CAP, Engine, Queued
from tenure.engines.sqlite import SqliteEngine
from tenure.engines.sqlite._clock import Clocks
from tenure.engines.sqlite._executor import Executor
from tenure.engines.sqlite._opening import create


class Direct(Engine):
    """An SQLite database in memory, without a file or a thread."""

    url = "direct"
    families = True

    def __init__(self, clock, cap):
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        create(self.db)
        self._executor = Executor(self.db, Clocks(clock), cap=cap)
        self._listeners = {}

    async def execute(self, operations):
        answers, hints, _ = self._executor.execute(operations)
        for hint in hints:
            if hint.process in self._listeners:
                self._listeners[hint.process](hint)
        await anyio.lowlevel.checkpoint()
        return answers

    async def serve(self, process, deliver, *, task_status=anyio.TASK_STATUS_IGNORED):
        self._listeners[process] = deliver
        task_status.started()
        await anyio.sleep_forever()


CAPS = (1, pytest.param(2, marks=pytest.mark.full), 3, pytest.param(5, marks=pytest.mark.full))


class InSmallSteps(WalkContract):
    """Where the engine stops and answers MORE, it loses and doubles nothing."""

    walks = depth.walks(3)
    now = 1000.0

    @pytest.fixture(params=CAPS, ids="cap {}".format)
    def cap_of_engine(self, request):
        self.cap = request.param
        return self.cap

    @pytest.fixture
    def clock(self):
        return lambda: self.now

    @pytest.fixture
    def advance(self):
        async def advance(seconds):
            self.now += seconds

        return advance


@pytest.mark.backends("asyncio")
class TestSqliteInStep(InSmallSteps):
    """Both are written in Python and stop at the same places; they hint in the same order, too."""

    in_step = True

    @pytest.fixture(params=(*CAPS, CAP), ids="cap {}".format)
    def cap_of_engine(self, request):
        self.cap = request.param
        return self.cap

    @pytest.fixture
    def engine(self, clock, cap_of_engine):
        engine = Direct(clock, cap_of_engine)
        yield engine
        engine.db.close()


@pytest.mark.backends("asyncio")
class TestRedisInSmallSteps(InSmallSteps):
    @pytest.fixture
    def engine(self, clock, cap_of_engine, inline_redis):
        return inline_redis(clock, cap_of_engine)


@pytest.mark.backends("asyncio")
class TestPostgresInSmallSteps(InSmallSteps):
    @pytest.fixture
    def engine(self, clock, cap_of_engine, inline_postgres):
        return inline_postgres(clock, cap_of_engine)


@pytest.mark.one_loop(0)
class TestInRealTime(WalkContract):
    """An engine's clock that cannot be set: nothing expires, and times differ a little."""

    margin = 0.25
    walks = depth.walks(3)

    @pytest.fixture
    def engine(self, tmp_path):
        return SqliteEngine(tmp_path / "store.db", inline=True)


def test_what_an_earlier_walk_has_left_may_be_due_sooner_where_time_is_real():
    numbers = Numbers(0.25, same_tokens=False)
    assert numbers.same(Queued(1, 999.0), Queued(1, 1000.0))
    assert not numbers.same(Queued(1, 1000.0), Queued(1, 999.0))
    assert not Numbers(0.0, same_tokens=True).same(Queued(1, 999.0), Queued(1, 1000.0))
