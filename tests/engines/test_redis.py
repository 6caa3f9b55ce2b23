"""The link to a real Redis server: what it says when the server will not do, and that nothing is lost on the way."""

from __future__ import annotations

import os
import re
import signal
import socket
import warnings

import anyio
import hiredis
import pytest

import tenure
from tenure import EngineError, Lock, StoreUnavailable, Worker, WorkQueue
from tenure.engine import (
    HOLDERS,
    NAMES,
    Acquire,
    AddResource,
    Claim,
    CloseSession,
    Granted,
    OpenSession,
    Ping,
    Queued,
    Release,
    RemoveResource,
    Reply,
    Scan,
)
from tenure.engines import open_store
from tenure.engines.redis import RedisEngine
from tenure.engines.redis._endpoint import address
from tenure.testing import FaultProxy


@pytest.fixture
def engine(redis_server):
    return RedisEngine(redis_server.url)


@pytest.fixture
async def serving(engine):
    """The engine, at work; its hints are in `serving.hints`."""
    engine.hints = []
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", engine.hints.append)
        yield engine
        group.cancel_scope.cancel()


async def one(engine, operation):
    (answer,) = await engine.execute([operation])
    return answer


async def hold(lock, granted):
    async with lock:
        granted.set()


async def until(condition):
    with anyio.fail_after(50):
        while not condition():
            await anyio.sleep(0.002)


# ------------------------------------------------------------------------------------------------------ where it is


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://", "redis://localhost:6379"),
        ("redis://example.org", "redis://example.org:6379"),
        ("redis://:secret@example.org:7000/3", "redis://example.org:7000/3"),
        ("redis://me:s%40cret@[::1]/", "redis://me@[::1]:6379"),
        ("redis://example.org?db=4", "redis://example.org:6379/4"),
        ("rediss://me:secret@example.org", "rediss://me@example.org:6379"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("unix://me:secret@/run/a%20b.sock?db=2", "unix://me@/run/a b.sock?db=2"),
    ],
)
def test_an_address_is_shown_without_its_password(url, said):
    where = address(url)
    assert str(where) == said
    assert "cret" not in repr(where)
    assert "cret" not in repr(RedisEngine(url))


@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix", "redis+sentinel", "redis+cluster"])
@pytest.mark.parametrize(
    "login",
    [":se/cret", "me:se#cret", "me:se?cret", "me:se@cret", "se/cr?e#t", ":12/se?replicas=cret", "h/?db=cret"],
)
def test_a_password_that_is_not_escaped_is_refused_without_being_shown(scheme, login):
    with pytest.raises(
        ValueError, match=f"^'{re.escape(scheme)}://example.org/0': .*write / # \\? @ in a"
    ) as caught:
        open_store(f"{scheme}://{login}@example.org/0")
    assert "cret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://me:cret", "redis://...: what follows the : of the host is not a port"),
        ("redis://me:[cret@example.org", "'redis://example.org': this is no URL; write [ and ]"),
        ("redis://me:cret\u2100@example.org", "'redis://example.org': this is no URL"),
        ("redis://me:cret@example.org/0#1", "'redis://example.org/0#1': a Redis URL has nothing behind a #"),
        ("redis:me:cret@example.org", "'example.org': a Redis URL has at most one @"),
    ],
)
def test_a_wrong_url_is_shown_without_its_password(url, words):
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        open_store(url)
    assert "cret" not in str(caught.value)


def test_a_password_is_decoded():
    where = address("redis://m%C3%A9:s%40%3Acret@localhost")
    assert (where.user, where.password) == ("mé", "s@:cret")
    assert address("redis://:%2F%23%3F%40@localhost").password == "/#?@"
    assert address("unix://:%2F%23%3F%40@/run/a%40b").path == "/run/a@b"


def test_response_timeout_is_checked():
    with pytest.raises(ValueError, match="response_timeout must be above 0 seconds, not 0"):
        RedisEngine("redis://", response_timeout=0)


async def test_without_being_served_nothing_is_sent(engine):
    with pytest.raises(StoreUnavailable, match="does not serve"):
        await engine.execute([Ping()])


# ----------------------------------------------------------------------------------------- servers that will not do


async def opened(url, **options):
    async with open_store(url, **options):
        pytest.fail("it was opened")


async def test_nobody_is_there(tmp_path):
    with pytest.raises(StoreUnavailable, match="unix:///.*/none: No such file"):
        await opened(f"unix://{tmp_path}/none")


async def test_a_port_where_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StoreUnavailable, match=f"redis://127.0.0.1:{port}: .*(refused|failed)"):
        await opened(f"redis://127.0.0.1:{port}")


async def answering(reply, body):
    """Run `body(port)` with a server that answers everything with `reply`."""

    async def serve(stream):
        async with stream:
            await stream.receive()
            await stream.send(reply)
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            try:
                await body(listener.extra(anyio.abc.SocketAttribute.local_port))
            finally:
                group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", EngineError, "this is no Redis server"),
        (b"-ERR unknown command 'HELLO'\r\n", EngineError, "older than Redis 6.2"),
        (b"-NOPROTO unsupported protocol version\r\n", EngineError, "older than Redis 6.2"),
        (
            b"%2\r\n+version\r\n+6.0.16\r\n+id\r\n:3\r\n",
            EngineError,
            "6.2 or later is needed, this is 6.0.16",
        ),
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreUnavailable, "LOADING"),
        (b"-NOPERM this user has no permissions\r\n", EngineError, "lacks a permission"),
    ],
)
async def test_a_server_that_will_not_do(reply, error, words):
    async def body(port):
        with pytest.raises(error, match=words):
            await opened(f"redis://127.0.0.1:{port}")

    await answering(reply, body)


async def test_a_server_that_says_nothing():
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(StoreUnavailable, match="no answer within 0.05 s"):
            await opened(RedisEngine(f"redis://127.0.0.1:{port}", response_timeout=0.05))


async def test_a_wrong_password(own_redis_server):
    server = own_redis_server()
    server("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all")
    with pytest.raises(EngineError, match="refuses this user or password: WRONGPASS") as caught:
        await opened(f"unix://me:wr0ng@{server.socket}")
    assert "wr0ng" not in str(caught.value)
    async with open_store(f"unix://me:secret@{server.socket}?db=3") as store:
        async with Lock(store, "x"):
            assert int(server("DBSIZE")) == 0  # it is in the other database
    server("CONFIG", "SET", "requirepass", "only")
    with pytest.raises(EngineError, match=r"the server wants a password: write redis://:PASSWORD@HOST$"):
        await opened(server.url)
    async with open_store(f"unix://:only@{server.socket}"):
        pass
    with pytest.raises(EngineError, match="DB index is out of range"):
        await opened(f"unix://:only@{server.socket}?db=99")


async def test_a_user_that_may_not_kill_its_own_connection_gets_a_clear_error(own_redis_server):
    server = own_redis_server()
    subcommands = (
        ("+client|id", "+client|setname") if server.version < (7, 0) else ("+client", "-client|kill")
    )
    server("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all", "-client", *subcommands)
    with pytest.raises(EngineError, match="lacks a permission: NOPERM"):
        await opened(f"unix://me:secret@{server.socket}")


async def test_a_replica_is_refused(own_redis_server):
    server = own_redis_server()
    server("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="this is a replica"):
        await opened(server.url)


async def test_a_server_that_may_drop_keys_is_warned_of(own_redis_server):
    server = own_redis_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with pytest.warns(RuntimeWarning, match="with maxmemory-policy allkeys-lru the server may drop"):
        async with open_store(server.url):
            pass
    server("CONFIG", "SET", "maxmemory-policy", "noeviction")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with open_store(server.url):
            pass


async def test_without_memory_an_operation_fails_and_the_next_may_not(own_redis_server):
    server = own_redis_server()
    async with open_store(server.url) as store:
        server("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(EngineError, match="the server is at maxmemory; nothing was changed$"):
            async with Lock(store, "x"):
                pytest.fail("it was acquired")
        server("CONFIG", "SET", "maxmemory", "0")
        async with Lock(store, "x"):
            server("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(EngineError, match="the server is at maxmemory; nothing was put$"):
                await WorkQueue(store, "jobs").put("x")
        server("CONFIG", "SET", "maxmemory", "0")
        assert (await WorkQueue(store, "jobs").statistics()).waiting == 0


async def test_without_memory_leases_last_and_workers_empty_the_queue(own_redis_server):
    server = own_redis_server()
    done = []

    async def handler(number):
        done.append(number)

    async with open_store(server.url, ttl=1.0) as store, Lock(store, "x") as lease:
        queue = WorkQueue(store, "jobs")
        await queue.put_many(range(3))
        server("CONFIG", "SET", "maxmemory", "1")
        async with open_store(server.url, ttl=1.0) as fresh, anyio.create_task_group() as group:
            worker = Worker(WorkQueue(fresh, "jobs"), handler)
            group.start_soon(worker.run)
            with anyio.fail_after(20):
                while len(done) < 3:
                    await anyio.sleep(0.01)
            await anyio.sleep(1.5)  # idle, and longer than a ttl
            lease.check()
            assert worker.unready is None
            await worker.drain()
    assert sorted(done) == [0, 1, 2]


# ---------------------------------------------------------------------------------------------------- the one link


def opened_since(server, number):
    """How many connections there are that were opened after this one, and do not ask."""
    asking = server("CLIENT", "ID")
    numbers = map(int, re.findall(rb"^id=(\d+)", server("CLIENT", "LIST"), re.MULTILINE))
    return sum(number < each < asking for each in numbers)


async def test_a_store_needs_one_connection(engine, redis_server):
    before = redis_server("CLIENT", "ID")
    held = []

    async def hold(n):
        async with Lock(store, f"lock {n}"):
            held.append(n)
            await anyio.sleep_forever()

    async with open_store(engine) as store:
        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(hold, n)
            await until(lambda: len(held) == 20)
            await until(lambda: opened_since(redis_server, before) == 1)
            group.cancel_scope.cancel()


async def test_a_lock_cycle_is_two_commands(engine, redis_server):
    async with open_store(engine) as store:
        async with Lock(store, "x"):
            pass
        redis_server("CONFIG", "RESETSTAT")
        for _ in range(10):
            async with Lock(store, "x"):
                pass
        stats = redis_server("INFO", "commandstats").decode()
    assert "cmdstat_evalsha:calls=20," in stats


async def test_nothing_is_left_on_the_server(engine, redis_server):
    async with open_store(engine) as store:
        for n in range(20):
            async with Lock(store, f"lock {n}"):
                pass
    assert redis_server("KEYS", "*") == [b"tenure:{0}:state"]
    assert set(redis_server("HKEYS", "tenure:{0}:state")) == {b"id", b"layout", b"shards", b"token"}


def test_the_last_in_line_takes_the_capacity_with_it_although_somebody_watches(inline_redis, redis_server):
    engine = inline_redis(lambda: 1000.0)
    engine.apply_now(OpenSession("s", "p", 30))
    engine.apply_now(Scan(HOLDERS, "k", watch="s"))
    engine.apply_now(Acquire("s", "k", "a", 1, 2))
    assert engine.apply_now(Release("k", "a")) is Reply.LEFT
    assert engine.apply_now(Scan(HOLDERS, "k")).capacity == 0
    engine.apply_now(CloseSession("s"))
    assert redis_server("KEYS", "*") == [b"tenure:{0}:state"]


def test_a_pool_in_which_somebody_waits_is_not_listed_without_resources(inline_redis):
    engine = inline_redis(lambda: 1000.0)
    engine.apply_now(OpenSession("s", "p", 30))
    engine.apply_now(Claim("s", "pool", "a", (("color", b"red"),)))
    engine.apply_now(AddResource("pool", "it", ()))
    assert engine.apply_now(Scan(NAMES["pools"])).rows == ("pool",)
    engine.apply_now(RemoveResource("pool", "it"))
    assert engine.apply_now(Scan(NAMES["pools"])).rows == ()
    assert engine.apply_now(Claim("s", "pool", "b")).place == 2


async def test_a_cancelled_caller_leaves_the_stream_in_order(serving):
    for n in range(50):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await serving.execute([OpenSession("s", "p", 30)])
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(serving.execute, [Scan(HOLDERS, "k")])
                await anyio.sleep(0)
                group.cancel_scope.cancel()
        assert await one(serving, OpenSession(f"s{n}", "p", 30)) is Reply.OK


async def test_two_stores_share_an_engine_and_its_connection(engine, redis_server):
    before = redis_server("CLIENT", "ID")
    async with open_store(engine, namespace="a") as one_store:
        async with open_store(engine, namespace="b") as other:
            await until(lambda: opened_since(redis_server, before) == 1)
            async with Lock(one_store, "x"), Lock(other, "x"):
                pass
        async with Lock(one_store, "x"):
            pass


async def test_the_connection_is_handed_on_when_the_first_store_closes(engine):
    async with anyio.create_task_group() as group:
        ready, leave = anyio.Event(), anyio.Event()

        async def first():
            async with open_store(engine):
                ready.set()
                await leave.wait()

        group.start_soon(first)
        await ready.wait()
        async with open_store(engine) as store:
            for n in range(20):
                if n == 10:
                    leave.set()
                async with Lock(store, "x"):
                    await anyio.sleep(0.002)


async def test_stores_that_open_at_once_while_the_server_is_away_all_get_the_error(tmp_path):
    engine, told = RedisEngine(f"unix://{tmp_path}/none"), []

    async def open_one():
        with pytest.raises(StoreUnavailable):
            async with open_store(engine):
                pytest.fail("it was opened")
        told.append(True)

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(open_one)
    assert len(told) == 3


async def test_one_that_opens_goes_on_when_the_first_gives_up(redis_server):
    async with FaultProxy(redis_server.socket) as proxy:
        engine = RedisEngine(f"redis://127.0.0.1:{proxy.port}")
        proxy.latency(float("inf"))
        with anyio.fail_after(50):
            async with anyio.create_task_group() as group:
                first, opened = anyio.CancelScope(), []

                async def open_one(scope):
                    with scope:
                        async with open_store(engine) as store:
                            await store.ping()
                            opened.append(True)

                for scope in (first, anyio.CancelScope(), anyio.CancelScope()):
                    group.start_soon(open_one, scope)
                await anyio.sleep(0.05)
                first.cancel()
                proxy.heal()
        assert opened == [True, True]


async def test_hints_come_on_the_same_connection(serving):
    for session in ("s1", "s2"):
        await one(serving, OpenSession(session, "p", 30))
    assert isinstance(await one(serving, Acquire("s1", "k", "a", 1)), Granted)
    assert isinstance(await one(serving, Acquire("s2", "k", "b", 1)), Queued)
    serving.hints.clear()
    assert await one(serving, Release("k", "a")) is Reply.RELEASED
    await until(lambda: serving.hints)
    (told,) = serving.hints
    assert (told.process, told.key, told.name, type(told.news)) == ("p", "k", "b", Granted)


# ----------------------------------------------------------------------------------------------------------- faults


async def test_a_killed_connection_is_made_again(engine, redis_server):
    async with open_store(engine, ttl=5) as store:
        async with Lock(store, "held") as lease:
            for _ in range(5):
                redis_server("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                redis_server("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
                async with Lock(store, "x"):
                    pass
            lease.check()


async def test_waiters_hear_of_their_grant_although_the_message_was_lost(engine, redis_server):
    async with open_store(engine, ttl=600) as store, open_store(redis_server.url, ttl=600) as other:
        for _ in range(5):
            async with anyio.create_task_group() as group:
                async with Lock(other, "x"):
                    granted = anyio.Event()

                    group.start_soon(hold, Lock(store, "x"), granted)
                    await anyio.sleep(0.01)
                    redis_server("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
                with anyio.fail_after(50):
                    await granted.wait()


async def test_a_server_that_is_killed_comes_back_with_its_data(own_redis_server):
    server = own_redis_server("--appendonly", "yes", "--appendfsync", "always")
    async with open_store(server.url, ttl=10) as store:
        queue = WorkQueue(store, "jobs")
        tokens = []
        for n in range(3):
            await queue.put(n)
            async with Lock(store, "x") as lease:
                tokens.append(lease.token)
                server.kill()
                server.start()
                lease.check()
        async with Lock(store, "x") as lease:
            tokens.append(lease.token)
        assert tokens == sorted(set(tokens))
        assert (await queue.statistics()).waiting == 3


async def test_a_server_that_comes_back_empty_loses_the_leases_and_goes_on(own_redis_server):
    server = own_redis_server()
    async with open_store(server.url, ttl=1) as store:
        with pytest.raises(tenure.LeaseLost):
            async with Lock(store, "x") as lease:
                before = lease.token
                server.kill()
                server.start()
                with anyio.fail_after(50):
                    await anyio.sleep_forever()
        async with Lock(store, "x") as lease:
            assert lease.token > before


async def test_while_the_server_is_away_leases_end_at_their_deadline_and_not_before(own_redis_server):
    server = own_redis_server()
    async with open_store(server.url, ttl=1) as store:
        with pytest.raises(tenure.LeaseLost):
            async with Lock(store, "x") as lease:
                server.kill()
                remaining, begun = lease.remaining(), anyio.current_time()
                try:
                    await anyio.sleep(30)
                finally:
                    held = anyio.current_time() - begun
        assert remaining - 0.3 < held < 30
        with anyio.move_on_after(0.1) as scope:
            async with Lock(store, "y"):
                pytest.fail("it was acquired")
        assert scope.cancelled_caught
        server.start()
        with anyio.fail_after(50):
            async with Lock(store, "x"):
                pass


async def test_a_server_that_is_frozen_is_given_up_and_found_again(own_redis_server):
    server = own_redis_server()
    async with open_store(RedisEngine(server.url, response_timeout=1), ttl=30) as store:
        async with Lock(store, "x") as lease:
            os.kill(server.process.pid, signal.SIGSTOP)
            await anyio.sleep(1.5)
            os.kill(server.process.pid, signal.SIGCONT)
            with anyio.fail_after(50):
                async with Lock(store, "y"):
                    lease.check()


async def test_what_a_frozen_server_had_not_read_yet_takes_no_effect_behind_its_own_undoing(own_redis_server):
    server = own_redis_server()
    async with open_store(RedisEngine(server.url, response_timeout=1), ttl=30) as store:
        for n in range(3):
            os.kill(server.process.pid, signal.SIGSTOP)
            with anyio.move_on_after(1.5):
                async with Lock(store, f"lock {n}"):
                    pytest.fail("it was acquired")
            os.kill(server.process.pid, signal.SIGCONT)
            with anyio.fail_after(50):
                async with Lock(store, "x"):
                    pass
    assert server("KEYS", "*") == [b"tenure:{0}:state"]


async def test_a_pause_of_the_clients(engine, redis_server):
    async with open_store(engine, ttl=5) as store:
        async with Lock(store, "x") as lease:
            redis_server("CLIENT", "PAUSE", "300", "ALL")
            async with Lock(store, "y"):
                lease.check()


async def test_a_master_that_becomes_a_replica_is_left(own_redis_server):
    server = own_redis_server()
    async with open_store(server.url, ttl=5) as store:
        server("REPLICAOF", "127.0.0.1", "1")
        with anyio.move_on_after(0.2) as scope:
            async with Lock(store, "x"):
                pytest.fail("it was acquired")
        assert scope.cancelled_caught
        server("REPLICAOF", "NO", "ONE")
        with anyio.fail_after(50):
            async with Lock(store, "x"):
                pass


def test_without_hiredis_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tenure.engines.redis", None)
    with pytest.raises(ModuleNotFoundError):
        open_store("redis://")
    monkeypatch.delitem(__import__("sys").modules, "tenure.engines.redis")
    for name in [name for name in __import__("sys").modules if name.startswith("tenure.engines.redis.")]:
        monkeypatch.delitem(__import__("sys").modules, name)
    monkeypatch.setitem(__import__("sys").modules, "hiredis", None)
    with pytest.raises(ModuleNotFoundError, match=r"hiredis is missing: pip install 'tenure\[redis\]'"):
        open_store("redis://")
    assert hiredis.__name__ == "hiredis"
