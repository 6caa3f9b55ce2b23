"""Machines whose rules run at once: what they break is found, shortened and repeated."""

from __future__ import annotations

import math
import re

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tenure.testing import (
    Machine,
    ScheduleFailed,
    at_rest,
    cancel_everywhere,
    explore,
    invariant,
    replay,
    rule,
    run,
)

BACKENDS = ("asyncio", "trio")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


class Places(Machine):
    """Two places; a user takes one or both, and waits until so many are free."""

    def __init__(self):
        self.free, self.inside, self.line = 2, 0, []

    async def taken(self):
        """Called between taking places and using them."""

    @rule(places=(1, 2))
    async def use(self, places):
        while self.free < places:
            self.line.append(event := anyio.Event())
            await event.wait()
        self.free -= places
        await self.taken()
        self.inside += places
        try:
            await anyio.sleep(1)
        finally:
            self.free += places
            self.inside -= places
            for event in self.line:
                event.set()
            self.line.clear()

    @invariant
    def no_more_than_two_are_inside(self):
        assert self.inside <= 2

    @at_rest
    def both_are_free(self):
        assert self.free == 2, f"{self.free} of 2 are free"


class Forgetful(Places):
    """A user that is cancelled between taking places and using them keeps them."""

    async def taken(self):
        await checkpoint()


class Narrow(Places):
    @invariant
    def no_more_than_one_is_inside(self):
        assert self.inside <= 1, "two"


def test_what_is_right_passes_under_every_schedule():
    found = explore(Places.scenario, seeds=50)
    assert found.runs == 100
    assert min(found.interleavings.values()) > 40
    assert set(cancel_everywhere(Places.scenario).windows) == {"W1", "W2", "W2N", "W3"}


@each_backend
def test_what_is_wrong_at_rest_is_found_shortened_and_repeated(backend, monkeypatch):
    monkeypatch.setattr("tenure.testing._shrink.BUDGET", math.inf)  # however busy the machine is
    with pytest.raises(ScheduleFailed, match="of 2 are free") as failure:
        explore(Forgetful.scenario, backends=[backend])
    assert isinstance(failure.value.__cause__, AssertionError)
    assert "is cancelled" in failure.value.trace
    assert "fails in both_are_free" in failure.value.trace.splitlines()[-1]
    # one task is enough, on asyncio as on trio
    assert len(set(re.findall(r"#\d+ ", failure.value.trace))) <= 4
    for seed in (failure.value.seed, failure.value.schedule):
        with pytest.raises(ScheduleFailed, match="of 2 are free"):
            replay(Forgetful.scenario, seed, backend)
    with pytest.raises(ScheduleFailed, match="of 2 are free"):
        cancel_everywhere(Forgetful.scenario, backends=[backend])


@each_backend
@pytest.mark.parametrize("way", ["scope", "native"])
def test_a_rule_is_cancelled_in_both_ways(backend, way):
    if (backend, way) == ("trio", "native"):
        pytest.skip("trio has scopes alone")
    with pytest.raises(ScheduleFailed, match="of 2 are free|Deadlock") as failure:
        explore(Forgetful.scenario, seeds=1000, backends=[backend], cancel=way)
    assert ("natively" in failure.value.trace) == (way == "native")


@each_backend
def test_an_invariant_is_checked_between_any_two_steps(backend):
    with pytest.raises(ScheduleFailed, match="^AssertionError: two\n") as failure:
        explore(Narrow.scenario, backends=[backend], cancel=False)
    last = failure.value.trace.splitlines()[-1]
    assert "fails in no_more_than_one_is_inside" in last
    assert f"\non {backend}, 1 switches: main#0, use(places=2)#1\n" in str(failure.value)


@each_backend
def test_a_broken_invariant_ends_the_run_before_rules_hide_it(backend):
    class Waits(Narrow):
        async def taken(self):
            await checkpoint()

        @at_rest
        def fails_as_well(self):
            raise LookupError("later")

    with pytest.raises(ScheduleFailed, match="^AssertionError: two\n"):
        explore(Waits.scenario, seeds=range(3, 4), backends=[backend], cancel=False)


@each_backend
def test_the_error_of_a_rule_is_found(backend):
    class Fails(Machine):
        @rule()
        async def use(self):
            await checkpoint()
            raise LookupError("the rule")

    with pytest.raises(ScheduleFailed, match="^LookupError: the rule\n"):
        explore(Fails.scenario, backends=[backend])


def test_rules_have_conditions_and_may_be_left_uncancelled():
    cancelled = []

    class Counter(Machine):
        tasks, steps = 2, 5

        def __init__(self):
            self.count = 0

        @rule(when=lambda machine: machine.count > 0)
        async def take(self):
            assert self.count > 0
            self.count -= 1
            await checkpoint()

        @rule(cancel=False)
        async def put(self):
            self.count += 1
            try:
                await checkpoint()
            except BaseException:
                cancelled.append(anyio.current_effective_deadline())
                raise

        @invariant
        def is_not_negative(self):
            assert self.count >= 0

    explore(Counter.scenario, seeds=100, cancel="scope")
    # only by the cancellation of the scenario as a whole
    assert len(cancelled) < 40


@each_backend
def test_what_must_be_true_at_rest_may_wait(backend):
    asked = []

    class Rests(Machine):
        @rule()
        async def use(self):
            await checkpoint()

        @at_rest
        async def later(self):
            await anyio.sleep(1)
            asked.append(anyio.current_time())

    run(Rests.scenario, backend=backend)
    assert asked == [1]


def test_the_same_seed_has_the_same_program():
    traces = [replay(Places.scenario, seed, "asyncio") for seed in range(10)]
    assert traces == [replay(Places.scenario, seed, "asyncio") for seed in range(10)]
    assert len(set(traces)) > 5


def test_wrong_marks_are_refused():
    with pytest.raises(TypeError, match="^rule: an async method"):
        rule()(lambda self: None)
    with pytest.raises(TypeError, match="^places: a sequence of values"):
        rule(places=2)
    with pytest.raises(TypeError, match="^places: a sequence of values"):
        rule(places="both")

    async def check(self):
        pass

    with pytest.raises(TypeError, match="^invariant: a sync method"):
        invariant(check)
    with pytest.raises(TypeError, match="no method is marked by @rule"):
        run(type("Empty", (Machine,), {}).scenario)
