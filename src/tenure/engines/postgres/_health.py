"""The health of the server, of a row of the function `health`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tenure.engine import Health

from ._codec import Row
from ._values import text
from ._version import VERSION

_MANY_DEAD = 1_000_000
_LONG = 300
_FULL = 0.9


def health(row: Row) -> Health:
    """The health that a row says."""
    names = map(text, row.b)
    settings = dict(zip(names, names, strict=True))
    now, version, size, dead, longest, connections, most = row.n
    facts = (
        ("engine", f"PostgreSQL {settings['server_version']}"),
        ("schema", f"version {version}, this release knows {VERSION}"),
        ("database", f"{size / 2**20:,.0f} MiB"),
        ("dead rows of tasks", f"{dead:,}"),
        ("oldest transaction", f"{longest:,} s"),
        ("connections", f"{connections:,} of {most:,}"),
        ("synchronous_commit", settings["synchronous_commit"]),
    )
    problems = _problems(settings, dead, longest, connections / most)
    return Health(now / 1e6 - time.time(), facts, tuple(problems))


def _problems(settings: dict[str, str], dead: int, longest: int, full: float) -> Iterator[str]:
    if longest > _LONG:
        yield (
            f"a transaction has been open for {longest:,} s: dead rows cannot be cleared away meanwhile; end it, or set"
            " idle_in_transaction_session_timeout"
        )
    if dead > _MANY_DEAD:
        yield f"{dead:,} dead rows of tasks have not been cleared away: autovacuum does not keep up"
    if settings["autovacuum"] == "off":
        yield "autovacuum is off: queues slow down as dead rows pile up; set it to on"
    for setting in ("fsync", "full_page_writes"):
        if settings[setting] == "off":
            yield f"{setting} is off: a crash may destroy the database; set it to on"
    if settings["synchronous_commit"] == "off":
        yield "synchronous_commit is off: a crash may forget what was granted or put a moment before; set it to on"
    if full > _FULL:
        yield f"{full:.0%} of the connections are in use: raise max_connections, or put a pooler in between"
