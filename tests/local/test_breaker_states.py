"""The states of a breaker against a model that knows every call and tries out every ending."""

from itertools import pairwise, product
from math import inf

import depth
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenure.local._breaker_settings import Settings
from tenure.local._breaker_states import States

ANY_TIME = -1e6
MARKS = list(product([False, True], repeat=2))


def some_settings(**given):
    plain = {
        "failure_rate": 0.5,
        "slow_call_rate": 1.0,
        "slow_call_seconds": 60.0,
        "window": 4,
        "window_seconds": None,
        "min_calls": 2,
        "open_seconds": 60.0,
        "open_factor": 1.0,
        "max_open_seconds": None,
        "probes": 2,
        "probe_seconds": 60.0,
    }
    return Settings(**(plain | given))


class Model:
    """Remembers everything and computes nothing ahead. Times are whole seconds."""

    def __init__(self, given):
        self.given = given
        self.now = 0
        self.refused = self.dropped = self.opened = self.streak = 0
        self.became("closed")

    def became(self, state):
        self.state = state
        self.life = object()  # nobody else's
        self.since = self.now
        self.outcomes = []
        self.probes = []
        if state in {"open", "half_open"}:
            return
        self.streak = 0

    def open_for(self):
        seconds = self.given.open_seconds * self.given.open_factor ** (self.streak - 1)
        return min(seconds, self.given.max_open_seconds or inf)

    def bad(self, outcomes):
        failures = sum(failed for failed, _ in outcomes)
        slow = sum(slow for _, slow in outcomes)
        return (
            failures >= self.given.failure_rate * len(outcomes) - 1e-9
            or slow >= self.given.slow_call_rate * len(outcomes) - 1e-9
        )

    def admit(self):
        if self.state == "open" and self.now - self.since >= self.open_for():
            self.became("half_open")
        if self.state in {"closed", "metrics_only", "disabled"}:
            return (self.life, self.now)
        if self.state == "half_open":
            self.probes = [p for p in self.probes if self.now - p[1] < self.given.probe_seconds]
            if len(self.probes) + len(self.outcomes) < self.given.probes:
                self.probes.append((object(), self.now))
                return self.probes[-1]
        self.refused += 1
        return None

    def settle(self, call, failed):
        outcome = (failed, self.now - call[1] > self.given.slow_call_seconds)
        if call in self.probes:
            self.probes.remove(call)
            if failed is not None:
                self.outcomes.append(outcome)
                self.decide()
        elif failed is None:
            pass
        elif call[0] is not self.life:
            self.dropped += 1
        elif self.state != "disabled":
            self.outcomes.append(outcome)
            window = self.outcomes[-self.given.window :]
            enough = min(self.given.min_calls, self.given.window)
            if self.state == "closed" and len(window) >= enough and self.bad(window):
                self.trip()

    def decide(self):
        missing = self.given.probes - len(self.outcomes)
        endings = {self.bad([*self.outcomes, *rest]) for rest in product(MARKS, repeat=missing)}
        if endings == {True}:
            self.trip()
        elif endings == {False}:
            self.became("closed")

    def trip(self):
        self.opened += 1
        self.streak += 1
        self.became("open")

    def retry_after(self):
        if self.state == "open":
            return max(0, self.since + self.open_for() - self.now)
        if self.state == "half_open" and self.probes:
            return max(0, self.probes[0][1] + self.given.probe_seconds - self.now)
        return inf


class Walk(RuleBasedStateMachine):
    """Calls come and end in any order, while time passes and somebody plays with the switches."""

    @initialize(
        failure_rate=st.sampled_from([0.3, 0.5, 0.55, 1.0]),
        slow_call_rate=st.sampled_from([0.5, 1.0]),
        slow_call_seconds=st.sampled_from([3.0, inf]),
        window=st.integers(1, 5),
        min_calls=st.integers(1, 6),
        open_factor=st.sampled_from([1.0, 2.0]),
        max_open_seconds=st.sampled_from([None, 15.0]),
        probes=st.integers(1, 3),
    )
    def make(self, **drawn):
        given = some_settings(**drawn, open_seconds=5.0, probe_seconds=4.0)
        self.model = Model(given)
        self.changes = []
        self.states = States(given, lambda old, new: self.changes.append((old, new)))
        self.calls = []

    @rule()
    def come(self):
        since = self.model.now if self.states.timed else ANY_TIME
        expected, permit = self.model.admit(), self.states.admit(since)
        assert bool(permit) == (expected is not None)
        if permit:
            # a disabled breaker does not ask what became of a call, so it drops nothing
            self.calls.append((permit, since, expected, self.model.state == "disabled"))
        assert self.states.retry_after(self.model.now) == pytest.approx(self.model.retry_after())

    @rule(failed=st.booleans(), times=st.integers(1, 6))
    def come_and_go(self, failed, times):
        for _ in range(times):
            known = len(self.calls)
            self.come()
            if len(self.calls) > known:
                self.end(self.calls.pop(), failed)

    @rule(times=st.integers(1, 4))
    def come_when_it_may_be_half_open(self, times):
        if self.model.retry_after() < inf:
            self.model.now += int(self.model.retry_after())
        for _ in range(times):
            self.come()

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), failed=st.sampled_from([True, True, False, False, None]))
    def go(self, data, failed):
        self.end(self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1))), failed)

    def end(self, come, failed):
        permit, since, call, unseen = come
        timed = self.states.timed or failed or self.states.window.failures
        self.states.settle(permit, since, self.model.now if timed else ANY_TIME, failed)
        if not unseen:
            self.model.settle(call, failed)

    @rule(seconds=st.sampled_from([1, 1, 3, 4, 5, 10]))
    def wait(self, seconds):
        self.model.now += seconds

    @precondition(lambda self: len(self.calls) % 3 == 2)  # not too often
    @rule(state=st.sampled_from(["closed", "closed", "forced_open", "disabled", "metrics_only"]))
    def switch(self, state):
        self.states.change(state)
        self.model.became(state)

    @invariant()
    def they_agree(self):
        if not hasattr(self, "model"):
            return
        model, states = self.model, self.states
        assert states.state == model.state
        assert (states.refused, states.dropped, states.opened) == (model.refused, model.dropped, model.opened)
        assert len(states.probes) == len(model.probes) <= model.given.probes
        if model.state != "open":
            window = model.outcomes if model.state == "half_open" else model.outcomes[-model.given.window :]
            assert states.window.calls == len(window)
            assert states.window.failures == sum(bool(failed) for failed, _ in window)
            assert states.window.slow == sum(slow for _, slow in window)
        assert all(old != new for old, new in self.changes)
        assert all(before[1] == after[0] for before, after in pairwise(self.changes))


Walk.TestCase.settings = settings(max_examples=depth.share(150), stateful_step_count=40)
test_the_states_are_those_of_the_model = Walk.TestCase


def tripped(**given):
    """An open breaker at 0 s, and its clock."""
    states = States(some_settings(window=1, min_calls=1, **given), lambda *_: None)
    states.settle(states.admit(0.0), 0.0, 0.0, True)
    assert states.state == "open"
    return states


# sums of these are rounded down
BEGAN, ASKED = 0.3516783488339068, 8.718575729783733


def test_one_that_waits_for_retry_after_does_not_come_too_early():
    states = States(some_settings(window=1, min_calls=1, open_seconds=60.0), lambda *_: None)
    states.settle(states.admit(BEGAN), BEGAN, BEGAN, True)
    now = BEGAN + ASKED
    assert not states.admit(now)
    assert now + states.retry_after(now) < BEGAN + 60.0
    assert states.admit(now + states.retry_after(now))


def test_one_that_waits_for_the_place_of_a_probe_does_not_come_too_early():
    states = tripped(probes=1, open_seconds=0.1, probe_seconds=60.0)
    assert states.admit(BEGAN)
    now = BEGAN + ASKED
    assert not states.admit(now)
    assert now + states.retry_after(now) < BEGAN + 60.0
    assert states.admit(now + states.retry_after(now))


def test_a_clock_that_steps_back_never_makes_it_stay_open_for_longer_than_was_meant():
    states = States(some_settings(window=1, min_calls=1, open_seconds=60.0), lambda *_: None)
    states.settle(states.admit(22_000.0), 22_000.0, 22_000.0, True)
    assert not states.admit(5.0)
    assert states.retry_after(5.0) == 60.0
    assert not states.admit(64.0)
    assert states.admit(65.0)
