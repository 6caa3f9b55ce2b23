"""The server's health: the meaning of its INFO."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import tenure.engine as e

from ._codec import text

_FULL = 0.9


def health(raw: Sequence[Any]) -> e.Health:
    now, lines, unreadable = raw
    info = dict(line.split(":", 1) for line in text(lines).splitlines() if ":" in line)
    return e.Health(
        int(now) / 1e6 - time.time(), tuple(_facts(info)), (*_problems(info), *_unreadable(unreadable))
    )


def _unreadable(count: int) -> Iterator[str]:
    if count:
        yield (
            f"{count:,} entries of indexes could not be read and were set aside (the sets tenure:*:unreadable):"
            " somebody else wrote or deleted keys; `tenure doctor URL --repair` deletes them"
        )


def _facts(info: dict[str, str]) -> Iterator[tuple[str, str]]:
    name, version = (
        ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    )
    yield (
        "engine",
        f"{name} {version}, {info.get('redis_mode', 'standalone')}, up for {int(info['uptime_in_seconds']):,} s",
    )
    most = int(info.get("maxmemory", "0"))
    limit = f"of {_size(most)}" if most else "without a limit"
    yield "memory", f"{_size(int(info['used_memory']))} {limit}"
    yield "eviction policy", info.get("maxmemory_policy", "unknown")
    yield "append-only file", "on" if info.get("aof_enabled") == "1" else "off"
    last = int(info.get("rdb_last_save_time", "0"))
    yield (
        "last snapshot",
        f"{max(0, int(info.get('rdb_changes_since_last_save', '0'))):,} changes ago" if last else "never",
    )
    yield "replicas", info.get("connected_slaves", "0")


def _problems(info: dict[str, str]) -> Iterator[str]:
    most, used = int(info.get("maxmemory", "0")), int(info["used_memory"])
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and most:
        yield f"maxmemory-policy is {policy}: the server may drop what is held; set it to noeviction"
    if int(info.get("evicted_keys", "0")):
        yield f"the server has evicted {int(info['evicted_keys']):,} keys since it started: what was held may be gone"
    if most and used > _FULL * most:
        when = "now, as writes are refused" if used >= most else "before writes are refused"
        yield f"{used / most:.0%} of maxmemory is in use: raise maxmemory or purge queues {when}"
    if info.get("aof_enabled") != "1":
        yield (
            "the append-only file is off: a server that crashes forgets what happened since its last snapshot;"
            " set appendonly yes, unless losing tasks is fine"
        )
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield "the last write to the append-only file failed: look at the server's disk and log"
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield "the last snapshot failed: look at the server's disk and log"


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.3g} GiB"
