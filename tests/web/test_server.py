"""The page's server answers those who may ask, and nobody else."""

from __future__ import annotations

import contextlib
import json
import socket
import struct

import anyio
import pytest

import tenure
from tenure.errors import StoreUnavailable
from tenure.web import server
from tenure.web.server import is_loopback

TOKEN = "correcthorse7"


async def test_the_page_and_the_state_are_served(serve):
    ask = await serve()
    page = await ask("/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.body.startswith(b"<!doctype html>")
    state = await ask("/state.json?anything=1")
    assert (state.status, json.loads(state.body)) == (200, {"answer": 42})


async def test_only_the_pages_own_script_and_style_may_run(serve):
    policy = (await (await serve())("/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


async def test_nothing_is_kept_or_embedded_by_browsers(serve):
    ask = await serve()
    for target in ("/", "/state.json", "/nothing"):
        headers = (await ask(target)).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1",
        "192.168.1.9:8765",
        "[::1]",
        "[::1]:80",
        "me.example",
        "me.example.:1",
    ],
)
async def test_the_servers_own_names_are_answered(serve, host):
    ask = await serve(names=("Me.Example",))
    assert (await ask("/", host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "1.2.3.4@evil", ""]
)
async def test_other_names_are_not_answered(serve, host):
    ask = await serve(names=("me.example",))
    for target in ("/", "/state.json"):
        said = await ask(target, host=host)
        assert (said.status, b"42" in said.body) == (421, False)


async def test_without_the_token_nothing_is_served(serve):
    ask = await serve(token=TOKEN)
    for target in (
        "/",
        "/state.json",
        "/nothing",
        f"/?token={TOKEN}x",
        "/?token=",
        f"/state.json?token={TOKEN.upper()}",
    ):
        said = await ask(target)
        assert (said.status, said.headers["www-authenticate"]) == (401, "Bearer")
        wrong = target.partition("token=")[2] != ""
        assert said.body.startswith(b"this token is wrong" if wrong else b"a token is needed")
    for header in (
        "Authorization: Bearer wrong",
        f"Authorization: Basic {TOKEN}",
        "Cookie: tenure=x",
        "Cookie: \x7f;=;",
    ):
        said = await ask("/state.json", header)
        wrong = header.startswith("Authorization: Bearer")
        assert (said.status, said.body.startswith(b"this token is wrong")) == (401, wrong)
    assert (await ask("/state.json", "Authorization: Bearer \xfc\xff")).status == 401


async def test_with_the_token_everything_is_served(serve):
    ask = await serve(token=TOKEN)
    assert (await ask("/state.json", f"Authorization: Bearer {TOKEN}")).status == 200
    assert (await ask(f"/state.json?token={TOKEN}")).status == 200
    said = await ask(f"/?token={TOKEN}")
    assert (said.status, said.headers["location"]) == (303, "/")
    cookie = said.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    for target in ("/", "/state.json"):
        assert (await ask(target, f"Cookie: other=1; {cookie.partition(';')[0]}")).status == 200


async def test_the_cookie_of_another_port_is_not_ours(serve):
    ask, other = await serve(token=TOKEN), await serve(token="another1234")
    cookie = (await ask(f"/?token={TOKEN}")).headers["set-cookie"].partition(";")[0]
    assert (await other("/", f"Cookie: {cookie}")).status == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_it_can_only_be_read(serve, method):
    said = await (await serve())("/state.json", method=method)
    assert (said.status, said.headers["allow"]) == (405, "GET, HEAD")


async def test_head_has_no_body(serve):
    said = await (await serve())("/", method="HEAD")
    assert (said.status, said.body) == (200, b"")
    assert int(said.headers["content-length"]) > 1000


async def test_other_paths_are_unknown(serve):
    ask = await serve()
    for target in ("/nothing", "//", "/../etc/passwd", "/state.json/", "*", "/%2e%2e/"):
        assert (await ask(target)).status == 404


async def test_a_store_that_is_away_is_reported(serve):
    async def state():
        raise StoreUnavailable("redis://host: no answer")

    said = await (await serve(state))("/state.json")
    assert (said.status, json.loads(said.body)) == (503, {"error": "redis://host: no answer"})


async def test_a_connection_is_used_again(serve):
    ask = await serve()
    async with await ask.connect() as stream:
        for _ in range(3):
            await stream.send(b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = b""
            while b"42" not in said:
                said += await stream.receive()


async def test_requests_sent_together_are_answered_in_order(serve):
    ask = await serve()
    one = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = await ask.raw((one.format("/state.json") + one.format("/nothing") + last.format("/")).encode())
    assert [int(part.split()[0]) for part in said.split(b"HTTP/1.1 ")[1:]] == [200, 404, 200]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no host
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"400"),
        (b"GET http://[x]/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_request_is_refused(serve, data, status):
    ask = await serve()
    assert (await ask.raw(data)).split()[1] == status
    assert (await ask("/")).status == 200


async def test_a_request_with_a_body_is_answered_and_the_connection_ends(serve):
    ask = await serve()
    said = await ask.raw(
        b"GET /state.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\nxxx"
    )
    assert said.startswith(b"HTTP/1.1 200")


async def test_a_request_with_two_lengths_is_answered_and_the_connection_ends(serve):
    ask = await serve(actions=True)
    chunks = b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    for method in (b"GET", b"POST"):
        head = method + b" /state.json HTTP/1.1\r\nHost: localhost\r\n"
        said = await ask.raw(head + chunks + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert said.count(b"HTTP/1.1") == 1
        assert b"\r\nConnection: close\r\n" in said


ACTION = b'{"action": "pause", "queue": "mails"}'
SAFE = ("X-Tenure-Action: 1", "Content-Type: application/json", "Sec-Fetch-Site: same-origin")


async def test_actions_are_carried_out_with_the_token_only(serve):
    ask = await serve(token=TOKEN, actions=True)
    queue = tenure.WorkQueue(ask.store, "mails")
    await queue.put(1)
    length = f"Content-Length: {len(ACTION)}"
    said = await ask("/actions", *SAFE, length, method="POST", body=ACTION)
    assert (said.status, (await queue.statistics()).paused) == (401, False)
    bearer = f"Authorization: Bearer {TOKEN}"
    said = await ask("/actions", *SAFE[1:], length, bearer, method="POST", body=ACTION)
    assert (said.status, (await queue.statistics()).paused) == (403, False)
    said = await ask("/actions", *SAFE, length, bearer, method="POST", body=ACTION)
    assert (said.status, json.loads(said.body)) == (200, {"changed": 1})
    assert (await queue.statistics()).paused


async def test_another_request_follows_an_action_on_the_same_connection(serve):
    ask = await serve(actions=True)
    await tenure.WorkQueue(ask.store, "mails").put(1)
    lines = ["POST /actions HTTP/1.1", "Host: localhost", *SAFE, f"Content-Length: {len(ACTION)}", "", ""]
    last = b"GET /state.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = await ask.raw("\r\n".join(lines).encode() + ACTION + last)
    assert [int(part.split()[0]) for part in said.split(b"HTTP/1.1 ")[1:]] == [200, 200]


async def test_a_body_that_is_too_long_is_refused(serve):
    ask = await serve(actions=True)
    body = b"x" * 300_000
    said = await ask("/actions", *SAFE, f"Content-Length: {len(body)}", method="POST", body=body)
    assert said.status == 413
    assert (await ask("/")).status == 200


@pytest.mark.parametrize("chunk", [b"zz\r\n{}\r\n", b"2\r\n{}xx0\r\n\r\n", b"-1\r\n\r\n"])
async def test_a_malformed_chunk_is_refused(serve, chunk):
    ask = await serve(actions=True)
    head = b"POST /actions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    said = await ask.raw(head + chunk)
    assert said.split()[1] == b"400" and b"\r\nConnection: close\r\n" in said
    assert (await ask("/")).status == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/", b"200"),
        (b"http://127.0.0.1:80/state.json", b"200"),
        (b"http://evil/", b"421"),
        (b"http://localhost@evil/state.json", b"421"),
        (b"//evil/", b"421"),
    ],
)
async def test_a_target_with_a_host_names_this_server(serve, target, status):
    ask = await serve()
    said = await ask.raw(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert said.split()[1] == status


async def test_a_body_that_ends_too_early_does_no_harm(serve):
    ask = await serve(actions=True)
    async with await ask.connect() as stream:
        await stream.send(b"POST /actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        await stream.send_eof()
        assert (await said_on(stream)).split()[1] == b"400"
    assert (await ask("/")).status == 200


async def test_the_tasks_of_a_queue_with_any_name(serve):
    ask = await serve(live=True)
    task_id = await tenure.WorkQueue(ask.store, "a/b \u00fc").put(1)
    said = await ask(f"/queues/a%2Fb%20%C3%BC/tasks/{task_id}")
    assert (said.status, json.loads(said.body)["state"]) == (200, "waiting")


async def said_on(stream):
    """All that comes on a connection until it ends."""
    parts = []
    with contextlib.suppress(anyio.BrokenResourceError):
        async for part in stream:
            parts.append(part)
    return b"".join(parts)


async def test_connections_that_ask_nothing_make_room_the_oldest_first(serve):
    ask = await serve()
    async with contextlib.AsyncExitStack() as stack:

        async def begin():
            stream = await stack.enter_async_context(await ask.connect())
            await stream.send(b"GET / HTTP/1.1\r\nHost: loc")
            return stream

        first, second, third, *_ = [await begin() for _ in range(server._MOST_CONNECTIONS)]
        assert (await ask("/")).status == 200
        assert await said_on(first) == b""
        await begin()
        await begin()
        assert await said_on(second) == b""
        await third.send(b"alhost\r\nConnection: close\r\n\r\n")
        assert (await said_on(third)).startswith(b"HTTP/1.1 200")


async def test_there_is_a_limit_on_requests_at_a_time(serve, monkeypatch):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 2)
    hold, asked = anyio.Event(), []

    async def state():
        asked.append(1)
        await hold.wait()
        return {}

    ask = await serve(state)
    said = []

    async def request():
        said.append((await ask("/state.json")).status)

    async with anyio.create_task_group() as group:
        group.start_soon(request)
        group.start_soon(request)
        while len(asked) < 2:
            await anyio.sleep(0.001)
        refused = await ask("/")
        assert (refused.status, b"too many" in refused.body) == (503, True)
        hold.set()
    assert said == [200, 200]
    with anyio.fail_after(50):
        while (await ask("/")).status != 200:
            await anyio.sleep(0.01)


LARGE = {"large": "x" * 8_000_000}
"""More than the buffers of both ends take."""


@contextlib.contextmanager
def client_that_does_not_read(ask, data):
    """A client that sends this. Not a stream of anyio, which reads ahead on asyncio."""
    with socket.create_connection(("127.0.0.1", ask.port)) as client:
        client.sendall(data)
        yield


@pytest.mark.parametrize("half", ["answer", "body"])
async def test_clients_that_do_not_go_on_make_room_the_oldest_first(serve, monkeypatch, half):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 4)
    for limit in ("_ANSWER", "_STALLED", "_HEAD"):
        monkeypatch.setattr(server, limit, 600.0)

    asked = []

    async def state():
        asked.append(1)
        return LARGE

    ask = await serve(state, actions=True)
    request = {
        "answer": b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "body": b"POST /actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    }[half]
    with contextlib.ExitStack() as stack:
        for n in range(1, 13):
            stack.enter_context(client_that_does_not_read(ask, request))
            with anyio.fail_after(50):
                while half == "answer" and len(asked) < n:
                    await anyio.sleep(0.01)
                while (await ask("/")).status != 200:
                    await anyio.sleep(0.01)


async def test_a_client_that_stops_reading_is_let_go(serve, monkeypatch):
    monkeypatch.setattr(server, "_ANSWER", 600.0)
    monkeypatch.setattr(server, "_STALLED", 0.05)

    asked = []

    async def state():
        asked.append(1)
        return LARGE

    ask = await serve(state)
    with client_that_does_not_read(ask, b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with anyio.fail_after(50):
            while not asked or ask.server._connections:
                await anyio.sleep(0.01)
    assert (await ask("/")).status == 200


@pytest.mark.parametrize("data", [b"GET / HT", b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_client_that_says_nothing_is_let_go(serve, monkeypatch, data):
    monkeypatch.setattr(server, "_HEAD", 0.05)
    assert await (await serve()).raw(data) == b""


async def test_a_client_that_asks_byte_by_byte_is_let_go(serve, monkeypatch):
    monkeypatch.setattr(server, "_HEAD", 0.2)
    ask = await serve()
    with anyio.fail_after(5):
        async with await ask.connect() as stream:
            with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
                while True:
                    await stream.send(b"x")
                    with anyio.move_on_after(0.01):
                        await stream.receive()


async def test_a_slow_answer_has_time_of_its_own(serve, monkeypatch):
    monkeypatch.setattr(server, "_HEAD", 0.05)

    async def state():
        await anyio.sleep(0.2)
        return {}

    assert (await (await serve(state))("/state.json")).status == 200


async def test_a_client_that_does_not_read_the_answer_is_let_go(serve, monkeypatch):
    monkeypatch.setattr(server, "_ANSWER", 0.05)

    async def state():
        await anyio.sleep_forever()

    assert await (await serve(state)).raw(b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""


async def test_a_client_that_goes_away_does_no_harm(serve):
    hold = anyio.Event()

    async def state():
        await hold.wait()
        return {}

    ask = await serve(state)
    for _ in range(3):
        stream = await ask.connect()
        await stream.send(b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await anyio.aclose_forcefully(stream)
    hold.set()
    assert (await ask("/state.json")).status == 200


@pytest.mark.backends("asyncio", "trio", "uvloop")
async def test_a_client_that_resets_its_connection_at_once_does_no_harm(serve):
    ask = await serve()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", ask.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert (await ask("/state.json")).status == 200


def test_where_only_this_machine_can_reach():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("::")
    assert not is_loopback("no such name.invalid")
