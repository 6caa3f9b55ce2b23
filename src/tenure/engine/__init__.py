"""The engine contract: coarse operations, values in and out, safe to send again.

An *engine* keeps state. It applies *operations*, each of them atomic and one round trip, and returns *answers*.
`Engine.submit` is the only way in; an engine may send operations one by one or in batches (`Batches`). Every engine
obeys these rules:

Order. Operations that are submitted to a shard take effect in the order of submitting. Each operation is answered
exactly once. The answer `StoreUnavailable` means that its outcome is unknown, or (`NotSent`) that it was not sent;
nothing of it takes effect after that.

Resending. The client names holds and claims before it sends the first byte; to apply them twice is to apply them once.
`Put`, `Exchange`, `Spend`, `Refund` and `HoldOff` carry `(session, n)`: per session and object, n rises from batch to
batch, one batch at a time. The engine keeps its last answer per session and object, and returns it when the same n
comes again. It may forget an answer two ttls of the session after it last returned it: a sender without answers for a
ttl has lost its session.

Sessions. A session is the registration of a process, which renews it. Only `OpenSession` creates one. The answer to an
operation with an unknown or ended session is `Reply.GONE`; the operation has no effect. A session that is not renewed
within its ttl ends as if it had been closed: the engine releases all that it holds and removes it from all queues of
waiters. A session with nothing but idle takers and watches may rest (`RenewSession.rest`): while all sessions rest and
nothing is due, nobody sends anything. The engine hints some of them with WAKE before another one is awake.

Expiry. Every operation first processes what time has made due:
- Expired sessions end, in the order of expiry, then id. Each gives up its holds, claims, producers, tasks, idle takers
  and watches, in this order; those of one family in the order in which they were made.
- Tasks and dead letters expire. An expired dead letter counts as purged.
- Sweeps of children go on, and waits for entries that did not come in time end.
- Resources whose cool-down is over are free, if somebody waits for them.

Loops are capped: after `CAP` steps the answer is `Reply.MORE`, and the caller sends the same operation again at once.
The operation may already have been applied; sending it again returns the final answer. The cost of an operation depends
on what it returns or changes, never on how much is stored.

Names leave nothing. A name whose state carries no information is as if it had never been used; its storage may be freed
a little later, a few names with any operation. This holds for:
- a key without holders and waiters, unless `Resize` has set its capacity; a pool without resources and claimers;
- a limiter that is full again, has no waiters, and is not held off;
- a queue without unfinished tasks, records, cursors and producers, which is not paused and has default settings. All
  records but dead letters would have expired, no `key_ttl` lasts, and two ttls of the session have passed since each
  ending that a session settled. Its counts go with it. Idle takers and watches do not keep it;
- a group of a queue without an unfinished task and without a producer that waits or has slots reserved;
- the record of an ended task, after its ttl; its key, after `key_ttl`; numbered answers, as above.

Queues of waiters. First come, first served, weights included: a head that does not fit blocks the waiters behind it, no
acquirer barges in, and an acquirer that does not want to wait is refused while others wait. An operation that gives
something back grants it to the head of the queue in the same atomic step, and hints the process of the new holder.
`place` is 1 for the head; it is an upper bound, since it counts waiters that have left.

Hints. A hint carries the answer that asking would return, or a notice to look again. Hints may be lost; the stored
state is the truth. `ask_again_in` is the number of seconds until the earliest expiry or due time that could help; the
client then asks again without a hint.

Tokens. Each grant and each taking carries a token: `max(last + 1, engine time in microseconds)`. Tokens rise over the
whole engine and outlive what they were granted for. Whatever a stale holder sends is refused by its token. The id of a
task is a token too, so an engine that has lost its last data gives no id a second time.

Time is the engine's. Only durations, in seconds, cross the wire. A duration longer than `LONGEST` counts as `LONGEST`;
an operation with a NaN fails alone, with an `EngineError` (`clamp_durations`, or `CHECKS`). Payloads, results,
progress, failures, values and metadata are bytes.
"""

from types import FunctionType as _FunctionType

from tenure.arguments import LONGEST as LONGEST

from ._answers import (
    CAP as CAP,
    IN_USE as IN_USE,
    RESPONSE_TIMEOUT as RESPONSE_TIMEOUT,
    SILENCE as SILENCE,
    A as A,
    ClaimAnswer as ClaimAnswer,
    Claimed as Claimed,
    Granted as Granted,
    Hint as Hint,
    HoldAnswer as HoldAnswer,
    Metadata as Metadata,
    Mismatch as Mismatch,
    Notice as Notice,
    NotSent as NotSent,
    Operation as Operation,
    Queued as Queued,
    Reply as Reply,
    Resting as Resting,
)
from ._batching import Batches as Batches
from ._claims import (
    RESOURCES as RESOURCES,
    AddResource as AddResource,
    Claim as Claim,
    EditClaim as EditClaim,
    GiveBack as GiveBack,
    RemoveResource as RemoveResource,
    Resource as Resource,
    ResourcePage as ResourcePage,
)
from ._counters import (
    LIMITER as LIMITER,
    Booking as Booking,
    Debt as Debt,
    HoldOff as HoldOff,
    LimiterStatus as LimiterStatus,
    RateLimit as RateLimit,
    Refund as Refund,
    RefundRequest as RefundRequest,
    Spend as Spend,
    Spending as Spending,
    SpendRequest as SpendRequest,
    SpendResults as SpendResults,
)
from ._durations import CHECKS as CHECKS, clamp_durations as clamp_durations
from ._engine import Engine as Engine
from ._enlisting import (
    Complete as Complete,
    CompleteAll as CompleteAll,
    Enlisted as Enlisted,
    Enlistment as Enlistment,
    PutOne as PutOne,
)
from ._families import (
    DEEPEST as DEEPEST,
    ENTRIES as ENTRIES,
    ENTRY_BYTES as ENTRY_BYTES,
    MOST_ENTRIES as MOST_ENTRIES,
    SWEEP_PAUSE as SWEEP_PAUSE,
    SWEEP_STEPS as SWEEP_STEPS,
    UNFINISHED_CHILDREN as UNFINISHED_CHILDREN,
    Entry as Entry,
    PutChildren as PutChildren,
    SetEntry as SetEntry,
    TooMany as TooMany,
)
from ._handlers import OPERATIONS as OPERATIONS, handlers as handlers
from ._holds import (
    BROKEN as BROKEN,
    DROP as DROP,
    HOLDERS as HOLDERS,
    Acquire as Acquire,
    Ask as Ask,
    BreakHold as BreakHold,
    Holder as Holder,
    Holdings as Holdings,
    HoldStatuses as HoldStatuses,
    Release as Release,
    Resize as Resize,
    SetValue as SetValue,
)
from ._hosts import addresses_of as addresses_of, only_known as only_known, remember as remember
from ._indexes import INDEXES as INDEXES
from ._rates import ROUNDING as ROUNDING, Booked as Booked, Limiter as Limiter
from ._remote import Remote as Remote
from ._rules import (
    A_FEW as A_FEW,
    EXPIRED_TTL as EXPIRED_TTL,
    Ends as Ends,
    GoesBack as GoesBack,
    Waits as Waits,
    after_verdict as after_verdict,
    as_letter as as_letter,
    how_many_to_forget as how_many_to_forget,
    without_verdict as without_verdict,
)
from ._scan import Index as Index, Page as Page, Scan as Scan
from ._sessions import (
    CloseSession as CloseSession,
    OpenSession as OpenSession,
    Ping as Ping,
    RenewSession as RenewSession,
)
from ._settings import (
    DEFAULT_TEXTS as DEFAULT_TEXTS,
    DEFAULTS as DEFAULTS,
    RECORD_TTL as RECORD_TTL,
    Configure as Configure,
    Configured as Configured,
    Rate as Rate,
    Setting as Setting,
    Settings as Settings,
    read as read,
    settings_of as settings_of,
    written as written,
)
from ._survey import (
    FAMILIES as FAMILIES,
    HEALTH as HEALTH,
    NAMES as NAMES,
    SESSION as SESSION,
    Health as Health,
    SessionItem as SessionItem,
    SessionPage as SessionPage,
)
from ._tasks import (
    ANEW as ANEW,
    ENDED as ENDED,
    GROUPS as GROUPS,
    KEYED_TASK as KEYED_TASK,
    NOT_BEGUN as NOT_BEGUN,
    OF_CHILDREN as OF_CHILDREN,
    TASK as TASK,
    TASKS as TASKS,
    Accepted as Accepted,
    Conflict as Conflict,
    Count as Count,
    Duplicate as Duplicate,
    Exchange as Exchange,
    Exchanged as Exchanged,
    GetResult as GetResult,
    GroupCounts as GroupCounts,
    Leave as Leave,
    Move as Move,
    MovedCount as MovedCount,
    Named as Named,
    NewTask as NewTask,
    OnDuplicate as OnDuplicate,
    Outcome as Outcome,
    Progress as Progress,
    Put as Put,
    PutAnswer as PutAnswer,
    PutRequest as PutRequest,
    QueueCounts as QueueCounts,
    Record as Record,
    SetPaused as SetPaused,
    Settle as Settle,
    Taken as Taken,
    TaskPage as TaskPage,
    Unfinished as Unfinished,
    Verdict as Verdict,
)

__all__ = tuple(name for name in globals() if not name.startswith("_"))  # pyright: ignore[reportUnsupportedDunderAll]

for _name in __all__:
    if isinstance(_thing := globals()[_name], type | _FunctionType):
        _thing.__module__ = __name__
