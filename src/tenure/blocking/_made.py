"""The patterns for synchronous code. tests/blocking/write_stubs.py writes their types."""

from __future__ import annotations

from tenure import shared

from ._pattern import Held, Pattern, made

Lease = made(shared.Lease, Held, "key token lost", on_loop="check remaining")
Task = made(
    shared.Task,
    Held,
    "id token priority group attempt deliveries waited lost cancelled",
    left_out="complete_in fail children wait_for undo",
)
Lock = made(shared.Lock, Pattern, "name", exclusive=True, hands_over=Lease)
RWLock = made(shared.RWLock, Pattern, "name", exclusive=True, hands_over=Lease)
Semaphore = made(shared.Semaphore, Pattern, "name permits", hands_over=Lease)
RateLimiter = made(shared.RateLimiter, Pattern, "name", waits="acquire spend")
Barrier = made(shared.Barrier, Pattern, "name parties on_departure", waits="wait")
WorkQueue = made(
    shared.WorkQueue,
    Pattern,
    "name key codec retry max_payload",
    left_out="follow put_in complete_in complete_in_sync",
    # the timeout of a put is its task's
    waits="put:put_timeout put_many result join",
    hands_over=Task,
)
Job = made(shared.Job, Pattern, "function", waits="result")
