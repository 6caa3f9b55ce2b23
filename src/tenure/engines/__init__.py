"""The engines, and `open_store`, which finds the one that a URL means."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from tenure.engine import Engine
from tenure.errors import EngineError
from tenure.store import Store

__all__ = ("open_store",)

_REDIS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_CLUSTER = ("redis+cluster", "rediss+cluster")
_POSTGRES = ("postgresql", "postgres")
_KNOWN = "memory:, sqlite:///FILE, redis://HOST or postgresql://HOST/DATABASE"


def open_store(where: str | Engine, **options: Any) -> Store:
    """Make a store over the engine that a URL means; enter it with `async with`.

    `memory:` keeps everything in this process; `sqlite:///jobs.db` in a file, relative to the working directory
    (`sqlite:////var/lib/jobs.db`: absolute); `redis://[user:password@]host[:port][/database]`, `rediss://` or
    `unix:///path` on a Redis server, `redis+sentinel://HOST,HOST/SERVICE` on the one that Sentinels name,
    `redis+cluster://HOST,HOST` on a cluster (these need the extra `redis`); `postgresql://[user:password@]host/database`
    in a PostgreSQL database (this needs the extra `postgres`). An engine object may be given instead of a URL. Options
    are those of `Store`: `namespace`, `ttl`, `codec`, `settle_timeout`, `close_timeout`, `observer`.
    Raises `ValueError` for a URL that means no engine, `TypeError` for what is neither, `EngineError` when the
    extra is missing.
    """
    if isinstance(where, str):
        return Store(_engine(where), **options)
    if not hasattr(where, "execute"):
        raise TypeError(f"a store is opened by its URL or over an engine, not over a {type(where).__name__}")
    return Store(where, **options)


def _engine(url: str) -> Engine:
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon:
        raise ValueError(f"{_shown(url)!r} is no store URL: write {_KNOWN}")
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
        try:
            from tenure.engines.redis import RedisClusterEngine, RedisEngine
        except ModuleNotFoundError as error:
            if error.name != "hiredis":
                raise
            raise EngineError(
                f"{scheme}: the Redis engine needs hiredis: pip install 'tenure[redis]'"
            ) from None
        return RedisClusterEngine(url) if scheme in _CLUSTER else RedisEngine(url)
    if scheme in _POSTGRES:
        try:
            from tenure.engines.postgres import PostgresEngine
        except ModuleNotFoundError as error:
            if error.name != "psycopg":
                raise
            raise EngineError(
                f"{scheme}: the PostgreSQL engine needs psycopg: pip install 'tenure[postgres]'"
            ) from None
        return PostgresEngine(url)
    raise ValueError(f"{_shown(scheme)!r} is no engine; use {_KNOWN}")


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
