"""A server that goes away, or is not there yet: a store notices, waits if asked to, and says so in one short error."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

import tenure
from tenure import EngineError, StoreUnavailable, blocking, open_store
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisClusterEngine, RedisEngine
from tenure.engines.sqlite import SqliteEngine


async def until(store, *, available):
    with anyio.fail_after(50):
        while (await store.statistics()).available is not available:
            await anyio.sleep(0.01)


class Links:
    """Notes what the links of a store do."""

    def __init__(self):
        self.events = []

    def notice(self, event, /, **fields):
        if event.startswith("link."):
            self.events.append(event)


@pytest.fixture(params=["redis", "postgres"])
def server(request):
    return request.getfixturevalue(f"own_{request.param}_server")()


def engine_of(server):
    url = server.url
    return RedisEngine(url) if isinstance(url, str) else PostgresEngine(url())


def stop(server):
    (server.kill if hasattr(server, "kill") else server.stop)()


async def test_an_idle_store_notices_that_its_server_goes_away_and_is_back(server):
    links = Links()
    async with open_store(engine_of(server), observer=links) as store:
        await until(store, available=True)
        stop(server)
        await until(store, available=False)
        assert links.events == ["link.lost"]
        await anyio.to_thread.run_sync(server.start)
        await until(store, available=True)
        assert links.events == ["link.lost", "link.back"]
        await store.ping()


async def test_an_idle_store_notices_that_its_server_does_not_answer(own_redis_server):
    server = own_redis_server()
    # retry: the server may be as slow at first, on a busy machine
    async with open_store(RedisEngine(server.url, response_timeout=0.5), retry=50) as store:
        os.kill(server.process.pid, signal.SIGSTOP)
        await until(store, available=False)
        os.kill(server.process.pid, signal.SIGCONT)
        await until(store, available=True)


@pytest.mark.one_loop
async def test_an_idle_store_notices_that_one_node_of_a_cluster_goes_away(own_redis_cluster):
    links = Links()
    engine = RedisClusterEngine(own_redis_cluster.url)
    async with open_store(engine, observer=links) as store:
        own_redis_cluster.nodes[1].kill()
        await until(store, available=False)
        await anyio.to_thread.run_sync(own_redis_cluster.nodes[1].start)
        await until(store, available=True)
    assert links.events == ["link.lost", "link.back"]


async def test_it_waits_for_a_server_that_starts_later(server):
    stop(server)
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, server.start)
        async with open_store(engine_of(server), retry=50) as store:
            await store.ping()


async def test_it_waits_no_longer_than_it_was_asked_to(free_port, virtual_clock):
    began = anyio.current_time()
    with pytest.raises(StoreUnavailable):
        async with open_store(f"redis://127.0.0.1:{free_port()}", retry=20):
            pytest.fail("it was opened")
    assert 20 <= anyio.current_time() - began <= 21


async def test_opening_that_waits_can_be_cancelled(free_port, virtual_clock):
    with anyio.move_on_after(5) as scope:
        async with open_store(f"redis://127.0.0.1:{free_port()}", retry=20):
            pytest.fail("it was opened")
    assert scope.cancelled_caught


async def test_a_server_that_refuses_for_good_is_not_waited_for(redis_server):
    with anyio.fail_after(50), pytest.raises(EngineError, match="AUTH|WRONGPASS"):
        async with open_store(redis_server.url.replace("unix://", "unix://nobody:wrong@"), retry=1000):
            pytest.fail("it was opened")


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:{}",
        "postgresql://127.0.0.1:{}/x",
        "redis+sentinel://127.0.0.1:{}/jobs",
        "redis+cluster://127.0.0.1:{}",
    ],
)
async def test_a_server_that_is_not_there_is_one_short_error(url, free_port):
    url = url.format(free_port())
    with pytest.raises(StoreUnavailable) as caught:
        async with open_store(url):
            pytest.fail("it was opened")
    error = caught.value
    assert str(error).startswith(url)
    printed = "".join(traceback.format_exception(error))
    assert "retry=30.0" in printed
    assert printed.count('File "') <= 6, printed
    assert "Traceback" not in printed.replace("Traceback", "", 1)


@pytest.mark.parametrize("wrong", [-1, float("inf"), "30", True])
def test_retry_is_a_time(wrong):
    with pytest.raises((TypeError, ValueError), match="retry"):
        open_store("memory:", retry=wrong)


ASKING = {
    "try_acquire": lambda store, room: room.RateLimiter(store, "x", tenure.Limit(1)).try_acquire(),
    "fail_fast": lambda store, room: room.RateLimiter(store, "x", tenure.Limit(1)).acquire(fail_fast=True),
    "state": lambda store, room: room.RateLimiter(store, "x", tenure.Limit(1)).state(),
    "locked": lambda store, room: room.Lock(store, "x").locked(),
    "try_put": lambda store, room: room.WorkQueue(store, "x").try_put(1),
    "statistics": lambda store, room: room.WorkQueue(store, "x").statistics(),
    "pause": lambda store, room: room.WorkQueue(store, "x").pause(),
    "abort": lambda store, room: room.Barrier(store, "x", 2).abort(),
    "ping": lambda store, room: store.ping(),
}
"""Calls that wait for an answer alone. tests/shared/test_away.py has all of them."""

SOON = 0.5
"""The response_timeout of the stores here."""


def processes_of(server):
    """The processes of a server, the first one before those that it has started."""
    pid = server.process.pid
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


@contextmanager
def gone(server, how):
    """While the server is killed, or stands still."""
    if how == "killed":
        stop(server)
        yield
        server.start()
        return
    pids = processes_of(server)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def url_of(server):
    return server.url if isinstance(server.url, str) else server.url()


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_what_waits_for_an_answer_alone_says_in_time_that_there_is_none(server, how):
    async with open_store(url_of(server), response_timeout=SOON, retry=50, ttl=30) as store:
        await tenure.WorkQueue(store, "other").put(1)
        with gone(server, how):
            for _ in range(2):
                for name, call in ASKING.items():
                    began = anyio.current_time()
                    with pytest.raises(StoreUnavailable):
                        await call(store, tenure)
                    assert anyio.current_time() - began < SOON + 0.4, name
            with pytest.raises(tenure.AcquireTimeout) as caught:
                async with tenure.Lock(store, "x").hold(timeout=0.1):
                    pytest.fail("held")
            assert re.fullmatch(r"the store has (been away|not answered) for .* s", caught.value.reason)
        with anyio.fail_after(50):
            while store.unready is not None:
                await anyio.sleep(0.01)
            async with tenure.Lock(store, "x").hold(timeout=20):
                pass
            assert (await tenure.RateLimiter(store, "x", tenure.Limit(1)).state()).available == pytest.approx(
                1, abs=0.2
            )
            assert (await tenure.WorkQueue(store, "x").statistics()).waiting <= 1


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_in_synchronous_code_too(server, how):
    with blocking.open_store(url_of(server), response_timeout=SOON, retry=50, ttl=30) as store:
        queue = blocking.WorkQueue(store, "x", max_size=1)
        queue.put(1)
        with gone(server, how):
            for name, call in ASKING.items():
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    call(store, blocking)
                assert time.monotonic() - began < SOON + 0.4, name
            limiter = blocking.RateLimiter(store, "x", tenure.Limit(1))
            for call in (
                lambda: limiter.acquire(timeout=0.1),
                lambda: limiter.spend(timeout=0.1).__enter__(),
                lambda: queue.put(2, put_timeout=0.1),
                lambda: queue.put_many([2], timeout=0.1),
                lambda: queue.result(1, timeout=0.1),
                lambda: queue.join(timeout=0.1),
                lambda: blocking.Barrier(store, "x", 2).wait(timeout=0.1),
            ):
                with pytest.raises(
                    TimeoutError, match=r"not done within 0.1 s; the store .* has been away for"
                ):
                    call()


async def test_a_locked_file_counts_as_away(tmp_path, monkeypatch):
    monkeypatch.setattr(SqliteEngine, "response_timeout", SOON)
    async with open_store(SqliteEngine(tmp_path / "a.db")) as store:
        await store._handle.session(30)
        other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for name, call in ASKING.items():
            began = anyio.current_time()
            with pytest.raises(StoreUnavailable):
                await call(store, tenure)
            assert anyio.current_time() - began < SOON + 0.4, name
        other.execute("ROLLBACK")
        other.close()
        await tenure.Lock(store, "x").locked()


DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def program(page, containing, url):
    """What the first block of a page that contains this defines, over the server at `url`."""
    blocks = re.findall(
        r"^```python runnable\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    code = next(block for block in blocks if containing in block)
    namespace = {}
    exec(code.replace('"memory:"', f'"{url}", response_timeout={SOON}, retry=50'), namespace)
    return namespace


@pytest.mark.backends("asyncio")
async def test_the_recipes_let_calls_in_while_the_server_is_frozen(own_redis_server):
    httpx, fastapi = pytest.importorskip("httpx"), pytest.importorskip("fastapi")
    server = own_redis_server()
    there = program("use-in-fastapi.md", "async def limited", server.url)
    app = there["app"]

    @app.get("/", dependencies=[fastapi.Depends(there["limited"])])
    async def greet() -> str:
        return "hello"

    admitted = program("limit-a-rate.md", "async def admitted", server.url)["admitted"]
    transport = httpx.ASGITransport(app)
    async with (
        there["lifespan"](app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):

        async def ask(path, post=False):
            began = anyio.current_time()
            code = (await (client.post if post else client.get)(path)).status_code
            assert anyio.current_time() - began < 1.0
            return code

        assert [await ask("/") for _ in range(4)] == [200, 200, 200, 429]
        with gone(server, "frozen"):
            assert [await ask("/") for _ in range(4)] == [200] * 4
            assert await admitted(app.state.limiter)
            assert await ask("/reports", post=True) == 503
        with anyio.fail_after(50):
            while app.state.store.unready is not None:
                await anyio.sleep(0.01)
            while await ask("/") != 429:
                pass
