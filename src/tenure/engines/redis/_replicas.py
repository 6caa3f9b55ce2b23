"""Replicas that have to acknowledge a change before it counts."""

from __future__ import annotations

from dataclasses import replace

import tenure.engine as e

from ._resp import pack_one

_NEVER = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def mark(prefix: str) -> bytes:
    """A packed command that writes and changes nothing, in the shard whose keys begin with `prefix`.

    From Redis 7.2 on and in Valkey, WAIT waits for the last write of its own connection only. The connection may have
    read another one's write, which the replicas lack: a release, and the grant that came of it.
    """
    # unlike most writes, this one is allowed beyond maxmemory
    return pack_one(("PEXPIREAT", f"{prefix}state", _NEVER))


def without_answer(hint: e.Hint) -> e.Hint:
    """A hint that carries no answer: unlike a reply, a message has not waited for the replicas."""
    return hint if isinstance(hint.news, e.Notice) else replace(hint, news=e.Notice.ASK)
