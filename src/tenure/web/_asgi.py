"""The page as an ASGI application, to be mounted behind the user's own login."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tenure.store import Store
from tenure.upkeep import unwrapped_task_group

from ._answers import Answer, Request, plain
from ._site import MOST_BODY, Site

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def app(
    store: Store,
    *,
    actions: bool = False,
    puts: bool = False,
    payloads: bool = False,
    errors: bool = True,
    trust_proxy: bool = False,
) -> Application:
    """The page about an open store as an ASGI application, on asyncio and trio.

    It asks for no token: mount it where your own login has let the user through. With `actions` it can change queues
    and break locks, with `puts` put tasks; requests of other sites are refused. `payloads` shows payloads and
    results, `errors` errors and tracebacks. With `trust_proxy` the log names who asked by `X-Forwarded-User`. It uses
    the store on the event loop in which that was opened. Its addresses are relative to `root_path`.
    """
    site = Site(store, actions=actions, puts=puts, payloads=payloads, errors=errors, trust_proxy=trust_proxy)

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await _respond(site, scope, receive, send)
            case "lifespan":
                await _live(site, receive, send)
            case other:
                raise NotImplementedError(f"tenure.web.app serves http, not {other}")

    return application


async def _respond(site: Site, scope: Message, receive: Receive, send: Send) -> None:
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    # some servers include the root in the path, others leave it out
    if root and (path == root or path.startswith(f"{root}/")):
        path = path.removeprefix(root)
    if path == "":
        # the addresses in the page are relative to it
        answer = Answer(307, b"", headers=(("Location", f"{root.rpartition('/')[2] or '.'}/"),))
    elif (body := await _body(receive)) is None:
        answer = plain(413, f"a request may have at most {MOST_BODY} bytes")
    else:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        client = (scope.get("client") or ("",))[0]
        query = scope["query_string"].decode("latin-1")
        answer = await site.answer(Request(scope["method"], path, query, headers, body, client))
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.all_headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})


async def _body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


async def _live(site: Site, receive: Receive, send: Send) -> None:
    await receive()
    async with unwrapped_task_group() as group:
        group.start_soon(site.sample)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        group.cancel_scope.cancel()
    await send({"type": "lifespan.shutdown.complete"})
