"""The engine contract: coarse operations, frozen values in and out, safe to send again.

An *engine* keeps state. It takes *operations*, each of them atomic and one round trip, and gives *answers*. An
operation is a value, so sending it again is sending the same value again. What every engine keeps to:

Resending. Holds, claims and arrivals are named by the client, before the first byte is sent; applying them twice is
applying them once. `Put`, `Exchange`, `Spend` and `Refund` carry `(session, n)`: n rises from batch to batch, per
session and object, one batch at a time; the engine keeps its last answer per session and object and repeats it when
the same n comes again. It keeps the answer for at least two ttls of the session after it was last returned, and may
forget it then: a sender whose answers stay away for a ttl has lost its session.

Sessions. A session is a process's life sign. No operation creates one but `OpenSession`; an operation that carries an
unknown or ended session is answered `Reply.GONE` and has no effect. A session that is not renewed within its ttl ends:
all it holds is released and all its places are left, as if it had been closed.

Clearing up. Before anything else, every operation clears up what time has made due: it ends expired sessions (in the
order of expiry, then id; within one: holds, claims, arrivals, producers, tasks, idle takers, watches, each in the
order they were made), expires tasks and frees resources whose cool-down is over and that somebody waits for. Loops
are capped: after `CAP` steps the answer is `Reply.MORE`, and the caller sends the same operation again at once. The
operation itself may already have been applied by then; sending it again is safe and gives the final answer. What an
operation costs depends on what it returns or changes, never on how much there is.

Names leave nothing. What is kept for a name goes when it says nothing any more, also while sessions live. From that
moment on the name is exactly as if it had never been used; what is stored of it may go a little later, a few with any
operation:
- a key that nobody holds or waits for, unless `Resize` has set its capacity; a pool without resources and claimers;
- a rate that is full again, so that the whole burst could be spent at once;
- a barrier at which nobody waits, which keeps no outcome for a participant and is not broken, once two ttls of the
  session that arrived have passed since each arrival;
- a queue that has no unfinished task, no record of an ended one, no cursor and no producer, and is not paused, once
  each record that it ever had would have expired, and two ttls of the session that settled it have passed since each
  ending that a session settled. Its counts go with it. Idle takers and watches do not keep it;
- the record of a task that has ended, after its ttl; numbered answers, as above.

Lines. First come, first served, weights included: a head that does not fit blocks those behind it, nobody barges, and
an acquirer that does not want to wait is refused while others wait. Whatever gives something back grants it to the
head of the line in the same atomic step and hints the process of the one who got it. `place` is 1 for the head; it is
an upper bound, since those who left in between are counted.

Hints. A hint carries the very answer that asking would give, or a notice to look again. Hints may be lost; the stored
state is the truth. `ask_again_in` tells after how many seconds (the earliest expiry or due time that could help) asking
again makes sense without a hint.

Tokens. Each grant and each taking carries a token: `max(last + 1, engine time in microseconds)`. Tokens rise over the
whole engine, outlive what they were given for, and whatever a stale holder sends is refused by its token.

Time is the engine's. Only durations, in seconds, cross the wire; one that is longer than `LONGEST` counts as `LONGEST`,
and an operation with one that is not a number fails alone, with an `EngineError` (`within`). Payloads, results,
progress, values and metadata are bytes to an engine.
"""

from tenure.arguments import LONGEST

from ._answers import (
    CAP,
    RESPONSE_TIMEOUT,
    A,
    ArrivalAnswer,
    Broken,
    ClaimAnswer,
    Claimed,
    Granted,
    Hint,
    HoldAnswer,
    Metadata,
    Mismatch,
    Notice,
    Operation,
    Queued,
    Reply,
    Tripped,
    Waiting,
)
from ._claims import (
    AddResource,
    Claim,
    EditClaim,
    GiveBack,
    RemoveResource,
    Resource,
    ResourcePage,
    Resources,
)
from ._counters import (
    Arrivals,
    Arrive,
    Gathering,
    Refund,
    ResetBarrier,
    Spend,
    Spending,
    SpendRequest,
    Spent,
    Withdraw,
)
from ._durations import (
    within,
)
from ._engine import (
    Engine,
    name_in,
)
from ._holds import (
    Acquire,
    Ask,
    Asked,
    Holder,
    Holders,
    Holdings,
    Release,
    Resize,
    SetValue,
)
from ._joining import (
    Complete,
    Joined,
    Joining,
    Joins,
    PutOne,
)
from ._sessions import (
    CloseSession,
    OpenSession,
    Ping,
    RenewSession,
)
from ._survey import (
    FAMILIES,
    Belonging,
    Examine,
    Examined,
    Inspect,
    Inspected,
    Survey,
    Surveyed,
)
from ._tasks import (
    Accepted,
    Browse,
    CancelTask,
    Changed,
    Count,
    Duplicate,
    Exchange,
    Exchanged,
    GetResult,
    Leave,
    NewTask,
    Outcome,
    Page,
    Progress,
    Purge,
    Put,
    PutAnswer,
    PutRequest,
    QueueCounts,
    Record,
    Requeue,
    SetPaused,
    Settle,
    Taken,
    Unfinished,
    Verdict,
)

__all__ = (
    "CAP",
    "FAMILIES",
    "LONGEST",
    "RESPONSE_TIMEOUT",
    "A",
    "Accepted",
    "Acquire",
    "AddResource",
    "ArrivalAnswer",
    "Arrivals",
    "Arrive",
    "Ask",
    "Asked",
    "Belonging",
    "Broken",
    "Browse",
    "CancelTask",
    "Changed",
    "Claim",
    "ClaimAnswer",
    "Claimed",
    "CloseSession",
    "Complete",
    "Count",
    "Duplicate",
    "EditClaim",
    "Engine",
    "Examine",
    "Examined",
    "Exchange",
    "Exchanged",
    "Gathering",
    "GetResult",
    "GiveBack",
    "Granted",
    "Hint",
    "HoldAnswer",
    "Holder",
    "Holders",
    "Holdings",
    "Inspect",
    "Inspected",
    "Joined",
    "Joining",
    "Joins",
    "Leave",
    "Metadata",
    "Mismatch",
    "NewTask",
    "Notice",
    "OpenSession",
    "Operation",
    "Outcome",
    "Page",
    "Ping",
    "Progress",
    "Purge",
    "Put",
    "PutAnswer",
    "PutOne",
    "PutRequest",
    "QueueCounts",
    "Queued",
    "Record",
    "Refund",
    "Release",
    "RemoveResource",
    "RenewSession",
    "Reply",
    "Requeue",
    "ResetBarrier",
    "Resize",
    "Resource",
    "ResourcePage",
    "Resources",
    "SetPaused",
    "SetValue",
    "Settle",
    "Spend",
    "SpendRequest",
    "Spending",
    "Spent",
    "Survey",
    "Surveyed",
    "Taken",
    "Tripped",
    "Unfinished",
    "Verdict",
    "Waiting",
    "Withdraw",
    "name_in",
    "within",
)

for _name in __all__:
    if isinstance(_thing := globals()[_name], type) or _name in ("name_in", "within"):
        _thing.__module__ = __name__
