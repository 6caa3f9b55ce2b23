"""Health checks over HTTP/1.1: `/live`, `/ready` and `/metrics`, answered by another thread, since the loop may be
stuck.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

from tenure.observe import log

from ._pulse import Pulse

_LONGEST_HEAD = 8192
_REQUEST_TIMEOUT = 5.0
"""Seconds for a request and its answer."""

_MOST_CONNECTIONS = 100
_BETWEEN = 0.5
_SECOND_CHECK = 0.1

Answer = tuple[HTTPStatus, str]


@contextmanager
def answering(
    host: str | None,
    port: int,
    stalled: float,
    problem: Callable[[], str | None],
    metrics: Callable[[], tuple[bool, str]] | None = None,
) -> Generator[list[int]]:
    """A block in which health checks are answered; it gets the ports. Raises `OSError`.

    `problem()` returns why the process is not ready, or None; it is called on the running loop, several times a second.
    `metrics()` returns True and the text of `/metrics`, or False and why there is none; it is called in another thread.
    """
    health = _Health(Pulse(problem), stalled, metrics)
    with start_blocking_portal("asyncio") as portal:
        listening, ports = portal.start_task(health.listen, host, port)
        asking = portal.start_task_soon(health.ask)
        try:
            yield ports
        finally:
            asking.cancel()
            listening.cancel()


class _Health:
    def __init__(self, pulse: Pulse, stalled: float, metrics: Callable[[], tuple[bool, str]] | None) -> None:
        self._metrics = metrics
        self._pulse = pulse
        self._stalled = stalled
        self._connections = 0

    async def ask(self) -> None:
        while True:
            try:
                self._pulse.ask()
            except RuntimeError:
                return
            await anyio.sleep(min(_BETWEEN, self._stalled / 4))

    async def listen(
        self, host: str | None, port: int, *, task_status: TaskStatus[list[int]] = TASK_STATUS_IGNORED
    ) -> None:
        try:
            listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, f"{host or ''}:{port}") from None
        async with listener:
            task_status.started([socket.extra(SocketAttribute.local_port) for socket in listener.listeners])  # noqa: S610
            while True:
                try:
                    await listener.serve(self._converse)
                except* OSError as problems:  # too many open files
                    problem = problems.exceptions[0]
                    log(logging.WARNING, f"health checks: cannot accept connections: {problem}")
                    await anyio.sleep(1)

    async def _converse(self, stream: SocketStream) -> None:
        self._connections += 1
        try:
            async with stream:
                if self._connections <= _MOST_CONNECTIONS:
                    with anyio.move_on_after(_REQUEST_TIMEOUT):
                        await stream.send(await self._exchange(stream))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client has gone
        finally:
            self._connections -= 1

    async def _exchange(self, stream: SocketStream) -> bytes:
        try:
            head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", _LONGEST_HEAD)
        except anyio.DelimiterNotFound:
            return _response((HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long"))
        except anyio.IncompleteRead:
            return b""
        match head.partition(b"\r\n")[0].split(b" "):
            case [b"GET" | b"HEAD" as method, target, version] if version.startswith(b"HTTP/1."):
                return _response(await self._answer(target.partition(b"?")[0]), body=method == b"GET")
            case [_, _, version] if version.startswith(b"HTTP/1."):
                return _response((HTTPStatus.METHOD_NOT_ALLOWED, "there is only GET and HEAD"))
            case _:
                return _response((HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1"))

    async def _answer(self, path: bytes) -> Answer:
        if path == b"/metrics" and self._metrics is not None:
            known, text = self._metrics()
            return HTTPStatus.OK if known else HTTPStatus.SERVICE_UNAVAILABLE, text.removesuffix("\n")
        if path not in (b"/live", b"/ready"):
            also = "" if self._metrics is None else ", and /metrics"
            return HTTPStatus.NOT_FOUND, f"there is /live and /ready{also}"
        if self._pulse.silence() > self._stalled:
            # if the whole process was frozen, the loop needs a moment too
            await anyio.sleep(_SECOND_CHECK)
        if (silence := self._pulse.silence()) > self._stalled:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"the event loop has been blocked for {silence:.1f} s"
        if path == b"/ready" and (reason := self._pulse.seen) is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, reason
        return HTTPStatus.OK, path[1:].decode()


def _response(answer: Answer, *, body: bool = True) -> bytes:
    status, text = answer
    content = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(("Allow: GET, HEAD",) if status is HTTPStatus.METHOD_NOT_ALLOWED else ()),
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(head).encode() + (content if body else b"")
