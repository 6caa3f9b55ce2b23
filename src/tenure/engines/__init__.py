"""The engines, and `open_store`, which finds the one that a URL means."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from tenure.arguments import check_seconds
from tenure.engine import RESPONSE_TIMEOUT, Engine
from tenure.lazy import extra
from tenure.observe import Observer
from tenure.store import Codec, Store

__all__ = ("open_store",)

_REDIS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_CLUSTER = ("redis+cluster", "rediss+cluster")
_POSTGRES = ("postgresql", "postgres")
_VARIABLE = "TENURE_STORE"
_OPTION = re.compile(r"(?<=[?&])response_timeout=([^&#]*)&?")
_PORT = re.compile(r"\d{1,5}(/.+)?/?")
_KNOWN = "memory:, sqlite:///FILE, redis://HOST or postgresql://HOST/DATABASE"


def open_store(
    where: str | Engine | None = None,
    *,
    namespace: str = "tenure",
    ttl: float = 30.0,
    codec: Codec | None = None,
    settle_timeout: float = 1.0,
    close_timeout: float = 5.0,
    observer: Observer | None = None,
    response_timeout: float | None = None,
    retry: float | None = None,
) -> Store:
    """Make a store over the engine that a URL means; enter it with `async with`.

    `memory:` keeps everything in this process; `sqlite:///jobs.db` in a file, relative to the working directory
    (`sqlite:////var/lib/jobs.db`: absolute); `redis://[user:password@]host[:port][/database]`, `rediss://` or
    `unix:///path` on a Redis server, `redis+sentinel://HOST,HOST/SERVICE` on the one that Sentinels name,
    `redis+cluster://HOST,HOST` on a cluster (these need the extra `redis`); `postgresql://[user:password@]host/database`
    in a PostgreSQL database (this needs the extra `postgres`). An engine object may be given instead of a URL; with
    neither, the environment variable `TENURE_STORE` holds the URL.

    `response_timeout` (5.0; also `?response_timeout=` in the URL) is for how many seconds a server of Redis or
    PostgreSQL may not answer before the connection is made anew. Opening waits for up to `retry` seconds for a server
    that cannot be reached yet. The other options are those of `Store`.
    Raises `ValueError` for a URL that means no engine and for an option that its engine does not have, `TypeError` for
    what is neither a URL nor an engine, `ModuleNotFoundError` when the extra is missing.
    """
    if where is None and not (where := os.environ.get(_VARIABLE)):
        raise ValueError(
            f"open_store() without a URL takes it from {_VARIABLE}, which is not set; write {_KNOWN}"
        )
    if isinstance(where, str):
        engine = _engine(where, response_timeout)
    elif not hasattr(where, "execute"):
        raise TypeError(f"a store is opened by its URL or over an engine, not over a {type(where).__name__}")
    elif response_timeout is not None:
        raise ValueError("response_timeout is an option of the engine: give it to the engine that was made")
    else:
        engine = where
    return Store(
        engine,
        namespace=namespace,
        ttl=ttl,
        codec=codec,
        settle_timeout=settle_timeout,
        close_timeout=close_timeout,
        observer=observer,
        retry=retry,
    )


def _engine(url: str, response_timeout: float | None) -> Engine:
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon:
        raise ValueError(f"{_shown(url)!r} is not a store URL: write {_KNOWN}")
    if scheme in ("memory", "sqlite") and response_timeout is not None:
        raise ValueError(f"response_timeout is not an option of {scheme}:, which has no server")
    if scheme == "memory":
        if rest.strip("/"):
            raise ValueError(f"{_shown(url)!r}: write memory: and nothing behind it")
        from tenure.engines.memory import MemoryEngine

        return MemoryEngine()
    if scheme == "sqlite":
        path = _path(url)
        from tenure.engines.sqlite import SqliteEngine

        return SqliteEngine(path)
    if scheme in _REDIS + _CLUSTER:
        extra("hiredis", "redis")
        from tenure.engines.redis import RedisClusterEngine, RedisEngine

        url, seconds = _response_timeout_in(url, response_timeout)
        make = RedisClusterEngine if scheme in _CLUSTER else RedisEngine
        return make(url, response_timeout=seconds)
    if scheme in _POSTGRES:
        extra("psycopg", "postgres")
        from tenure.engines.postgres import PostgresEngine

        url, seconds = _response_timeout_in(url, response_timeout)
        return PostgresEngine(url, response_timeout=seconds)
    if (port := _PORT.fullmatch(rest)) is not None:
        shown = _shown(url)
        meant = f"redis://{shown}"
        if rest.startswith("5432"):
            meant = f"postgresql://{shown}{'' if port[1] else '/DATABASE'}"
        raise ValueError(f"{shown!r} is a host and a port, without the name of an engine: write {meant}")
    raise ValueError(f"{_shown(scheme)!r} is not an engine; use {_KNOWN}")


def _response_timeout_in(url: str, given: float | None) -> tuple[str, float]:
    """The URL without this option, and what was given, else what the URL says, else the default."""
    found = _OPTION.search(url)
    if found is not None:
        url = _OPTION.sub("", url, count=1).rstrip("?&")
        try:
            seconds = float(found[1])
        except ValueError:
            raise ValueError(
                f"response_timeout must be a number of seconds in the URL, not {found[1]!r}"
            ) from None
        given = seconds if given is None else given
    return url, RESPONSE_TIMEOUT if given is None else check_seconds("response_timeout", given, least=None)


def _path(url: str) -> str:
    # the words of `urlsplit` may quote what stands before an @
    parts = urlsplit(url if url.partition(":")[2].startswith("///") else "")
    if parts.query or parts.fragment or len(parts.path) < 2:
        raise ValueError(
            f"{_shown(url)!r}: write sqlite:///FILE, relative to the working directory, or sqlite:////FILE"
        )
    return unquote(parts.path[1:])


def _shown(url: str) -> str:
    """The URL for a message: whatever stands before an @ may be a password."""
    _, at, rest = url.rpartition("@")
    return f"...@{rest}" if at else url
