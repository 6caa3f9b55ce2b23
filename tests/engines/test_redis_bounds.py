"""What a script costs depends on what it returns or changes, not on the backlog; and no script runs for long."""

from __future__ import annotations

import pytest
from contract import configured, moving

import tenure.engine as e
from tenure.engine import CAP

MANY = 20_000
LONGEST = 0.001  # seconds for a script that looks; to go through the backlog takes longer


numbers = iter(range(1, 10**9))


def put(ask, count, queue="q", **options):
    ask(configured(queue, max_size=10**6))
    for start in range(0, count, CAP):
        n = next(numbers)
        tasks = (e.NewTask(b"x", **options),) * min(CAP, count - start)
        ask(e.Put("s", n, queue, (e.PutRequest(f"p{n}", tasks),)))


def take(ask, count):
    taken = []
    while len(taken) < count:
        taken += ask(e.Exchange("s", next(numbers), "q", want=CAP)).tasks
    return taken


def end(ask, tasks, verdict=e.Verdict.DONE, ttl=None):
    for start in range(0, len(tasks), CAP):
        ends = tuple(e.Settle(one.id, one.token, verdict, b"", ttl=ttl) for one in tasks[start : start + CAP])
        assert ask(e.Exchange("s", next(numbers), "q", ends)).refused == ()


BACKLOGS = {
    "waiting": lambda ask: (put(ask, MANY // 2), put(ask, MANY // 2, priority=1)),
    "delayed": lambda ask: put(ask, MANY, delay=60),
    "leased": lambda ask: (put(ask, MANY), take(ask, MANY)),
    "dead": lambda ask: (put(ask, MANY), end(ask, take(ask, MANY), e.Verdict.DEAD)),
    "ended": lambda ask: (put(ask, MANY), end(ask, take(ask, MANY))),
}
PURGES = {"waiting": "waiting", "delayed": "delayed", "dead": "dead", "ended": "done"}


@pytest.fixture(params=BACKLOGS)
def backlog(request, ask):
    BACKLOGS[request.param](ask)
    return request.param


def test_whatever_there_is_many_of(backlog, ask, cost):
    """One backlog is made for all that is looked at."""
    # a page costs what is on it, wherever it is
    after, seen = "", 0
    for limit in (CAP, 10, 10):
        page, commands = cost(e.Scan(e.TASKS[backlog], "q", after, limit))
        assert len(page.rows) == limit
        assert commands < 3 * limit + 30
        after, seen = page.next, seen + limit
    # and next to nothing if nothing is on it
    empty = BACKLOGS.keys() - {backlog, "ended" if backlog == "dead" else ""}
    for state in empty:
        page, commands = cost(e.Scan(e.TASKS[state], "q"))
        assert page == e.Page((), "")
        assert commands < 20
        if state in PURGES:
            changed, commands = cost(moving(ask, "q", PURGES[state], "purged"))
            assert changed == e.MovedCount(0)
            assert commands < 20
    # counting
    for watch in ("", "s"):
        counts, commands = cost(e.Count("q", watch))
        assert counts.put == MANY
        assert commands < 30
    # nor is there a command among them that goes through all
    known = ask(e.Scan(e.TASKS[backlog], "q", limit=1)).rows[0].id
    looks = (
        e.Count("q"),
        e.Scan(e.TASK, "q", only=str(known)),
        *(e.Scan(e.TASKS[state], "q", limit=2) for state in BACKLOGS),
    )
    for look in looks:
        assert min(cost(look) and cost.seconds for _ in range(10)) < LONGEST
    # one put, one taken, one settled
    n = next(numbers)
    _, commands = cost(e.Put("s", n, "q", (e.PutRequest(f"p{n}", (e.NewTask(b"x", priority=9),)),)))
    assert commands < 30
    taken, commands = cost(e.Exchange("s", next(numbers), "q", want=1))
    assert commands < 30
    ends = tuple(e.Settle(one.id, one.token, e.Verdict.DONE, b"") for one in taken.tasks)
    _, commands = cost(e.Exchange("s", next(numbers), "q", ends))
    assert commands < 40
    # a session that has nothing
    ask(e.OpenSession("other", "p", 1e6))
    answer, commands = cost(e.CloseSession("other"))
    assert answer is e.Reply.OK
    assert commands < 35


@pytest.mark.parametrize("state", PURGES)
def test_a_purge_costs_what_it_deletes(ask, cost, state):
    BACKLOGS[state](ask)
    for _ in range(3):
        changed, commands = cost(moving(ask, "q", PURGES[state], "purged"))
        assert changed == e.MovedCount(CAP)
        assert commands < 10 * CAP


def test_requeuing_costs_what_is_named(ask, cost):
    BACKLOGS["dead"](ask)
    first, *_, last = ask(e.Scan(e.TASKS["dead"], "q", limit=CAP)).rows
    changed, commands = cost(e.Move("q", (first.id, last.id), "waiting"))
    assert changed == e.MovedCount(2)
    assert commands < 50
    for _ in range(3):
        changed, commands = cost(moving(ask, "q", "dead", "waiting"))
        assert changed == e.MovedCount(CAP)
        assert commands < 12 * CAP


# ------------------------------------------------------------------------------------------- what becomes due at once


def rounds(cost, operation):
    """Send it until it is done -> its answer, how often it was sent, and the most commands that one sending took."""
    most, sent = 0, 0
    while True:
        answer, commands = cost(operation)
        most, sent = max(most, commands), sent + 1
        if answer is not e.Reply.MORE:
            return answer, sent, most


def test_a_session_ends_in_short_steps(ask, cost):
    ask(e.OpenSession("other", "p", 1e6))
    for n in range(4 * CAP):
        ask(e.Acquire("other", f"k{n}", "h", 1))
    answer, sent, most = rounds(cost, e.CloseSession("other"))
    assert answer is e.Reply.GONE  # the sweep after the last MORE ended it
    assert sent >= 2
    # the sweep that follows a MORE is counted with it
    assert most < 2 * 10 * CAP


def test_numbered_answers_do_not_lengthen_the_end_of_a_session(ask, cost):
    ask(e.OpenSession("other", "p", 1e6))
    for n in range(4 * CAP):
        ask(e.Spend("other", 1, f"r{n}", (e.SpendRequest((1.0,)),), (e.RateLimit("", 1.0, 1.0),)))
    answer, commands = cost(e.CloseSession("other"))
    assert answer is e.Reply.OK
    assert commands < 35


def test_sessions_that_expire_together_end_in_short_steps(ask, cost, clock):
    for n in range(4 * CAP):
        ask(e.OpenSession(f"session {n}", "p", 1.0))
    clock.now += 2
    _, sent, most = rounds(cost, e.Ping())
    assert sent >= 5
    assert most < 20 * CAP
    assert ask(e.Scan(e.NAMES["sessions"])).rows == ("s",)


@pytest.mark.parametrize("leased", [False, True])
def test_tasks_that_expire_together_do_so_in_short_steps(ask, cost, clock, leased):
    put(ask, 4 * CAP, expires=1.0)
    if leased:
        take(ask, 4 * CAP)
    clock.now += 2
    _, sent, most = rounds(cost, e.Ping())
    assert sent == 5
    assert most < 20 * CAP


def test_dead_letters_that_expire_together_go_in_short_steps(ask, cost, clock):
    put(ask, 4 * CAP)
    end(ask, take(ask, 4 * CAP), e.Verdict.DEAD, ttl=1.0)
    clock.now += 2
    _, sent, most = rounds(cost, e.Ping())
    assert sent == 5
    assert most < 20 * CAP
    counts = ask(e.Count("q"))
    assert (counts.dead, counts.purged) == (0, 4 * CAP)


def test_many_that_follow_a_task_are_hinted_in_short_steps(scripts, ask, cost):
    hinted = []
    scripts.listen("p", hinted.append)
    put(ask, 1)
    (record,) = ask(e.Scan(e.TASKS["waiting"], "q")).rows
    for n in range(3 * CAP):
        ask(e.OpenSession(f"session {n}", "p", 1e6))
        ask(e.Scan(e.TASK, "q", only=str(record.id), watch=f"session {n}"))
    _, commands = cost(e.Exchange("s", next(numbers), "q", want=1))
    assert commands < 4 * CAP
    _, sent, most = rounds(cost, e.Ping())
    assert sent == 3
    assert most < 4 * CAP
    assert hinted == [e.Hint("p", "q", str(record.id), e.Notice.CHANGED)] * 3 * CAP


def test_delayed_tasks_that_are_due_together_become_ready_in_short_steps(ask, cost, clock):
    put(ask, 4 * CAP, delay=1.0)
    clock.now += 2
    _, commands = cost(e.Exchange("s", next(numbers), "q", want=1))
    assert commands < 10 * CAP
    page, sent, most = rounds(cost, e.Scan(e.TASKS["waiting"], "q", limit=10))
    assert len(page.rows) == 10
    assert sent == 3
    assert most < 10 * CAP


def test_a_line_is_served_in_short_steps(ask, cost):
    ask(e.Acquire("s", "k", "all", 4 * CAP, 4 * CAP))
    for n in range(4 * CAP):
        ask(e.Acquire("s", "k", f"h{n}", 4 * CAP))
    _, sent, most = rounds(cost, e.Release("k", "all"))
    assert sent >= 2
    assert most < 2 * 10 * CAP
    assert ask(e.Scan(e.HOLDERS, "k", limit=1)).used == 4 * CAP


@pytest.mark.parametrize("many", [CAP, 3 * CAP])
def test_many_watches_are_hinted_in_short_steps(scripts, ask, cost, many):
    hinted = []
    scripts.listen("p", hinted.append)
    for n in range(many):
        ask(e.OpenSession(f"session {n}", "p", 1e6))
        ask(e.Scan(e.HOLDERS, "k", watch=f"session {n}"))
    _, commands = cost(e.Acquire("s", "k", "h", 1))
    assert commands < 4 * CAP
    _, sent, most = rounds(cost, e.Ping())
    assert sent == 1 + (many - CAP) // CAP
    assert most < 4 * CAP
    assert hinted == [e.Hint("p", "k", "", e.Notice.CHANGED)] * many
    # each watch was good for one hint
    ask(e.Release("k", "h"))
    for n in range(many):
        assert ask(e.CloseSession(f"session {n}")) is e.Reply.OK
    assert len(hinted) == many


def test_resources_that_have_rested_are_free_in_short_steps(ask, cost, clock):
    for n in range(2 * CAP):
        ask(e.AddResource("pool", f"r{n}", ()))
        token = ask(e.Claim("s", "pool", f"h{n}")).token
        ask(e.EditClaim("pool", f"h{n}", token, cool_down=1.0))
        ask(e.GiveBack("pool", f"h{n}"))
    clock.now += 2
    _, sent, most = rounds(cost, e.Ping())
    assert sent == 3
    assert most < 15 * CAP


# ---------------------------------------------------------------------- a resource among very many that are free

RED, BLUE = (("color", b"red"),), (("color", b"blue"),)


@pytest.fixture
def pool(ask):
    """All but the last of its resources are red; it is the least preferred."""
    for n in range(3 * CAP):
        ask(e.AddResource("pool", f"r{n:04}", RED, 1))
    ask(e.AddResource("pool", "last", BLUE))


def left_of(server):
    return {name for name in server("KEYS", "*pool:*") if not name.endswith(b":resource")}


def claim(holder, where=BLUE, **options):
    return e.Claim("s", "pool", holder, where, **options)


def test_the_resource_that_suits_is_looked_for_in_short_steps(pool, ask, cost, redis_server):
    before = left_of(redis_server)
    answer, sent, most = rounds(cost, claim("a"))
    assert (answer.resource, sent) == ("last", 4)
    assert most < 3 * CAP  # of the operation and the sweep behind it
    answer, sent, most = rounds(cost, claim("b", wait=False))
    assert (answer, sent) == (e.Reply.REFUSED, 4)
    assert most < 3 * CAP
    answer, sent, most = rounds(cost, claim("c"))
    assert (answer.place, sent) == (1, 4)
    # who has seen them all asks at no cost
    assert rounds(cost, claim("c"))[2] < 20
    assert ask(e.GiveBack("pool", "c")) is e.Reply.LEFT
    assert ask(e.GiveBack("pool", "a")) is e.Reply.RELEASED
    # the counter of places is for as long as there is a resource
    assert left_of(redis_server) - before <= {b"tenure:{0}:pool:line"}


@pytest.mark.parametrize("suits", [0, CAP - 1, CAP, 3 * CAP])
def test_what_becomes_free_is_compared_with_a_long_line_in_short_steps(ask, cost, redis_server, suits):
    ask(e.AddResource("pool", "r", RED))
    ask(e.Claim("s", "pool", "first"))
    for n in range(3 * CAP + 1):
        ask(claim(f"h{n}", RED if n == suits else BLUE))
    answer, sent, most = rounds(cost, e.GiveBack("pool", "first"))
    assert answer in {e.Reply.RELEASED, e.Reply.UNKNOWN}
    assert sent <= 2 + suits // CAP
    assert most < min(60 + suits, 3 * CAP)  # of the operation and the sweep behind it
    assert ask(claim(f"h{suits}", RED)).resource == "r"
    assert not redis_server("KEYS", "*:unoffered")


def test_what_suits_nobody_in_a_long_line_is_free(ask, cost):
    ask(e.AddResource("pool", "r", RED))
    ask(e.Claim("s", "pool", "first"))
    for n in range(2 * CAP + 1):
        ask(claim(f"h{n}"))
    _, _, most = rounds(cost, e.GiveBack("pool", "first"))
    assert most < 3 * CAP  # of the operation and the sweep behind it
    assert ask(e.Claim("s", "pool", "late", RED)).resource == "r"


def test_one_that_came_first_and_is_still_looking_comes_first(pool, scripts, ask, cost):
    hinted = []
    scripts.listen("p", hinted.append)
    assert ask(claim("a")) is e.Reply.MORE
    assert rounds(cost, claim("b"))[0].place == 1
    assert [(hint.name, hint.news.resource) for hint in hinted] == [("a", "last")]
    assert ask(claim("a")) == hinted[0].news
    # and one that dies leaves its place
    ask(e.OpenSession("mortal", "p", 1e6))
    assert ask(e.Claim("mortal", "pool", "c", BLUE)) is e.Reply.MORE
    rounds(cost, e.CloseSession("mortal"))
    ask(e.GiveBack("pool", "a"))
    assert ask(claim("b")).resource == "last"
