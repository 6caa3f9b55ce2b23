"""The engine contract: coarse operations, values in and out, safe to send again.

An *engine* keeps state. It applies *operations*, each of them atomic and one round trip, and returns *answers*.
Operations, their parts, answers and rows of pages are one kind of class, the value (`_value.py`); so an operation that
is sent again is the same value. `Engine.submit` is the only way in; how operations travel, one by one or in batches
(`Batches`), is the engine's own affair. Every engine obeys these rules:

Order. Operations that are submitted to a shard take effect in the order of submitting. Each operation is answered
exactly once. The answer `StoreUnavailable` means that its outcome is unknown, or (`NotSent`) that it was not sent;
nothing of it takes effect after that.

Resending. The client names holds, claims and arrivals before it sends the first byte; to apply them twice is to apply
them once. `Put`, `Exchange`, `Spend`, `Refund` and `HoldOff` carry `(session, n)`: n rises from batch to batch, per
session and object, one batch at a time. The engine keeps its last answer per session and object and returns it again
when the same n comes again. It keeps the answer for at least two ttls of the session after it was last returned, and
may forget it then: a sender that gets no answers for a ttl has lost its session.

Sessions. A session is a process's registration, which the process renews. No operation creates one but `OpenSession`;
an operation that carries an unknown or ended session is answered `Reply.GONE` and has no effect. A session that is not
renewed within its ttl ends: the engine releases all that it holds and removes it from all queues of waiters, as if it
had been closed.

Expiry. Before anything else, every operation processes what time has made due: it ends expired sessions (in the order
of expiry, then id; within one: holds, claims, arrivals, producers, tasks, idle takers, watches, each in the order in
which they were made), expires tasks and dead letters (which then count as purged), goes on with sweeps of children,
ends the waits for entries that were not written in time, and frees resources whose cool-down is over and for which
somebody waits. Loops are capped: after `CAP` steps the answer is `Reply.MORE`, and the caller
sends the same operation again at once. The operation itself may already have been applied by then; sending it again is
safe and returns the final answer. The cost of an operation depends on what it returns or changes, never on how much is
stored.

Names leave nothing. The state of a name is removed when it carries no information, also while sessions
live. From that moment on the name is exactly as if it had never been used; its storage may be freed a little later, a
few names with any operation. This holds for:
- a key without holders and waiters, unless `Resize` has set its capacity; a pool without resources and claimers;
- a limiter that is full again, so that all bursts could be spent at once, has no waiters, and is not held off;
- a barrier without waiters, which keeps no outcome for a participant and is not broken, once two ttls of the
  session that arrived have passed since each arrival;
- a queue that has no unfinished task, no record of an ended one, no cursor and no producer, is not paused and has no
  settings but the defaults, once each record that it ever had, but for dead letters, would have expired, no `key_ttl`
  lasts, and two ttls of the session that settled it have passed since each ending that a session settled. Its counts
  go with it. Idle takers and watches do not keep it;
- a group of a queue without an unfinished task and without a producer that waits or has slots reserved;
- the record of a task that has ended, after its ttl; the key of one, after its `key_ttl`; numbered answers, as above.

Queues of waiters. First come, first served, weights included: a head that does not fit blocks the waiters behind it,
no acquirer barges in, and an acquirer that does not want to wait is refused while others wait. An operation that gives
something back grants it to the head of the queue in the same atomic step, and hints the process of the new holder.
`place` is 1 for the head; it is an upper bound, since waiters that left in between are counted.

Hints. A hint carries the answer that asking would return, or a notice to look again. Hints may be lost; the stored
state is the truth. `ask_again_in` is the number of seconds after which it makes sense to ask again without a hint: the
earliest expiry or due time that could help.

Tokens. Each grant and each taking carries a token: `max(last + 1, engine time in microseconds)`. Tokens rise over the
whole engine and outlive what they were granted for. Whatever a stale holder sends is refused by its token. The id of a
task is a token too, so an engine that has lost its last data gives no id a second time.

Time is the engine's. Only durations, in seconds, cross the wire; a duration longer than `LONGEST` counts as `LONGEST`,
and an operation with a NaN fails alone, with an `EngineError` (`clamp_durations`; `CHECKS`, for an engine that bounds
durations as it makes microseconds of them). Payloads, results, progress, failures, values and metadata are bytes to an
engine.
"""

from types import FunctionType

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
    NotSent,
    Operation,
    Queued,
    Reply,
    Tripped,
    Waiting,
)
from ._batching import Batches
from ._claims import (
    RESOURCES,
    AddResource,
    Claim,
    EditClaim,
    GiveBack,
    RemoveResource,
    Resource,
    ResourcePage,
)
from ._counters import (
    BARRIER,
    LIMITER,
    Arrive,
    BarrierStatus,
    Booking,
    Debt,
    HoldOff,
    LimiterStatus,
    RateLimit,
    Refund,
    RefundRequest,
    ResetBarrier,
    Spend,
    Spending,
    SpendRequest,
    SpendResults,
    Withdraw,
)
from ._durations import (
    CHECKS,
    clamp_durations,
)
from ._engine import Engine
from ._enlisting import (
    Complete,
    CompleteAll,
    Enlisted,
    Enlistment,
    PutOne,
)
from ._families import (
    DEEPEST,
    ENTRIES,
    ENTRY_BYTES,
    MOST_ENTRIES,
    SWEEP_PAUSE,
    SWEEP_STEPS,
    UNFINISHED_CHILDREN,
    Entry,
    PutChildren,
    SetEntry,
    TooMany,
)
from ._handlers import (
    OPERATIONS,
    handlers,
)
from ._holds import (
    HOLDERS,
    Acquire,
    Ask,
    BreakHold,
    Holder,
    Holdings,
    HoldStatuses,
    Release,
    Resize,
    SetValue,
)
from ._hosts import addresses_of, only_known, remember
from ._indexes import INDEXES
from ._rates import (
    ROUNDING,
    Booked,
    Limiter,
)
from ._remote import Remote
from ._rules import (
    A_FEW,
    EXPIRED_TTL,
    Ends,
    GoesBack,
    Waits,
    after_verdict,
    how_many_to_forget,
    without_verdict,
)
from ._scan import (
    Index,
    Page,
    Scan,
)
from ._sessions import (
    CloseSession,
    OpenSession,
    Ping,
    RenewSession,
)
from ._settings import (
    DEFAULT_TEXTS,
    DEFAULTS,
    RECORD_TTL,
    Configure,
    Configured,
    Rate,
    Setting,
    Settings,
    read,
    settings_of,
    written,
)
from ._survey import (
    FAMILIES,
    HEALTH,
    NAMES,
    SESSION,
    Health,
    SessionItem,
    SessionPage,
)
from ._tasks import (
    ANEW,
    ENDED,
    GROUPS,
    KEYED_TASK,
    NOT_BEGUN,
    OF_CHILDREN,
    TASK,
    TASKS,
    Accepted,
    Conflict,
    Count,
    Duplicate,
    Exchange,
    Exchanged,
    GetResult,
    GroupCounts,
    Leave,
    Move,
    MovedCount,
    NewTask,
    OnDuplicate,
    Outcome,
    Progress,
    Put,
    PutAnswer,
    PutRequest,
    QueueCounts,
    Record,
    SetPaused,
    Settle,
    Taken,
    TaskPage,
    Unfinished,
    Verdict,
)

__all__ = (
    "ANEW",
    "A_FEW",
    "BARRIER",
    "CAP",
    "CHECKS",
    "DEEPEST",
    "DEFAULTS",
    "DEFAULT_TEXTS",
    "ENDED",
    "ENTRIES",
    "ENTRY_BYTES",
    "EXPIRED_TTL",
    "FAMILIES",
    "GROUPS",
    "HEALTH",
    "HOLDERS",
    "INDEXES",
    "KEYED_TASK",
    "LIMITER",
    "LONGEST",
    "MOST_ENTRIES",
    "NAMES",
    "NOT_BEGUN",
    "OF_CHILDREN",
    "OPERATIONS",
    "RECORD_TTL",
    "RESOURCES",
    "RESPONSE_TIMEOUT",
    "ROUNDING",
    "SESSION",
    "SWEEP_PAUSE",
    "SWEEP_STEPS",
    "TASK",
    "TASKS",
    "UNFINISHED_CHILDREN",
    "A",
    "Accepted",
    "Acquire",
    "AddResource",
    "ArrivalAnswer",
    "Arrive",
    "Ask",
    "BarrierStatus",
    "Batches",
    "Booked",
    "Booking",
    "BreakHold",
    "Broken",
    "Claim",
    "ClaimAnswer",
    "Claimed",
    "CloseSession",
    "Complete",
    "CompleteAll",
    "Configure",
    "Configured",
    "Conflict",
    "Count",
    "Debt",
    "Duplicate",
    "EditClaim",
    "Ends",
    "Engine",
    "Enlisted",
    "Enlistment",
    "Entry",
    "Exchange",
    "Exchanged",
    "GetResult",
    "GiveBack",
    "GoesBack",
    "Granted",
    "GroupCounts",
    "Health",
    "Hint",
    "HoldAnswer",
    "HoldOff",
    "HoldStatuses",
    "Holder",
    "Holdings",
    "Index",
    "Leave",
    "Limiter",
    "LimiterStatus",
    "Metadata",
    "Mismatch",
    "Move",
    "MovedCount",
    "NewTask",
    "NotSent",
    "Notice",
    "OnDuplicate",
    "OpenSession",
    "Operation",
    "Outcome",
    "Page",
    "Ping",
    "Progress",
    "Put",
    "PutAnswer",
    "PutChildren",
    "PutOne",
    "PutRequest",
    "QueueCounts",
    "Queued",
    "Rate",
    "RateLimit",
    "Record",
    "Refund",
    "RefundRequest",
    "Release",
    "Remote",
    "RemoveResource",
    "RenewSession",
    "Reply",
    "ResetBarrier",
    "Resize",
    "Resource",
    "ResourcePage",
    "Scan",
    "SessionItem",
    "SessionPage",
    "SetEntry",
    "SetPaused",
    "SetValue",
    "Setting",
    "Settings",
    "Settle",
    "Spend",
    "SpendRequest",
    "SpendResults",
    "Spending",
    "Taken",
    "TaskPage",
    "TooMany",
    "Tripped",
    "Unfinished",
    "Verdict",
    "Waiting",
    "Waits",
    "Withdraw",
    "addresses_of",
    "after_verdict",
    "clamp_durations",
    "handlers",
    "how_many_to_forget",
    "only_known",
    "read",
    "remember",
    "settings_of",
    "without_verdict",
    "written",
)

for _name in __all__:
    if isinstance(_thing := globals()[_name], type | FunctionType):
        _thing.__module__ = __name__
