"""Shards: keys that a cluster keeps together, and their nodes."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any
from zlib import crc32

from ._endpoint import Address

SHARDS = 16
"""The default number of shards; all processes that share a cluster need the same number."""

_SLOTS = 16384


def slot_of(tag: str) -> int:
    return crc_hqx(tag.encode(), 0) % _SLOTS


@cache
def tags(shards: int) -> tuple[str, ...]:
    """The tag of each shard: each lies in another equal part of the slots, so that all nodes get their part."""
    # 0 is the tag of a server that is no cluster
    found: dict[int, str] = {}
    for number in count(1):
        found.setdefault(slot_of(str(number)) * shards // _SLOTS, str(number))
        if len(found) == shards:
            break
    return tuple(found[part] for part in range(shards))


def prefix_of(tag: str) -> str:
    return f"tenure:{{{tag}}}:"


def shard_of(name: str, shards: int = SHARDS) -> int:
    """The shard of an object or a session, by its name, or by a `{tag}` in the name as Redis has it."""
    _, _, behind = name.partition("{")
    tag, closed, _ = behind.partition("}")
    name = tag if tag and closed else name
    return crc32(name.encode("utf-8", "surrogatepass")) % shards


def homes(asked: Address, slots: Sequence[Any], shards: int) -> dict[int, Address]:
    return {
        shard: _at(asked, bytes(primary[0] or b"").decode(), int(primary[1]))
        for shard, tag in enumerate(tags(shards))
        for first, last, primary, *_ in slots
        if first <= slot_of(tag) <= last
    }


def target(asked: Address, redirection: str) -> Address:
    host, _, port = redirection.split(" ")[2].rpartition(":")
    return _at(asked, host, int(port))


def _at(asked: Address, host: str, port: int) -> Address:
    # a node that does not know its own name leaves it out
    return asked.at(asked.host if host in {"", "?"} else host, port)
