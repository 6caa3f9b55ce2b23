"""The engines, and `open_store`, which finds the one that a URL means."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from tenure.engine import Engine
from tenure.store import Store

__all__ = ("open_store",)

_PLANNED = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "postgresql")


def open_store(where: str | Engine, **options: Any) -> Store:
    """Make a store over the engine that a URL means; enter it with `async with`.

    `memory:` keeps everything in this process; `sqlite:///jobs.db` in a file, relative to the working directory
    (`sqlite:////var/lib/jobs.db`: absolute). An engine object may be given instead of a URL. Options are those of
    `Store`: `namespace`, `ttl`, `codec`, `settle_timeout`, `close_timeout`, `observer`. Raises `ValueError` for a URL
    that means no engine.
    """
    return Store(_engine(where) if isinstance(where, str) else where, **options)


def _engine(url: str) -> Engine:
    scheme, colon, _ = url.partition(":")
    if not colon:
        raise ValueError(f"{url!r} is no store URL: it must begin with memory: or sqlite:///")
    if scheme == "memory":
        from tenure.engines.memory import MemoryEngine

        return MemoryEngine()
    if scheme == "sqlite":
        from tenure.engines.sqlite import SqliteEngine

        return SqliteEngine(_path(url))
    known = "not in this version" if scheme in _PLANNED else "unknown"
    raise ValueError(f"{url!r}: engine {scheme!r} is {known}; use memory: or sqlite:///FILE")


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
        raise ValueError(f"{url!r}: write sqlite:///FILE, relative to the working directory, or sqlite:////FILE")
    return unquote(parts.path[1:])
