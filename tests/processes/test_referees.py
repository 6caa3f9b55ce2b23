"""Referees: honest histories pass, and each cheat is seen; what must not be taken for one is not."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import anyio
import pytest
from hypothesis import assume, given, strategies as st

import tenure
from benchmarks.soak.referees import (
    Breach,
    Deliveries,
    Event,
    Generations,
    History,
    Holds,
    RefereeError,
    agreement,
    capacity,
    conservation,
    fair,
    fifo,
    in_order,
    mutual_exclusion,
    nothing_lost,
    one_leader,
    rate,
)
from tenure.engines.memory import MemoryEngine
from tenure.errors import BarrierBroken, OutcomeUnknown, QueueFull
from tenure.limits import Limit


@pytest.fixture
def history():
    return History()


def begin(call):
    """Enter a block that somebody else leaves, or nobody."""
    return call.__enter__()


def end(*calls, error=None):
    for call in calls:
        call.__exit__(type(error), error, None)


def breaches(referee, history, *args, **options):
    with pytest.raises(RefereeError) as caught:
        referee(history, *args, **options)
    return [breach.text for breach in caught.value.breaches]


# --------------------------------------------------------------------------------------------------- what they tell


def test_an_error_shows_the_events_that_are_against_the_rules(history):
    one = begin(history.held("lock", token=1, by="ann"))
    two = begin(history.held("lock", token=2, by="bob"))
    end(one, two)
    with pytest.raises(RefereeError) as caught:
        mutual_exclusion(history)
    first, second, last, _ = history
    assert caught.value.breaches == (Breach("lock: held by two at once", (first, second, last)),)
    assert str(caught.value).splitlines() == [
        "lock: held by two at once",
        f"    {first.at:.6f}  ann  hold  lock  began  token=1  weight=1  place=None",
        f"    {second.at:.6f}  bob  hold  lock  began  token=2  weight=1  place=None",
        f"    {last.at:.6f}  ann  hold  lock  ended",
    ]


def test_an_error_stays_short(history):
    calls = [begin(history.held("lock", token=n)) for n in range(50)]
    end(*calls)
    with pytest.raises(RefereeError) as caught:
        capacity(history, 20)
    assert str(caught.value).endswith("    and 11 more events")
    with pytest.raises(RefereeError) as caught:
        mutual_exclusion(history)
    assert len(caught.value.breaches) == 49
    assert str(caught.value).endswith("\nand 39 more breaches")


def test_an_empty_history_has_counts_of_zero():
    assert mutual_exclusion([]) == one_leader([]) == Holds(0, 0, 0, 0)
    assert (capacity([], 1), fifo([]), agreement([], 2)) == (0, 0, Generations(0, 0))
    assert (in_order([]), fair([], {"a": 1, "b": 2})) == (0, 0)
    assert nothing_lost([]) == Deliveries(0, 0, 0, 0, 0, 0)


def test_bad_arguments_are_refused(history):
    for referee, name in (
        (capacity, "limit"),
        (lambda h, n: fifo(h, limit=n), "limit"),
        (agreement, "parties"),
        (lambda h, n: fair(h, {}, within=n), "within"),
        (lambda h, n: fair(h, {"jobs/a": n}), r"weights\['jobs/a'\]"),
    ):
        with pytest.raises(ValueError, match=f"{name}: (at least 1|above 0), not 0"):
            referee(history, 0)
    begin(history.held("lock"))
    with pytest.raises(TypeError, match="paused: the names of those"):
        mutual_exclusion(history, paused="ann")
    with pytest.raises(TypeError, match="paused: the names of those"):
        in_order(history, paused="ann")
    with pytest.raises(ValueError, match="the number of a term as token, not"):
        one_leader(history)
    with pytest.raises(ValueError, match="parts: where what was put is now, none given"):
        conservation(3)


# ------------------------------------------------------------------------------------------------- mutual exclusion


def test_holds_one_after_the_other_are_fine(history):
    for token in (3, 5, 6):
        with history.held("lock", token=token), history.held("other"):
            pass
    with pytest.raises(ZeroDivisionError), history.held("lock", token=7):
        raise ZeroDivisionError
    assert mutual_exclusion(history) == Holds(held=7, unended=0, accepted=0, refused=0)


@pytest.mark.parametrize("tokens", [(1, 2), (None, None), (2, 1)])
def test_two_holders_at_once_are_seen(history, tokens):
    with history.held("lock", token=tokens[0]), history.held("lock", token=tokens[1]):
        pass
    assert breaches(mutual_exclusion, history) == ["lock: held by two at once"]


def test_two_within_the_hold_of_a_third_are_seen(history):
    with history.held("lock"):
        for _ in range(2):
            with history.held("lock"):
                pass
    assert breaches(mutual_exclusion, history) == ["lock: held by two at once"] * 2


def test_a_token_that_repeats_is_seen(history):
    for token in (4, 5, 5):
        with history.held("lock", token=token):
            pass
    assert breaches(mutual_exclusion, history) == ["lock: token 5 was given twice"]


def test_a_token_that_falls_is_seen(history):
    for token in (4, 9, 5):
        with history.held("lock", token=token):
            pass
    assert breaches(mutual_exclusion, history) == ["lock: token 5 came after token 9"]


def test_a_killed_holder_is_followed_by_the_next(history):
    begin(history.held("lock", token=1, by="killed")).still()
    with history.held("lock", token=2):
        pass
    assert mutual_exclusion(history) == Holds(held=2, unended=1, accepted=0, refused=0)


def test_a_holder_that_is_killed_after_the_next_has_begun_is_seen(history):
    killed = begin(history.held("lock", token=1))
    with history.held("lock", token=2):
        killed.still()
    assert breaches(mutual_exclusion, history) == ["lock: held by two at once"]


def test_a_paused_holder_may_believe_too_long_that_it_holds(history):
    paused = begin(history.held("lock", token=1, by="ann"))
    with history.held("lock", token=2, by="bob"):
        pass
    end(paused)
    assert mutual_exclusion(history, paused=["ann"]).held == 2
    assert breaches(mutual_exclusion, history, paused=["bill"]) == ["lock: held by two at once"]


def test_a_paused_holder_does_not_hide_the_others(history):
    with history.held("lock", token=1, by="ann"), history.held("lock", token=2, by="bob"):
        with history.held("lock", token=3, by="cat"):
            pass
    assert breaches(mutual_exclusion, history, paused=["ann"]) == ["lock: held by two at once"]


def test_the_token_of_a_paused_holder_is_its_own_all_the_same(history):
    for by in ("ann", "bob"):
        with history.held("lock", token=1, by=by):
            pass
    assert breaches(mutual_exclusion, history, paused=["ann"]) == ["lock: token 1 was given twice"]


class Stale(Exception):
    """What a guard says."""


def test_a_refused_stale_write_is_fine_and_an_accepted_one_is_seen(history):
    for token in (1, 1, 2):
        with history.writing("account", token=token, refused=Stale):
            pass
    with pytest.raises(Stale), history.writing("account", token=1, refused=Stale):
        raise Stale
    with pytest.raises(OutcomeUnknown), history.writing("account", token=1):
        raise OutcomeUnknown("x", "y")
    with history.writing("other account", token=1):
        pass
    assert mutual_exclusion(history, paused=["ann"]) == Holds(held=0, unended=0, accepted=4, refused=1)
    with history.writing("account", token=1):
        pass
    assert breaches(mutual_exclusion, history) == ["account: a stale write was accepted, token 1 after 2"]


def test_writes_at_the_same_time_may_be_accepted_in_any_order(history):
    with history.writing("account", token=1), history.writing("account", token=2):
        pass
    assert mutual_exclusion(history).accepted == 2


# ------------------------------------------------------------------------------------------------------------ leaders


def test_leaders_one_after_the_other_are_fine_and_may_do_several_things_in_a_term(history):
    for term, node in ((1, "ann"), (1, "ann"), (2, "bob"), (5, "ann")):
        with history.held("cluster", token=term, by=node):
            pass
    with history.held("cluster", token=6, by="ann"), history.held("cluster", token=6, by="ann"):
        pass
    assert one_leader(history).held == 6


def test_two_leaders_in_a_term_are_seen(history):
    for node in ("ann", "bob"):
        with history.held("cluster", token=1, by=node):
            pass
    assert breaches(one_leader, history) == ["cluster: two leaders in term 1"]


def test_leaders_at_the_same_time_are_seen(history):
    with history.held("cluster", token=1, by="ann"), history.held("cluster", token=2, by="bob"):
        pass
    assert breaches(one_leader, history) == ["cluster: held by two at once"]
    assert one_leader(history, paused=["ann"]).held == 2


def test_a_term_that_falls_is_seen(history):
    for term, node in ((2, "ann"), (1, "bob")):
        with history.held("cluster", token=term, by=node):
            pass
    assert breaches(one_leader, history) == ["cluster: token 1 came after token 2"]


# ----------------------------------------------------------------------------------------------------------- capacity


def test_weights_up_to_the_limit_are_fine(history):
    with history.held("gate", weight=2), history.held("gate"), history.held("other", weight=3):
        pass
    with history.held("gate", weight=3):
        pass
    assert capacity(history, 3) == 3


def test_weights_over_the_limit_for_an_instant_are_seen_once(history):
    one, two = begin(history.held("gate", weight=2)), begin(history.held("gate", weight=1))
    late = begin(history.held("gate", weight=1))
    later = begin(history.held("gate", weight=1))
    end(one, two, late, later)
    assert breaches(capacity, history, 3) == ["gate: 4 are held at once, where the limit is 3"]


def test_each_time_that_the_limit_is_exceeded_is_reported(history):
    for _ in range(2):
        with history.held("gate"), history.held("gate"):
            pass
    assert len(breaches(capacity, history, 1)) == 2


def test_one_that_is_too_heavy_alone_is_seen(history):
    with history.held("gate", weight=4):
        pass
    assert breaches(capacity, history, 3) == ["gate: 4 are held at once, where the limit is 3"]


def test_a_killed_holder_counts_to_its_last_sign(history):
    killed = begin(history.held("gate"))
    with history.held("gate"):
        pass
    assert capacity(history, 1) == 1
    with history.held("gate"):
        killed.still()
    assert len(breaches(capacity, history, 1)) == 2


def test_a_paused_holder_does_not_count(history):
    with history.held("gate", by="ann"), history.held("gate", by="bob"):
        pass
    assert capacity(history, 1, paused=["ann"]) == 1
    assert len(breaches(capacity, history, 1)) == 1


# --------------------------------------------------------------------------------------------------------------- lines


def serve(history, place, *, token=None, weight=1):
    with history.held(place.subject, token=token, weight=weight, place=place):
        pass


def test_it_is_first_come_first_served(history):
    places = [history.queued(history.asked("lock")) for _ in range(3)]
    for token, place in enumerate(places):
        serve(history, place, token=token)
    with history.held("lock", token=9):
        pass
    assert fifo(history) == 3


@pytest.mark.parametrize("tokens", [(1, 2), (None, None)])
def test_a_late_arrival_that_is_served_first_is_seen(history, tokens):
    early, late = (history.queued(history.asked("lock")) for _ in range(2))
    serve(history, late, token=tokens[0])
    serve(history, early, token=tokens[1])
    assert breaches(fifo, history) == ["lock: served before 1 that came before"]


def test_one_that_was_served_before_another_asked_came_before(history):
    early = history.asked("lock")
    serve(history, early, token=2)
    serve(history, history.asked("lock"), token=1)
    assert breaches(fifo, history) == ["lock: served before 1 that came before"]


def test_all_that_were_passed_by_are_counted(history):
    *early, late = (history.queued(history.asked("lock")) for _ in range(4))
    for place in (late, *early):
        serve(history, place)
    assert breaches(fifo, history) == ["lock: served before 3 that came before"]


def test_those_that_asked_at_the_same_time_may_come_in_any_order(history):
    first, second = history.asked("lock"), history.asked("lock")
    history.queued(first)
    history.queued(second)
    serve(history, second)
    serve(history, first)
    assert fifo(history) == 2


def test_one_that_left_does_not_count(history):
    history.queued(history.asked("lock"))
    serve(history, history.queued(history.asked("lock")))
    assert fifo(history) == 1


def test_lines_of_other_priorities_and_things_are_others(history):
    low, high, other = history.asked("lock"), history.asked("lock", priority=1), history.asked("other")
    for place in (low, high, other):
        history.queued(place)
    for place in (other, high, low):
        serve(history, place)
    assert fifo(history) == 3


def test_within_a_priority_a_late_arrival_that_is_served_first_is_seen(history):
    places = [history.queued(history.asked("lock", priority=n)) for n in (1, 0, 1)]
    for place in (places[2], places[0], places[1]):
        serve(history, place)
    assert breaches(fifo, history) == ["lock: served before 1 that came before"]


def test_those_that_are_let_in_together_may_wake_in_any_order(history):
    one, two, three = (history.queued(history.asked("gate")) for _ in range(3))
    with history.held("gate", place=three), history.held("gate", place=one), history.held("gate", place=two):
        pass
    assert fifo(history, limit=3) == 3
    assert breaches(fifo, history, limit=2) == ["gate: served before 2 that came before"]


def test_a_light_one_that_passes_a_heavy_one_is_seen(history):
    heavy, light = (history.queued(history.asked("gate")) for _ in range(2))
    with history.held("gate"):
        serve(history, light)
    serve(history, heavy, weight=2)
    assert breaches(fifo, history, limit=3) == ["gate: served before 1 that came before"]


def test_a_killed_holder_takes_no_room_for_sure(history):
    begin(history.held("gate", weight=3))
    heavy, light = (history.queued(history.asked("gate")) for _ in range(2))
    with history.held("gate", place=light), history.held("gate", place=heavy, weight=2):
        pass
    assert fifo(history, limit=3) == 2


# -------------------------------------------------------------------------------------------------------------- groups


def put_into(history, group, *names):
    for name in names:
        with history.putting(group, name):
            pass


def take_from(history, group, names, by=None):
    for name in names:
        history.taken(group, name, by=by)


def test_tasks_in_the_order_of_their_puts_are_fine_whatever_their_tries(history):
    put_into(history, "jobs/a", *"123")
    put_into(history, "jobs/b", *"123")
    take_from(history, "jobs/a", "11123")
    take_from(history, "jobs/b", "1233")
    take_from(history, "jobs/c", "1")
    assert in_order(history) == 9


@pytest.mark.parametrize("taken", ["132", "213", "1231", "1232"])
def test_a_task_that_is_taken_after_a_later_one_is_seen(history, taken):
    put_into(history, "jobs/a", *"123")
    take_from(history, "jobs/a", taken)
    (text,) = breaches(in_order, history)
    assert text.endswith("was taken after one that was put later")


def test_deliveries_at_their_rate_are_fine_and_faster_ones_are_seen():
    def taken(group, *times):
        return [Event(at, "p", "taken", group, facts={"item": "x"}) for at in times]

    limit = Limit(2, per=1, burst=3)
    fine = taken("jobs/a", 0, 0, 0, 0.5, 1, 9, 9, 9.1, 9.5)
    assert rate([*fine, *taken("jobs/b", 0, 0.1, 0.2)], limit) == 12
    (text,) = breaches(rate, taken("jobs/a", 0, 0, 0, 0.4), limit)
    assert "too early for Limit(rate=2.0" in text
    assert rate(taken("jobs/a", 0, 0, 0, 0.4), limit, within=0.2) == 4
    with pytest.raises(ValueError, match="within must be"):
        rate([], limit, within=-1)


def test_tasks_that_were_put_at_the_same_time_have_no_order(history):
    one, two = begin(history.putting("jobs/a", 1)), begin(history.putting("jobs/a", 2))
    end(two, one)
    take_from(history, "jobs/a", [2, 1, 2])
    assert in_order(history) == 3


def test_a_task_whose_put_has_an_unknown_outcome_may_come_late(history):
    end(begin(history.putting("jobs/a", 1)), error=OutcomeUnknown("jobs", "put"))
    put_into(history, "jobs/a", 2)
    take_from(history, "jobs/a", [2, 1])
    assert in_order(history) == 2


def test_what_a_paused_taker_notes_late_does_not_count(history):
    put_into(history, "jobs/a", *"12")
    take_from(history, "jobs/a", "12", by="ann")
    take_from(history, "jobs/a", "1", by="bob")
    assert in_order(history, paused={"bob"}) == 2
    assert len(breaches(in_order, history)) == 1


def share(history, order, within=1, **weights):
    for name in weights:
        put_into(history, name, *range(order.count(name)))
    numbers = dict.fromkeys(weights, 0)
    for name in order:
        history.taken(name, numbers[name])
        numbers[name] += 1
    return fair(history, weights, within=within)


def test_turns_by_weight_are_fair(history):
    assert share(history, "abababab", a=1, b=1) == 8
    history._events.clear()
    assert share(history, "aabcabacabac", a=2, b=1, c=1) == 12
    history._events.clear()
    assert share(history, "ab" * 3 + "aaaaaaa", a=1, b=1) == 13


@pytest.mark.parametrize(
    ("order", "weights"),
    [
        ("aaabbb", {"a": 1, "b": 1}),
        ("abababaaabbb", {"a": 1, "b": 1}),
        ("abababab", {"a": 4, "b": 1}),
        ("aabaabaabcccc", {"a": 2, "b": 1, "c": 1}),
    ],
)
def test_a_share_that_is_too_large_is_seen(history, order, weights):
    texts = []
    with pytest.raises(RefereeError) as caught:
        share(history, order, **weights)
    texts = [breach.text for breach in caught.value.breaches]
    assert all("while both had items that waited" in text for text in texts)
    assert share(history, "", within=9, **weights) == len(order)


def test_one_that_has_nothing_to_do_saves_nothing_up_and_misses_nothing(history):
    put_into(history, "a", *range(9))
    take_from(history, "a", range(4))
    put_into(history, "b", *range(4))
    for n in range(4):
        history.taken("b", n)
        history.taken("a", n + 4)
    assert fair(history, {"a": 1, "b": 1}) == 12
    history.taken("a", 8)
    put_into(history, "a", 10, 11, 12)
    put_into(history, "b", 10, 11, 12)
    take_from(history, "a", (10, 11, 12))
    take_from(history, "b", (10, 11, 12))
    assert breaches(fair, history, {"a": 1, "b": 1}) == [
        "a had 3 turns and b 0, while both had items that waited, for weights of 1 and 1"
    ]


def test_a_turn_that_failed_was_one(history):
    put_into(history, "a", *range(3))
    put_into(history, "b", *range(9))
    for n in range(6):
        history.taken("a", 0 if n < 4 else n - 3)
        history.taken("b", n)
    assert fair(history, {"a": 1, "b": 1}) == 12


def test_a_group_that_gets_no_turn_before_another_is_done_is_seen(history):
    put_into(history, "a", *range(3))
    put_into(history, "b", *range(3))
    take_from(history, "b", range(3))
    take_from(history, "a", range(3))
    assert len(breaches(fair, history, {"a": 100, "b": 1})) == 1


# ------------------------------------------------------------------------------------------------------------ barriers


def meet(history, turn, outcomes, *, generation=None, places=None):
    """All arrive, then each has its outcome: None (passes), an error, or "killed"."""
    calls = [begin(history.arriving("gate", turn=turn)) for _ in outcomes]
    for number, (call, outcome) in enumerate(zip(calls, outcomes, strict=True)):
        if outcome is None:
            call.tell(generation=generation, place=places[number] if places else None)
        if outcome != "killed":
            end(call, error=outcome)


BROKEN = BarrierBroken("x")
CANCELLED = KeyboardInterrupt()


def test_parties_that_agree_are_fine(history):
    meet(history, 1, [None, None, None], generation=7, places=[2, 0, 1])
    meet(history, 2, [BROKEN, CANCELLED, BROKEN])
    meet(history, 3, [None, "killed", None], generation=9, places=[0, None, 1])
    meet(history, 4, ["killed", BROKEN])
    meet(history, 5, [None, CANCELLED, None])  # cancelled when it had tripped
    assert agreement(history, 3) == Generations(passed=3, broken=2)


def test_a_party_that_passes_while_another_is_broken_is_seen(history):
    meet(history, 1, [None, BROKEN, None])
    assert breaches(agreement, history, 3) == ["gate, turn 1: some passed and some were broken"]


def test_too_many_that_pass_are_seen(history):
    meet(history, 1, [None, None, None])
    assert breaches(agreement, history, 2) == ["gate, turn 1: 3 passed, where 2 are the parties"]


def test_one_that_passes_before_all_are_there_is_seen(history):
    with history.arriving("gate", turn=1):
        pass
    with history.arriving("gate", turn=1):
        pass
    text = "gate, turn 1: one passed when at most 1 of 2 had been there together"
    assert breaches(agreement, history, 2) == [text]


def test_one_that_left_makes_nobody_pass(history):
    gone, first = begin(history.arriving("gate", turn=1)), begin(history.arriving("gate", turn=1))
    end(gone, error=CANCELLED)
    second = begin(history.arriving("gate", turn=1))
    end(first, second)
    assert agreement(history, 2) == Generations(passed=1, broken=0)
    third = begin(history.arriving("gate", turn=1))
    end(third)
    text = "gate, turn 1: one passed when at most 2 of 3 had been there together"
    assert breaches(agreement, history, 3) == [text]


@pytest.mark.parametrize(
    ("places", "text"),
    [([0, 1, 1], "places were given twice"), ([1, 2, 3], "there are no such places of 3")],
)
def test_wrong_places_are_seen(history, places, text):
    meet(history, 1, [None] * 3, places=places)
    assert breaches(agreement, history, 3) == [f"gate, turn 1: {text}"]


def test_generations_that_mix_are_seen(history):
    one, two = begin(history.arriving("gate", turn=1)), begin(history.arriving("gate", turn=1))
    one.tell(generation=1)
    two.tell(generation=2)
    end(one, two)
    assert breaches(agreement, history, 2) == ["gate, turn 1: of several generations"]


def test_one_generation_for_two_turns_is_seen(history):
    for turn in (1, 2):
        meet(history, turn, [None, None], generation=5)
    assert breaches(agreement, history, 2) == ["gate, turn 2: generation 5 was that of another turn"]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_barrier_of_threads_is_honest(history, breaks):
    barrier, between = threading.Barrier(3), threading.Barrier(3)

    def party(by):
        for turn in range(20):
            # an abort reaches those who were to pass and have not woken yet: threading's barrier then disagrees
            between.wait()
            try:
                with history.arriving("gate", turn=turn, broken=threading.BrokenBarrierError, by=by) as call:
                    if breaks and by == "1" and turn == 10:
                        barrier.abort()
                    call.tell(place=barrier.wait())
            except threading.BrokenBarrierError:
                pass

    threads = [threading.Thread(target=party, args=[str(n)]) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreement(history, 3) == Generations(*((10, 10) if breaks else (20, 0)))


# -------------------------------------------------------------------------------------------------------------- queues


def put(history, *items):
    for item in items:
        with history.putting("jobs", item):
            pass


def work(history, *items):
    for item in items:
        history.taken("jobs", item)
        history.completed("jobs", item)


def test_what_was_put_is_completed_or_found(history):
    put(history, *"abcd")
    history.taken("jobs", "a")
    work(history, "a", "b")
    history.found("jobs", "b", "done")
    history.found("jobs", "c", "waiting")
    history.found("jobs", "d", "done")
    assert nothing_lost(history) == Deliveries(
        acknowledged=4, recovered=0, taken=3, again=1, completed=2, found=3
    )


def test_a_put_of_unknown_outcome_may_appear_or_not(history):
    for item in "ab":
        with pytest.raises(OutcomeUnknown), history.putting("jobs", item):
            raise OutcomeUnknown("jobs", "put")
    begin(history.putting("jobs", "c"))  # killed
    work(history, "a", "c")
    assert nothing_lost(history) == Deliveries(
        acknowledged=0, recovered=2, taken=2, again=0, completed=2, found=0
    )


def test_an_item_that_was_put_twice_may_be_there_twice(history):
    with pytest.raises(OutcomeUnknown), history.putting("jobs", "a"):
        raise OutcomeUnknown("jobs", "put")
    put(history, "a")
    work(history, "a", "a")
    assert nothing_lost(history).recovered == 1


@pytest.mark.parametrize("taken", [False, True])
def test_a_lost_task_is_seen(history, taken):
    put(history, "a", 1)
    work(history, "a")
    if taken:
        history.taken("jobs", 1)
    assert breaches(nothing_lost, history) == ["jobs: 1 lost: neither completed nor found"]


def test_a_task_that_appeared_and_vanished_is_seen(history):
    begin(history.putting("jobs", "a"))
    history.taken("jobs", "a")
    assert breaches(nothing_lost, history) == ["jobs: 'a' lost: neither completed nor found"]


@pytest.mark.parametrize("states", [["done", "done"], ["waiting", "leased"], ["done", "dead"]])
def test_a_task_that_is_found_twice_is_seen(history, states):
    put(history, "a")
    for state in states:
        history.found("jobs", "a", state)
    assert breaches(nothing_lost, history) == [
        "jobs: 'a' duplicated: completed or found more often than it was put"
    ]


def test_a_task_that_is_completed_twice_is_seen(history):
    put(history, "a")
    work(history, "a", "a")
    assert "duplicated" in breaches(nothing_lost, history)[0]


def test_a_completed_task_that_is_still_there_is_seen(history):
    put(history, "a")
    work(history, "a")
    history.found("jobs", "a", "waiting")
    with pytest.raises(RefereeError, match="duplicated") as caught:
        nothing_lost(history)
    assert caught.value.breaches[0].events == tuple(history)


def test_a_task_from_nowhere_is_seen(history):
    put(history, "a")
    with pytest.raises(QueueFull), history.putting("jobs", "refused", refused=QueueFull):
        raise QueueFull("jobs", 1)
    work(history, "a", "refused", "b")
    history.found("jobs", "early", "done")
    put(history, "early")
    history.taken("other", "a")
    assert breaches(nothing_lost, history) == [
        f"{name} unexpected: never put, or not before that"
        for name in ("jobs: 'refused'", "jobs: 'b'", "jobs: 'early'", "other: 'a'")
    ]


def test_the_books_of_a_channel_balance_or_not():
    conservation(5, received=3, buffered=2)
    with pytest.raises(RefereeError, match=r"^put 5, but received 3 \+ buffered 1 = 4$"):
        conservation(5, received=3, buffered=1)
    with pytest.raises(RefereeError, match="less than nothing: received 6"):
        conservation(5, received=6, buffered=-1)


@pytest.fixture
async def statistics(virtual_clock):
    async with tenure.open_store(MemoryEngine()) as store:
        queue = tenure.WorkQueue(store, "jobs", keep=tenure.Keep(payloads=True))
        await queue.put_many(list("abc"))
        async with queue.take(), queue.take():
            pass
        return await queue.statistics()


async def test_the_books_of_a_queue_balance_or_not(statistics):
    conservation(statistics)
    assert (statistics.put, statistics.done, statistics.waiting) == (3, 2, 1)
    for wrong in ({"put": 4}, {"waiting": 2}, {"dead": 1}, {"leased": -1, "waiting": 2}):
        with pytest.raises(RefereeError):
            conservation(replace(statistics, **wrong))
    with pytest.raises(ValueError, match="parts: the statistics know them"):
        conservation(statistics, waiting=3)


async def test_books_and_history_agree_or_not(statistics, history):
    put(history, "a", "b")
    begin(history.putting("jobs", "c"))
    work(history, "a", "b")
    conservation(statistics, history)
    work(history, "c")
    assert breaches(conservation, statistics, history) == ["done 2, but 3 were completed"]
    more, fewer = History(), History()
    put(more, *"abcd")
    put(fewer, *"ab")
    with pytest.raises(RefereeError, match="put 3, but 4 of 4 attempts were acknowledged"):
        conservation(statistics, more)
    with pytest.raises(RefereeError, match="put 3, but 2 of 2 attempts were acknowledged"):
        conservation(statistics, fewer)


# ------------------------------------------------------------------------------ histories of a simulation, and mutants


def client(history, draw, server, name, weight, *, dies):
    """One who waits for `weight` of what a server gives; each step is one that others can come between."""
    place = history.asked("x", by=name)
    yield
    server.join(name, weight)
    yield
    if draw.random() < 0.7:
        history.queued(place)
        yield
    while name not in server.inside:
        yield
    with_token = {"token": server.inside[name]} if server.fenced else {}
    hold = begin(history.held("x", weight=weight, place=place, by=name, **with_token))
    for _ in range(draw.randrange(3)):
        yield
        hold.still()
    if not dies:
        yield
        end(hold)
    yield
    server.leave(name)


class Server:
    """Gives what it has down the line, with tokens that rise."""

    def __init__(self, limit, *, fenced):
        self.limit = limit
        self.fenced = fenced
        self.inside = {}
        self._line = []
        self._weights = {}
        self._token = 0

    def join(self, name, weight):
        self._weights[name] = weight
        self._line.append(name)
        self._grant()

    def leave(self, name):
        del self.inside[name]
        self._grant()

    def _grant(self):
        while self._line and sum(self._weights[n] for n in (*self.inside, self._line[0])) <= self.limit:
            self._token += 1
            self.inside[self._line.pop(0)] = self._token


@st.composite
def honest(draw, limits=(1, 4), fenced=None):
    """A history of a server that keeps the rules, and its limit."""
    limit = draw(st.integers(*limits))
    chance = random.Random(draw(st.integers(0, 2**32)))
    server = Server(limit, fenced=draw(st.booleans()) if fenced is None else fenced)
    history = History(clock=lambda: 0.0)
    steps = [
        client(history, chance, server, str(n), chance.randint(1, limit), dies=chance.random() < 0.2)
        for n in range(draw(st.integers(2, 12)))
    ]
    while steps:
        step = chance.choice(steps)
        if next(step, "end") == "end":
            steps.remove(step)
    return history.events(), limit


def holds_of(events):
    """The positions of the beginning and of the end (None: killed) of each hold, and of its place in the line."""
    found = []
    for position, event in enumerate(events):
        if event.kind == "hold" and event.phase == "began":
            ends = [n for n, e in enumerate(events) if e.call == event.call and e.phase == "ended"]
            waits = [n for n, e in enumerate(events) if e.call == event.facts["place"]]
            found.append((position, ends[0] if ends else None, waits))
    return found


def with_fact(events, position, **facts):
    changed = list(events)
    changed[position] = events[position]._replace(facts={**events[position].facts, **facts})
    return changed


@given(honest())
def test_an_honest_history_passes(made):
    events, limit = made
    served = sum(event.kind == "hold" and event.phase == "began" for event in events)
    assert fifo(events, limit=limit) == served
    assert 1 <= capacity(events, limit) <= limit
    if limit == 1:
        assert mutual_exclusion(events).held == served


@given(honest(limits=(1, 1), fenced=True), st.data())
def test_a_changed_token_is_seen(made, data):
    events, _ = made
    (one, *_), (other, *_) = data.draw(st.permutations(holds_of(events)))[:2]
    first, second = events[one].facts["token"], events[other].facts["token"]
    reused = with_fact(events, one, token=second)
    swapped = with_fact(reused, other, token=first)
    for mutant in (reused, swapped):
        breaches(mutual_exclusion, mutant)
        breaches(one_leader, mutant)


@given(honest(limits=(1, 1)), st.data())
def test_a_hold_that_begins_too_early_is_seen(made, data):
    events, _ = made
    holds = holds_of(events)
    number = data.draw(st.integers(1, len(holds) - 1))
    begin_before, end_before, _ = holds[number - 1]
    assume(end_before is not None)
    mutant = list(events)
    mutant.insert(data.draw(st.integers(begin_before + 1, end_before)), mutant.pop(holds[number][0]))
    assert "x: held by two at once" in breaches(mutual_exclusion, mutant)
    breaches(capacity, mutant, 1)


@given(honest())
def test_one_unit_more_than_there_is_room_for_is_seen(made):
    events, limit = made
    most = capacity(events, limit)
    assume(most > 1)
    assert "are held at once" in breaches(capacity, events, most - 1)[0]


@given(honest(), st.data())
def test_two_places_that_are_exchanged_are_seen(made, data):
    events, limit = made
    holds = holds_of(events)
    came_before = [
        (one, other)
        for one in holds
        for other in holds
        if len(one[2]) == 2 and max(one[2]) < min(other[2]) and one[0] < other[0]
    ]
    assume(came_before)
    (one, _, _), (other, _, _) = data.draw(st.sampled_from(came_before))
    places = events[one].facts["place"], events[other].facts["place"]
    mutant = with_fact(with_fact(events, one, place=places[1]), other, place=places[0])
    if events[one].facts.get("token") is not None or limit == 1:
        breaches(fifo, mutant)


# -------------------------------------------------------------------------------------------- the real ones, judged


async def test_a_lock_of_several_stores_is_honest(history, virtual_clock):
    engine = MemoryEngine()
    async with anyio.create_task_group() as group:

        async def user(place):
            async with tenure.open_store(engine) as store, tenure.Lock(store, "x") as lease:
                with history.held("x", token=lease.token, place=place):
                    await anyio.sleep(1)

        for _ in range(12):
            place = history.asked("x")
            group.start_soon(user, place)
            await virtual_clock.settle()
            history.queued(place)
    assert mutual_exclusion(history) == Holds(held=12, unended=0, accepted=0, refused=0)
    assert fifo(history) == 12


async def test_a_semaphore_of_several_stores_is_honest(history, virtual_clock):
    engine, chance = MemoryEngine(), random.Random(0)
    async with anyio.create_task_group() as group:

        async def user(place, permits):
            async with tenure.open_store(engine) as store:
                async with tenure.Semaphore(store, "x", 3).hold(permits) as lease:
                    with history.held("x", token=lease.token, weight=permits, place=place):
                        await anyio.sleep(chance.random())

        for n in range(20):
            place = history.asked("x")
            group.start_soon(user, place, 1 + n % 3)
            await virtual_clock.settle()
            history.queued(place)
    assert capacity(history, 3) == 3
    assert fifo(history) == 20
    breaches(mutual_exclusion, history)


async def test_a_queue_of_several_stores_is_honest(history, virtual_clock):
    engine, chance = MemoryEngine(), random.Random(0)
    retry = tenure.Retry(attempts=2, backoff=1)

    async def taker():
        async with tenure.open_store(engine) as store:
            queue = tenure.WorkQueue(store, "jobs", retry=retry, keep=tenure.Keep(payloads=True))
            while True:
                try:
                    async with queue.take(timeout=10) as task:
                        item = task.payload
                        history.taken("jobs", item)
                        await anyio.sleep(chance.random())
                        if chance.random() < 0.6:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
                except tenure.AcquireTimeout:
                    return
                history.completed("jobs", item)

    async with tenure.open_store(engine) as store, anyio.create_task_group() as group:
        queue = tenure.WorkQueue(store, "jobs", max_size=5, retry=retry)
        for _ in range(3):
            group.start_soon(taker)
        for n in range(30):
            with history.putting("jobs", n):
                await queue.put(n)
        await queue.join()
        async for record in queue.tasks("ended"):
            history.found("jobs", record.payload, record.state)
        statistics = await queue.statistics()
    seen = nothing_lost(history)
    assert (seen.acknowledged, seen.found, seen.completed) == (30, 30, statistics.done)
    assert seen.again > 0 and statistics.dead > 0
    conservation(statistics, history)


# ----------------------------------------------------------------------------------- real processes, killed and frozen

CHILD = """
import sqlite3
import sys
import anyio
import tenure
from benchmarks.soak.referees import History


class Stale(Exception):
    pass


def write(path, token):
    with sqlite3.connect(path, timeout=30) as connection:
        done = connection.execute("UPDATE account SET writes = writes + 1, token = ? WHERE token <= ?", (token, token))
    connection.close()
    if not done.rowcount:
        raise Stale


async def main(url, path, account):
    history = History(path)
    async with tenure.open_store(url, ttl=2) as store:
        lock, queue = tenure.Lock(store, "x"), tenure.WorkQueue(store, "jobs", keep=tenure.Keep(payloads=True))
        while True:
            try:
                async with queue.take(timeout=4) as task, lock as lease:
                    item = task.payload
                    history.taken("jobs", item)
                    with history.held("x", token=lease.token) as hold:
                        for _ in range(3):
                            with history.writing("account", token=lease.token, refused=Stale):
                                write(account, lease.token)
                            await anyio.sleep(0.01)
                            hold.still()
            except (tenure.LeaseLost, Stale):
                continue
            except tenure.AcquireTimeout:
                return
            history.completed("jobs", item)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[2:], backend=sys.argv[1])
"""


class Fleet:
    """Processes that take tasks and write under a lock, all to one history."""

    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/jobs.db"
        self.account = folder / "account.db"
        self.history = History(folder / "history")
        self._all = []
        with sqlite3.connect(self.account) as connection:
            connection.execute("CREATE TABLE account AS SELECT 0 AS writes, 0 AS token")
        connection.close()

    def start(self, backend):
        command = [sys.executable, "-c", CHILD, backend, self.url, self.history._path, self.account]
        self._all.append(subprocess.Popen(command))
        return self._all[-1]

    def did(self, process, kind, phase=""):
        return sum(
            (event.by, event.kind, event.phase) == (str(process.pid), kind, phase) for event in self.history
        )

    async def until(self, condition):
        with anyio.fail_after(120):
            while not condition():
                # most conditions read the whole history
                await anyio.sleep(0.1)

    async def freeze(self, process):
        """Freeze it, but not in the middle of a transaction of SQLite: that would lock out everybody else."""
        while True:
            process.send_signal(signal.SIGSTOP)
            with contextlib.suppress(sqlite3.OperationalError):
                for path in (self.account, self.url.removeprefix("sqlite:///")):
                    with contextlib.closing(
                        sqlite3.connect(path, timeout=5, isolation_level=None)
                    ) as connection:
                        connection.executescript("BEGIN IMMEDIATE; ROLLBACK")
                return
            process.send_signal(signal.SIGCONT)
            await anyio.sleep(0.01)

    async def ended(self, process):
        await self.until(lambda: process.poll() is not None)
        assert process.returncode == 0

    async def fill(self, tasks):
        async with tenure.open_store(self.url) as store:
            queue = tenure.WorkQueue(store, "jobs", keep=tenure.Keep(payloads=True))
            for n in range(tasks):
                with self.history.putting("jobs", n):
                    await queue.put(n)

    async def audit(self):
        """Note what the books say in the end, and give them."""
        async with tenure.open_store(self.url) as store:
            queue = tenure.WorkQueue(store, "jobs", keep=tenure.Keep(payloads=True))
            for state in ("waiting", "leased", "ended"):
                async for record in queue.tasks(state):
                    self.history.found("jobs", record.payload, record.state)
            return (await queue.verify()).statistics

    def end(self):
        for process in self._all:
            process.kill()
            process.wait()


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.end()


@pytest.mark.one_loop(0)
@pytest.mark.timeout(180)
async def test_processes_of_which_one_is_killed_are_honest(fleet):
    await fleet.fill(60)
    killed, other = fleet.start("asyncio"), fleet.start("trio")
    await fleet.until(lambda: fleet.did(killed, "hold", "began") > 3 and fleet.did(other, "hold", "began"))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    await fleet.ended(other)
    statistics = await fleet.audit()
    seen = mutual_exclusion(fleet.history)
    assert seen.held >= 60 and seen.unended <= 1 and seen.refused == 0
    assert capacity(fleet.history, 1) == 1
    seen = nothing_lost(fleet.history)
    assert (seen.acknowledged, seen.found) == (60, 60)
    assert seen.again <= 1
    conservation(statistics, fleet.history.about("jobs"))
    assert statistics.done == 60


@pytest.mark.one_loop(1)
@pytest.mark.timeout(180)
async def test_processes_of_which_one_is_frozen_accept_no_stale_write(fleet):
    await fleet.fill(60)
    frozen, other = fleet.start("trio"), fleet.start("asyncio")
    await fleet.until(lambda: fleet.did(frozen, "hold", "began") > 3 and fleet.did(other, "hold", "began"))
    await fleet.freeze(frozen)
    before = fleet.did(other, "hold", "began")
    await fleet.until(lambda: fleet.did(other, "hold", "began") > before + 3)
    frozen.send_signal(signal.SIGCONT)
    await fleet.ended(frozen)
    await fleet.ended(other)
    await fleet.audit()
    seen = mutual_exclusion(fleet.history, paused=[str(frozen.pid)])
    assert seen.accepted >= 180
    assert nothing_lost(fleet.history).found == 60
