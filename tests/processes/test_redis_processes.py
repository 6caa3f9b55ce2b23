"""Processes on three loops and one Redis server, with one kind of fault at a time; all: `python -m benchmarks.soak`.

Each trial is judged by the referees, and in the end nothing may be left on the server but numbers.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import depth
import needed
import pytest

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.soak.fleet import Fleet
from benchmarks.soak.trial import Trial

AOF = ("--appendonly", "yes", "--appendfsync", "always")

# what they do is on several loops; the one that watches needs no more than one
pytestmark = [pytest.mark.backends("asyncio"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.close()


@pytest.fixture
def trial(fleet, own_redis_server, tmp_path):
    """A trial in which these faults happen."""

    def make(*faults, **options):
        server = own_redis_server(*AOF)
        return Trial(server, fleet, tmp_path, random.Random(), faults=dict.fromkeys(faults, 1), **options)

    return make


@pytest.mark.parametrize(
    ("number", "faults"),
    [
        (12, ("kill_process",)),
        pytest.param(*(3, ("freeze_server", "freeze_server_for_long")), marks=pytest.mark.full),
        (12 if depth.full else 4, ("block_process",)),
        (3, ("restart_server",)),
        pytest.param(*(15, ("kill_connections", "kill_subscriptions")), marks=pytest.mark.full),
        pytest.param(*(10, ("pause_clients", "forget_scripts")), marks=pytest.mark.full),
        pytest.param(*(5, ("run_out_of_memory",)), marks=pytest.mark.full),
        (20, ("lose_reply", "cut_within")),
        pytest.param(*(5, ("vanish", "slow_down", "refuse", "cut")), marks=pytest.mark.full),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
async def test_nothing_is_held_by_two_nor_lost_nor_left(trial, number, faults):
    verdict = await trial(*faults).run(number)
    assert verdict.violations == []
    assert verdict.suffered.total() == number


async def test_a_frozen_process_is_not_waited_for_and_has_no_say_afterwards(trial):
    verdict = await trial("freeze_process", pause=0.4).run(6, *["freeze_holder"] * 4)
    assert verdict.violations == []
    assert verdict.seen["holds not compared"]


@pytest.mark.full
async def test_when_the_clock_of_the_server_leaps_fences_keep_order(trial):
    verdict = await trial("leap", clock=True).run(10)
    assert verdict.violations == []


async def test_processes_that_wait_for_room_in_a_full_queue_come_to_an_end(trial):
    full = trial(roles=("lock", *("put",) * 4))
    verdict = await full.run(0)
    assert verdict.violations == []
    assert full.statistics["jobs"].put == 30


async def test_when_the_server_loses_its_data_fences_keep_order(trial):
    verdict = await trial("lose_everything", roles=("lock",) * 4).run(5)
    assert verdict.violations == []


@pytest.mark.full
async def test_first_come_first_served_whatever_becomes_of_the_link(trial):
    faults = (
        "kill_connections",
        "kill_subscriptions",
        "pause_clients",
        "forget_scripts",
        "lose_reply",
        "cut",
    )
    verdict = await trial(*faults, roles=("line", "lock"), ttl=30).run(20)
    assert verdict.violations == []
    assert verdict.seen["places"] > 3


# whether somebody comes in while a cheat holds on is a matter of luck, on a busy machine more so
@pytest.mark.skipif("TENURE_LONG" not in os.environ, reason=needed.LONG)
async def test_holding_on_to_what_was_lost_is_detected(trial):
    cheating = trial("freeze_server_for_long", roles=("lock", "permits", "permits"), cheats=True)
    verdict = await cheating.run(8)
    assert any("held by two at once" in text for text in verdict.violations)
    assert any("permits: " in text and "are held at once" in text for text in verdict.violations)
