"""Claims, as calls of scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tenure.engine import (
    AddResource,
    Claim,
    ClaimAnswer,
    Claimed,
    EditClaim,
    GiveBack,
    Metadata,
    Queued,
    RemoveResource,
    Resource,
    ResourcePage,
    Resources,
)

from ._calls import Argument, Call, Calls, microseconds, no_words, seconds, text


def _flat(metadata: Metadata) -> Iterator[Argument]:
    for field in metadata:
        yield from field


def _metadata(raw: Sequence[bytes]) -> Metadata:
    return tuple((text(name), value) for name, value in zip(raw[::2], raw[1::2], strict=True))


def _edit(op: EditClaim) -> Iterator[Argument]:
    yield from ("edit", op.pool, op.holder, op.token)
    yield "" if op.cool_down is None else microseconds(op.cool_down)
    yield from (0, "") if op.retire is None else (1, op.retire)
    yield int(op.metadata is not None)
    yield from _flat(op.metadata or ())


def _claimed(raw: Sequence[Any]) -> ClaimAnswer:
    match raw:
        case [b"claimed", token, resource, metadata]:
            return Claimed(text(resource), _metadata(metadata), token)
        case [b"queued", place, ask_again_in]:
            return Queued(place, seconds(ask_again_in))
        case _:
            raise AssertionError(f"not an answer: {raw!r}")


def _page(raw: Sequence[Any]) -> ResourcePage:
    _, resources, waiting = raw
    return ResourcePage(
        tuple(
            Resource(
                text(name),
                _metadata(metadata),
                preference,
                text(state),
                text(process),
                token,
                seconds(rest),
                text(reason),
            )
            for name, metadata, preference, state, process, token, rest, reason in resources
        ),
        waiting,
    )


CLAIMS: Calls = {
    AddResource: Call(
        "claims",
        lambda op: ("add", op.pool, op.resource, op.preference, int(op.revive), *_flat(op.metadata)),
        no_words,
    ),
    RemoveResource: Call("claims", lambda op: ("remove", op.pool, op.resource), no_words),
    Claim: Call(
        "claims",
        lambda op: (
            "claim",
            op.pool,
            op.session,
            op.holder,
            microseconds(op.quarantine),
            int(op.wait),
            *_flat(op.where),
        ),
        _claimed,
    ),
    GiveBack: Call("claims", lambda op: ("give_back", op.pool, op.holder), no_words),
    EditClaim: Call("claims", _edit, no_words),
    Resources: Call("claims", lambda op: ("resources", op.pool), _page),
}
