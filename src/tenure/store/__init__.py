"""The open handle on an engine, and the guide to the house.

The way of a lock, `async with Lock(store, "x")` on Redis, when it is free and the session is open::

    Lock.__aenter__             shared/holds/_lock
    LeasedBlock.__aenter__      shared/_block   Hold._obtain in shared/_lease says how
    Acquisitions.acquire        store/_acquire
      Acquisition.answer        store/_acquire   the name is known from here on
        Dispatcher.send         store/_dispatch
          RedisEngine.submit    engines/redis/_remote      one script
        park                    waiting/_park   Acquisition.on_news, in a callback of the loop, wakes the task
    Lease                       shared/_lease   the cancel scope; the session knows it
    LeasedBlock.__aexit__       shared/_block
      PendingRelease            store/_acquire  sent before the first await; parks until it is acknowledged

SQLite and PostgreSQL gather the operations of a turn of the loop, and while a batch is on its way (`Batches` in
engine/_batching.py). Memory answers before `submit` returns. A task that is `Queued` is woken by a hint
(`StoreHandle.on_hint`), the answer to asking again (`_reask`), the loss of the session, or the closing of the store.

Takers wait in a Line (`Takers.take`); `Batcher._flush`, in the task "wire", sends one Exchange of all that has
gathered, verdicts included, and `Takers.on_answer` hands over. Puts, spendings of a limiter and exchanges are numbered
batches (`_batcher`); holds and claims are named (`_acquire`). `tenure.engine`, "Resending", says why.

| symptom                                                | file                                              |
|--------------------------------------------------------|---------------------------------------------------|
| a waiter is not woken                                  | `_handle.StoreHandle.on_hint`: which listener     |
| a waiter asks the engine too often, or never again     | `_reask`; for queues `_timers.Timer`              |
| a cancelled acquisition leaves a holder behind         | `_acquire.Acquisitions.acquire`                   |
| a session is lost too early or too late                | `_sessions.Session.keep`                          |
| a blocked loop loses its leases                        | `_watchdog`                                       |
| a lost grant is not noticed after a failover           | `_reconciling`                                    |
| a release is not sent again                            | `_acquire`, `Session._look_after_the_unreleased`  |
| an operation is sent twice, or out of order            | `_dispatch`; in batches: `_batching` of `engine`  |
| a put or a verdict takes effect twice after an outage  | `_batcher`, and the engine's numbered answers     |
| closing hangs, or loses something                      | `_handle.StoreHandle.close`                       |
| a background job is left behind                        | `tenure.upkeep`                                   |
| a wake-up is lost inside the process                   | `tenure.waiting._line`, `_park`                   |
| "belongs to another thread"                            | `_dispatch.Home`                                  |
| the engine's answer is wrong                           | `tenure.engines.rules`: the rules in Python       |

A delayed task starts after one of the first three events makes a taker ask. On Redis::

    the alarm          shared/queue/_takes: `on_answer` keeps `ask_again_in`, the next due time of the queue;
                       store/_timers: up to 0.2 s later by chance, `Takers.reask` sends an exchange
    an exchange        of any process on the queue; lua/order: `promote` makes due tasks takeable;
                       lua/takers: `offer_tasks` publishes READY to as many idle takers as there are tasks
    the hint           shared/queue/_takes: `on_ready` sends an exchange; it may get lost, the alarm does not
    the exchange       lua/exchange: answers with the task, and computes `ask_again_in`;
                       shared/queue/_takes: `_hand_over` gives the task to the runner
"""

from ._acquire import (
    AcquireRequest as AcquireRequest,
    Acquisition as Acquisition,
    Grant as Grant,
    PendingRelease as PendingRelease,
)
from ._batcher import Batcher as Batcher
from ._codec import (
    Codec as Codec,
    JsonCodec as JsonCodec,
    check_codec as check_codec,
    decoded as decoded,
    encoded as encoded,
)
from ._dispatch import outcome_of as outcome_of
from ._handle import StoreHandle as StoreHandle
from ._msgspec_codec import MsgspecCodec as MsgspecCodec
from ._pages import names as names, read_counts as read_counts, read_pages as read_pages, together as together
from ._pydantic_codec import PydanticCodec as PydanticCodec
from ._reconciling import give_back_of as give_back_of
from ._sessions import Held as Held, Session as Session, numbers as numbers
from ._store import (
    Store as Store,
    StoreStatistics as StoreStatistics,
    check_ttl as check_ttl,
    handle_of as handle_of,
)
from ._timers import Timer as Timer, jittered as jittered

__all__ = tuple(name for name in globals() if not name.startswith("_"))  # pyright: ignore[reportUnsupportedDunderAll]
