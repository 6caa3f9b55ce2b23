"""The operations, and the script that executes each."""

from __future__ import annotations

from typing import Any

from tenure.engine import (
    Acquire,
    AddResource,
    Arrivals,
    Arrive,
    Ask,
    BreakHold,
    Browse,
    CheckHealth,
    Claim,
    CloseSession,
    Count,
    DescribeSession,
    EditClaim,
    Entries,
    Exchange,
    GetResult,
    GetTask,
    GiveBack,
    Groups,
    Holders,
    HoldOff,
    Leave,
    ListKeys,
    Move,
    OpenSession,
    Operation,
    Ping,
    Progress,
    Put,
    PutChildren,
    ReadLimiter,
    Refund,
    Release,
    RemoveResource,
    RenewSession,
    ResetBarrier,
    Resize,
    Resources,
    SetEntry,
    SetGroups,
    SetPaused,
    SetValue,
    Spend,
    Withdraw,
)

from ._codec import Codecs, codec
from ._health import health
from ._rates import refund, spend, spent
from ._tasks import exchange, exchanged, move, put, put_answer, put_children, set_groups

_SCRIPTS: dict[type[Operation[Any]], tuple[str, str]] = {
    Acquire: ("acquire", "granted queued refused mismatch gone"),
    AddResource: ("claims add_resource", "ok"),
    Arrivals: ("barriers arrivals", "gathering"),
    Arrive: ("barriers arrive", "waiting tripped broken mismatch gone"),
    Ask: ("holds ask", "asked gone"),
    BreakHold: ("holds break_hold", "ok refused"),
    Browse: ("records browse", "page"),
    Claim: ("claims claim", "claimed queued refused gone"),
    CloseSession: ("sweep", "ok gone"),
    Count: ("records count", "counts gone"),
    DescribeSession: ("survey describe_session", "session unknown"),
    EditClaim: ("claims edit_claim", "ok refused"),
    Entries: ("families entries", "entries"),
    GetResult: ("records get_result", "outcome unfinished unknown gone"),
    GetTask: ("records get_task", "found unknown gone"),
    GiveBack: ("claims give_back", "released left unknown"),
    Groups: ("records groups", "groups"),
    Holders: ("holds holders", "holdings gone"),
    HoldOff: ("rates hold_off", "ok gone"),
    Leave: ("records leave", "left released unknown"),
    ListKeys: ("survey list_keys", "keys"),
    ReadLimiter: ("rates read_limiter", "limiter"),
    OpenSession: ("sessions open_session", "ok"),
    Ping: ("sessions ping", "ok"),
    Progress: ("records progress", "ok refused requested"),
    Release: ("release", "released left unknown"),
    RemoveResource: ("claims remove_resource", "ok unknown"),
    RenewSession: ("sessions renew_session", "ok gone"),
    ResetBarrier: ("barriers reset_barrier", "ok"),
    Resize: ("holds resize", "ok"),
    Resources: ("claims resources", "resources"),
    SetEntry: ("families set_entry", "ok entry toomany refused requested unknown"),
    SetPaused: ("records set_paused", "ok"),
    SetValue: ("holds set_value", "ok refused"),
    Withdraw: ("barriers withdraw", "withdrawn tripped broken unknown"),
}
"""The script of an operation, and the words with which its replies begin."""

CODECS: Codecs = {
    **{operation: codec(*its, operation) for operation, its in _SCRIPTS.items()},
    CheckHealth: codec("survey check_health", "health", CheckHealth, answer=health),
    Move: codec("records", "changed", Move, arguments=move),
    SetGroups: codec("records", "ok", SetGroups, arguments=set_groups),
    Refund: codec("rates", "ok gone", Refund, arguments=refund),
    Spend: codec("rates", "spent gone", Spend, arguments=spend, answer=spent),
    # the two that carry many tasks: their scripts read and return flat lists
    Put: codec("put", "put gone", Put, arguments=put, answer=put_answer),
    PutChildren: codec(
        "families", "accepted entry toomany refused requested", PutChildren, arguments=put_children
    ),
    Exchange: codec("exchange", "exchanged gone", Exchange, arguments=exchange, answer=exchanged),
}
