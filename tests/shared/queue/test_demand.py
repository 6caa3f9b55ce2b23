"""What a process asks of a queue, against an engine that remembers idle takers and hints them once."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import depth
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenure.engine import CAP
from tenure.shared.queue._demand import Demand


@dataclass
class Exchange:
    """One that has left; `tasks` are those of its answer, None until the engine has applied it."""

    want: int
    advertising: bool
    tasks: int | None = None


class Walk(RuleBasedStateMachine):
    """Takers come and leave, tasks come, and answers and hints overtake one another."""

    @initialize(prefetch=st.sampled_from([0, 0, 1, 5]))
    def begin(self, prefetch):
        self.demand = Demand()
        self.demand.prefetch = prefetch
        self.waiting = self.probing = self.prefetched = 0
        self.settling = False
        self.exchange: Exchange | None = None
        # of the engine
        self.ready = 0
        self.remembered = 0
        self.hints = 0
        self.offered = 0  # to this process alone, and not yet asked for

    # takers

    @rule(count=st.sampled_from([1, 1, 1, 2, 3, 5, 5, CAP + 40]))
    def takers_come(self, count):
        served = min(count, self.prefetched)
        self.prefetched -= served
        self.waiting += count - served

    @rule()
    def one_comes_for_one_try(self):
        if self.prefetched:
            self.prefetched -= 1
        else:
            self.waiting += 1
            self.probing += 1

    @precondition(lambda self: self.waiting > self.probing)
    @rule(data=st.data())
    def takers_leave(self, data):
        self.waiting -= data.draw(st.sampled_from([1, self.waiting - self.probing]))

    @rule(prefetch=st.sampled_from([0, 1, 5]))
    def allow(self, prefetch):
        self.demand.prefetch = prefetch
        given_back = max(0, self.prefetched - prefetch)
        self.prefetched -= given_back
        self.become_ready(given_back)

    # the engine

    @rule(count=st.sampled_from([1, 1, 1, 2, 2, 3, 4, 300]))
    def put(self, count):
        self.become_ready(count)

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def another_process_takes(self, data):
        self.ready -= data.draw(st.sampled_from([1, self.ready, self.ready]))

    def become_ready(self, count):
        self.ready += count
        if count and self.remembered:
            self.offered += min(count, self.remembered)
            self.remembered = 0
            self.hints += 1

    @precondition(
        lambda self: self.exchange is None and (self.probing or self.demand.is_needed(self.waiting))
    )
    @rule()
    def it_leaves(self):
        demand = self.demand
        want = demand.ask(self.waiting, probing=self.probing, prefetched=self.prefetched)
        assert want <= CAP
        assert want >= min(CAP, self.waiting)
        self.exchange = Exchange(want, demand.advertising)
        self.asked_for = self.probing
        self.settling = False

    @precondition(lambda self: self.exchange is not None and self.exchange.tasks is None)
    @rule()
    def it_is_applied(self):
        exchange = self.exchange
        exchange.tasks = min(exchange.want, self.ready)
        self.ready -= exchange.tasks
        self.offered = max(0, self.offered - exchange.want)
        self.remembered = exchange.want - exchange.tasks if exchange.advertising else 0

    @precondition(lambda self: self.exchange is not None and self.exchange.tasks is not None)
    @rule()
    def it_is_answered(self):
        tasks, self.exchange = self.exchange.tasks, None
        taken = min(tasks, self.waiting)
        self.waiting -= taken
        self.probing = max(0, self.probing - self.asked_for)
        self.waiting = max(self.waiting, self.probing)
        kept = min(tasks - taken, max(0, self.demand.prefetch - self.prefetched))
        self.prefetched += kept
        idle = self.demand.answered(tasks, usable=True)
        assert 0 <= idle <= CAP
        self.become_ready(tasks - taken - kept)

    @rule()
    def all_comes_to_rest(self):
        while self.exchange or self.settling or self.probing or self.demand.is_needed(self.waiting):
            if self.exchange is None:
                self.it_leaves()
            if self.exchange.tasks is None:
                self.it_is_applied()
            self.it_is_answered()

    @precondition(lambda self: self.hints)
    @rule()
    def a_hint_arrives(self):
        self.hints -= 1
        self.demand.hinted(busy=self.exchange is not None)

    # what goes wrong

    @precondition(lambda self: self.hints)
    @rule()
    def hints_are_lost(self):
        self.hints = self.offered = 0
        self.demand.registered = 0
        self.demand.reask = True

    @precondition(lambda self: self.exchange is not None and self.exchange.tasks is None)
    @rule()
    def it_fails(self):
        # everybody who waits gets the error
        self.exchange = None
        self.waiting = self.probing = self.offered = 0
        self.become_ready(self.prefetched)
        self.offered = self.prefetched = 0
        self.demand.failed()

    @rule()
    def the_session_is_lost(self):
        self.exchange = None
        self.hints = self.offered = self.remembered = 0
        self.ready += self.prefetched
        self.prefetched = 0
        self.demand.session_lost()

    # what always holds

    @invariant()
    def numbers_are_in_their_bounds(self):
        if not hasattr(self, "demand"):
            return
        demand = self.demand
        assert 0 <= demand.registered <= demand.advertised <= CAP
        assert 0 <= demand.promised <= CAP
        assert demand.prefetch_window >= 0
        assert self.prefetched <= demand.prefetch

    @invariant()
    def nobody_waits_in_vain(self):
        if not hasattr(self, "demand") or self.exchange is not None or self.hints or self.probing:
            return
        if self.demand.is_needed(self.waiting):
            return
        # all is quiet: the engine hints whoever waits, has nothing for them, and everything it offered was asked for
        assert self.remembered >= min(self.waiting, CAP)
        assert self.ready == 0 or not self.waiting
        assert self.offered == 0


Walk.TestCase.settings = settings(max_examples=depth.share(75), stateful_step_count=40)
test_no_taker_is_forgotten_and_no_offer_declined_in_silence = Walk.TestCase


def answered(demand, tasks, *, waiting=1, prefetched=0):
    want = demand.ask(waiting, probing=0, prefetched=prefetched)
    demand.answered(min(tasks, want), usable=True)
    return want


def test_tasks_that_were_offered_before_an_answer_are_asked_for_when_the_hint_comes_after_it():
    demand = Demand()
    answered(demand, 0, waiting=2)
    # one taker leaves, and the engine offers two tasks; the other taker takes one of them
    assert demand.ask(1, probing=1, prefetched=0) == 1
    demand.answered(1, usable=True)
    demand.hinted(busy=False)
    assert demand.is_needed(0)
    assert demand.ask(0, probing=0, prefetched=0) == 1
    demand.answered(0, usable=True)
    assert not demand.is_needed(0)


def test_the_window_grows_while_exchanges_bring_all_they_ask_for():
    demand = Demand()
    demand.prefetch = 5
    assert [answered(demand, 100) for _ in range(5)] == [1, 2, 4, 6, 6]
    assert answered(demand, 3) == 6
    assert answered(demand, 3) == 1


def test_what_is_prefetched_already_is_not_asked_for_again():
    demand = Demand()
    demand.prefetch = 5
    for _ in range(4):
        answered(demand, 100)
    assert answered(demand, 100, prefetched=2) == 4


def test_prefetching_advertises_nothing():
    demand = Demand()
    demand.prefetch = 1
    assert demand.ask(3, probing=0, prefetched=0) == 3
    assert demand.advertising
    demand.answered(3, usable=True)
    assert demand.ask(3, probing=0, prefetched=0) == 4
    assert not demand.advertising


def test_one_try_advertises_nothing():
    demand = Demand()
    demand.ask(2, probing=2, prefetched=0)
    assert not demand.advertising
    assert demand.answered(0, usable=True) == 0
    assert (demand.advertised, demand.registered) == (0, 0)


def test_takers_of_a_lost_session_are_not_registered():
    demand = Demand()
    demand.ask(3, probing=0, prefetched=0)
    assert demand.answered(1, usable=False) == 2
    assert (demand.advertised, demand.registered) == (0, 0)


def test_a_promise_is_kept_when_its_takers_have_left():
    demand = Demand()
    answered(demand, 0, waiting=3)
    demand.hinted(busy=False)
    assert demand.is_needed(0)
    assert demand.ask(0, probing=0, prefetched=0) == 3


def test_a_hint_that_overtakes_the_answer():
    demand = Demand()
    answered(demand, 0, waiting=5)
    demand.ask(2, probing=0, prefetched=0)
    demand.hinted(busy=True)
    assert demand.answered(2, usable=True) == 0
    assert demand.promised == 3
    assert demand.registered == 0


def numbers(demand):
    return demand.advertised, demand.registered, demand.promised, demand.requested


def advertising(takers, *, registered=True):
    """One whose engine counts on so many takers."""
    demand = Demand()
    demand.ask(takers, probing=0, prefetched=0)
    demand.answered(0, usable=True)
    if not registered:
        demand.registered = 0
    return demand


def asking(takers, *, before=0, hints=0):
    """One with an exchange on its way, behind which so many hints have come."""
    demand = advertising(before) if before else Demand()
    demand.ask(takers, probing=0, prefetched=0)
    for _ in range(hints):
        demand.hinted(busy=True)
    return demand


# by the row of the table: before, what happens, and (advertised, registered, promised, requested) afterwards
ROWS = {
    "an exchange leaves": (advertising(3), lambda d: d.ask(5, probing=0, prefetched=0), (3, 3, 0, 5)),
    "its answer": (asking(5), lambda d: d.answered(2, usable=True), (3, 3, 0, 5)),
    "its answer, with all": (asking(5), lambda d: d.answered(5, usable=True), (0, 0, 0, 5)),
    "its answer after a hint": (
        asking(2, before=5, hints=1),
        lambda d: d.answered(2, usable=True),
        (0, 0, 3, 2),
    ),
    "its answer after a hint, and idle": (
        asking(5, hints=2),
        lambda d: d.answered(1, usable=True),
        (0, 0, 4, 5),
    ),
    "its answer after a hint, unusable": (
        asking(5, hints=1),
        lambda d: d.answered(1, usable=False),
        (0, 0, 4, 5),
    ),
    "its answer for a lost session": (asking(5), lambda d: d.answered(1, usable=False), (0, 0, 0, 5)),
    "a hint": (advertising(3), lambda d: d.hinted(busy=False), (0, 0, 3, 3)),
    "a hint for the unregistered": (
        advertising(3, registered=False),
        lambda d: d.hinted(busy=False),
        (0, 0, 3, 3),
    ),
    "two hints": (advertising(3), lambda d: [d.hinted(busy=False) for _ in range(2)], (0, 0, 3, 3)),
    "a hint, exchange on its way": (asking(2, before=4), lambda d: d.hinted(busy=True), (4, 4, 0, 2)),
    "an exchange has failed": (asking(2, before=4), Demand.failed, (4, 0, 0, 2)),
    "the session is lost": (asking(2, before=4), Demand.session_lost, (0, 0, 0, 2)),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_of_the_table(row):
    before, happens, after = ROWS[row]
    demand = copy(before)
    happens(demand)
    assert numbers(demand) == after


def test_a_failure_and_a_lost_session_end_what_was_promised():
    for happens in (Demand.failed, Demand.session_lost):
        demand = advertising(3)
        demand.hinted(busy=False)
        happens(demand)
        assert not demand.is_needed(0)


def test_a_hint_is_noted_for_one_answer_only():
    demand = asking(2, before=5, hints=1)
    demand.answered(2, usable=True)
    demand.ask(3, probing=0, prefetched=0)
    assert demand.answered(0, usable=True) == 3
    assert numbers(demand) == (3, 3, 0, 3)


def test_it_asks_for_more_takers_than_are_registered():
    demand = advertising(3)
    assert not demand.is_needed(3)
    assert demand.is_needed(4)
    assert demand.is_needed(1) is False
    assert advertising(3, registered=False).is_needed(1)
    assert not advertising(CAP).is_needed(CAP + 1)


@pytest.mark.parametrize("ended_by", ["asking", "a failure"])
def test_lost_hints_are_made_up_for_once(ended_by):
    demand = advertising(3)
    demand.reask = True
    assert demand.is_needed(0)
    if ended_by == "asking":
        assert demand.ask(0, probing=0, prefetched=0) == 0
    else:
        demand.failed()
    assert not demand.is_needed(0)


def test_an_exchange_that_asks_for_nothing_leaves_the_window():
    demand = Demand()
    demand.prefetch = 5
    for _ in range(2):
        answered(demand, 100)
    assert demand.prefetch_window == 3
    answered(demand, 0, waiting=0, prefetched=3)
    assert demand.prefetch_window == 3


def test_no_exchange_asks_for_more_than_the_cap():
    demand = Demand()
    demand.prefetch = 100
    for _ in range(8):
        answered(demand, CAP, waiting=CAP + 10)
    assert demand.requested == CAP
    demand.hinted(busy=False)
    assert demand.ask(CAP + 10, probing=0, prefetched=0) == CAP


def test_one_try_beside_takers_that_wait_advertises_all_that_it_asks_for():
    demand = Demand()
    assert demand.ask(3, probing=1, prefetched=0) == 3
    assert demand.advertising


def test_the_window_never_exceeds_what_may_be_prefetched_now():
    demand = Demand()
    demand.prefetch = 5
    for _ in range(4):
        answered(demand, 100)
    demand.prefetch = 2
    assert answered(demand, 100) == 3
    assert demand.prefetch_window == 2
