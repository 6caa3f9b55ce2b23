"""Deadlocks are found when there are some, and only then."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tenure.engine import Holder
from tenure.web._waits import Key, deadlocks, task_of


def one(who, weight=1, age=10.0):
    """Someone: "p:t" is the task t of the process p."""
    process, _, task = who.partition(":")
    return Holder(process, f"{process}/1.7@{task}" if task else f"{process}/1.{age}", 1, weight, b"", age)


def key(name, holders, waiting, capacity=1):
    return Key(name, capacity, [one(*h) for h in holders], [one(*w) for w in waiting])


def circle(deadlock):
    return {(wait.process, wait.task, wait.key) for wait in deadlock.waits}


def test_nobody_waits_and_nothing_is_wrong():
    assert deadlocks([]) == []
    assert deadlocks([key("A", [("p:1",)], [("p:2",)])]) == []


def test_two_tasks_that_wait_for_each_other():
    (found,) = deadlocks(
        [
            key("A", [("p:1", 1, 9.0)], [("q:2", 1, 4.0)]),
            key("B", [("q:2", 1, 8.0)], [("p:1", 1, 5.0)]),
        ]
    )
    assert found.certain
    assert found.seconds == 4.0
    assert circle(found) == {("q", "2", "A"), ("p", "1", "B")}
    assert [wait.holds for wait in found.waits if wait.task == "1"] == [("A",)]


def test_the_circle_is_reported_in_the_order_of_waiting():
    (found,) = deadlocks(
        [
            key("A", [("p:1",)], [("p:3",)]),
            key("B", [("p:2",)], [("p:1",)]),
            key("C", [("p:3",)], [("p:2",)]),
        ]
    )
    for wait, following in zip(found.waits, [*found.waits[1:], found.waits[0]], strict=True):
        assert wait.key in following.holds


def test_a_chain_is_no_circle():
    assert deadlocks([key("A", [("p:1",)], [("p:2",)]), key("B", [("p:2",)], [("p:3",)])]) == []


def test_those_behind_are_counted():
    (found,) = deadlocks(
        [
            key("A", [("p:1",)], [("p:2",), ("p:3",)]),
            key("B", [("p:2",)], [("p:1",)]),
            key("C", [("p:3",)], [("p:4",)]),
        ]
    )
    assert found.behind == 2


def test_tasks_of_one_process_are_distinguished():
    # 1 will give back A, since it is 3 that waits
    assert deadlocks([key("A", [("p:1",)], [("q:2",)]), key("B", [("q:2",)], [("p:3", 1, 20.0)])]) == []


def test_another_holder_of_a_semaphore_can_break_the_circle():
    keys = [
        key("S", [("p:1",), ("p:9",)], [("p:2",)], capacity=2),
        key("B", [("p:2",)], [("p:1",)]),
    ]
    assert deadlocks(keys) == []
    keys[0] = key("S", [("p:1", 2)], [("p:2",)], capacity=2)
    assert len(deadlocks(keys)) == 1


def test_a_head_that_wants_more_blocks_those_behind_it():
    (found,) = deadlocks(
        [
            key("S", [("p:1", 1)], [("p:3", 2), ("p:2", 1)], capacity=2),
            key("B", [("p:2",)], [("p:1",)]),
        ]
    )
    # 3 waits for the share of 1, 1 for B of 2, and 2 stands behind 3
    assert circle(found) == {("p", "3", "S"), ("p", "2", "S"), ("p", "1", "B")}


def test_a_task_that_waits_for_itself():
    (found,) = deadlocks([key("S", [("p:1", 2)], [("p:1", 2)], capacity=3)])
    assert circle(found) == {("p", "1", "S")}


def test_readers_that_want_to_write():
    most = 1 << 30
    (found,) = deadlocks(
        [
            key("A", [("p:1",), ("p:2",)], [("p:3", most)], capacity=most),
            key("B", [("p:3",)], [("p:2",)]),
        ]
    )
    assert circle(found) == {("p", "3", "A"), ("p", "2", "B")}


def test_two_circles_are_distinguished():
    found = deadlocks(
        [
            key("A", [("p:1",)], [("p:2",)]),
            key("B", [("p:2",)], [("p:1",)]),
            key("C", [("p:3",)], [("p:4",)]),
            key("D", [("p:4",)], [("p:3",)]),
        ]
    )
    assert len(found) == 2
    assert all(len(deadlock.waits) == 2 for deadlock in found)


def test_a_circle_of_processes_is_possible_once_it_has_lasted():
    def keys(age):
        return [
            key("A", [("p:1", 1, 30.0)], [("q:2", 1, age)]),
            key("B", [("q:3", 1, 30.0)], [("p:4", 1, age)]),
        ]

    (found,) = deadlocks(keys(6.0))
    assert not found.certain
    assert {(wait.process, wait.key, *wait.holds) for wait in found.waits} == {
        ("q", "A", "B"),
        ("p", "B", "A"),
    }
    assert deadlocks(keys(4.0)) == []


def test_a_wait_older_than_the_hold_is_another_tasks():
    assert (
        deadlocks(
            [
                key("A", [("p:1", 1, 30.0)], [("q:2", 1, 40.0)]),
                key("B", [("q:3", 1, 30.0)], [("p:4", 1, 10.0)]),
            ]
        )
        == []
    )


def test_a_circle_of_processes_is_reported_once_however_many_wait_in_its_lines():
    """Each wait by itself would be a node with an edge to each of the others: with these lines it took for ever."""
    lines = [(f"p:{n}", 1, 6.0 + n % 10) for n in range(1000)], [(f"q:{n}", 1, 6.0) for n in range(1000)]
    (found,) = deadlocks(
        [
            key("A", [("p:holds", 1, 12.5)], lines[1]),
            key("B", [("q:holds", 1, 30.0)], lines[0]),
        ]
    )
    assert circle(found) == {("q", "0", "A"), ("p", "6", "B")}
    assert sorted(wait.seconds for wait in found.waits) == [6.0, 12.0]


def test_waiting_for_another_task_of_the_same_process_is_no_deadlock():
    assert deadlocks([key("A", [("p:1", 1, 30.0)], [("p:2", 1, 20.0)])]) == []


def test_holders_without_a_task_in_their_name():
    assert task_of(one("p")) == ""
    assert task_of(one("p:7f")) == "7f"


agents = st.sampled_from(["p:1", "p:2", "q:1", "q:2", "q:3"])


@st.composite
def worlds(draw):
    """What keys look like: capacities are kept, and a task waits for one thing at a time."""
    keys, waits = [], set()
    for name in "ABC":
        capacity = draw(st.integers(1, 3))
        room, holders = capacity, []
        for who in draw(st.lists(agents, max_size=3)):
            weight = draw(st.integers(1, capacity))
            if weight <= room:
                holders.append((who, weight))
                room -= weight
        waiting = []
        for who in draw(st.lists(agents, max_size=4, unique=True)):
            if who not in waits:
                waits.add(who)
                waiting.append((who, draw(st.integers(1, capacity))))
        if waiting and (not holders or waiting[0][1] <= room):
            holders.append((draw(agents), room))
            holders = [h for h in holders if h[1]]
        keys.append((name, capacity, holders, waiting))
    return keys


@given(worlds())
def test_stuck_are_those_that_cannot_finish_in_any_order(world):
    """Played out: serve heads, let those who wait for nothing finish, until nothing moves."""
    state = {name: [capacity, list(holders), list(waiting)] for name, capacity, holders, waiting in world}
    moved = True
    while moved:
        moved = False
        waiting_now = {who for _, _, waiting in state.values() for who, _ in waiting}
        for line in state.values():
            left = [h for h in line[1] if h[0] in waiting_now]
            moved |= len(left) != len(line[1])
            line[1] = left
            if line[2] and sum(w for _, w in line[1]) + line[2][0][1] <= line[0]:
                line[1].append(line[2].pop(0))
                moved = True
    stuck = {(*who.split(":"), name) for name, (_, _, waiting) in state.items() for who, _ in waiting}
    found = [
        d
        for d in deadlocks(key(n, holders, waiting, capacity) for n, capacity, holders, waiting in world)
        if d.certain
    ]
    circles = [circle(d) for d in found]
    assert bool(found) == bool(stuck)
    assert all(c <= stuck for c in circles)
    assert sum(map(len, circles)) + sum(d.behind for d in found) == len(stuck)
