"""Puts over HTTP: who may put, what is refused, and what a refusal names."""

from __future__ import annotations

import json
import logging
import socket

import anyio
import pytest

import tenure
from tenure.web import Site, _site, app, server
from tenure.web._answers import Request

TOKEN = "correcthorse7"
SAFE = ("X-Tenure-Action: 1", "Content-Type: application/json", "Sec-Fetch-Site: same-origin")
HEADERS = {"x-tenure-action": "1", "content-type": "application/json", "sec-fetch-site": "same-origin"}


@pytest.fixture
async def store(virtual_clock):
    async with tenure.open_store("memory:") as store:
        yield store


async def put(site, body, queue="mails", **headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request("POST", f"/queues/{queue}", "", {**HEADERS, **headers}, body, "192.0.2.7")
    return await site.answer(request)


async def number_of(store, name="mails"):
    return (await tenure.WorkQueue(store, name).statistics()).put


# who may put


@pytest.mark.parametrize("options", [{}, {"actions": True}])
async def test_without_the_switch_nothing_is_put(store, options):
    answer = await put(Site(store, **options), {"payload": 1})
    assert (answer.status, dict(answer.headers)["Allow"]) == (405, "GET, HEAD")
    assert await number_of(store) == 0


async def test_the_switch_allows_no_actions(store):
    site = Site(store, puts=True)
    await put(site, {"payload": 1})
    action = Request("POST", "/actions", "", HEADERS, b'{"action": "pause", "queue": "mails"}')
    assert (await site.answer(action)).status == 405
    assert b'data-actions="yes"' not in (await site.answer(Request("GET", "/", "", {}))).body


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET", "HEAD", "post"])
async def test_other_methods_put_nothing(store, method):
    answer = await Site(store, puts=True).answer(
        Request(method, "/queues/mails", "", HEADERS, b'{"payload": 1}')
    )
    assert answer.status in (404, 405)
    assert await number_of(store) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"x-tenure-action": ""},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
async def test_a_put_that_may_come_from_another_site_is_refused(store, headers):
    assert (await put(Site(store, puts=True), {"payload": 1}, **headers)).status == 403
    assert await number_of(store) == 0


@pytest.mark.parametrize(
    "token",
    [
        *("", "Authorization: Bearer", "Authorization: Bearer wrong", "Authorization: Basic " + TOKEN),
        *(
            f"Authorization: Bearer {TOKEN}x",
            f"Authorization: Bearer {TOKEN.upper()}",
            "Cookie: tenure=" + TOKEN,
        ),
    ],
)
async def test_a_put_needs_the_token(serve, token):
    ask = await serve(token=TOKEN, puts=True)
    body = b'{"payload": 1}'
    headers = (*SAFE, f"Content-Length: {len(body)}", *filter(None, [token]))
    assert (await ask("/queues/mails", *headers, method="POST", body=body)).status == 401
    assert await number_of(ask.store) == 0
    said = await ask(
        "/queues/a%2Fb%20%C3%BC",
        *SAFE,
        f"Content-Length: {len(body)}",
        f"Authorization: Bearer {TOKEN}",
        method="POST",
        body=body,
    )
    assert said.status == 201
    assert await number_of(ask.store, "a/b \u00fc") == 1


async def test_a_mounted_page_puts_if_it_is_allowed(store):
    page, sent = app(store, puts=True), []
    body = [
        {"type": "http.request", "body": b'{"payload"', "more_body": True},
        {"type": "http.request", "body": b": 7}"},
    ]

    async def receive():
        return body.pop(0)

    async def send(message):
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/queues/mails",
        "query_string": b"",
        "headers": headers,
    }
    await page(scope, receive, send)
    assert sent[0]["status"] == 201
    async with tenure.WorkQueue(store, "mails").take(0) as task:
        assert task.payload == 7


# what is refused


@pytest.mark.parametrize(
    ("body", "named"),
    [
        *((raw, "the body must be JSON") for raw in (b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5_000)),
        *((raw, "the body must be a JSON object") for raw in (b"[]", b"null", b'"payload"', b"1")),
        ({}, "payload is missing"),
        ({"payload": 1, "queue": "other"}, "a put takes no 'queue'; it takes payload, at, deadline, delay"),
        (b'{"payload": NaN}', "the payload cannot be encoded"),
        (b'{"payload": "\\ud800"}', "the payload cannot be encoded"),
        *(
            ({"payload": 1, "key": value}, "key must")
            for value in ("", "x" * 513, 7, ["k"], {"text": "k"}, True)
        ),
        (b'{"payload": 1, "key": "\\ud800"}', "key must not have lone surrogates"),
        *(({"payload": 1, "group": value}, "group must") for value in ("", "\0x", 7)),
        *(
            ({"payload": 1, "priority": value}, "priority must")
            for value in (1.5, "1", True, None, 2**31, -(2**80))
        ),
        *(({"payload": 1, "delay": value}, "delay must") for value in (-1, "1", True, None, 2e9, [])),
        (b'{"payload": 1, "delay": 1e999}', "delay must"),
        (b'{"payload": 1, "delay": NaN}', "delay must"),
        *(
            ({"payload": 1, "at": value}, "at must be")
            for value in ("soon", "", 7, {}, [], "2026-01-31T25:00:00Z")
        ),
        ({"payload": 1, "at": "2026-01-31T12:00:00"}, "at must have a time zone"),
        ({"payload": 1, "at": "2026-01-31T12:00:00Z", "delay": 5}, "a put has a delay or at, not both"),
        *(({"payload": 1, name: 0}, f"{name} must") for name in ("expires", "deadline")),
    ],
)
async def test_a_wrong_field_is_named(store, body, named):
    answer = await put(Site(store, puts=True), body)
    assert (answer.status, answer.kind) == (400, "application/json")
    assert named in json.loads(answer.body)["error"]
    assert await number_of(store) == 0


@pytest.mark.parametrize("name", ["x" * 513, "\u00fc" * 257, "\ud800"])
async def test_a_name_that_no_queue_can_have_is_refused(store, name):
    answer = await put(Site(store, puts=True), {"payload": 1}, name)
    assert answer.status == 400
    assert "the name of the queue must" in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    "name", ["a/b", "a b?c#d", "..", "\0", "a\nb", "tasks", "x/tasks/", "/", "x/tasks/y"]
)
async def test_a_queue_with_an_odd_name_gets_the_task(store, name, caplog):
    caplog.set_level(logging.INFO, "tenure")
    task_id = json.loads((await put(Site(store, puts=True), {"payload": "secret"}, name)).body)["id"]
    assert (await tenure.WorkQueue(store, name).get(task_id)).state == "waiting"
    (line,) = [record.getMessage() for record in caplog.records if "page.put" in record.getMessage()]
    assert line == f"page.put queue={name!r} task={task_id} status=201 by=192.0.2.7"


@pytest.mark.parametrize("path", ["", "mails/tasks", "mails/tasks/7", "mails/counts", "mails/workers"])
async def test_what_can_only_be_read_takes_no_put(store, path):
    assert (await put(Site(store, puts=True), {"payload": 1}, path)).status == 405


async def test_a_path_that_is_no_utf8_is_refused(serve):
    ask = await serve(puts=True)
    said = await ask("/queues/%ff", *SAFE, "Content-Length: 14", method="POST", body=b'{"payload": 1}')
    assert said.status == 400


async def test_a_payload_that_is_too_large_is_refused(serve):
    ask = await serve(puts=True)
    body = json.dumps({"payload": "x" * _site.MOST_BODY}).encode()
    said = await ask("/queues/mails", *SAFE, f"Content-Length: {len(body)}", method="POST", body=body)
    assert said.status == 413
    queue = tenure.WorkQueue(ask.store, "small", max_payload=10)
    async with anyio.create_task_group() as group:
        group.start_soon(tenure.Worker(queue, print).run)
        await anyio.sleep(0.1)
        body = json.dumps({"payload": "x" * 20}).encode()
        said = await ask("/queues/small", *SAFE, f"Content-Length: {len(body)}", method="POST", body=body)
        group.cancel_scope.cancel()
    assert said.status == 413
    assert await number_of(ask.store, "small") == await number_of(ask.store) == 0


async def test_too_many_puts_are_to_come_later(store, virtual_clock):
    site = Site(store, puts=True)
    answers = [await put(site, {"payload": n, "key": f"k{n // 2}"}) for n in range(150)]
    # also existing tasks count
    assert 99 <= sum(answer.status in (201, 200) for answer in answers) <= 100
    assert (answers[-1].status, dict(answers[-1].headers)["Retry-After"]) == (429, "1")
    assert await number_of(store) == 50
    # who may not put uses nothing up
    assert (await put(site, {"payload": 1}, **{"x-tenure-action": ""})).status == 403
    await virtual_clock.advance(1)
    assert (await put(site, {"payload": 1})).status == 201
    assert await number_of(store) == 51


async def test_a_full_queue_is_to_be_asked_later(store):
    await tenure.WorkQueue(store, "mails", max_size=1).put(1)
    answer = await put(Site(store, puts=True), {"payload": 2})
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (503, "1")
    assert "full" in json.loads(answer.body)["error"]


async def test_a_client_that_never_reads_is_let_go_and_its_task_is_put_once(serve, monkeypatch):
    monkeypatch.setattr(server, "_STALLED", 0.05)
    ask = await serve(puts=True)
    lines = ["POST /queues/mails HTTP/1.1", "Host: localhost", *SAFE, "Content-Length: 14", "", ""]
    half = "\r\n".join(lines).encode() + b'{"payload": '
    for data in (half, half + b"1}"):
        with socket.create_connection(("127.0.0.1", ask.port)) as client, anyio.fail_after(50):
            client.sendall(data)
            while not ask.server._connections:
                await anyio.sleep(0.01)
            if data == half:
                while ask.server._connections:
                    await anyio.sleep(0.01)
            else:
                while not await number_of(ask.store):
                    await anyio.sleep(0.01)
    assert await number_of(ask.store) == 1


async def test_a_put_that_takes_too_long_is_reported(store, virtual_clock, monkeypatch):
    async def stalls(*_, **__):
        await anyio.sleep_forever()

    monkeypatch.setattr("tenure.shared.queue._puts.Producers.put", stalls)
    answer = await put(Site(store, puts=True), {"payload": 1})
    said = {"error": "memory:: the task may have been put, but no answer came within 20 s"}
    assert (answer.status, json.loads(answer.body)) == (503, said)
