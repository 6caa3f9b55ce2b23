"""The operations, and the script that executes each."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tenure import engine as e

from ._codec import Codecs, codec
from ._rates import refund, spend, spent
from ._scans import PAGES, page, scan
from ._tasks import configure, configured, exchange, exchanged, move, put, put_answer, put_children

_SCRIPTS: dict[type[e.Operation[Any]], tuple[str, str]] = {
    e.AddResource: ("claim_operations add_resource", "ok"),
    e.Ask: ("holds ask", "asked gone"),
    e.BreakHold: ("holds break_hold", "ok refused"),
    e.Claim: ("claim_operations claim", "claimed queued refused gone"),
    e.CloseSession: ("sweep", "ok gone"),
    e.Count: ("records count", "counts gone"),
    e.EditClaim: ("claim_operations edit_claim", "ok refused"),
    e.GetResult: ("records get_result", "outcome unfinished unknown gone"),
    e.GiveBack: ("claim_operations give_back", "released left unknown"),
    e.HoldOff: ("rates hold_off", "ok gone"),
    e.Leave: ("records leave", "left released unknown"),
    e.OpenSession: ("sessions open_session", "ok"),
    e.Ping: ("sessions ping", "ok"),
    e.Progress: ("records progress", "ok refused requested"),
    e.RemoveResource: ("claim_operations remove_resource", "ok unknown"),
    e.RenewSession: ("sessions renew_session", "ok gone resting"),
    e.Resize: ("holds resize", "ok refused"),
    e.SetEntry: ("family_operations set_entry", "ok entry toomany refused requested unknown children"),
    e.SetPaused: ("records set_paused", "ok"),
    e.SetValue: ("holds set_value", "ok refused"),
}
"""The script of an operation, and the words with which its replies begin."""

CODECS: Codecs = {
    **{operation: codec(*its, operation) for operation, its in _SCRIPTS.items()},
    e.Scan: codec("scan", f"{PAGES} unknown gone", e.Scan, arguments=scan, answer=page),
    e.Move: codec("records", "changed", e.Move, arguments=move),
    e.Configure: codec("records", "configured", e.Configure, arguments=configure, answer=configured),
    e.Refund: codec("rates", "ok gone", e.Refund, arguments=refund),
    e.Spend: codec("rates", "spent gone", e.Spend, arguments=spend, answer=spent),
    # what each lock needs, without a step in Python
    e.Acquire: codec(
        "acquire",
        "granted queued refused mismatch gone",
        e.Acquire,
        # the number that is True, or False
        arguments=attrgetter("key", "session", "holder", "capacity", "weight", "value", "wait.real"),
    ),
    e.Release: codec(
        "release", "released granted left unknown", e.Release, arguments=attrgetter("key", "holder")
    ),
    # the two that carry many tasks: their scripts read and return flat lists
    e.Put: codec("put", "put gone", e.Put, arguments=put, answer=put_answer),
    e.PutChildren: codec(
        "family_operations",
        "accepted named entry toomany refused requested",
        e.PutChildren,
        arguments=put_children,
    ),
    e.Exchange: codec("exchange", "exchanged gone", e.Exchange, arguments=exchange, answer=exchanged),
}
