"""Every operation there is, and the script that executes it."""

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
    Exchange,
    GetResult,
    GetTask,
    GiveBack,
    Groups,
    Holders,
    HoldOff,
    Leave,
    ListKeys,
    Look,
    Move,
    OpenSession,
    Operation,
    Ping,
    Progress,
    Put,
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

_SCRIPTS: dict[type[Operation[Any]], str] = {
    AddResource: "claims add",
    Arrivals: "barriers arrivals",
    Arrive: "barriers arrive",
    Ask: "holds ask",
    BreakHold: "holds break_hold",
    Browse: "records browse",
    Claim: "claims claim",
    CloseSession: "sweep",
    Count: "records count",
    DescribeSession: "survey inspect",
    EditClaim: "claims edit",
    GetResult: "records result",
    GetTask: "records get",
    GiveBack: "claims give_back",
    Groups: "records groups",
    Holders: "holds holders",
    HoldOff: "rates hold_off",
    Leave: "records leave",
    ListKeys: "survey survey",
    Look: "rates look",
    OpenSession: "sessions open",
    Ping: "sessions ping",
    Progress: "records progress",
    RemoveResource: "claims remove",
    RenewSession: "sessions renew",
    ResetBarrier: "barriers reset",
    Resize: "holds resize",
    Resources: "claims resources",
    SetPaused: "records set_paused",
    SetValue: "holds set_value",
    Withdraw: "barriers withdraw",
}

CODECS: Codecs = {
    **{operation: codec(script, operation) for operation, script in _SCRIPTS.items()},
    CheckHealth: codec("survey examine", CheckHealth, answer=health),
    Move: codec("records", Move, arguments=move),
    SetGroups: codec("records", SetGroups, arguments=set_groups),
    Refund: codec("rates", Refund, arguments=refund),
    Spend: codec("rates", Spend, arguments=spend, answer=spent),
    # what each lock needs, without the loop over the fields
    Acquire: codec(
        "acquire",
        Acquire,
        arguments=lambda op: (op.key, op.session, op.holder, op.capacity, op.weight, op.value, int(op.wait)),
    ),
    Release: codec("release", Release, arguments=lambda op: (op.key, op.holder)),
    # the two that carry many tasks: their scripts read and return flat lists
    Put: codec("put", Put, arguments=put, answer=put_answer),
    Exchange: codec("exchange", Exchange, arguments=exchange, answer=exchanged),
}
