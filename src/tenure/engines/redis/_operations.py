"""The operations, and the script that executes each."""

from __future__ import annotations

from operator import attrgetter
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
    ReadLimiter,
    Refund,
    Release,
    RemoveResource,
    RenewSession,
    ResetBarrier,
    Resize,
    Resources,
    SetGroups,
    SetPaused,
    SetValue,
    Spend,
    Withdraw,
)

from ._codec import Codecs, codec
from ._health import health
from ._rates import refund, spend, spent
from ._tasks import exchange, exchanged, move, put, put_answer, set_groups

_SCRIPTS: dict[type[Operation[Any]], tuple[str, str]] = {
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
    RemoveResource: ("claims remove_resource", "ok unknown"),
    RenewSession: ("sessions renew_session", "ok gone"),
    ResetBarrier: ("barriers reset_barrier", "ok"),
    Resize: ("holds resize", "ok"),
    Resources: ("claims resources", "resources"),
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
    Exchange: codec("exchange", "exchanged gone", Exchange, arguments=exchange, answer=exchanged),
}
