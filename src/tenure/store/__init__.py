"""The open handle on an engine, and the guide to the house.

A `Store` is this process's handle on an engine.

The way of a lock
-----------------

`async with Lock(store, "x")` on Redis, when it is free and the session is open::

    caller's task                                             loop callback (no task)
    -------------                                             -----------------------
    Lock.__aenter__             shared/holds/_lock
    LeasedBlock.__aenter__      shared/_block   Hold._obtain in shared/_lease says how
    Acquisitions.acquire        store/_acquire
      Home.running              store/_dispatch  whether the store is open, and here
      Sessions.current          store/_sessions  which session
      Acquisition.answer        store/_acquire   the name is known from here on
        Dispatcher.send         store/_dispatch
          RedisEngine.submit    engines/redis/_remote      one script
            Connection.send     engines/redis/_connection  -> bytes leave
        park                    waiting/_park
        ...                                                   Connection._take_in     engines/redis/_connection
        ...                                                   RedisEngine._on_reply   reply -> answer
        ...                                                   Dispatcher._on_answer   it is no longer under way
        ...                                                   Acquisition.on_news     wakes the task
      Grant                     store/_acquire
    Lease                       shared/_lease    the cancel scope; the session knows it
    ...the body...
    LeasedBlock.__aexit__       shared/_block
      PendingRelease            store/_acquire   sent before the first await
        Dispatcher.send, and so on as above
        park until it is acknowledged, in a shield; SettleTimeouts ends it in time

SQLite and PostgreSQL gather the operations of a turn of the loop, and while a batch is on its way (`Batches` in
engine/_batching.py). Memory answers before `submit` returns.

If another process holds it, the answer is `Queued` and the task stays parked. One of these wakes it: a hint
(`StoreHandle.on_hint` -> `Acquisitions.on_hint`), the answer to asking again (`_reask`), the loss of the session
(`Session.lose`), or the closing of the store.

The way of a task
-----------------

`async with queue.take() as task`::

    caller's task                      task "wire"                          loop callback
    -------------                      -----------                          -------------
    Takers.take     shared/queue/_takes
    Batcher.schedule  store/_batcher
    Dispatcher.call_soon
    wait in a Line  waiting/_line
    ...                                Dispatcher.run    store/_dispatch
    ...                                Batcher._flush    all that has gathered
    ...                                Takers.next_operation -> one Exchange
    ...                                Dispatcher.send -> engine.submit
    ...                                                                     Batcher._on_answer
    ...                                                                     Takers.on_answer: hands over
    Task            shared/queue/_task
    ...the body...
    a verdict       shared/queue/_takes      travels in the next Exchange, the same way

Puts, spendings of a limiter and exchanges of a queue are numbered batches (`_batcher`); holds and claims are
named (`_acquire`). The engine contract says why (`tenure.engine`, "Resending").

Which file to open
------------------

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
| works on asyncio, fails on trio (or the reverse)       | `tenure.waiting._park`                            |
| "belongs to another thread"                            | `_dispatch.Home`                                  |
| a task is delivered late                               | "When a delayed task starts", below               |
| what the engine answers is wrong                       | `tenure.engines.rules`: the rules in Python       |

When a delayed task starts
--------------------------

One of the first three events makes a taker ask; the fourth starts the task. For Redis, five files tell all of it::

    the alarm          shared/queue/_takes: `on_answer` keeps `ask_again_in`, the next due time of the queue;
                       store/_timers: up to 0.2 s later by chance, `Takers.reask` sends an exchange
    an exchange        of any process on the queue; lua/order: `promote` makes due tasks takeable;
                       lua/takers: `offer_tasks` publishes READY to as many idle takers as there are tasks
    the hint           shared/queue/_takes: `on_ready` sends an exchange
    the exchange       lua/exchange: answers with the task, and computes `ask_again_in`;
                       shared/queue/_takes: `_hand_over` gives the task to the runner

A hint may get lost; the alarm does not. The rules of the other engines: rules/_takers and _settling, sql/takers.

Seven files to read first, in this order
----------------------------------------

1. `engine/__init__.py`: the contract in prose;
2. `engine/_holds.py`: the operations of a lock;
3. `engines/rules/_holds.py`: what they do;
4. `store/_sessions.py`: why a lease may be trusted, and until when;
5. `store/_acquire.py`: asking and waiting;
6. `shared/_block.py` and `shared/_lease.py`: the block that holds, and what it hands over;
7. `shared/holds/_lock.py`: what the user sees.

Then `waiting/_line.py` (how anything waits inside the process) and docs/explanations/lease.md (why it is safe).
"""

from ._acquire import AcquireRequest, Acquisition, Grant, PendingRelease
from ._batcher import Batcher
from ._codec import Codec, JsonCodec, check_codec, decoded, encoded
from ._dispatch import outcome_of
from ._handle import StoreHandle
from ._msgspec_codec import MsgspecCodec
from ._pages import names, read_counts, read_pages, together
from ._pydantic_codec import PydanticCodec
from ._reconciling import give_back_of
from ._sessions import Held, Session, numbers
from ._store import Store, StoreStatistics, check_ttl, handle_of
from ._timers import Timer, jittered

__all__ = (
    "AcquireRequest",
    "Acquisition",
    "Batcher",
    "Codec",
    "Grant",
    "Held",
    "JsonCodec",
    "MsgspecCodec",
    "PendingRelease",
    "PydanticCodec",
    "Session",
    "Store",
    "StoreHandle",
    "StoreStatistics",
    "Timer",
    "check_codec",
    "check_ttl",
    "decoded",
    "encoded",
    "give_back_of",
    "handle_of",
    "jittered",
    "numbers",
    "outcome_of",
    "read_counts",
    "read_pages",
)
