"""Claims, as calls of functions."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.engine import (
    AddResource,
    Claim,
    ClaimAnswer,
    Claimed,
    EditClaim,
    GiveBack,
    Queued,
    RemoveResource,
    Resource,
    ResourcePage,
    Resources,
)

from ._calls import Call, Calls, Row, fields, metadata, microseconds, name, no_words, seconds, text


def _claimed(rows: Sequence[Row]) -> ClaimAnswer:
    match rows[0]:
        case "claimed", [token], [resource, *about]:
            return Claimed(text(resource), metadata(about), token)
        case _, [place, ask_again_in], _:
            return Queued(place, seconds(ask_again_in))
        case row:
            raise AssertionError(f"not an answer: {row!r}")


def _resource(row: Row) -> Resource:
    preference, token, rest = row.n
    resource, state, process, reason, *about = row.b
    return Resource(
        text(resource),
        metadata(about),
        preference,
        text(state),
        text(process),
        token,
        seconds(rest),
        text(reason),
    )


CLAIMS: Calls = {
    AddResource: Call(
        "add_resource",
        lambda op: (name(op.pool), name(op.resource), fields(op.metadata), op.preference, op.revive),
        no_words,
    ),
    RemoveResource: Call("remove_resource", lambda op: (name(op.pool), name(op.resource)), no_words),
    Claim: Call(
        "claim",
        lambda op: (
            name(op.session),
            name(op.pool),
            name(op.holder),
            fields(op.where),
            microseconds(op.quarantine),
            op.wait,
        ),
        _claimed,
    ),
    GiveBack: Call("give_back", lambda op: (name(op.pool), name(op.holder)), no_words),
    EditClaim: Call(
        "edit_claim",
        lambda op: (
            name(op.pool),
            name(op.holder),
            op.token,
            None if op.metadata is None else fields(op.metadata),
            None if op.cool_down is None else microseconds(op.cool_down),
            None if op.retire is None else name(op.retire),
        ),
        no_words,
    ),
    Resources: Call(
        "resources",
        lambda op: (name(op.pool),),
        lambda rows: ResourcePage(tuple(map(_resource, rows[1:])), rows[0].n[0]),
    ),
}
