"""The page as an ASGI application, called as a server would, and mounted."""

from __future__ import annotations

import json

import anyio
import pytest

import tenure
from tenure.web import app

SAFE = [
    (b"x-tenure-action", b"1"),
    (b"content-type", b"application/json"),
    (b"sec-fetch-site", b"same-origin"),
]


@pytest.fixture
async def store(virtual_clock):
    async with tenure.open_store("memory:") as store:
        await tenure.WorkQueue(store, "mails").put("secret")
        yield store


async def request(application, path, *, method="GET", root="", headers=(), parts=(b"",), query=b""):
    """The status, the headers and the body of the answer to a request."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": root,
        "query_string": query,
        "headers": [(b"host", b"here"), *headers],
        "client": ("192.0.2.7", 5),
    }
    messages = [
        {"type": "http.request", "body": part, "more_body": i + 1 < len(parts)}
        for i, part in enumerate(parts)
    ]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    await application(scope, receive, send)
    start, body = sent
    assert [start["type"], body["type"]] == ["http.response.start", "http.response.body"]
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body["body"]


async def test_the_page_and_its_documents_are_served(store):
    page = app(store)
    status, headers, body = await request(page, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert body.startswith(b"<!doctype html>")
    for path in ("/state.json", "/history.json", "/failures.json", "/queues/mails/tasks"):
        status, headers, body = await request(page, path)
        assert (status, headers["content-type"]) == (200, "application/json")
        assert b"secret" not in body
        assert int(headers["content-length"]) == len(body)
    assert (await request(page, "/nothing"))[0] == 404


async def test_head_has_no_body(store):
    status, headers, body = await request(app(store), "/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000


@pytest.mark.parametrize("root", ["/ops", "/a/ops"])
@pytest.mark.parametrize("included", [True, False])
async def test_it_works_below_any_root(store, root, included):
    page = app(store)
    status, _, body = await request(page, (root if included else "") + "/state.json", root=root)
    assert (status, json.loads(body)["queues"][0]["name"]) == (200, "mails")
    status, headers, _ = await request(page, root if included else "", root=root)
    # relative to /ops, so that the browser finds it behind any proxy
    assert (status, headers["location"]) == (307, "ops/")
    assert (await request(page, f"{root}x/state.json", root=root))[0] == 404


async def test_the_page_asks_for_nothing_by_an_absolute_address(store):
    _, _, body = await request(app(store), "/")
    for quote in (b'"', b"'", b"`"):
        for name in (b"state.json", b"history.json", b"failures.json", b"queues/", b"actions"):
            assert quote + b"/" + name not in body


async def test_actions_are_refused_unless_they_are_allowed(store):
    body = json.dumps({"action": "pause", "queue": "mails"}).encode()
    status, headers, _ = await request(app(store), "/actions", method="POST", headers=SAFE, parts=(body,))
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    page = app(store, actions=True)
    assert (await request(page, "/actions", method="POST", headers=SAFE[:2], parts=(body,)))[0] == 403
    status, _, said = await request(
        page, "/actions", method="POST", headers=SAFE, parts=(body[:5], body[5:], b"")
    )
    assert (status, json.loads(said)) == (200, {"changed": 1})
    assert (await tenure.WorkQueue(store, "mails").statistics()).paused


async def test_a_body_that_is_too_long_is_refused(store):
    page = app(store, actions=True)
    parts = (b"x" * 200_000, b"x" * 200_000)
    assert (await request(page, "/actions", method="POST", headers=SAFE, parts=parts))[0] == 413


async def test_payloads_only_if_allowed(store):
    (task,) = (await tenure.WorkQueue(store, "mails").tasks("waiting").page()).records
    _, _, body = await request(app(store, payloads=True), f"/queues/mails/tasks/{task.id}")
    assert json.loads(body)["payload"] == "secret"


async def test_it_samples_for_as_long_as_the_server_lives(store, virtual_clock):
    page, sent, stop = app(store), [], anyio.Event()
    messages = [{"type": "lifespan.startup"}]

    async def receive():
        if not messages:
            await stop.wait()
            return {"type": "lifespan.shutdown"}
        return messages.pop()

    async def send(message):
        sent.append(message["type"])

    async with anyio.create_task_group() as group:
        group.start_soon(page, {"type": "lifespan"}, receive, send)
        await virtual_clock.advance(65)
        assert sent == ["lifespan.startup.complete"]
        _, _, body = await request(page, "/history.json")
        assert len(json.loads(body)["samples"]) == 7
        stop.set()
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_other_protocols_are_refused(store):
    with pytest.raises(NotImplementedError, match="not websocket"):
        await app(store)({"type": "websocket"}, None, None)


async def test_mounted_in_starlette(store):
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = Starlette(routes=[Mount("/ops", app=app(store))])
    status, _, body = await request(outer, "/ops/state.json")
    assert (status, json.loads(body)["queues"][0]["name"]) == (200, "mails")
