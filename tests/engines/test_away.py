"""A server that goes away, or is not there yet: a store notices, waits if asked to, and says so in one short error."""

from __future__ import annotations

import os
import signal
import traceback

import anyio
import pytest

from tenure import EngineError, StoreUnavailable, open_store
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisClusterEngine, RedisEngine


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
