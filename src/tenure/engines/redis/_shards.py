"""Shards: what lies together on a cluster, and on which node."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from itertools import count
from typing import Any
from zlib import crc32

from ._address import Address

SHARDS = 16
"""How many there are; a constant, since all who share a cluster must agree."""

_SLOTS = 16384


def slot_of(tag: str) -> int:
    """The slot of the cluster in which the keys with this tag lie."""
    return crc_hqx(tag.encode(), 0) % _SLOTS


def _evenly() -> tuple[str, ...]:
    # 0 is the tag of a server that is no cluster
    found: dict[int, str] = {}
    for number in count(1):
        found.setdefault(slot_of(str(number)) * SHARDS // _SLOTS, str(number))
        if len(found) == SHARDS:
            return tuple(found[part] for part in range(SHARDS))
    raise AssertionError


TAGS = _evenly()
"""The tag of each shard: each lies in another sixteenth of the slots, so that all nodes get their part."""


def shard_of(name: str) -> int:
    """The shard of an object or a session, by its name."""
    return crc32(name.encode("utf-8", "surrogatepass")) % SHARDS


def homes(teller: Address, slots: Sequence[Any]) -> dict[int, Address]:
    """Where the primary of each shard is that has one, as a node answers `CLUSTER SLOTS`."""
    return {
        shard: _at(teller, bytes(primary[0] or b"").decode(), int(primary[1]))
        for shard, tag in enumerate(TAGS)
        for first, last, primary, *_ in slots
        if first <= slot_of(tag) <= last
    }


def target(teller: Address, redirection: str) -> Address:
    """Where an error MOVED or ASK of a node leads."""
    host, _, port = redirection.split(" ")[2].rpartition(":")
    return _at(teller, host, int(port))


def _at(teller: Address, host: str, port: int) -> Address:
    # a node that does not know its own name leaves it out
    return teller.at(teller.host if host in {"", "?"} else host, port)
