"""What is looked at when a Redis server is opened, rights and layout; and what cannot be read."""

from __future__ import annotations

import re
from hashlib import sha1
from pathlib import Path

import anyio
import pytest

import tenure
from tenure import EngineError, Lock, WorkQueue
from tenure.cli import main
from tenure.engine import HEALTH, Scan
from tenure.engines.redis import _scripts

LUA = Path(_scripts.__file__).parent / "lua"
CALLED = {
    name
    for part in LUA.glob("*.lua")
    for name in re.findall(r"\bcall\('([A-Z]+)'", part.read_text())
    if part.name != "probe.lua"
} | {"PUBLISH"}
PASSWORD = "open sesame"


@pytest.fixture
def user(redis_server):
    """Makes a user who may do everything but some commands, and returns the URL."""

    def make(*denied):
        rights = ("resetchannels", "~tenure:*", "&tenure:*", "+@all", *(f"-{name}" for name in denied))
        redis_server("ACL", "SETUSER", "clerk", "reset", "on", f">{PASSWORD}", *rights)
        return redis_server.url.replace("unix://", f"unix://clerk:{PASSWORD.replace(' ', '%20')}@")

    yield make
    redis_server("ACL", "DELUSER", "clerk")


async def use(url):
    async with tenure.open_store(url) as store:
        async with Lock(store, "x"):
            await WorkQueue(store, "q").put("task")


async def test_a_user_with_all_that_is_needed(user):
    await use(user())


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("command", sorted(CALLED))
async def test_a_user_that_lacks_a_command_is_refused_when_the_store_is_opened(user, redis_server, command):
    with pytest.raises(EngineError, match=rf"{command}\b|lacks a permission") as caught:
        await use(user(command.lower()))
    assert PASSWORD not in str(caught.value)
    assert redis_server("KEYS", "*") in ([], [b"tenure:{0}:state"])


@pytest.mark.backends("asyncio")
async def test_a_server_that_lacks_a_command_is_refused_when_the_store_is_opened(own_redis_server):
    server = own_redis_server(*("--rename-command", "ZPOPMIN", "", "--rename-command", "HSETNX", ""))
    with pytest.raises(EngineError, match=r"the server has no HSETNX, ZPOPMIN, which the scripts call"):
        await use(server.url)


@pytest.mark.backends("asyncio")
async def test_a_server_that_refuses_undeclared_keys_is_refused(redis_server, monkeypatch):
    """As Dragonfly does, whose words stand here; no such server is at hand."""
    source = _scripts.script("probe").source
    called, answer = b"redis.pcall(command, ...)", b"{err = 'ERR script tried accessing undeclared key'}"
    assert called in source
    source = source.replace(called, answer)
    planted = _scripts.Script(source, sha1(source).hexdigest().encode())
    monkeypatch.setattr("tenure.engines.redis._handshake.script", lambda _: planted)
    monkeypatch.setattr("tenure.engines.redis._handshake.loads", lambda: [("SCRIPT", "LOAD", source)])
    with pytest.raises(EngineError, match="refuses keys that a script has not declared, with .*DEL.*managed"):
        await use(redis_server.url)


async def test_a_user_that_may_not_use_the_keys_is_refused(redis_server, user):
    url = user()
    redis_server("ACL", "SETUSER", "clerk", "resetkeys", "~other:*")
    with pytest.raises(EngineError, match="may not use|lacks a permission"):
        await use(url)


async def test_the_list_of_rights_in_the_docs_is_enough(redis_server):
    page = (Path(__file__).parents[2] / "docs/explanations/redis-scripts.md").read_text()
    rights = re.search(r"^ACL SETUSER \S+ (.*?)^```", page, re.MULTILINE | re.DOTALL)[1].split()
    redis_server(
        "ACL", "SETUSER", "listed", "reset", *(f">{PASSWORD}" if one[0] == ">" else one for one in rights)
    )
    try:
        await use(redis_server.url.replace("unix://", f"unix://listed:{PASSWORD.replace(' ', '%20')}@"))
    finally:
        redis_server("ACL", "DELUSER", "listed")


# --------------------------------------------------------------------------------------------------------- the layout


async def test_another_layout_is_refused(redis_server):
    redis_server("HSET", "tenure:{0}:state", "layout", "2")
    with pytest.raises(EngineError, match=r"have layout 2, this version has 1; finish the work"):
        await use(redis_server.url)


async def test_the_layout_is_kept(redis_server):
    await use(redis_server.url)
    assert redis_server("HMGET", "tenure:{0}:state", "layout", "shards") == [b"1", b"1"]


# ------------------------------------------------------------------------------------------------- what cannot be read


UNREADABLE = {
    "a task that expires": (("ZADD", "tenure:{0}:expiring", "1", "000000000001of nothing"),),
    "a resource that rests": (("ZADD", "tenure:{0}:cooling", "1", "nonsense"),),
    "a line": (("SADD", "tenure:{0}:unserved", "nothing"),),
    "a session": (("ZADD", "tenure:{0}:sessions", "1", "nobody"),),
    "the things of a session": (
        ("ZADD", "tenure:{0}:sessions", "1", "nobody"),
        (
            "ZADD",
            "tenure:{0}:nobody:items",
            "1",
            "nonsense",
            "2",
            "hold x",
            "3",
            "claim a\xffb",
            "4",
            "tasks q",
        ),
        ("ZADD", "tenure:{0}:nobody q:leases", "1", "000000000009"),
    ),
}


@pytest.mark.parametrize("commands", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_stops_nothing(redis_server, commands):
    async with tenure.open_store(redis_server.url) as store:
        async with Lock(store, "before"):
            pass
        for command in commands:
            redis_server(*command)
        redis_server("HSET", "tenure:{0}:state", "due", "0" * 16)
        with anyio.fail_after(30):
            async with Lock(store, "x"):
                await WorkQueue(store, "q").put("task")
        (examined,) = (await store._handle.call(Scan(HEALTH))).rows
        aside = redis_server("SCARD", "tenure:{0}:unreadable")
        assert any("could not be read" in problem for problem in examined.problems) == bool(aside)


def test_the_doctor_finds_and_removes_it(redis_server, capsys):
    redis_server("ZADD", "tenure:{0}:expiring", "1", "000000000001of nothing")
    redis_server("HSET", "tenure:{0}:state", "due", "0" * 16)
    assert main(["doctor", redis_server.url]) == 1
    assert "1 entries of indexes could not be read" in capsys.readouterr().out
    assert main(["doctor", redis_server.url, "--repair"]) == 1
    capsys.readouterr()
    main(["doctor", redis_server.url])
    assert "could not be read" not in capsys.readouterr().out
