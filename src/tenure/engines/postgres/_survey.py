"""Listings, and the health of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tenure.engine import (
    CAP,
    CheckHealth,
    DescribeSession,
    Health,
    KeyPage,
    ListKeys,
    SessionItem,
    SessionPage,
)

from ._codec import Codec, Codecs, Row
from ._values import Value, name, text
from ._version import VERSION

_END = b"\xff"  # no name has this byte
_MANY_DEAD = 1_000_000
_LONG = 300
_MANY_TRANSACTIONS = 100_000
_FULL = 0.9


def _session_page(op: DescribeSession) -> tuple[Value, ...]:
    rank, _, number = (op.after or "0:0").partition(":")
    return name(op.key), int(rank), int(number), op.limit


def _session_items(rows: Sequence[Row]) -> SessionPage:
    (_, _, (process,)), *others = rows
    return SessionPage(
        text(process),
        tuple(
            SessionItem(family, text(key), text(called), bool(held), token)
            for family, (_, _, held, token), (key, called) in others
        ),
        # a page that is full may be the last one: then the next one is empty
        f"{others[-1].n[0]}:{others[-1].n[1]}" if others else "",
    )


def _health(rows: Sequence[Row]) -> Health:
    settings = {text(row.b[0]): text(row.b[1]) for row in rows if row.word == "setting"}
    now, version, size, dead, space, connections, most = rows[0].n
    left = f"{dead:,}, in {_size(space)} of tables and indexes"
    snapshot, is_old = next((_snapshot(row) for row in rows if row.word == "snapshot"), ("none", False))
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
    return Health(now / 1e6 - time.time(), facts, tuple(problems))


def _snapshot(row: Row) -> tuple[str, bool]:
    """Whose it is and since when, and whether that is long."""
    (age, seconds), (who,) = row.n, row.b
    if seconds < 0:
        return f"{text(who)}, for {age:,} transactions", age > _MANY_TRANSACTIONS
    return f"{text(who)}, for {seconds:,} s", seconds > _LONG


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


SURVEY: Codecs = {
    ListKeys: Codec(
        "list_keys",
        lambda op: (
            op.kind,
            name(op.prefix),
            name(op.prefix) + _END,
            name(op.after),
            min(op.limit, CAP),
        ),
        lambda rows: _key_page(rows[0]),
    ),
    DescribeSession: Codec("describe_session", _session_page, _session_items),
    CheckHealth: Codec("check_health", lambda _: (), _health),
}


def _key_page(row: Row) -> KeyPage:
    # a page that is full may be the last one: then the next one is empty
    last, *names = map(text, row.b)
    return KeyPage(tuple(names), last)
