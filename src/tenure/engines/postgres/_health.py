"""The health of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import tenure.engine as e

from ._codec import Row
from ._values import text
from ._version import VERSION

_MANY_DEAD = 1_000_000
_LONG = 300
_MANY_TRANSACTIONS = 100_000
_FULL = 0.9


def health(row: Row) -> e.Health:
    who, *names = map(text, row.b)
    settings = dict(zip(names[::2], names[1::2], strict=True))
    now, version, size, dead, space, connections, most, age, seconds = row.n
    left = f"{dead:,}, in {_size(space)} of tables and indexes"
    snapshot, is_old = _snapshot(who, age, seconds) if who else ("none", False)
    problems = [*_problems(settings, dead, connections / most)]
    if is_old:
        problems.append(
            f"{snapshot}, keeps dead rows from being cleared away (of tasks: {left}); end it, or set"
            " idle_in_transaction_session_timeout"
        )
    facts = (
        ("engine", f"PostgreSQL {settings['server_version']}"),
        ("schema", f"version {version}, this release knows {VERSION}"),
        ("database", _size(size)),
        ("dead rows of tasks", left),
        ("oldest snapshot", snapshot),
        ("connections", f"{connections:,} of {most:,}"),
        ("synchronous_commit", settings["synchronous_commit"]),
    )
    return e.Health(now / 1e6 - time.time(), facts, tuple(problems))


def _snapshot(who: str, age: int, seconds: int) -> tuple[str, bool]:
    if seconds < 0:
        return f"{who}, for {age:,} transactions", age > _MANY_TRANSACTIONS
    return f"{who}, for {seconds:,} s", seconds > _LONG


def _size(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _problems(settings: dict[str, str], dead: int, full: float) -> Iterator[str]:
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
