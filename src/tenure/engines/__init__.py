"""The engines, `open_store`, and the guide from an operation to its rule.

All four engines keep the contract (`tenure.engine`) by the same rules, in one atomic step. One
name means one rule in all languages.

| room                   | what lives there                                                                       |
|------------------------|----------------------------------------------------------------------------------------|
| `rules/`               | the rules in Python, over tables that an engine supplies: the readable reference       |
| `memory/`, `sqlite/`   | the tables; tasks as `rules/_rows.py` has them: `memory/_tasks.py`, `sqlite/_tasks.py` |
| `redis/lua/`           | the scripts; `redis/_scripts.py` links their modules, `redis/_operations.py` calls them |
| `postgres/sql/`        | the functions; `postgres/_schema.py` makes them, `postgres/_operations.py` calls them  |

The moves of every operation; a cell is a file, and what to look for in it::

    move                          rule                          redis/lua                        postgres/sql
    what is due comes first       memory/__init__ _clear_up     numbers                          state is_due
    enter: session, object, time  rules/_state session          numbers                          state enter_object
    a reply from the cache        rules/_state cached_reply     replies cached_reply             state cached_reply
    act                           the method, the script, the function below
    serve the line of holders     rules/_holds _serve           hold_line serve_line             holds serve_line
        of claimers               rules/_claims _offer          claims offer_resource            claims update_resource
        of producers              rules/_room admit             producers admit                  tasks admit_producers
        of takers                 rules/_takers offer           takers offer_tasks               tasks offer_tasks
    hint a process                rules/_state hint             session_items hint               state hint
    hint those that watch         rules/_state notify_watchers  watchers notify_watchers         state notify_watchers
    the reply into the cache      rules/_state cache_reply      replies cache_reply              state cache_reply
    clear up, step by step        rules/_sessions end_expired   sweep                            sweep sweep

`step` counts all loops of an operation, in every language. If something is due, `sweep` comes first.

`python tests/engines/test_guide.py` prints the rule, the script and the function of each operation.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

import tenure.engine as e
from tenure.arguments import Seconds, check_seconds
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
    where: str | e.Engine | None = None,
    *,
    namespace: str = "tenure",
    ttl: Seconds = 30.0,
    codec: Codec | None = None,
    settle_timeout: Seconds = 1.0,
    close_timeout: Seconds = 5.0,
    observer: Observer | None = None,
    response_timeout: Seconds | None = None,
    retry: Seconds | None = None,
    max_block: Seconds = 60.0,
) -> Store:
    """Make a store over the engine that a URL means; enter it with `async with`.

    `memory:` keeps everything in this process; `sqlite:///jobs.db` in a file, relative to the working directory
    (`sqlite:////var/lib/jobs.db`: absolute); `redis://[user:password@]host[:port][/database]`, `rediss://` or
    `unix:///path` on a Redis server, `redis+sentinel://HOST,HOST/SERVICE` on the server that Sentinels name,
    `redis+cluster://HOST,HOST` on a cluster (these need the extra `redis`);
    `postgresql://[user:password@]host/database` in a PostgreSQL database (this needs the extra `postgres`). An engine
    object may be given instead of a URL; with neither, the environment variable `TENURE_STORE` holds the URL.

    A server of Redis or PostgreSQL that does not answer for `response_timeout` seconds (default 5.0; also
    `?response_timeout=` in the URL) is connected to anew. Opening waits up to `retry` seconds for a server that cannot
    be reached yet. `Store` describes the other options.
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
        max_block=max_block,
    )


def _engine(url: str, response_timeout: Seconds | None) -> e.Engine:
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


def _response_timeout_in(url: str, argument: Seconds | None) -> tuple[str, float]:
    found = _OPTION.search(url)
    if found is not None:
        url = _OPTION.sub("", url, count=1).rstrip("?&")
        try:
            seconds = float(found[1])
        except ValueError:
            raise ValueError(
                f"response_timeout must be a number of seconds in the URL, not {found[1]!r}"
            ) from None
        argument = seconds if argument is None else argument
    return url, e.RESPONSE_TIMEOUT if argument is None else check_seconds(
        "response_timeout", argument, least=None
    )


def _path(url: str) -> str:
    # the words of `urlsplit` may quote what stands before an @
    parts = urlsplit(url if url.partition(":")[2].startswith("///") else "")
    if parts.query or parts.fragment or len(parts.path) < 2:
        raise ValueError(
            f"{_shown(url)!r}: write sqlite:///FILE, relative to the working directory, or sqlite:////FILE"
        )
    return unquote(parts.path[1:])


def _shown(url: str) -> str:
    """The URL without anything before an @, which may be a password."""
    _, at, rest = url.rpartition("@")
    return f"...@{rest}" if at else url
