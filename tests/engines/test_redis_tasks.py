"""How the scripts keep tasks: what is written together, and when it is forgotten."""

from __future__ import annotations

from itertools import pairwise

import pytest

import tenure.engine as e

LONG = b"x" * 2000


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ask(inline_redis, clock):
    """Apply one operation, under the session "s"."""
    ask = inline_redis(clock).apply_now
    ask(e.OpenSession("s", "p", 1e5))
    return ask


def members(server, kind):
    return [one for one in server("ZRANGE", "tenure:{0}:order", 0, -1) if one.startswith(kind)]


def rows(server, kind):
    return [one for one in server("HKEYS", "tenure:{0}:rows") if one.startswith(kind)]


def put(ask, n, *tasks):
    ask(e.Put("s", n, "q", (e.PutRequest(f"s/{n}", tasks),), 1000))


def settled(ask, n, ttls):
    """Take all that is ready, and settle the tasks with these ttls in turn."""
    taken = ask(e.Exchange("s", n, "q", want=256)).tasks
    ends = [
        e.Settle(one.id, one.token, e.Verdict.DONE, b"r", 0.0, ttls[i % len(ttls)])
        for i, one in enumerate(taken)
    ]
    assert ask(e.Exchange("s", n + 1, "q", tuple(ends))).refused == ()
    return taken


def test_records_that_ended_together_have_one_member_to_be_forgotten_by(redis_server, ask):
    put(ask, 1, *(e.NewTask(b"x"),) * 100)
    settled(ask, 2, [60.0])
    assert len(members(redis_server, b"y:")) == 100
    assert len(members(redis_server, b"J:")) == 1


def test_each_record_is_kept_for_its_own_time(redis_server, ask, clock):
    put(ask, 1, *(e.NewTask(LONG if i % 3 else b"x", priority=i % 2) for i in range(90)))
    taken = settled(ask, 2, [1.0, 2.0, None])
    clock.now += 1.5
    for n in range(10, 60):
        ask(e.Exchange("s", n, "q"))
    assert {one.id for one in ask(e.Browse("q", "ended", 0, 100)).records} == {
        one.id for i, one in enumerate(taken) if i % 3
    }
    assert len(rows(redis_server, b"T:")) == len(members(redis_server, b"y:")) == 60
    clock.now += 1
    for n in range(60, 110):
        ask(e.Exchange("s", n, "q"))
    assert len(rows(redis_server, b"T:")) == len(members(redis_server, b"y:")) == 30
    assert not members(redis_server, b"J:")
    assert not rows(redis_server, b"Y:")


def test_a_run_of_records_that_is_longer_than_what_one_exchange_forgets_is_forgotten_by_several(
    redis_server, ask, clock
):
    put(ask, 1, *(e.NewTask(b"x"),) * 200)
    settled(ask, 2, [1.0])
    clock.now += 2
    left = []
    for n in range(10, 30):
        ask(e.Exchange("s", n, "q"))
        left.append(len(rows(redis_server, b"T:")))
    assert all(0 < before - after <= 16 for before, after in pairwise(left) if before)
    assert left[-1] == 0
    assert not members(redis_server, b"J:")


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 512, b"x" * 513, LONG])
def test_a_payload_comes_back_whether_it_is_long_or_short(redis_server, ask, payload):
    put(ask, 1, e.NewTask(payload))
    (task,) = ask(e.Exchange("s", 2, "q", want=1, max_deliveries=1)).tasks
    assert task.payload == payload
    ask(e.Exchange("s", 3, "q", (e.Settle(task.id, task.token, e.Verdict.DEAD, b"no"),)))
    assert [one.payload for one in ask(e.Browse("q", "dead", 0, 1)).records] == [payload]
    ask(e.Requeue("q"))
    (task,) = ask(e.Exchange("s", 4, "q", want=1)).tasks
    assert task.payload == payload
    ask(e.Exchange("s", 5, "q", (e.Settle(task.id, task.token, e.Verdict.DONE, b"r"),)))
    assert not rows(redis_server, b"Y:")


def test_tasks_are_aged_in_the_order_in_which_they_came_whatever_their_priorities(ask, clock):
    for n, priority in enumerate([0, 3, 0, -1, 3, 0], 1):
        put(ask, n, e.NewTask(b"x", priority=priority))
        clock.now += 1
    tasks = ask(e.Exchange("s", 10, "q", want=6, aging=2.5)).tasks
    # after 6 s: four have been ready for longer than 2.5 s; then those that have not, by priority
    assert [task.id for task in tasks] == [1, 2, 3, 4, 5, 6]
    assert [task.priority for task in tasks] == [0, 3, 0, -1, 3, 0]


def test_32_tasks_are_settled_and_as_many_taken_by_few_commands(redis_server, ask):
    put(ask, 1, *(e.NewTask(b"x"),) * 64)
    taken = ask(e.Exchange("s", 2, "q", want=32)).tasks
    ends = tuple(e.Settle(one.id, one.token, e.Verdict.DONE, b"r", 0.0, 60.0) for one in taken)
    redis_server("CONFIG", "RESETSTAT")
    assert len(ask(e.Exchange("s", 3, "q", ends, want=32)).tasks) == 32
    text = redis_server("INFO", "commandstats").decode()
    calls = sum(
        int(line.partition("calls=")[2].partition(",")[0]) for line in text.split() if "calls=" in line
    )
    assert calls < 32
