"""The operations, and the script that executes each."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tenure.engine import (
    Acquire,
    AddResource,
    Arrive,
    Ask,
    BreakHold,
    Claim,
    CloseSession,
    Count,
    EditClaim,
    Exchange,
    GetResult,
    GiveBack,
    HoldOff,
    Leave,
    Move,
    OpenSession,
    Operation,
    Ping,
    Progress,
    Put,
    PutChildren,
    Refund,
    Release,
    RemoveResource,
    RenewSession,
    ResetBarrier,
    Resize,
    Scan,
    SetEntry,
    SetGroups,
    SetPaused,
    SetValue,
    Spend,
    Withdraw,
)

from ._codec import Codecs, codec
from ._rates import refund, spend, spent
from ._scans import PAGES, page, scan
from ._tasks import exchange, exchanged, move, put, put_answer, put_children, set_groups

_SCRIPTS: dict[type[Operation[Any]], tuple[str, str]] = {
    AddResource: ("claims add_resource", "ok"),
    Arrive: ("barriers arrive", "waiting tripped broken mismatch gone"),
    Ask: ("holds ask", "asked gone"),
    BreakHold: ("holds break_hold", "ok refused"),
    Claim: ("claims claim", "claimed queued refused gone"),
    CloseSession: ("sweep", "ok gone"),
    Count: ("records count", "counts gone"),
    EditClaim: ("claims edit_claim", "ok refused"),
    GetResult: ("records get_result", "outcome unfinished unknown gone"),
    GiveBack: ("claims give_back", "released left unknown"),
    HoldOff: ("rates hold_off", "ok gone"),
    Leave: ("records leave", "left released unknown"),
    OpenSession: ("sessions open_session", "ok"),
    Ping: ("sessions ping", "ok"),
    Progress: ("records progress", "ok refused requested"),
    RemoveResource: ("claims remove_resource", "ok unknown"),
    RenewSession: ("sessions renew_session", "ok gone"),
    ResetBarrier: ("barriers reset_barrier", "ok"),
    Resize: ("holds resize", "ok"),
    SetEntry: ("families set_entry", "ok entry toomany refused requested unknown"),
    SetPaused: ("records set_paused", "ok"),
    SetValue: ("holds set_value", "ok refused"),
    Withdraw: ("barriers withdraw", "withdrawn tripped broken unknown"),
}
"""The script of an operation, and the words with which its replies begin."""

CODECS: Codecs = {
    **{operation: codec(*its, operation) for operation, its in _SCRIPTS.items()},
    Scan: codec("scan", f"{PAGES} unknown gone", Scan, arguments=scan, answer=page),
    Move: codec("records", "changed", Move, arguments=move),
    SetGroups: codec("records", "ok", SetGroups, arguments=set_groups),
    Refund: codec("rates", "ok gone", Refund, arguments=refund),
    Spend: codec("rates", "spent gone", Spend, arguments=spend, answer=spent),
    # what each lock needs, without a step in Python
    Acquire: codec(
        "acquire",
        "granted queued refused mismatch gone",
        Acquire,
        # the number that is True, or False
        arguments=attrgetter("key", "session", "holder", "capacity", "weight", "value", "wait.real"),
    ),
    Release: codec("release", "released left unknown", Release, arguments=attrgetter("key", "holder")),
    # the two that carry many tasks: their scripts read and return flat lists
    Put: codec("put", "put gone", Put, arguments=put, answer=put_answer),
    PutChildren: codec(
        "families", "accepted entry toomany refused requested", PutChildren, arguments=put_children
    ),
    Exchange: codec("exchange", "exchanged gone", Exchange, arguments=exchange, answer=exchanged),
}
