"""Families of tasks on Redis: the keys that they leave, and the commands that they cost."""

from __future__ import annotations

import pytest
from contract import moving

import tenure.engine as e
from tenure.engine import CAP, MOST_ENTRIES, SWEEP_PAUSE, SWEEP_STEPS, Verdict

numbers = iter(range(1, 10**9))


def put(ask, *tasks):
    return ask(e.Put("s", next(numbers), "q", (e.PutRequest("m", tasks or (e.NewTask(b"root"),)),)))


def exchange(ask, queue="q", want=0, *settles):
    return ask(e.Exchange("s", next(numbers), queue, settles, want, wait=False)).tasks


def root(ask):
    put(ask)
    (taken,) = exchange(ask, "q", 1)
    return taken


def children(parent, *names, most=MOST_ENTRIES, to="r", held=""):
    tasks = (e.NewTask(b"child"),) * len(names)
    return e.PutChildren("q", parent.id, parent.token, to, names, tasks, most, held)


def crowd(ask, parent, count, held=""):
    for start in range(0, count, CAP):
        names = [f"{n:05}" for n in range(start, min(start + CAP, count))]
        assert isinstance(ask(children(parent, *names, held=held)), e.Accepted)


def family_keys(server):
    """The keys of families."""
    endings = (b":family", b":names", b":suspended", b":ending", b":held", b"}:sweeping", b"}:timeouts")
    return [name for name in server("KEYS", "*") if name.endswith(endings)]


def clear_up(scripts, ask):
    """Sweep until nothing is due; the number of sweeps."""
    for n in range(1000):
        if ask(e.Count("q")) is not e.Reply.MORE:
            return n
    raise AssertionError


@pytest.mark.parametrize("verdict", [Verdict.DONE, Verdict.DEAD, Verdict.RETRY])
def test_a_family_that_has_ended_leaves_no_key(scripts, ask, redis_server, verdict):
    parent = root(ask)
    ask(children(parent, "a", "b", "c"))
    ask(e.SetEntry("q", parent.id, parent.token, "v", b"x"))
    assert family_keys(redis_server)
    exchange(ask, "q", 0, e.Settle(parent.id, parent.token, verdict, ttl=None))
    for child in exchange(ask, "r", 9):
        exchange(ask, "r", 0, e.Settle(child.id, child.token, Verdict.DONE))
    if verdict is Verdict.DEAD:
        assert len(family_keys(redis_server)) == 2  # a dead letter keeps its entries
        ask(moving(ask, "q", "dead", "purged"))
    else:
        (parent,) = exchange(ask, "q", 1)
        ask(e.SetEntry("q", parent.id, parent.token, "w", b"x"))
        exchange(ask, "q", 0, e.Settle(parent.id, parent.token, Verdict.DISCARD))
    clear_up(scripts, ask)
    assert family_keys(redis_server) == []


def test_a_dead_letter_that_expires_takes_its_entries_along(scripts, ask, redis_server, clock):
    parent = root(ask)
    ask(e.SetEntry("q", parent.id, parent.token, "v", b"x"))
    exchange(ask, "q", 0, e.Settle(parent.id, parent.token, Verdict.DEAD, ttl=1.0))
    assert len(family_keys(redis_server)) == 2
    clock.now += 2
    clear_up(scripts, ask)
    assert family_keys(redis_server) == []


def test_a_wait_that_is_over_leaves_no_key(scripts, ask, redis_server, clock):
    for late in (False, True):
        parent = root(ask)
        wait = e.Settle(parent.id, parent.token, Verdict.WAIT_FOR, b"v", 1.0)
        exchange(ask, "q", 0, wait)
        assert b"tenure:{0}:timeouts" in family_keys(redis_server)
        if late:
            clock.now += 2
            clear_up(scripts, ask)
        else:
            ask(e.SetEntry("q", parent.id, 0, "v", b"x"))
        (parent,) = exchange(ask, "q", 1)
        exchange(ask, "q", 0, e.Settle(parent.id, parent.token, Verdict.DONE))
        assert family_keys(redis_server) == []


@pytest.mark.full
def test_a_large_family_is_cancelled_in_short_steps(scripts, ask, cost, clock):
    parent = root(ask)
    crowd(ask, parent, MOST_ENTRIES)
    _, commands = cost(
        e.Exchange("s", next(numbers), "q", (e.Settle(parent.id, parent.token, Verdict.CANCEL),), wait=False)
    )
    assert commands < 40 * SWEEP_STEPS
    steps = 0
    while clear_up(scripts, ask) or ask(e.Count("q")).ending:
        clock.now += SWEEP_PAUSE
        steps += 1
    assert abs(steps - MOST_ENTRIES // SWEEP_STEPS) <= 2
    counts = ask(e.Count("r"))
    assert (counts.cancelled, counts.waiting) == (MOST_ENTRIES, 0)
    assert ask(e.GetResult("q", parent.id)).state == "cancelled"


def test_a_child_costs_the_same_in_a_large_family(ask, cost):
    costs = []
    for count in (1, 3 * CAP):
        parent = root(ask)
        crowd(ask, parent, count)
        costs.append(cost(children(parent, "z"))[1])
        (child,) = exchange(ask, "r", 1)
        costs.append(
            cost(e.Exchange("s", next(numbers), "r", (e.Settle(child.id, child.token, Verdict.DONE),)))[1]
        )
    assert costs[:2] == costs[2:]


def end_releases(ask, count):
    """Take and end so many releases, one by one."""
    for _ in range(count):
        (release,) = exchange(ask, "r", 1)
        exchange(ask, "r", 0, e.Settle(release.id, release.token, Verdict.DONE, ttl=1.0))


def test_releases_that_have_ended_or_never_begin_leave_no_key(scripts, ask, redis_server, clock):
    parent = root(ask)
    ask(children(parent, *"abcde", held="end"))
    for name, change in (("a", "keep"), ("b", "begin")):
        assert ask(e.SetEntry("q", parent.id, parent.token, name, change=change)) is e.Reply.OK
    ask(children(parent, "f", held="unless_done"))
    (signalled,) = ask(children(parent, "g", held="unless_done")).ids
    ask(e.SetEntry("r", signalled, 0, "v", b"x"))
    end_releases(ask, 1)
    exchange(ask, "q", 0, e.Settle(parent.id, parent.token, Verdict.DONE, ttl=1.0))
    end_releases(ask, 3)
    assert ask(e.GetResult("q", parent.id)).state == "done"
    assert family_keys(redis_server) == []
    clock.now += 3e6
    clear_up(scripts, ask)
    assert not ask(e.Count("r")).known


def test_a_queue_is_listed_while_a_release_is_held(scripts, ask, redis_server, clock):
    parent = root(ask)
    ask(children(parent, "a", held="end"))
    clock.now += 3e6
    clear_up(scripts, ask)
    assert ask(e.Count("r")).held == 1
    listed = [redis_server("ZSCORE", key, "r") for key in redis_server("KEYS", "*:queues:*")]
    assert [float(until) for until in listed if until is not None] == [float("inf")]


@pytest.mark.full
def test_each_end_of_many_releases_costs_the_same(ask, cost):
    parent = root(ask)
    crowd(ask, parent, MOST_ENTRIES, "end")
    verdict = e.Exchange("s", next(numbers), "q", (e.Settle(parent.id, parent.token, Verdict.DONE),))
    costs = [cost(verdict)[1]]
    for n in range(MOST_ENTRIES):
        (release,) = exchange(ask, "r", 1)
        end = e.Exchange("s", next(numbers), "r", (e.Settle(release.id, release.token, Verdict.DONE),))
        if n in (0, MOST_ENTRIES // 2, MOST_ENTRIES - 2):
            costs.append(cost(end)[1])
        else:
            ask(end)
    assert max(costs) < 80
    assert max(costs[1:]) - min(costs[1:]) <= 2  # a list of endings begins a part now and then
    assert ask(e.GetResult("q", parent.id)).state == "done"


def test_what_is_handed_over_is_dropped_in_short_steps(scripts, ask, cost, clock):
    parent = root(ask)
    crowd(ask, parent, CAP, "unless_done")
    verdict = e.Exchange("s", next(numbers), "q", (e.Settle(parent.id, parent.token, Verdict.DONE),))
    assert cost(verdict)[1] < 50 * SWEEP_STEPS
    steps = 0
    while clear_up(scripts, ask) or ask(e.Count("q")).ending:
        clock.now += SWEEP_PAUSE
        steps += 1
    assert abs(steps - CAP // SWEEP_STEPS) <= 2
    counts = ask(e.Count("r"))
    assert (counts.put, counts.held) == (0, 0)
    assert ask(e.GetResult("q", parent.id)).state == "done"
