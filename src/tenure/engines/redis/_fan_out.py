"""Operations on several shards, and the merging of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tenure.engine as e
from tenure.errors import EngineError

from ._shards import shard_of


def fan_out(operation: e.Operation[Any], shards: int) -> Iterator[tuple[int, e.Operation[Any]]]:
    """The shards to ask, each with its operation.

    Raises `EngineError` for a page that does not exist, and for children in another shard.
    """
    match operation:
        case e.Scan(index=index, after=after) if not index.of:
            # one shard after the other
            shard, _, rest = after.partition(":")
            if after and not (shard.isascii() and shard.isdigit() and int(shard) < shards):
                raise EngineError(f"no page ends at {after!r}")
            yield int(shard or 0), replace(operation, after=rest)
        case e.Ping():
            yield from ((shard, operation) for shard in range(shards))
        case e.PutChildren(to=to) if shard_of(to, shards) != shard_of(operation.key, shards):
            raise EngineError(
                f"{to!r} and {operation.key!r} lie in two shards: children need the shard of their parent, as names"
                " with the same {tag} have it"
            )
        case _:
            yield shard_of(operation.key, shards), operation


def merged(operation: e.Operation[Any], answers: list[Any], shards: int) -> Any:
    for answer in answers:
        if isinstance(answer, EngineError) or answer is e.Reply.MORE:
            return answer
    match operation:
        case e.Scan(index=index, after=after) if not index.of:
            page: e.Page[Any] = answers[0]
            shard = int(after.partition(":")[0] or 0)
            following = f"{shard + 1}:" if shard + 1 < shards else ""
            return replace(page, next=f"{shard}:{page.next}" if page.next else following)
        case _:
            return answers[-1]
