"""The codec of every operation."""

from __future__ import annotations

from tenure.engine import (
    Acquire,
    AddResource,
    Ask,
    BreakHold,
    Claim,
    CloseSession,
    EditClaim,
    GiveBack,
    HoldStatuses,
    OpenSession,
    Ping,
    Release,
    RemoveResource,
    RenewSession,
    Resize,
    Scan,
    SetValue,
)

from ._codec import Codec, Codecs, answer_of
from ._counters import COUNTERS
from ._families import FAMILIES
from ._scans import page, scan
from ._tasks import TASKS

_SESSIONS: Codecs = {
    Ping: Codec("ping", lambda _: ()),
    OpenSession: Codec("open_session"),
    RenewSession: Codec("renew_session"),
    CloseSession: Codec("close_session"),
}


_HOLDS: Codecs = {
    Acquire: Codec("acquire"),
    Ask: Codec("ask", answer=lambda rows: HoldStatuses(tuple(map(answer_of, rows[1:])))),
    Release: Codec("release"),
    SetValue: Codec("set_value"),
    BreakHold: Codec("break_hold"),
    Resize: Codec("resize"),
}


_CLAIMS: Codecs = {
    AddResource: Codec("add_resource"),
    RemoveResource: Codec("remove_resource"),
    Claim: Codec("claim"),
    GiveBack: Codec("give_back"),
    EditClaim: Codec("edit_claim"),
}

CODECS: Codecs = (
    _SESSIONS | _HOLDS | _CLAIMS | COUNTERS | TASKS | FAMILIES | {Scan: Codec("scan", scan, page)}
)
