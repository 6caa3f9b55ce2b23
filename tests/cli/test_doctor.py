"""`tenure doctor`: what it tells of a store, and that it finds what is wrong."""

from __future__ import annotations

import json
import sys

import anyio
import pytest

from tenure.engine import Health, Page
from tenure.engines.redis._health import _problems


@pytest.fixture
def examine(command):
    """Runs `tenure doctor URL --json`."""

    def run(url):
        ended = command("doctor", url, "--json")
        return ended.code, json.loads(ended.out)

    return run


@pytest.fixture
def sqlite_store(here, command):
    (here / "jobs.db").touch()
    return "sqlite:///jobs.db"


def test_a_file_that_is_well(sqlite_store, examine, command):
    code, document = examine(sqlite_store)
    assert (code, document["ok"], document["problems"]) == (0, True, [])
    assert document["url"] == sqlite_store
    assert {"engine", "schema", "journal", "synchronous", "round trip", "clock"} <= set(document["facts"])
    assert document["ping"] > 0
    assert abs(document["clock_skew"]) < 1
    ended = command("doctor", sqlite_store)
    assert ended.code == 0
    assert ended.out.endswith("nothing is wrong\n")


def test_memory_is_always_well(examine):
    assert examine("memory:")[0] == 0


def test_the_store_may_be_given_as_an_option(sqlite_store, command):
    assert command("doctor", "--store", sqlite_store).code == 0


def test_a_full_disk_and_a_long_log_are_found(sqlite_store, examine, monkeypatch):
    monkeypatch.setattr("tenure.engines.sqlite._survey._LEAST_SPACE", 1 << 80)
    monkeypatch.setattr("tenure.engines.sqlite._survey._LONG_LOG", -1)
    code, document = examine(sqlite_store)
    assert (code, document["ok"]) == (1, False)
    disk, log = document["problems"]
    assert disk.startswith("the disk has ")
    assert log.startswith("the write-ahead log has grown to ")


def test_clocks_that_differ_and_slow_answers_are_found(sqlite_store, examine, monkeypatch):
    monkeypatch.setattr(
        "tenure.engines.sqlite._survey.SqliteSurvey.health",
        lambda *_: Page((Health(-37.0, (("engine", "x"),), ()),)),
    )
    monkeypatch.setattr("tenure.cli._doctor._SLOW", 0.0)
    code, document = examine(sqlite_store)
    slow, clock = document["problems"]
    assert code == 1
    assert slow.startswith("a round trip takes ")
    assert clock.startswith("the engine's clock is 37 s behind this machine's")


def test_a_server_that_is_well(own_redis_server, examine):
    code, document = examine(own_redis_server("--appendonly", "yes").url)
    assert (code, document["problems"]) == (0, [])
    assert document["facts"]["append-only file"] == "on"
    assert document["facts"]["eviction policy"] == "noeviction"
    assert document["facts"]["engine"].startswith(("Redis ", "Valkey "))


def test_a_server_that_may_drop_things(own_redis_server, command):
    server = own_redis_server("--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
    ended = command("doctor", server.url)
    assert (ended.code, ended.err) == (1, "")
    problems = [line for line in ended.out.splitlines() if line.startswith("problem: ")]
    assert [problem.split(":")[1].split()[:2] for problem in problems] == [
        ["maxmemory-policy", "is"],
        ["the", "append-only"],
    ]


WELL = {
    "used_memory": "900",
    "maxmemory": "0",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
}


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ({}, None),
        ({"maxmemory_policy": "allkeys-lru"}, None),
        (
            {"maxmemory": "999"},
            "90% of maxmemory is in use: raise maxmemory or purge queues before writes are refused",
        ),
        (
            {"maxmemory": "900"},
            "100% of maxmemory is in use: raise maxmemory or purge queues now, as writes are refused",
        ),
        ({"evicted_keys": "3"}, "the server has evicted 3 keys"),
        ({"aof_last_write_status": "err"}, "the last write to the append-only file failed"),
        ({"rdb_last_bgsave_status": "err"}, "the last snapshot failed"),
    ],
)
def test_what_a_server_says_is_judged(info, problem):
    found = list(_problems(WELL | info))
    assert len(found) == (problem is not None)
    assert all(line.startswith(problem) for line in found)


def test_a_server_that_is_away(examine):
    code, document = examine("redis://127.0.0.1:1")
    assert (code, document["ok"], len(document["problems"])) == (1, False, 1)


def test_a_server_that_does_not_answer(own_redis_server, examine, monkeypatch):
    monkeypatch.setattr("tenure.cli._doctor._look", stalls)
    monkeypatch.setattr("tenure.cli._doctor._TIMEOUT", 0.05)
    code, document = examine(own_redis_server().url)
    assert code == 1
    assert document["problems"] == ["no answer within 0.05 s: look at the server and the network"]


async def stalls(*_, **__):
    await anyio.sleep_forever()


def test_a_file_that_is_none_of_ours(here, examine):
    (here / "poem.db").write_text("roses are red " * 100)
    code, document = examine("sqlite:///poem.db")
    assert (code, document["ok"]) == (1, False)


def test_an_engine_whose_library_is_missing(examine, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tenure.engines.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    code, document = examine("redis://localhost")
    assert code == 1
    assert "pip install 'tenure[redis]'" in document["problems"][0]


def test_misuse(misused):
    assert "is not a store URL" in misused("doctor", "nonsense")
    assert "there is no file nothing.db" in misused("doctor", "sqlite:///nothing.db")
