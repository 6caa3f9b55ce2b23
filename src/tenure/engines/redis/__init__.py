"""The Redis engine: the contract as scripts, one command for each operation, on one connection."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

import tenure.engine as e
from tenure.arguments import LARGEST, Seconds, check_seconds

from ._cluster import RedisClusterEngine
from ._endpoint import address, check_login, number_in
from ._remote import RemoteRedis
from ._sentinel import SentinelEndpoint
from ._server import Server

__all__ = ("RedisClusterEngine", "RedisEngine")

_SENTINEL = "+sentinel://"
_PREFIX = "tenure:{0}:"


class RedisEngine(RemoteRedis):
    """Keeps everything on a Redis or Valkey server, version 6.2 or later; many machines may share it.

    `url` is `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS (`tls` is a context of your own) or
    `unix:///path/to/socket[?db=n]`. `redis+sentinel://[user:password@]host[:port],.../service[/database]` (over TLS:
    `rediss+sentinel://`) names Sentinels, which are asked for the primary at each connection. A server that does not
    answer for `response_timeout` seconds counts as gone, and the connection is made anew. With `replicas` (also
    `?replicas=n` in the URL) nothing counts as done before as many replicas have acknowledged it. `clock` (seconds)
    replaces the server's time in tests.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        replicas: int | None = None,
        response_timeout: Seconds = e.RESPONSE_TIMEOUT,
        clock: Callable[[], float] | None = None,
    ) -> None:
        settings = {"tls": tls, "replicas": replicas, "response_timeout": response_timeout}
        again = None if clock else partial(RedisEngine, url, **settings)
        response_timeout = check_seconds("response_timeout", response_timeout, least=None)
        self.response_timeout: float = response_timeout
        check_login(url)
        url, replicas = number_in(url, "replicas", replicas, 0, least=0, most=LARGEST)
        server = Server(
            (SentinelEndpoint if _SENTINEL in url else address)(url, tls),
            self._on_message,
            self._missed,
            self._lost,
            prefix=_PREFIX,
            response_timeout=response_timeout,
            replicas=replicas,
        )
        super().__init__(server, [("1", _PREFIX)], replicas, clock, again)
