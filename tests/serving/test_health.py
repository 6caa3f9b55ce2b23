"""/live and /ready: what they say of a loop that turns, one that is blocked, and a store that is away."""

from __future__ import annotations

import os
import re
import signal
import socket
import time

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import tenure
from tenure import Worker, WorkQueue, serve
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine

pytestmark = pytest.mark.one_loop


def ask(port, request=b"GET /live HTTP/1.1\r\nHost: here\r\n\r\n"):
    """The status and the body."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        data = b""
        while more := connection.recv(65536):
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    return int(head.split()[1]), body.decode().strip()


def get(port, path):
    return ask(port, f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())


async def live(port):
    return await anyio.to_thread.run_sync(get, port, "/live")


async def ready(port):
    return await anyio.to_thread.run_sync(get, port, "/ready")


async def until(port, path, status):
    """Waits until that is the status."""
    with anyio.fail_after(20):
        while (answer := await anyio.to_thread.run_sync(get, port, path))[0] != status:
            await anyio.sleep(0.02)
    return answer


class Service:
    unready = None

    def __init__(self):
        self.drained = anyio.Event()
        self.may_end = anyio.Event()

    async def run(self):
        await self.may_end.wait()

    async def drain(self):
        self.drained.set()
        await self.may_end.wait()


@pytest.fixture
async def serving(free_port):
    """Runs a service with health checks: `port = await serving(service)`."""
    async with anyio.create_task_group() as group:

        async def start(*services, **options):
            port = free_port()
            group.start_soon(lambda: serve(*services, health=f"127.0.0.1:{port}", **options))
            with anyio.fail_after(20):
                while True:
                    try:
                        await ready(port)
                    except ConnectionError:
                        await anyio.sleep(0.02)
                    else:
                        break
            return port

        yield start
        group.cancel_scope.cancel()


async def test_live_and_ready(serving):
    port = await serving(Service())
    await until(port, "/ready", 200)
    assert await ready(port) == (200, "ready")
    assert await live(port) == (200, "live")


async def test_a_service_that_is_not_ready(serving):
    service = Service()
    port = await serving(service)
    service.unready = "no coal"
    _, body = await until(port, "/ready", 503)
    assert "Service object" in body and body.endswith(" is not ready: no coal")
    assert (await live(port))[0] == 200
    service.unready = None
    await until(port, "/ready", 200)


async def test_each_service_that_is_not_ready_says_why(serving):
    class Broken(Service):
        @property
        def unready(self):
            if services[1].unready:
                raise LookupError("oil")

    services = Service(), Service(), Broken()
    port = await serving(*services)
    await until(port, "/ready", 200)
    services[1].unready = "no oil"
    _, body = await until(port, "/ready", 503)
    assert [reason.partition("> ")[2] for reason in body.split("; ")] == [
        "is not ready: no oil",
        "is not ready: LookupError('oil') was raised",
    ]


async def test_what_drains_is_live_and_not_ready(serving):
    service = Service()
    port = await serving(service)
    await until(port, "/ready", 200)
    os.kill(os.getpid(), signal.SIGTERM)
    await service.drained.wait()
    assert await until(port, "/ready", 503) == (503, "drains")
    assert await live(port) == (200, "live")
    service.may_end.set()


async def test_a_blocked_loop_is_reported_and_forgiven(serving):
    port = await serving(Service(), stalled=0.3)
    found = []

    def look():
        time.sleep(0.1)
        found.append(get(port, "/live"))  # not yet
        time.sleep(0.7)
        found.append(get(port, "/live"))
        found.append(get(port, "/ready"))

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, look)
        await anyio.sleep(0.05)
        time.sleep(1.5)
    assert [status for status, _ in found] == [200, 503, 503]
    assert found[1][1].startswith("the event loop has been blocked for ")
    assert (await live(port))[0] == 200


class Away(FaultyEngine):
    """Cannot be reached while it is `down`."""

    down = False

    async def execute(self, operations):
        if self.down:
            await anyio.lowlevel.checkpoint()
            raise tenure.StoreUnavailable("down")
        return await super().execute(operations)


async def test_without_its_engine_a_worker_is_live_and_not_ready(serving):
    engine = Away(MemoryEngine())

    async def handle(task: tenure.Task):
        return task.payload

    async with tenure.open_store(engine, ttl=0.5) as store:
        queue = WorkQueue(store, "q")
        worker = Worker(queue, handle)
        port = await serving(worker)
        await until(port, "/ready", 200)
        engine.down = True
        _, body = await until(port, "/ready", 503)
        assert re.fullmatch(
            r"<Worker 'q' running busy=0/10> is not ready: the store memory: has been away for \d+ s", body
        )
        assert (await live(port))[0] == 200
        engine.down = False
        await until(port, "/ready", 200)
        assert await queue.result(await queue.put(1)) == 1
        with anyio.fail_after(20):
            await worker.drain()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"HEAD /live HTTP/1.1\r\n\r\n", 200),
        (b"GET /live?verbose=1 HTTP/1.0\r\n\r\n", 200),
        (b"POST /live HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /live\r\n\r\n", 400),
        (b"\x16\x03\x01 what is this\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nX: " + b"x" * 9000, 431),
    ],
)
async def test_requests_of_other_kinds(serving, request_, status):
    port = await serving(Service())
    found, body = await anyio.to_thread.run_sync(ask, port, request_)
    assert found == status
    assert bool(body) != request_.startswith(b"HEAD")


async def test_slow_clients_delay_nobody(serving):
    port = await serving(Service())
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    try:
        for connection in slow:
            connection.sendall(b"GET /li")
        assert (await live(port))[0] == 200
    finally:
        for connection in slow:
            connection.close()


async def test_an_address_that_is_taken(free_port):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(OSError, match=f"in use: '127.0.0.1:{port}'"):
            await serve(Service(), health=f"127.0.0.1:{port}")
        assert signal.getsignal(signal.SIGTERM) is before


async def test_the_port_that_was_found_is_logged(caplog):
    class Brief:
        async def run(self):
            pass

    caplog.set_level("INFO", "tenure")
    assert await serve(Brief(), health="127.0.0.1:0")
    assert "health checks: /live and /ready at port " in caplog.text
