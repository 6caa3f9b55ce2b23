"""Every scenario on every engine: under many schedules, and cancelled at every moment.

TENURE_EXPLORE_SEEDS=5000 python -m pytest --timeout=0 -o faulthandler_timeout=0 tests/explored
"""

from __future__ import annotations

import os

import depth
import pytest
from explored.catalogue import scenarios
from explored.world import world

from tenure.testing import cancel_everywhere, explore

SEEDS = int(os.environ.get("TENURE_EXPLORE_SEEDS") or (10 if depth.full else 2))
LONG = SEEDS >= 200
# A file takes about five times as long as memory.
SHARE = {"sqlite": 5}
CANCELLED_ON = (None, "memory", "wire", *(["sqlite"] if LONG else []))


LARGEST = {
    "a_call_goes_on_while_anybody_waits_for_it",
    "a_failed_child_ends_its_siblings_and_its_parents_try",
    "a_paused_queue_gives_out_nothing",
    "a_priority_queue_loses_no_item",
    "a_store_ends_clean_whenever_it_is_cancelled",
    "a_tree_is_worked_off_whichever_worker_is_cancelled",
    "all_who_wait_for_a_result_get_it",
    "all_who_wait_for_the_end_see_it",
    "batches_of_a_cancelled_worker_go_to_others",
    "calls_are_made_with_their_arguments",
    "calls_run_in_the_block_of_their_flight",
    "claimers_get_what_they_ask_for",
    "each_follower_sees_the_last_report_and_the_end",
    "each_try_has_one_event_with_its_error",
    "each_try_has_one_span_that_ends_once",
    "groups_have_their_shares_in_each_window",
    "idle_ones_are_checked_and_evicted",
    "many_are_put_in_portions_and_the_cursor_with_the_last",
    "no_more_of_a_group_are_at_work_than_its_limit",
    "nobody_waits_behind_a_batch_that_has_begun",
    "of_what_is_put_with_one_key_the_last_is_done_in_each_window",
    "producers_of_a_full_group_wait_and_others_pass",
    "readers_share_and_writers_do_not",
    "several_run_a_schedule",
    "tasks_of_a_cancelled_worker_go_to_others",
    "the_tasks_of_a_group_end_in_their_order",
    "threads_map_keeps_account_of_all_items",
    "what_blocks_and_checks_raise_is_reported_once",
    "what_is_fetched_ahead_is_done_or_given_back",
    "what_is_superseded_never_comes_after_its_successor",
    "what_is_taken_is_done_or_given_back",
    "what_the_hooks_of_pools_raise_is_reported",
    "what_was_booked_is_given_back",
}
"""What takes the longest to be cancelled everywhere, for --full."""

LARGE = LARGEST | {
    "a_keyed_pool_that_is_drained_closes_everything",
    "a_pool_loses_no_slot",
    "a_pool_that_is_drained_or_cancelled_closes_everything",
    "a_queue_loses_no_item",
    "keys_compete_for_slots_and_lose_none",
    "what_fails_its_check_is_passed_over",
}
"""What has too many places to be cancelled in each of them on a wire as well."""
LOOPS = ("asyncio", "trio")


def entries(engines=(None, "memory", "wire", "faults", "sqlite"), full=(), not_on_wire=()):
    """A parameter for each scenario on each of these engines that it is for; None: it needs no engine.

    Those that `full` names, scenarios or engines, are for --full, and so is a wire for what runs on one with faults.
    The scenarios that `not_on_wire` names are left out there.
    """
    return pytest.mark.parametrize(
        ("scenario", "engine"),
        [
            pytest.param(
                scenario,
                engine,
                id=f"{scenario}-{engine}" if engine else str(scenario),
                marks=[pytest.mark.full]
                if {engine, str(scenario)} & set(full) or (engine == "wire" and "faults" in scenario.engines)
                else [],
            )
            for scenario in scenarios()
            for engine in scenario.engines or [None]
            if engine in engines and (engine != "wire" or str(scenario) not in not_on_wire)
        ],
    )


def on(engine, scenario, seed=0):
    """The scenario as a function without arguments, which makes its world anew in each run."""

    async def run():
        if engine is None:
            await scenario.run()
        else:
            with world(engine, seed) as made:
                await scenario.run(made)

    return run


@entries()
def test_explored(scenario, engine):
    for seed in range(max(1, SEEDS // SHARE.get(engine, 1))):
        # one seed for the schedule and the faults, and one loop for each, but for long and full runs
        explore(
            on(engine, scenario, seed),
            seeds=[seed],
            backends=backends(scenario, seed, both=LONG or depth.full),
        )


def backends(scenario, seed=0, *, both):
    return LOOPS if both else [LOOPS[(scenarios().index(scenario) + seed) % 2]]


# a large one has hundreds of places in memory, and several times as many on a wire; the longest takes 5 s
@pytest.mark.timeout(400)
@entries(CANCELLED_ON, full=["wire", *LARGEST], not_on_wire=() if LONG else LARGE)
def test_cancelled_everywhere(scenario, engine):
    natively = LONG or (depth.full and engine != "wire")
    kind = True if natively else "scope"
    cancel_everywhere(on(engine, scenario), backends=backends(scenario, both=LONG), cancel=kind)
