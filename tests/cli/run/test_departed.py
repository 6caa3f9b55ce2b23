"""A command that died is known to be dead by the next one on the same machine, and by no other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import tenure
from tenure.cli.run._departed import departed, end_sessions, has_died, own_identity
from tenure.engines.memory import MemoryEngine

pytestmark = pytest.mark.skipif(own_identity() is None, reason="the system does not tell")


@contextmanager
def waiting():
    """A process that only waits, and its identity."""
    code = "import json, sys; from tenure.cli.run._departed import own_identity as own"
    code += "; print(json.dumps(own()), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, json.loads(process.stdout.readline())
        process.kill()


@pytest.fixture(scope="module")
def who():
    """The identity of a process that was killed."""
    with waiting() as (process, who):
        process.kill()
    return who


def test_one_that_was_killed_is_dead_before_its_parent_knows_and_after():
    assert not has_died(own_identity())
    with waiting() as (process, who):
        assert not has_died(who)
        assert has_died(who | {"started": who["started"] - 1}), "the number was used again"
        process.kill()
        limit = time.monotonic() + 20
        while not has_died(who):  # a zombie
            assert time.monotonic() < limit
    assert has_died(who)


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"boot": "an earlier one"}, {"spaces": ["pid:[1]", "time:[1]"]}]
)
def test_of_those_elsewhere_nothing_is_known(who, change):
    assert has_died(who)
    assert not has_died(who | change)


def test_without_an_identity_nothing_is_known(monkeypatch, who):
    assert not has_died(None)
    assert not has_died({})
    monkeypatch.setattr("tenure.cli.run._departed._PROC", Path("/nowhere"))
    assert own_identity() is None
    assert not has_died(who)


def test_which_cursors_are_of_the_dead(who):
    cursors = {
        "tally:a": {"who": who},
        "tally:b": {"who": own_identity()},
        "tally:c": {},
        "input": {"who": who},
    }
    assert departed(cursors, "tally:") == ["tally:a"]


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def open_store_on(request, here):
    """Opens stores over one engine: each is what another process would be."""
    match request.param:
        case "memory":
            return partial(tenure.open_store, MemoryEngine())
        case "sqlite":
            return partial(tenure.open_store, "sqlite:///x.db")
        case "redis":
            return partial(tenure.open_store, request.getfixturevalue("redis_server").url)
        case _:
            return partial(tenure.open_store, request.getfixturevalue("postgres_server").url())


async def test_ending_its_sessions_frees_what_it_had_and_nothing_else(open_store_on):
    async with open_store_on() as dead, open_store_on() as alive, open_store_on() as ours:
        queue = tenure.WorkQueue(ours, "ends")
        ids = await queue.put_many([1, 2])
        with pytest.raises(tenure.LeaseLost):
            async with tenure.WorkQueue(dead, "ends").take():
                async with tenure.WorkQueue(alive, "ends").take():
                    assert await end_sessions(ours._handle, dead.process)
                    assert not await end_sessions(ours._handle, dead.process)
                    statistics = await queue.statistics()
                    assert (statistics.waiting, statistics.leased) == (1, 1)
        assert [record.id for record in (await queue.tasks("waiting").page()).records] == ids[:1]
        assert (await queue.statistics()).done == 1
