"""The codec of every operation."""

from __future__ import annotations

from tenure import engine as e

from ._codec import Codec, Codecs, answer_of
from ._counters import COUNTERS
from ._families import FAMILIES
from ._scans import page, scan
from ._tasks import TASKS

_SESSIONS: Codecs = {
    e.Ping: Codec("ping", lambda _: ()),
    e.OpenSession: Codec("open_session"),
    e.RenewSession: Codec("renew_session"),
    e.CloseSession: Codec("close_session"),
}


_HOLDS: Codecs = {
    e.Acquire: Codec("acquire"),
    e.Ask: Codec("ask", answer=lambda rows: e.HoldStatuses(tuple(map(answer_of, rows[1:])))),
    e.Release: Codec("release"),
    e.SetValue: Codec("set_value"),
    e.BreakHold: Codec("break_hold"),
    e.Resize: Codec("resize"),
}


_CLAIMS: Codecs = {
    e.AddResource: Codec("add_resource"),
    e.RemoveResource: Codec("remove_resource"),
    e.Claim: Codec("claim"),
    e.GiveBack: Codec("give_back"),
    e.EditClaim: Codec("edit_claim"),
}

CODECS: Codecs = (
    _SESSIONS | _HOLDS | _CLAIMS | COUNTERS | TASKS | FAMILIES | {e.Scan: Codec("scan", scan, page)}
)
