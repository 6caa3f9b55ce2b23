"""How the scripts keep tasks: as which keys, at what cost, and when they go."""

from __future__ import annotations

import time
from operator import attrgetter

import pytest
from contract import configured, moving

import tenure.engine as e

LONG = b"x" * 2000
LIST = "tenure:{0}:q:done"


def asking(engine):
    """Apply one operation, under the session "s"."""
    ask = engine.apply_now
    ask(e.OpenSession("s", "p", 1e5))
    return ask


@pytest.fixture
def ask(inline_redis, clock):
    return asking(inline_redis(clock))


@pytest.fixture
def ask_now(inline_redis):
    """As `ask`, in the time of the server: only there anything expires by itself."""
    return asking(inline_redis(None))


def tasks(server):
    return sorted(server("KEYS", "tenure:{0}:q:" + "[0-9a-f]" * 14))


def task_key(task):
    return f"tenure:{{0}}:q:{task.id:014x}"


def put(ask, n, *tasks):
    (answer,) = ask(e.Put("s", n, "q", (e.PutRequest(f"s/{n}", tasks),))).answers
    return answer.ids


def settled(ask, n, ttls, want=256):
    """Take all that is ready, and settle the tasks with these ttls in turn."""
    taken = ask(e.Exchange("s", n, "q", want=want)).tasks
    ends = [
        e.Settle(one.id, one.token, e.Verdict.DONE, b"r", 0.0, ttls[i % len(ttls)])
        for i, one in enumerate(taken)
    ]
    assert ask(e.Exchange("s", n + 1, "q", tuple(ends))).refused == ()
    return taken


def ended(ask):
    """The ids of the records, by pages of 7."""
    ids, page = [], None
    while page is None or page.next:
        page = ask(e.Scan(e.TASKS["ended"], "q", page.next if page else "", 7))
        ids += [one.id for one in page.rows]
    return ids


def seconds_left(server, name):
    """Until a key expires; None: never."""
    left = server("PTTL", name)
    assert left != -2, f"{name} is not there"
    return None if left == -1 else left / 1000


def lasts(server, name, seconds):
    return seconds - 5 < seconds_left(server, name) <= seconds + 0.01  # they are whole milliseconds


def test_a_task_is_a_key_and_becomes_its_record(redis_server, ask):
    put(ask, 1, e.NewTask(b"x"))
    (name,) = tasks(redis_server)
    assert redis_server("HGETALL", name) == [b"payload", b"x"]
    settled(ask, 2, [60.0])
    assert tasks(redis_server) == [name]
    record = redis_server("HGETALL", name)
    assert dict(zip(record[::2], record[1::2], strict=True)).keys() == {
        *(b"state", b"result", b"ended", b"expires", b"attempts", b"deliveries"),
    }


def test_what_is_said_of_a_task_stays_with_its_record_and_what_is_empty_takes_no_space(redis_server, ask):
    put(ask, 1, e.NewTask(b"x", meta=b"m"), e.NewTask(b"y"))
    one, other = ask(e.Exchange("s", 2, "q", want=2)).tasks
    ask(e.Progress("q", one.id, one.token, b"half"))
    ends = (
        e.Settle(one.id, one.token, e.Verdict.DONE, b"r", failure=b"f"),
        e.Settle(other.id, other.token, e.Verdict.DONE, b"r"),
    )
    assert ask(e.Exchange("s", 3, "q", ends)).refused == ()
    said = {b"progress", b"failure", b"meta"}
    assert {*redis_server("HKEYS", task_key(one))} & said == said
    assert not {*redis_server("HKEYS", task_key(other))} & said
    of_task = attrgetter("progress", "failure", "meta")
    assert of_task(ask(e.Scan(e.TASK, "q", only=str(one.id))).rows[0]) == (b"half", b"f", b"m")
    assert of_task(ask(e.Scan(e.TASK, "q", only=str(other.id))).rows[0]) == (b"", b"", b"")


def test_each_record_is_kept_for_its_own_time(ask, clock):
    put(ask, 1, *(e.NewTask(LONG if i % 3 else b"x", priority=i % 2) for i in range(90)))
    taken = settled(ask, 2, [1.0, 2.0, None])
    for passed, left in (0, (0, 1, 2)), (1.5, (1, 2)), (1, (2,)), (1000, (2,)):
        clock.now += passed
        assert ended(ask) == [one.id for i, one in enumerate(taken) if i % 3 in left]
        assert isinstance(ask(e.GetResult("q", taken[0].id)), e.Outcome) == (0 in left)


def test_each_record_expires_by_itself(redis_server, ask_now):
    put(ask_now, 1, *(e.NewTask(b"x"),) * 90)
    taken = settled(ask_now, 2, [0.2, 60.0, None])
    soon, later, never = (taken[i::3] for i in range(3))
    assert all(lasts(redis_server, task_key(one), 60) for one in later)
    assert all(seconds_left(redis_server, task_key(one)) is None for one in never)
    until = time.monotonic() + 10
    while len(tasks(redis_server)) > 60:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert not redis_server("EXISTS", *map(task_key, soon))
    assert ended(ask_now) == [one.id for one in taken if one not in soon]


def test_a_part_of_the_list_expires_with_the_last_of_its_records(redis_server, ask_now):
    part = f"{LIST}:00000000"
    for n, ttl, left in (10, 60, 60), (20, 30, 60), (30, 90, 90), (40, None, None), (50, 10, None):
        put(ask_now, n, e.NewTask(b"x"))
        settled(ask_now, n + 1, [ttl])
        for name in (LIST, part):
            if left is None:
                assert seconds_left(redis_server, name) is None
            else:
                assert lasts(redis_server, name, left)


def test_a_new_part_is_begun_after_4096_endings(redis_server, ask_now):
    redis_server("HSET", "tenure:{0}:state", "ending", "4090")
    put(ask_now, 1, *(e.NewTask(b"x"),) * 20)
    soon = settled(ask_now, 2, [60.0], want=5)
    never = settled(ask_now, 4, [None])
    assert redis_server("ZRANGE", LIST, 0, -1) == [b"00000000", b"00000001"]
    assert ended(ask_now) == [one.id for one in (*soon, *never)]
    assert redis_server("ZCARD", f"{LIST}:00000001") == 15
    assert ask_now(moving(ask_now, "q", "done", "purged")) == e.MovedCount(20)
    assert not redis_server("KEYS", f"{LIST}*")
    assert not tasks(redis_server)


def test_what_of_a_part_has_gone_before_the_rest_is_not_listed_and_purged_with_it(redis_server, ask, clock):
    put(ask, 1, *(e.NewTask(b"x"),) * 4)
    taken = settled(ask, 2, [1.0, 60.0])
    clock.now += 2
    redis_server("DEL", *map(task_key, taken[::2]))
    assert ended(ask) == [one.id for one in taken[1::2]]
    assert ask(moving(ask, "q", "done", "purged")) == e.MovedCount(2)
    assert not redis_server("KEYS", f"{LIST}*")


def test_a_page_forgets_a_stale_entry_and_deletes_no_task(redis_server, ask):
    put(ask, 1, *(e.NewTask(b"x"),) * 2)
    settled(ask, 2, [60.0], want=1)
    (waiting,) = ask(e.Scan(e.TASKS["waiting"], "q")).rows
    redis_server("ZADD", f"{LIST}:00000000", "99", f"{waiting.id:014x}")
    assert waiting.id not in ended(ask)
    assert redis_server("ZCARD", f"{LIST}:00000000") == 1
    assert ask(e.Scan(e.TASKS["waiting"], "q")).rows == (waiting,)


def test_the_last_dead_letter_takes_its_list_with_it(redis_server, ask):
    put(ask, 1, e.NewTask(b"x"))
    (task,) = ask(e.Exchange("s", 2, "q", want=1)).tasks
    ask(e.Exchange("s", 3, "q", (e.Settle(task.id, task.token, e.Verdict.DEAD, b"no"),)))
    assert len(redis_server("KEYS", "*:dead*")) == 2
    assert ask(moving(ask, "q", "dead", "waiting")) == e.MovedCount(1)
    assert not redis_server("KEYS", "*:dead*")


def test_a_dead_letter_with_a_ttl_is_deleted_by_the_sweep_and_not_by_the_server(redis_server, ask_now):
    put(ask_now, 1, e.NewTask(b"x"))
    (task,) = ask_now(e.Exchange("s", 2, "q", want=1)).tasks
    ask_now(e.Exchange("s", 3, "q", (e.Settle(task.id, task.token, e.Verdict.DEAD, b"no", ttl=0.05),)))
    assert seconds_left(redis_server, task_key(task)) is None
    time.sleep(0.1)
    ask_now(e.Ping())
    ask_now(e.RenewSession("s"))
    assert not tasks(redis_server)
    assert not redis_server("KEYS", "*:dead*")
    assert not redis_server("EXISTS", "tenure:{0}:expiring")


def test_a_dead_letter_that_is_requeued_does_not_expire_any_more(redis_server, ask, clock):
    put(ask, 1, e.NewTask(b"x"))
    (task,) = ask(e.Exchange("s", 2, "q", want=1)).tasks
    ask(e.Exchange("s", 3, "q", (e.Settle(task.id, task.token, e.Verdict.DEAD, b"no", ttl=1.0),)))
    assert redis_server("ZCARD", "tenure:{0}:expiring") == 1
    assert ask(e.Move("q", (task.id,), "waiting")) == e.MovedCount(1)
    assert not redis_server("EXISTS", "tenure:{0}:expiring")
    clock.now += 2
    ask(e.Ping())
    assert [one.id for one in ask(e.Exchange("s", 4, "q", want=1)).tasks] == [task.id]


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 512, b"x" * 513, LONG])
def test_a_payload_comes_back_whether_it_is_long_or_short(redis_server, ask, payload):
    put(ask, 1, e.NewTask(payload))
    (task,) = ask(e.Exchange("s", 2, "q", want=1)).tasks
    assert task.payload == payload
    ask(e.Exchange("s", 3, "q", (e.Settle(task.id, task.token, e.Verdict.DEAD, b"no"),)))
    assert [one.payload for one in ask(e.Scan(e.TASKS["dead"], "q")).rows] == [payload]
    ask(moving(ask, "q", "dead", "waiting"))
    (task,) = ask(e.Exchange("s", 4, "q", want=1)).tasks
    assert task.payload == payload
    ask(e.Exchange("s", 5, "q", (e.Settle(task.id, task.token, e.Verdict.DONE, b"r"),)))
    assert redis_server("HGET", task_key(task), "payload") is None


def test_tasks_are_aged_in_the_order_in_which_they_came_whatever_their_priorities(ask, clock):
    ids = []
    for n, priority in enumerate([0, 3, 0, -1, 3, 0], 1):
        ids += put(ask, n, e.NewTask(b"x", priority=priority))
        clock.now += 1
    ask(configured("q", aging=2.5))
    tasks = ask(e.Exchange("s", 10, "q", want=6)).tasks
    # after 6 s: four have been ready for longer than 2.5 s; then those that have not, by priority
    assert [task.id for task in tasks] == ids
    assert [task.priority for task in tasks] == [0, 3, 0, -1, 3, 0]


@pytest.mark.parametrize("meta", [b"", b"m"])
def test_a_task_is_taken_and_settled_by_few_commands(redis_server, ask_now, meta):
    put(ask_now, 1, *(e.NewTask(b"x", meta=meta),) * 64)
    taken = ask_now(e.Exchange("s", 2, "q", want=32)).tasks
    ends = tuple(e.Settle(one.id, one.token, e.Verdict.DONE, b"r", 0.0, 60.0) for one in taken)
    redis_server("CONFIG", "RESETSTAT")
    assert len(ask_now(e.Exchange("s", 3, "q", ends, want=32)).tasks) == 32
    text = redis_server("INFO", "commandstats").decode()
    calls = sum(
        int(line.partition("calls=")[2].partition(",")[0]) for line in text.split() if "calls=" in line
    )
    assert calls < 6 * 32 + 32
