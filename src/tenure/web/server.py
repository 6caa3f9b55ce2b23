"""The server of `tenure web`: who may ask, and connections that do no harm. `_site` has the answers."""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import h11
from anyio import TASK_STATUS_IGNORED, CancelScope
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from tenure.upkeep import unwrapped_task_group

from ._answers import Answer, Request, plain
from ._site import MOST_BODY, Site

_MOST_CONNECTIONS = 64
_MOST_HEADER = 16 * 1024
_HEAD = 5.0
"""Seconds until the head of a request is there: from the beginning of the connection, or the answer before."""

_STALLED = 5.0
"""Seconds until more of a body has come, or until the client has taken in the next part of an answer."""

_PART = 16 * 1024

_ANSWER = 30.0
"""Seconds for a request and its answer."""


class Server:
    """Serves a site at `/`, to those that may ask.

    Requests must name this server by a number, `localhost`, or one of `names` (against DNS rebinding). With a `token`
    each request must carry it: as `Authorization: Bearer`, as `?token=`, which is answered with a cookie, or as that
    cookie.
    """

    def __init__(
        self,
        site: Site,
        *,
        token: str | None = None,
        names: Iterable[str] = (),
    ) -> None:
        self._site = site
        self._token = token
        self._names = {"localhost", *(name.lower() for name in names)}
        self._connections = 0
        self._waiting: dict[CancelScope, None] = {}
        self._cookie = "tenure"

    async def serve(
        self, host: str | None, port: int, *, task_status: TaskStatus[Sequence[int]] = TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; reports the ports once it listens. Raises `OSError`.

        Cancellation: this is how it ends; afterwards no socket is left.
        """
        async with await anyio.create_tcp_listener(local_host=host, local_port=port) as listener:
            ports = [stream.extra(SocketAttribute.local_port) for stream in listener.listeners]  # noqa: S610 - no Django
            # cookies do not differ by port
            self._cookie = f"tenure-{ports[0]}"
            async with unwrapped_task_group() as group:
                task_status.started(ports)
                await listener.serve(self._converse, group)

    async def _converse(self, stream: SocketStream) -> None:
        self._connections += 1
        try:
            async with stream:
                conversation = _Conversation(
                    stream, self._answer, self._waiting, takes_bodies=self._site.takes_bodies
                )
                if self._connections > _MOST_CONNECTIONS and not self._let_go_of_the_oldest():
                    await conversation.refuse()
                else:
                    while await conversation.exchange():
                        pass
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, h11.ProtocolError):
            pass  # the client has gone, or is too slow
        finally:
            self._connections -= 1

    def _let_go_of_the_oldest(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        oldest.cancel()
        return True

    async def _answer(self, head: h11.Request, body: bytes, client: str) -> Answer:
        headers = {
            bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in head.headers
        }
        try:
            target = urlsplit(head.target.decode("latin-1"))
            path = unquote(target.path, errors="strict")
        except ValueError:  # what cannot be a host, or is no UTF-8
            return plain(400, "this is not a request that can be answered")
        # a target with a host of its own (RFC 9112, 3.2.2) names this server too
        if not all(map(self._is_ours, (headers.get("host", ""), *filter(None, (target.netloc,))))):
            return plain(
                421, "this server does not go by that name; see tenure web --help about --allow-host"
            )
        token = parse_qs(target.query).get("token", [""])[0]
        given = [said for said in (token, *self._tokens(headers)) if said]
        if self._token is not None and not any(map(self._is_token, given)):
            what = "this token is wrong" if given else "a token is needed"
            return plain(401, f"{what}: open /?token=...", ("WWW-Authenticate", "Bearer"))
        method = head.method.decode("latin-1")
        if target.path == "/" and token and self._token is not None and method in ("GET", "HEAD"):
            # out of the address, and so out of the history
            cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            return Answer(303, b"", headers=(("Location", "/"), ("Set-Cookie", cookie)))
        return await self._site.answer(Request(method, path, target.query, headers, body, client))

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True

    def _is_token(self, token: str) -> bool:
        # in constant time, whatever was given
        return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), (self._token or "").encode())

    def _tokens(self, headers: dict[str, str]) -> Iterable[str]:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            yield credentials.strip()
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return
        if self._cookie in cookies:
            yield cookies[self._cookie].value


class _Conversation:
    def __init__(
        self,
        stream: SocketStream,
        answer: Callable[[h11.Request, bytes, str], Awaitable[Answer]],
        waiting: dict[CancelScope, None],
        *,
        takes_bodies: bool,
    ) -> None:
        self._stream = stream
        self._answer = answer
        self._takes_bodies = takes_bodies
        try:
            self._client = str(stream.extra(SocketAttribute.remote_address)[0])  # noqa: S610 - no Django
        except (AttributeError, LookupError):  # without a peer; on uvloop without a socket
            raise ConnectionResetError("the client has gone") from None
        self._waiting = waiting
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADER)

    async def refuse(self) -> None:
        await self._send(plain(503, "too many connections; try again later"), closes=True)

    async def exchange(self) -> bool:
        """Answer one request; False if there will be no other. Cancellation: the connection is then useless."""
        try:
            request = await self._request()
            if request is None:
                return False
            with anyio.fail_after(_ANSWER):
                body = await self._body() if self._takes_bodies and request.method == b"POST" else b""
        except h11.RemoteProtocolError as problem:
            answer = plain(problem.error_status_hint, "this is not a request that can be answered")
            with anyio.fail_after(_ANSWER):
                await self._send(answer, closes=True)
            return False
        with anyio.fail_after(_ANSWER):
            return await self._answer_to(request, body)

    async def _answer_to(self, request: h11.Request, body: bytes) -> bool:
        if len(body) > MOST_BODY:
            answer = plain(413, f"a request may have at most {MOST_BODY} bytes")
        else:
            answer = await self._answer(request, body, self._client)
        # the rest of a body would have to be read before the next request: the client has to connect again
        closes = self._http.their_state is not h11.DONE and not isinstance(
            self._next_at_hand(), h11.EndOfMessage
        )
        # a proxy may have seen another end of this request (RFC 9112, 6.1)
        closes |= {b"transfer-encoding", b"content-length"} <= {name for name, _ in request.headers}
        await self._send(answer, closes=closes, head=request.method == b"HEAD")
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _body(self) -> bytes:
        body = b""
        while len(body) <= MOST_BODY:
            with self._client_acts(_STALLED):
                event = await self._next()
            if not isinstance(event, h11.Data):
                break
            body += bytes(event.data)
        return body[: MOST_BODY + 1]

    async def _request(self) -> h11.Request | None:
        with self._client_acts(_HEAD):
            event = await self._next()
        return event if isinstance(event, h11.Request) else None

    @contextmanager
    def _client_acts(self, seconds: float) -> Generator[None]:
        """A block that waits for the client. Raises `TimeoutError` after a time, or if another client needs the
        connection.
        """
        with anyio.move_on_after(seconds) as scope:
            self._waiting[scope] = None
            try:
                yield
            finally:
                self._waiting.pop(scope, None)
        if scope.cancelled_caught:
            raise TimeoutError

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self._stream.receive(_MOST_HEADER))
            except anyio.EndOfStream:
                self._http.receive_data(b"")
        return event

    def _next_at_hand(self) -> Any:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError:
            return None

    async def _send(self, answer: Answer, *, closes: bool, head: bool = False) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = list(answer.all_headers)
        if closes:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(answer.status).phrase
        response = h11.Response(status_code=answer.status, reason=reason.encode(), headers=headers)
        parts = [self._http.send(response) or b""]
        if not head:
            parts.append(self._http.send(h11.Data(data=answer.body)) or b"")
        parts.append(self._http.send(h11.EndOfMessage()) or b"")
        data = b"".join(parts)
        for start in range(0, len(data), _PART):
            with self._client_acts(_STALLED):
                await self._stream.send(data[start : start + _PART])


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    try:
        return all(ip_address(address[4][0]).is_loopback for address in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        return False
