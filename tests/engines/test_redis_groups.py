"""How the scripts keep groups of tasks: in which order, at what cost, and that nothing stays."""

from __future__ import annotations

from random import Random

import pytest
from contract import configured, set_groups

import tenure.engine as e
from tenure.engines.memory import MemoryEngine

numbers = iter(range(1, 10**9))


def put(ask, groups, **options):
    tasks = tuple(e.NewTask(b"x", group=group, **options) for group in groups)
    ids = []
    for start in range(0, len(tasks), e.CAP):
        n = next(numbers)
        request = e.PutRequest(f"p{n}", tasks[start : start + e.CAP])
        ids += ask(e.Put("s", n, "q", (request,))).answers[0].ids
    return ids


def take(ask, want):
    return ask(e.Exchange("s", next(numbers), "q", want=want, wait=False)).tasks


NAMES = ("a", "a\0", "a\0\0", "a\0\1", "a\0b", "ab", "A", "B", "b", "é", "z", "\uffff", "\U0001f600", "0", "")


def test_groups_are_in_the_order_of_their_bytes(ask):
    put_ids = put(ask, NAMES * 3)
    names = sorted(NAMES)
    ids, after = [], ""
    while True:
        page = ask(e.Scan(e.TASKS["waiting"], "q", after, 4))
        ids += [(one.group, one.id) for one in page.rows]
        if not (after := page.next):
            break
    assert ids == sorted(zip(NAMES * 3, put_ids, strict=True))
    # they all have the same tags, however many are taken at once
    assert [task.group for task in take(ask, 20)] == (names * 2)[:20]
    assert [task.group for task in take(ask, 100)] == (names * 3)[20:]


ENDS = (e.Verdict.DONE, e.Verdict.GIVE_BACK, e.Verdict.RETRY)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("per_group", [0, 1, 2])
def test_tags_are_equal_to_the_last_bit(ask, clock, seed, per_group):
    """Sums of these turns are not exact, and in Lua a number becomes a text of 14 digits in most ways."""
    memory = MemoryEngine(clock=clock)
    memory.apply(e.OpenSession("s", "p", 1e6))
    random = Random(seed)
    weights = tuple((name, random.choice((3.0, 7.0, 0.3, 1e-3, 1e9))) for name in "abcdefg")

    def both(operation):
        answers = [engine(operation) for engine in (ask, memory.apply)]
        if isinstance(operation, e.Exchange):
            tasks = [[(one.id, one.group) for one in answer.tasks] for answer in answers]
            assert tasks[0] == tasks[1]
        return answers

    both(set_groups("q", per_group, weights=weights))
    for _ in range(40):
        tasks = tuple(
            e.NewTask(b"x", random.choice((0, 0, 1)), group=random.choice("abcdefgh")) for _ in range(20)
        )
        n = next(numbers)
        both(e.Put("s", n, "q", (e.PutRequest(f"p{n}", tasks),)))
        clock.now += random.choice((0.0, 0.7))
        want, aging = random.choice((1, 5, 20)), random.choice((None, None, 1.0))
        both(configured("q", aging=aging))
        taken = both(e.Exchange("s", next(numbers), "q", want=want))
        verdicts = [random.choice(ENDS) for _ in taken[0].tasks]
        n = next(numbers)
        for apply, answer in zip((ask, memory.apply), taken, strict=True):
            settled = zip(answer.tasks, verdicts, strict=True)
            ends = tuple(e.Settle(one.id, one.token, verdict, ttl=0.0) for one, verdict in settled)
            apply(e.Exchange("s", n, "q", ends))


def test_no_command_goes_through_all_groups(ask, cost):
    """But for a change of the limit, which reads those that are longer than it."""
    ask(configured("q", max_size=10**6))
    put(ask, [f"group {n}" for n in range(20_000)])
    operations = (
        *(
            e.Exchange("s", next(numbers), "q", want=1),
            e.Count("q"),
            e.Scan(e.GROUPS, "q", limit=20),
            e.Scan(e.TASKS["waiting"], "q", limit=2),
        ),
        *(
            e.SetPaused("q", False),
            set_groups("q", 1),
            set_groups("q", 1, 5, (("a", 2.0),)),
            set_groups("q"),
        ),
    )
    for operation in operations:
        assert cost(operation)[1] < 40, operation


def test_a_long_line_of_a_group_is_served_in_short_steps(ask, scripts):
    hinted = []
    scripts.listen("p", hinted.append)
    ask(set_groups("q", group_size=1))
    put(ask, ("a",))
    count = 2 * e.CAP + 10
    for i in range(count):
        request = e.PutRequest(f"p{i}", (e.NewTask(b"x", group="a"),))
        assert isinstance(ask(e.Put("s", next(numbers), "q", (request,))).answers[0], e.Queued)
    assert ask(e.Count("q")).producers == count
    ask(set_groups("q"))
    while ask(e.Ping()) is e.Reply.MORE:
        pass
    assert [hint.name for hint in hinted] == [f"p{i}" for i in range(count)]
    counts = ask(e.Count("q"))
    assert (counts.producers, counts.reserved) == (0, count)


def test_a_group_that_a_request_beside_it_has_put_is_not_new(ask):
    """What is put first into groups is written late, so the next request of the operation does not find it stored."""
    requests = tuple(
        e.PutRequest(f"p{i}", (e.NewTask(b"x", group=group),))
        for i, group in enumerate(("a", "b", "a", "c", "b"))
    )
    ask(e.Put("s", next(numbers), "q", requests))
    page = ask(e.Scan(e.GROUPS, "q", "", 10))
    assert [(one.group, one.waiting) for one in page.rows] == [("a", 2), ("b", 2), ("c", 1)]
    assert [task.group for task in take(ask, 10)] == ["a", "b", "c", "a", "b"]
