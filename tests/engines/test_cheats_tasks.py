"""Engines that cheat those who put, take, settle and claim: one broken rule each, and the tests that catch them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial

import pytest

from tenure import engine as e
from tenure.engines.memory import MemoryEngine
from tenure.testing.contract import EngineContract
from tenure.testing.contract._clerk import ClerkBase

CHEATS = []


def caught_by(test, **arguments):
    """The test of the contract that finds the cheat out; a cheat changes a fresh engine."""

    def register(cheat):
        name = f"{cheat.__name__}-{len(CHEATS)}"
        CHEATS.append(pytest.param(cheat, test, arguments, id=name))
        return cheat

    return register


def asked(engine, kind, change):
    """Operations of this kind are changed before they are applied."""
    handle = engine._handlers[kind]
    engine._handlers[kind] = lambda op: handle(change(op))


def answered(engine, kind, change):
    """Answers to operations of this kind are changed, unless they are a mere reply."""
    handle = engine._handlers[kind]

    def answer(op):
        was = handle(op)
        return was if isinstance(was, e.Reply) else change(was)

    engine._handlers[kind] = answer


def instead(thing, name, function):
    """A method is replaced by a function, which gets the method and then its arguments."""
    setattr(thing, name, partial(function, getattr(thing, name)))


# ---------------------------------------------------------------------------------------------- putting


@caught_by("test_duplicates_within_a_request_and_within_a_batch")
@caught_by("test_a_duplicate_is_refused_and_told_which_task_has_its_key")
def forgets_keys(engine):
    instead(
        engine._tasks,
        "_accept",
        lambda accept, queue, request: (queue.keys.clear(), accept(queue, request))[1],
    )
    asked(
        engine,
        e.Put,
        lambda op: replace(
            op,
            requests=tuple(
                r._replace(
                    tasks=tuple(t._replace(key=t.key and f"{t.key} {i}") for i, t in enumerate(r.tasks))
                )
                for r in op.requests
            ),
        ),
    )


@caught_by("test_a_duplicate_is_refused_and_told_which_task_has_its_key")
@caught_by("test_a_stranded_task_keeps_its_key")
def frees_the_keys_of_leased_tasks(engine):
    def take(take, queue, session, task, op):
        queue.keys.pop(task.key, None)
        task.key = None
        return take(queue, session, task, op)

    instead(engine._tasks, "_take", take)


@caught_by("test_a_key_is_free_again_when_its_task_has_ended", ending="done")
@caught_by("test_a_key_is_free_again_when_its_task_has_ended", ending="expired")
def never_frees_a_key(engine):
    def remove(remove, queue, task):
        remove(queue, task)
        if task.key is not None:
            queue.keys[task.key] = task.id

    instead(engine._tasks, "_remove", remove)


@caught_by("test_a_task_that_nobody_takes_expires")
def nothing_expires(engine):
    engine._tasks._expiring = type("Nowhere", (list,), {"__bool__": lambda self: False})()


@caught_by("test_a_task_that_was_taken_in_time_does_not_expire")
def expires_what_is_leased(engine):
    def clear_up(clear_up):
        for queue in engine._tasks._queues.values():
            for task in list(queue.tasks.values()):
                if task.session and task.expires is not None and task.expires <= engine._state.now:
                    engine._tasks._unlease(queue, task)
                    engine._tasks._end(queue, task, "expired", b"", None)
        clear_up()

    instead(engine._tasks, "clear_up", clear_up)


@caught_by("test_a_full_queue_refuses_those_who_do_not_wait")
def counts_only_what_waits_against_the_size(engine):
    engine._tasks._room = lambda queue: queue.max_size - queue.waiting - queue.reserved_slots


@caught_by("test_a_request_is_accepted_whole_or_not_at_all")
def puts_what_fits(engine):
    def put(put, queue, session, request):
        room = engine._tasks._room(queue)
        if 0 < room < len(request.tasks):
            engine._tasks._accept(queue, request._replace(tasks=request.tasks[:room]))
        return put(queue, session, request)

    instead(engine._tasks, "_put", put)


@caught_by("test_nobody_takes_what_is_reserved_or_passes_those_who_wait")
def gives_reserved_slots_away(engine):
    engine._tasks._room = lambda queue: queue.max_size - len(queue.tasks)


@caught_by("test_nobody_takes_what_is_reserved_or_passes_those_who_wait")
def small_producers_pass_large_ones(engine):
    def admit(admit, queue):
        admit(queue)
        for producer in list(queue.producers.values()):
            if producer.count <= engine._tasks._room(queue):
                queue.producers.move_to_end(producer.name, last=False)
                admit(queue)

    instead(engine._tasks, "_admit", admit)


@caught_by("test_every_ending_makes_room", ending="done")
@caught_by("test_whoever_leaves_lets_the_next_go_in")
@caught_by("test_the_place_of_a_dead_producer_goes_to_the_next", how="expired", place="reserved")
def room_is_there_for_newcomers_only(engine):
    engine._tasks._admit = lambda queue: None


@caught_by("test_the_place_of_a_dead_producer_goes_to_the_next", how="closed", place="waiting")
def dead_producers_keep_their_place(engine):
    engine._sessions._drop["producers"] = lambda session, thing: None


@caught_by("test_a_cursor_is_stored_with_its_tasks_or_not_at_all")
def stores_the_cursor_of_the_refused(engine):
    def put(put, queue, session, request):
        if request.cursor:
            queue.cursors[request.cursor[0]] = request.cursor[1]
        return put(queue, session, request)

    instead(engine._tasks, "_put", put)


# ---------------------------------------------------------------------------------------------- sending again


@caught_by("test_a_batch_that_is_sent_again_is_put_once")
@caught_by("test_an_exchange_that_is_sent_again_takes_nothing_more")
@caught_by("test_a_verdict_that_is_sent_again_counts_once")
@caught_by("test_no_task_is_lost_doubled_or_miscounted", seed=0)
def what_is_sent_again_is_done_again(engine):
    engine._state.cache_reply = lambda *args: None


@caught_by("test_answers_are_remembered_for_each_session_and_queue")
def answers_are_remembered_for_each_session_only(engine):
    state = engine._state
    instead(
        state,
        "cached_reply",
        lambda cached_reply, session, n, name: cached_reply(session, n, name.split()[0]),
    )
    instead(
        state,
        "cache_reply",
        lambda cache_reply, session, n, name, a: cache_reply(session, n, name.split()[0], a),
    )


@caught_by("test_an_unknown_session_puts_nothing")
@caught_by("test_an_unknown_session_takes_and_settles_nothing")
@caught_by("test_an_unknown_session_claims_nothing")
def anything_opens_a_session(engine):
    for kind in (e.Put, e.Exchange, e.Claim):
        asked(
            engine,
            kind,
            lambda op: (engine._sessions.open_session(e.OpenSession(op.session, "x", 99.0)), op)[1],
        )


# ---------------------------------------------------------------------------------------------- taking


@caught_by("test_tasks_of_one_priority_are_taken_in_the_order_in_which_they_were_put")
def last_in_first_out(engine):
    answered(engine, e.Exchange, lambda answer: replace(answer, tasks=answer.tasks[::-1]))


@caught_by("test_higher_priorities_come_first")
@caught_by("test_what_a_dead_session_had_comes_back_in_its_old_place", how="closed")
def ignores_priorities(engine):
    def line_up(line_up, task, now):
        task.priority = 0
        line_up(task, now)

    def new_queue(queue, name):
        known = name in engine._tasks._queues
        made = queue(name)
        if not known:
            instead(made, "line_up", line_up)
        return made

    instead(engine._tasks, "_queue", new_queue)


@caught_by("test_a_delayed_task_is_not_taken_before_it_is_due")
@caught_by("test_the_place_of_a_delayed_task_is_when_it_became_due")
def ignores_delays(engine):
    asked(
        engine,
        e.Put,
        lambda op: replace(
            op,
            requests=tuple(
                r._replace(tasks=tuple(t._replace(delay=0.0) for t in r.tasks)) for r in op.requests
            ),
        ),
    )


@caught_by("test_those_who_asked_in_vain_get_a_delayed_task_when_they_were_told_to_ask")
@caught_by("test_stranded_tasks_are_taken_up_when_those_who_wait_were_told_to_ask")
def tells_everybody_to_wait_for_an_hour(engine):
    answered(engine, e.Exchange, lambda answer: replace(answer, ask_again_in=3600.0))


@caught_by("test_old_tasks_come_before_higher_priorities_if_they_age")
def nothing_ages(engine):
    asked(engine, e.Exchange, lambda op: replace(op, aging=None))


@caught_by("test_nobody_has_aged_yet")
def everything_ages_at_once(engine):
    asked(engine, e.Exchange, lambda op: replace(op, aging=op.aging and 0.1))


@caught_by("test_no_task_is_taken_twice")
@caught_by("test_nobody_gets_more_than_he_wants_or_than_there_is")
@caught_by("test_no_task_is_lost_doubled_or_miscounted", seed=1)
def gives_a_task_to_two(engine):
    def take(take, queue, session, task, op):
        taken = take(queue, session, task, op)
        if task.deliveries == 1 and task.id % 5 == 0:
            queue.tasks[task.id] = twin = replace(task, session=None, token=0)
            queue.line_up(twin, engine._state.now)
        return taken

    instead(engine._tasks, "_take", take)


@caught_by("test_each_taking_has_a_higher_token")
@caught_by("test_each_claim_has_a_higher_token")
def tokens_repeat(engine):
    engine._state.token = lambda: 7


@caught_by("test_an_idle_taker_gets_one_hint")
def tells_takers_again_and_again(engine):
    def offer(offer, queue, count):
        takers = list(queue.takers.items())
        offer(queue, count)
        for session, want in takers:
            engine._tasks._register(queue, engine._state.sessions[session], want)

    instead(engine._tasks, "_offer", offer)


@caught_by("test_as_many_idle_takers_are_told_as_are_needed_in_the_order_in_which_they_came")
def tells_all_takers(engine):
    instead(engine._tasks, "_offer", lambda offer, queue, count: offer(queue, count and 999))


@caught_by("test_whatever_becomes_ready_is_offered_to_the_idle", how="retry")
@caught_by("test_whatever_becomes_ready_is_offered_to_the_idle", how="expire")
@caught_by("test_enough_takers_are_told_of_tasks_that_come_back")
def what_comes_back_is_hinted_to_nobody(engine):
    engine._tasks._return = lambda queue, task: queue.line_up(task, engine._state.now)


@caught_by("test_a_task_that_is_due_sooner_is_hinted_to_one_idle_taker", how="put")
def who_waits_sleeps_past_a_task_due_sooner(engine):
    engine._tasks._offer_sooner = lambda queue, due: None


@caught_by("test_who_is_not_idle_is_not_told", how="wants nothing any more")
@caught_by("test_who_is_not_idle_is_not_told", how="does not wait")
def once_idle_always_idle(engine):
    instead(
        engine._tasks,
        "_register",
        lambda register, queue, session, want: want and register(queue, session, want),
    )


@caught_by("test_a_paused_queue_gives_out_nothing_but_takes_verdicts")
def knows_no_pause(engine):
    engine._handlers[e.SetPaused] = lambda op: e.Reply.OK


@caught_by("test_a_thousand_stranded_tasks_come_back_in_short_steps")
def clears_up_without_a_pause(engine):
    engine._state.cap = 10**9


# ---------------------------------------------------------------------------------------------- the dead


@caught_by("test_what_a_dead_session_had_comes_back_in_its_old_place", how="expired")
@caught_by("test_no_task_is_lost_doubled_or_miscounted", seed=2)
def loses_stranded_tasks(engine):
    def drop(drop, thing):
        queue = engine._tasks._queues[thing[0]]
        engine._tasks._unlease(queue, queue.tasks[int(thing[1])], ended=True)
        del queue.tasks[int(thing[1])]

    instead(engine._tasks, "drop", drop)


@caught_by("test_a_thousand_stranded_tasks_come_back_in_short_steps")
def forgets_what_the_cap_left(engine):
    def end_expired(end_expired):
        end_expired()
        if engine._state.unfinished:
            for session in list(engine._state.sessions.values()):
                if session.expires < 0:
                    engine._state.forget(session)

    instead(engine._sessions, "end_expired", end_expired)


@caught_by("test_what_a_dead_session_had_comes_back_in_its_old_place", how="closed")
def what_comes_back_goes_to_the_end(engine):
    def drop(drop, thing):
        engine._tasks._queues[thing[0]].tasks[int(thing[1])].ready_at = engine._state.now
        drop(thing)

    instead(engine._tasks, "drop", drop)


@caught_by("test_attempts_count_failures_and_deliveries_count_takings")
def a_crash_is_an_attempt(engine):
    def drop(drop, thing):
        engine._tasks._queues[thing[0]].tasks[int(thing[1])].attempts += 1
        drop(thing)

    instead(engine._tasks, "drop", drop)


@caught_by("test_only_deliveries_without_a_verdict_bury_a_task", failures=4, crashes=1, dead=False)
def failures_bury_too(engine):
    def drop(drop, thing):
        task = engine._tasks._queues[thing[0]].tasks[int(thing[1])]
        task.max_deliveries -= task.attempts
        drop(thing)

    instead(engine._tasks, "drop", drop)


@caught_by("test_only_deliveries_without_a_verdict_bury_a_task", failures=0, crashes=2, dead=True)
def nothing_is_poison(engine):
    asked(engine, e.Exchange, lambda op: replace(op, max_deliveries=10**6))


# ---------------------------------------------------------------------------------------------- settling


def believes(engine, of_session):
    def settle(settle, queue, session, verdict):
        task = queue.tasks.get(verdict.id)
        if task is not None and task.session is not None and of_session(task, verdict):
            session, verdict = task.session, verdict._replace(token=task.token)
        return settle(queue, session, verdict)

    instead(engine._tasks, "_settle", settle)


@caught_by("test_a_verdict_of_one_whose_session_has_ended_changes_nothing", verdict=e.Verdict.DONE)
@caught_by("test_a_verdict_of_one_whose_session_has_ended_changes_nothing", verdict=e.Verdict.RETRY)
@caught_by("test_the_token_of_an_earlier_delivery_is_refused", first=e.Verdict.GIVE_BACK)
@caught_by("test_no_task_is_lost_doubled_or_miscounted", seed=0)
def believes_any_token(engine):
    believes(engine, lambda task, verdict: True)


@caught_by("test_what_does_not_belong_together_is_refused")
def believes_any_session(engine):
    believes(engine, lambda task, verdict: task.token == verdict.token)


@caught_by("test_a_verdict_of_one_whose_session_has_ended_changes_nothing", verdict=e.Verdict.GIVE_BACK)
def a_refused_verdict_has_an_effect(engine):
    def settle(settle, queue, session, verdict):
        if settle(queue, session, verdict):
            return True
        if verdict.id in queue.tasks:
            queue.tasks[verdict.id].deliveries -= 1
        return False

    instead(engine._tasks, "_settle", settle)


@caught_by("test_one_refusal_stops_no_other_verdict")
def one_refusal_stops_the_rest(engine):
    def exchange(handle, op):
        queue, session = engine._tasks._queue(op.key), engine._state.sessions.get(op.session)
        for i, s in enumerate(op.settle):
            task = queue.tasks.get(s.id)
            if task is None or task.token != s.token or task.session is not session:
                answer = handle(replace(op, settle=op.settle[:i]))
                return replace(answer, refused=tuple(s.token for s in op.settle[i:]))
        return handle(op)

    engine._handlers[e.Exchange] = partial(exchange, engine._handlers[e.Exchange])


@caught_by("test_a_retry_goes_behind_those_that_are_ready")
def a_retry_keeps_its_place(engine):
    def settle(settle, queue, session, verdict):
        task = queue.tasks.get(verdict.id)
        was = task and task.ready_at
        returning = engine._tasks._return

        def back(queue, task):
            task.ready_at = was
            returning(queue, task)

        engine._tasks._return = back
        try:
            return settle(queue, session, verdict)
        finally:
            engine._tasks._return = returning

    instead(engine._tasks, "_settle", settle)


@caught_by("test_a_retry_comes_after_its_pause_and_counts_an_attempt")
def retries_at_once(engine):
    asked(engine, e.Exchange, lambda op: replace(op, settle=tuple(s._replace(delay=0.0) for s in op.settle)))


@caught_by("test_what_is_given_back_is_as_if_it_had_not_been_taken")
@caught_by("test_settling_and_taking_are_one_step")
def what_is_given_back_counts_as_a_failure(engine):
    asked(
        engine,
        e.Exchange,
        lambda op: replace(
            op,
            settle=tuple(
                s._replace(verdict=e.Verdict.RETRY) if s.verdict is e.Verdict.GIVE_BACK else s
                for s in op.settle
            ),
        ),
    )


@caught_by("test_what_is_postponed_comes_after_its_pause_and_counts_nothing")
@caught_by("test_only_deliveries_without_a_verdict_bury_a_task", failures=4, crashes=1, dead=False)
def what_is_postponed_counts_as_a_delivery(engine):
    def counting(settle, queue, session, verdict):
        task = queue.tasks.get(verdict.id)
        if verdict.verdict is e.Verdict.POSTPONE and task is not None:
            task.deliveries += 1
        return settle(queue, session, verdict)

    instead(engine._tasks, "_settle", counting)


@caught_by("test_what_is_postponed_goes_behind_those_that_are_ready")
def what_is_postponed_keeps_its_place(engine):
    asked(
        engine,
        e.Exchange,
        lambda op: replace(
            op,
            settle=tuple(
                s._replace(verdict=e.Verdict.GIVE_BACK) if s.verdict is e.Verdict.POSTPONE else s
                for s in op.settle
            ),
        ),
    )


@caught_by("test_results_are_kept_for_their_time")
def results_are_kept_for_good(engine):
    asked(engine, e.Exchange, lambda op: replace(op, settle=tuple(s._replace(ttl=None) for s in op.settle)))


@caught_by("test_a_watcher_of_a_task_gets_one_hint_when_it_ends", ending="done")
@caught_by("test_a_waiter_for_an_empty_queue_gets_one_hint")
def tells_those_who_watch_twice(engine):
    hint = engine._state.hint

    def twice(process, key, name, news):
        for _ in range(2 if news in (e.Notice.FINISHED, e.Notice.DRAINED) else 1):
            hint(process, key, name, news)

    engine._state.hint = twice


@caught_by("test_a_watcher_of_a_task_gets_one_hint_when_it_ends", ending="purged")
@caught_by("test_a_watcher_of_a_task_gets_one_hint_when_it_ends", ending="buried")
def nobody_hears_of_an_end(engine):
    engine._state.fire = lambda *args: None


@caught_by("test_progress_of_one_who_has_lost_the_task_is_refused")
def anybody_reports_progress(engine):
    def progress(handle, op):
        task = engine._tasks._queue(op.key).tasks.get(op.id)
        return handle(replace(op, token=task.token) if task else op)

    engine._handlers[e.Progress] = partial(progress, engine._handlers[e.Progress])


@caught_by("test_progress_is_there_for_whoever_has_the_task_next")
def progress_is_lost(engine):
    answered(engine, e.Exchange, lambda a: replace(a, tasks=tuple(t._replace(progress=b"") for t in a.tasks)))


@caught_by("test_how_a_task_ends_whose_holder_was_told_to_stop", how=e.Verdict.RETRY, state="cancelled")
@caught_by("test_how_a_task_ends_whose_holder_was_told_to_stop", how="expire", state="cancelled")
@caught_by("test_a_holder_of_a_task_is_hinted_to_stop_it")
def a_request_to_stop_is_forgotten(engine):
    def cancel(handle, op):
        answer = handle(op)
        queue = engine._tasks._queue(op.key)
        for task in queue.tasks.values():
            task.stop = False
        queue.stops.clear()
        return answer

    engine._handlers[e.Move] = partial(cancel, engine._handlers[e.Move])


@caught_by("test_a_task_that_has_ended_cannot_be_cancelled", ending="done")
def what_has_ended_is_cancelled_again(engine):
    def cancel(handle, op):
        queue = engine._tasks._queue(op.key)
        for ended in map(queue.ended.get, op.ids):
            if ended:
                ended.state = "cancelled"
                return e.Changed(1, False)
        return handle(op)

    engine._handlers[e.Move] = partial(cancel, engine._handlers[e.Move])


# ---------------------------------------------------------------------------------------------- looking after queues


@caught_by("test_each_task_counts_in_its_state")
@caught_by("test_no_task_is_lost_doubled_or_miscounted", seed=1)
def counts_one_too_many(engine):
    answered(engine, e.Count, lambda counts: replace(counts, done=counts.done + (counts.done > 0)))


@caught_by("test_purging_takes_what_is_in_these_states", states=frozenset({"waiting", "expired", "dead"}))
def forgets_to_count_what_is_purged(engine):
    answered(engine, e.Count, lambda counts: replace(counts, put=counts.put - counts.purged, purged=0))


@caught_by("test_purging_spares_what_runs")
def purges_what_runs(engine):
    def purge(handle, op):
        queue = engine._tasks._queue(op.key)
        for task in [task for task in queue.tasks.values() if task.session]:
            engine._tasks._unlease(queue, task)
            engine._tasks._remove(queue, task)
        return handle(op)

    engine._handlers[e.Move] = partial(purge, engine._handlers[e.Move])


@caught_by("test_a_requeued_task_begins_anew")
def requeues_with_the_old_attempts(engine):
    def back(back, queue, task):
        task.attempts = 3
        back(queue, task)

    instead(engine._tasks, "_return", back)


@caught_by("test_a_dead_task_whose_key_is_in_use_stays_dead")
def requeues_in_spite_of_the_key(engine):
    def requeue(handle, op):
        engine._tasks._queue(op.key).keys.clear()
        return handle(op)

    engine._handlers[e.Move] = partial(requeue, engine._handlers[e.Move])


@caught_by("test_a_listing_page_by_page", state="ended")
def pages_overlap(engine):
    asked(engine, e.Browse, lambda op: replace(op, after=op.after and str(int(op.after) - 1)))


@caught_by("test_a_listing_page_by_page", state="leased")
@caught_by("test_a_listing_page_by_page", state="waiting")
def pages_leave_out_the_last(engine):
    answered(engine, e.Browse, lambda page: replace(page, records=page.records[: -1 if page.next else None]))


@caught_by("test_dead_tasks_that_stay_dead_are_looked_at_once")
def requeues_from_the_beginning(engine):
    asked(engine, e.Move, lambda op: replace(op, after=0))


@caught_by("test_a_retired_resource_that_is_added_stays_retired")
def revives_whatever_is_added(engine):
    asked(engine, e.AddResource, lambda op: replace(op, revive=True))


@caught_by("test_a_revived_resource_is_as_good_as_new")
def revives_nothing(engine):
    asked(engine, e.AddResource, lambda op: replace(op, revive=False))


# ---------------------------------------------------------------------------------------------- forgetting


@caught_by("test_a_numbered_answer_is_repeated_for_two_ttls_after_the_last_time")
def forgets_answers_after_a_ttl(engine):
    def cache(cache_reply, session, n, name, answer):
        cache_reply(session, n, name, answer)
        engine._state._replies[engine._state.sessions[session].number, name].until -= 1.0

    instead(engine._state, "cache_reply", cache)


@caught_by("test_a_barrier_is_forgotten")
@caught_by("test_the_last_arrival_counts_for_how_long_a_barrier_is_known")
@caught_by("test_a_broken_barrier_is_known_until_it_is_reset")
def never_forgets_a_barrier(engine):
    engine._barriers._find = engine._barriers._barriers.get


@caught_by("test_a_queue_is_forgotten_with_its_last_record")
@caught_by("test_a_queue_is_known_for_two_ttls_after_a_settlement")
@caught_by("test_what_keeps_a_queue")
def never_forgets_a_queue(engine):
    engine._tasks._find = engine._tasks._queues.get


# ---------------------------------------------------------------------------------------------- claims


@caught_by("test_no_resource_is_claimed_twice")
@caught_by("test_whatever_happens_a_resource_has_one_claimer_and_no_match_lies_idle", seed=0)
def lends_a_resource_to_two(engine):
    claims = {}

    def claim(handle, op):
        answer = handle(op)
        if isinstance(answer, e.Claimed):
            claims[op.key] = answer
        elif op.key in claims and answer is not e.Reply.GONE:
            return claims[op.key]
        return answer

    engine._handlers[e.Claim] = partial(claim, engine._handlers[e.Claim])


@caught_by("test_only_what_matches_in_all_fields_is_given")
@caught_by("test_first_come_first_served_among_those_that_match")
def gives_out_whatever_is_there(engine):
    asked(engine, e.Claim, lambda op: replace(op, where=()))


@caught_by("test_only_what_matches_in_all_fields_is_given")
def one_field_is_enough(engine):
    asked(engine, e.Claim, lambda op: replace(op, where=op.where[-1:]))


@caught_by("test_the_preferred_resource_comes_first")
@caught_by("test_preference_goes_before_rest")
def prefers_nothing(engine):
    asked(engine, e.AddResource, lambda op: replace(op, preference=0))


@caught_by("test_of_equal_ones_the_least_recently_used_comes_first")
def prefers_what_was_just_used(engine):
    def free(free, name, pool, item):
        free(name, pool, item)
        item.used = -item.used

    instead(engine._claims, "_free", free)


@caught_by("test_what_a_dead_claimer_had_rests_for_its_quarantine")
@caught_by("test_the_quarantine_of_who_had_to_wait_counts_too")
def skips_the_quarantine(engine):
    asked(engine, e.Claim, lambda op: replace(op, quarantine=0.0))


@caught_by("test_who_gives_back_alive_leaves_no_quarantine")
def quarantines_everybody(engine):
    def free(free, name, pool, item):
        item.rest_until = max(item.rest_until, engine._state.now + item.claim.quarantine)
        free(name, pool, item)

    instead(engine._claims, "_free", free)


@caught_by("test_a_cool_down_keeps_the_resource_back")
def skips_the_cool_down(engine):
    asked(engine, e.EditClaim, lambda op: replace(op, cool_down=None))


@caught_by("test_a_cool_down_is_over_for_the_next_claim")
def cools_down_after_each_claim(engine):
    seconds = {}

    def edit(handle, op):
        seconds[op.key] = op.cool_down or 0.0
        return handle(op)

    def free(free, name, pool, item):
        item.rest_until = engine._state.now + seconds.get(name, 0.0)
        free(name, pool, item)

    engine._handlers[e.EditClaim] = partial(edit, engine._handlers[e.EditClaim])
    instead(engine._claims, "_free", free)


@caught_by("test_a_retired_resource_is_not_given_out")
def retires_nothing(engine):
    asked(engine, e.EditClaim, lambda op: replace(op, retire=None))


@caught_by("test_only_its_claimer_edits_a_claim")
@caught_by("test_what_a_dead_claimer_had_goes_to_the_next", how="expired")
def anybody_edits_a_claim(engine):
    def edit(handle, op):
        pool = engine._claims._pools.get(op.key)
        item = pool and pool.claims.get(op.holder)
        return handle(replace(op, token=item.token) if item else op)

    engine._handlers[e.EditClaim] = partial(edit, engine._handlers[e.EditClaim])


@caught_by("test_what_is_given_back_goes_to_the_first_in_line")
@caught_by("test_what_a_dead_claimer_had_goes_to_the_next", how="closed")
@caught_by("test_a_resource_that_comes_to_match_goes_to_who_waits", how="rested")
@caught_by("test_whatever_happens_a_resource_has_one_claimer_and_no_match_lies_idle", seed=1)
def serves_newcomers_only(engine):
    engine._claims._offer = lambda name, pool, item: None


@caught_by("test_first_come_first_served_among_those_that_match")
def a_claimer_whom_nothing_suits_blocks_the_rest(engine):
    def offer(offer, name, pool, item):
        if pool.waiting and item.matches(next(iter(pool.waiting.values())).where):
            offer(name, pool, item)

    instead(engine._claims, "_offer", offer)


@caught_by("test_first_come_first_served_among_those_that_match")
def serves_the_last_to_come(engine):
    def offer(offer, name, pool, item):
        pool.waiting = type(pool.waiting)(reversed(pool.waiting.items()))
        offer(name, pool, item)
        pool.waiting = type(pool.waiting)(reversed(pool.waiting.items()))

    instead(engine._claims, "_offer", offer)


@caught_by("test_claiming_again_tells_where_one_stands")
def claiming_again_is_another_claim(engine):
    asks = iter(range(999))
    asked(engine, e.Claim, lambda op: replace(op, holder=f"{op.holder} {next(asks)}"))


@caught_by("test_a_claimed_resource_is_removed_when_it_comes_back", how="given back")
def what_is_claimed_cannot_be_removed(engine):
    def remove(handle, op):
        pool = engine._claims._pools.get(op.key)
        return (
            e.Reply.OK if pool and op.resource in pool.items and pool.items[op.resource].claim else handle(op)
        )

    engine._handlers[e.RemoveResource] = partial(remove, engine._handlers[e.RemoveResource])


@caught_by("test_giving_a_resource_back_twice_takes_nothing_from_the_next")
def gives_back_whatever_is_claimed(engine):
    def give_back(handle, op):
        answer = handle(op)
        pool = engine._claims._pools.get(op.key)
        if answer is e.Reply.UNKNOWN and pool and pool.claims:
            return handle(replace(op, holder=next(iter(pool.claims))))
        return answer

    engine._handlers[e.GiveBack] = partial(give_back, engine._handlers[e.GiveBack])


# ---------------------------------------------------------------------------------------------- catching them


class TestCheats(ClerkBase):
    now = 1000.0

    @pytest.fixture
    def engine(self):
        return MemoryEngine(clock=lambda: self.now)

    @pytest.fixture
    def advance(self):
        async def advance(seconds):
            self.now += seconds

        return advance

    @pytest.fixture
    def play(self, clerk, do, hints, advance):
        """Call a test of the contract."""
        fixtures = {"clerk": clerk, "do": do, "hints": hints, "advance": advance}

        async def play(name, arguments):
            test = getattr(EngineContract(), name)
            wanted = inspect.signature(test).parameters
            await test(**{key: fixtures[key] for key in wanted if key in fixtures}, **arguments)

        return play

    @pytest.mark.backends("asyncio")
    @pytest.mark.parametrize(("cheat", "test", "arguments"), CHEATS)
    async def test_a_cheat_is_caught(self, engine, play, cheat, test, arguments):
        cheat(engine)
        with pytest.raises(AssertionError):
            await play(test, arguments)
