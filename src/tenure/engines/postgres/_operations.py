"""The codec of every operation."""

from __future__ import annotations

from tenure import engine as e

from ._codec import Codecs, PostgresCodec, answer_of
from ._counters import COUNTERS
from ._families import FAMILIES
from ._scans import page, scan
from ._tasks import TASKS

_SESSIONS: Codecs = {
    e.Ping: PostgresCodec("ping", lambda _: ()),
    e.OpenSession: PostgresCodec("open_session"),
    e.RenewSession: PostgresCodec("renew_session"),
    e.CloseSession: PostgresCodec("close_session"),
}


_HOLDS: Codecs = {
    e.Acquire: PostgresCodec("acquire"),
    e.Ask: PostgresCodec("ask", answer=lambda rows: e.HoldStatuses(tuple(map(answer_of, rows[1:])))),
    e.Release: PostgresCodec("release"),
    e.SetValue: PostgresCodec("set_value"),
    e.BreakHold: PostgresCodec("break_hold"),
    e.Resize: PostgresCodec("resize"),
}


_CLAIMS: Codecs = {
    e.AddResource: PostgresCodec("add_resource"),
    e.RemoveResource: PostgresCodec("remove_resource"),
    e.Claim: PostgresCodec("claim"),
    e.GiveBack: PostgresCodec("give_back"),
    e.EditClaim: PostgresCodec("edit_claim"),
}

CODECS: Codecs = (
    _SESSIONS | _HOLDS | _CLAIMS | COUNTERS | TASKS | FAMILIES | {e.Scan: PostgresCodec("scan", scan, page)}
)
