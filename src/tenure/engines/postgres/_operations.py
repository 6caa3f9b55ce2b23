"""The codec of every operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure.engine import (
    CAP,
    Acquire,
    AddResource,
    Ask,
    BreakHold,
    Claim,
    CloseSession,
    EditClaim,
    GiveBack,
    Holder,
    Holders,
    Holdings,
    HoldStatuses,
    OpenSession,
    Ping,
    Release,
    RemoveResource,
    RenewSession,
    Resize,
    Resource,
    ResourcePage,
    Resources,
    SetValue,
)

from ._codec import Codec, Codecs, Row, answer_of, decoded
from ._counters import COUNTERS
from ._families import FAMILIES
from ._survey import SURVEY
from ._tasks import TASKS
from ._values import name

_SESSIONS: Codecs = {
    Ping: Codec("ping"),
    OpenSession: Codec("open_session"),
    RenewSession: Codec("renew_session"),
    CloseSession: Codec("close_session"),
}


def _holders(rows: Iterable[Row], word: str) -> tuple[Holder, ...]:
    return tuple(decoded(Holder, row) for row in rows if row.word == word)


def _holdings(rows: Sequence[Row]) -> Holdings:
    capacity, used = rows[0].n
    return Holdings(capacity, used, _holders(rows, "holds"), _holders(rows, "waits"))


_HOLDS: Codecs = {
    Acquire: Codec("acquire"),
    Ask: Codec("ask", answer=lambda rows: HoldStatuses(tuple(map(answer_of, rows[1:])))),
    Release: Codec("release"),
    SetValue: Codec("set_value"),
    BreakHold: Codec("break_hold"),
    Resize: Codec("resize"),
    Holders: Codec("holders", answer=_holdings),
}


def _page(rows: Sequence[Row]) -> ResourcePage:
    shown = tuple(decoded(Resource, row) for row in rows[1 : CAP + 1])
    return ResourcePage(shown, rows[0].n[0], shown[-1].resource if len(rows) > CAP + 1 else "")


_CLAIMS: Codecs = {
    AddResource: Codec("add_resource"),
    RemoveResource: Codec("remove_resource"),
    Claim: Codec("claim"),
    GiveBack: Codec("give_back"),
    EditClaim: Codec("edit_claim"),
    Resources: Codec("resources", lambda op: (name(op.key), name(op.after), CAP + 1), _page),
}

CODECS: Codecs = _SESSIONS | _HOLDS | _CLAIMS | COUNTERS | TASKS | FAMILIES | SURVEY
