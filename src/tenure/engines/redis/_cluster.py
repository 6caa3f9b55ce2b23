"""The Redis engine on a cluster: every object and every session in one of several shards."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

import tenure.engine as e
from tenure.arguments import LARGEST, Seconds, check_seconds

from ._endpoint import addresses, check_login, number_in, safe
from ._nodes import Nodes
from ._remote import RemoteRedis
from ._shards import SHARDS, prefix_of, tags


class RedisClusterEngine(RemoteRedis):
    """Keeps everything on a Redis or Valkey cluster, version 6.2 or later; many machines may share it.

    `url` is `redis+cluster://[user:password@]host[:port],...` with some of the nodes (`rediss+cluster://` over TLS),
    which name the others. All objects lie in `shards` parts (16; also `?shards=n`), each of which lives on one node and
    is away with it. All processes need the same number, which the cluster keeps. `RedisEngine` describes the other
    arguments.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        replicas: int | None = None,
        shards: int | None = None,
        response_timeout: Seconds = e.RESPONSE_TIMEOUT,
        clock: Callable[[], float] | None = None,
    ) -> None:
        settings = {"tls": tls, "replicas": replicas, "shards": shards, "response_timeout": response_timeout}
        again = None if clock else partial(RedisClusterEngine, url, **settings)
        response_timeout = check_seconds("response_timeout", response_timeout, least=None)
        self.response_timeout: float = response_timeout
        check_login(url)
        url, replicas = number_in(url, "replicas", replicas, 0, least=0, most=LARGEST)
        url, shards = number_in(url, "shards", shards, SHARDS, least=1, most=1024)
        seeds, path = addresses(url, tls)
        if path.strip("/"):
            raise ValueError(
                f"{safe(url)!r}: a cluster has one database only: write redis+cluster://HOST,HOST"
            )
        nodes = Nodes(
            seeds,
            self._on_message,
            self._missed,
            self._lost,
            shards=shards,
            response_timeout=response_timeout,
            replicas=replicas,
        )
        # Two keys, of which the first one never exists: while the cluster moves their slot, key by key, both nodes
        # refuse every script. With one key alone the old node would redirect before the other keys have been moved.
        keys = [("2", prefix, f"{prefix}state") for prefix in map(prefix_of, tags(shards))]
        super().__init__(nodes, keys, replicas, clock, again)
