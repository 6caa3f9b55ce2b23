"""In whatever order three clients of the real scripts act and suffer, the rules hold: see benchmarks/interleavings.

    TENURE_INTERLEAVINGS=1 pytest --timeout=0 -o faulthandler_timeout=0 tests/engines/test_redis_interleavings.py

allows one fault more in each run, and takes some minutes.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from benchmarks.interleavings.holds import Holder, Line
from benchmarks.interleavings.search import Broken
from benchmarks.interleavings.tasks import Queue, Taker

MORE_FAULTS = int(os.environ.get("TENURE_INTERLEAVINGS", "0"))


# ----------------------------------------------------------------------------------------------- what is looked at


lock = partial(Line, minds=[Holder(1)] * 3)
lock_twice = partial(Line, minds=[Holder(2)] * 2)
semaphore = partial(Line, capacity=3, minds=[Holder(1, weight) for weight in (2, 1, 2)])
in_short_steps = partial(semaphore, cap=1)
queue = partial(Queue, tasks=1, minds=[Taker()] * 3)
queue_for_two = partial(Queue, tasks=1, minds=[Taker()] * 2)
queue_of_two = partial(Queue, tasks=2, minds=[Taker()] * 3)


@pytest.mark.parametrize(
    ("search", "faults", "ticks", "worlds"),
    [
        pytest.param(lock, 1, 1, 30_000, id="lock", marks=pytest.mark.full),
        pytest.param(partial(lock, cap=1, names="cba"), 0, 1, 300, id="lock in short steps"),
        pytest.param(lock_twice, 1, 0, 500, id="lock twice"),
        pytest.param(semaphore, 1, 0, 2_000, id="semaphore"),
        pytest.param(in_short_steps, 1, 0, 2_000, id="semaphore in short steps"),
        pytest.param(queue, 0, 1, 50, id="queue"),
        pytest.param(queue_for_two, 1, 1, 1_000, id="queue for two"),
        pytest.param(queue_of_two, 1, 0, 1_000, id="queue of two"),
    ],
)
def test_whatever_the_order_the_rules_hold(redis_server, search, faults, ticks, worlds):
    here = search(redis_server, faults=faults + MORE_FAULTS, ticks=ticks)
    here.run()
    assert len(here.came_from) > worlds  # else less was looked at than is meant


DUE = "[1] <= NOW"
FAULTS = {
    "a newcomer goes before those who wait": (
        semaphore,
        "free = free and used <= tonumber(capacity)",
        "free = used <= tonumber(capacity)",
        "out of turn",
    ),
    "a hand-over gives too much": (
        semaphore,
        "used + weight > capacity",
        "used > capacity",
        "held together",
    ),
    "who asks again has two places": (
        lock,
        "not free and call('ZRANK', WAITING, holder)",
        "nil",
        "the line was changed",
    ),
    "a release serves nobody": (lock, "while waiting > 0 and (", "while false and (", "would fit"),
    "nobody is told that it was granted": (lock, "{key, head, 'granted'", "{key, '', 'granted'", "told of"),
    "the token is the time": (
        lock,
        "token >= NOW and format('%016d', token + 1) or NOW",
        "NOW",
        "did not rise",
    ),
    "a session leaves its holds": (
        lock,
        "local item = call('ZRANGE', ITEMS, 0, 0)[1]",
        "do return call('ZREM', P .. 'sessions', session) end local item",
        "served after its end",
    ),
    "a renewal revives what has ended": (lock, DUE, f"{DUE} and ARGV[3] ~= 'renew_session'", "revived"),
    "the dead in the line are served": (lock, DUE, f"{DUE} and ARGV[3] ~= 'k'", "after its end"),
    "serving that was cut short stops": (
        in_short_steps,
        "call('SADD', P .. 'unserved', key)",
        "",
        "would fit",
    ),
    "a lost exchange is made anew": (
        queue,
        "packed = ttl and call('GET', P .. session .. ' ' .. object)",
        "packed = nil",
        "was refused",
    ),
    "nobody is told what there is to take": (
        queue,
        "call(PUBLISH, CHANNEL .. process, cjson.encode({queue.name, '', 'ready'}))",
        "1",
        "nobody comes",
    ),
    "what a dead taker had stays with it": (
        queue,
        "drop_task(session, sub(item, 7))",
        "session_items__detach(session, item)",
        "wait for ever",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(redis_server, fault):
    search, old, new, found = FAULTS[fault]
    with pytest.raises(Broken, match=found):
        search(redis_server, faults=1, ticks=1, fault=(old, new)).run()
