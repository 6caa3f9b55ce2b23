"""Engines that break one rule each, and the tests of the contract that catch them."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from dataclasses import replace
from itertools import count

import anyio
import pytest

from tenure import engine as e
from tenure.engines.memory import MemoryEngine
from tenure.testing.contract import EngineContract
from tenure.testing.contract._contract import Do, Inbox

# ---------------------------------------------------------------------------------------------- tokens


class TokensRepeat(MemoryEngine):
    """Every grant has the same token."""

    def __init__(self, **options):
        super().__init__(**options)
        self._state.token = lambda: 7


class TokensFall(MemoryEngine):
    """Tokens begin anew with each key that nobody used."""

    def apply(self, operation):
        if isinstance(operation, e.Acquire) and operation.key not in self._holds._lines:
            self._state.token = count(1).__next__
        return super().apply(operation)


class TokensOnlyCount(MemoryEngine):
    """Tokens rise one by one, whatever the time: they would fall with the data lost."""

    def __init__(self, **options):
        super().__init__(**options)
        self._state.token = count(1).__next__


# ---------------------------------------------------------------------------------------------- lines


class Barging(MemoryEngine):
    """Whoever finds room takes it, although others wait."""

    def apply(self, operation):
        line = self._holds._lines.get(getattr(operation, "key", None))
        if not isinstance(operation, e.Acquire) or line is None or operation.holder in line.waiting:
            return super().apply(operation)
        waiting, line.waiting = line.waiting, OrderedDict()
        answer = super().apply(operation)
        line.waiting = OrderedDict(waiting | line.waiting)
        return answer


class LastInFirstOut(MemoryEngine):
    """Who came last is served first."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Acquire) and isinstance(answer, e.Queued):
            self._holds._lines[operation.key].waiting.move_to_end(operation.holder, last=False)
        return answer


class LightOnesFirst(MemoryEngine):
    """Who fits is let in, past a head that does not."""

    def apply(self, operation):
        answer = super().apply(operation)
        for key, line in self._holds._lines.items():
            for hold in list(line.waiting.values()):
                if line.used + hold.weight <= line.capacity:
                    del line.waiting[hold.holder]
                    self._holds._grant(key, line, hold)
        return answer


class _Forgetful(MemoryEngine):
    """Serves nobody after some operations."""

    def apply(self, operation):
        if not self.forgets(operation):
            return super().apply(operation)
        serve, self._holds.serve = self._holds.serve, lambda key: None
        try:
            return super().apply(operation)
        finally:
            self._holds.serve = serve

    def holds(self, operation):
        line = self._holds._lines.get(operation.key)
        return line is not None and operation.holder in line.held


class ReleaseForgetsTheLine(_Forgetful):
    """What is given back lies there until somebody comes."""

    def forgets(self, operation):
        return isinstance(operation, e.Release) and self.holds(operation)


class LeavingForgetsTheLine(_Forgetful):
    """A heavy waiter that leaves lets nobody in."""

    def forgets(self, operation):
        return isinstance(operation, e.Release) and not self.holds(operation)


class ExpiryForgetsTheLine(_Forgetful):
    """The holds of the dead are free, but handed to nobody."""

    def forgets(self, operation):
        return not isinstance(operation, (e.Release, e.CloseSession, e.Resize))


class ResizeForgetsTheLine(_Forgetful):
    """More capacity is there for newcomers only."""

    def forgets(self, operation):
        return isinstance(operation, e.Resize)


class ReleaseByKey(MemoryEngine):
    """A release releases whoever holds the key: sent twice, it takes from the next."""

    def apply(self, operation):
        if isinstance(operation, e.Release) and (line := self._holds._lines.get(operation.key)):
            for holder in list(line.held)[:1]:
                operation = e.Release(operation.key, holder)
        return super().apply(operation)


class EveryAcquireCounts(MemoryEngine):
    """Acquiring again takes a second share."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Acquire) and isinstance(answer, e.Granted):
            line = self._holds._lines[operation.key]
            line.used = min(line.capacity, line.used + 1)
        return answer


class RefusalsWait(MemoryEngine):
    """Who did not want to wait is left in the line."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Acquire) and answer is e.Reply.REFUSED:
            fields = (operation.session, operation.key, operation.holder, operation.capacity)
            super().apply(e.Acquire(*fields, operation.weight))
        return answer


class ResizeTakesAway(MemoryEngine):
    """With less capacity, the last to come lose what they hold."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Resize):
            line = self._holds._lines[operation.key]
            while line.used > line.capacity:
                super().apply(e.Release(operation.key, list(line.held)[-1]))
        return answer


class ValuesForAll(MemoryEngine):
    """A value can be changed with any token."""

    def apply(self, operation):
        if isinstance(operation, e.SetValue) and (line := self._holds._lines.get(operation.key)):
            for hold in line.held.values():
                hold.value = operation.value
        return super().apply(operation)


class CapacityOfTheLast(MemoryEngine):
    """Who comes last says how many may hold."""

    def apply(self, operation):
        if isinstance(operation, e.Acquire) and (line := self._holds._lines.get(operation.key)):
            line.capacity = operation.capacity
        return super().apply(operation)


class PatienceUnasked(MemoryEngine):
    """Whoever waits is told to ask again in an hour."""

    def __init__(self, **options):
        super().__init__(**options)
        self._state.ask_again_in = lambda *due: 3600.0


# ---------------------------------------------------------------------------------------------- sessions


class SessionsLiveOn(MemoryEngine):
    """No session ever expires."""

    def apply(self, operation):
        for session in self._state.sessions.values():
            session.expires = max(session.expires, self._clock() + 1)
        self._state.soonest_expiry = float("inf")
        return super().apply(operation)


class RenewalRevives(MemoryEngine):
    """A renewal that comes late begins the session anew."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.RenewSession) and answer is e.Reply.GONE:
            return super().apply(e.OpenSession(operation.key, "p1", 2.0))
        return answer


class AnythingOpens(MemoryEngine):
    """An operation of an unknown session opens it."""

    def apply(self, operation):
        session = getattr(operation, "session", None)
        told = isinstance(operation, (e.CloseSession, e.RenewSession, e.OpenSession))
        if session and not told and session not in self._state.sessions:
            super().apply(e.OpenSession(session, "p1", 1000.0))
        return super().apply(operation)


class EverythingRenews(MemoryEngine):
    """Every operation is taken for a life sign."""

    def apply(self, operation):
        answer = super().apply(operation)
        session = self._state.sessions.get(getattr(operation, "session", operation.key))
        if session:
            self._state.renew(session)
        return answer


class NumbersOutliveSessions(MemoryEngine):
    """A new session of an old name gets the answers of the old one."""

    def apply(self, operation):
        old = self._state.sessions.get(getattr(operation, "session", operation.key))
        answer = super().apply(operation)
        if isinstance(operation, e.CloseSession) and old:
            self.kept = (old.id, old.number)
        if isinstance(operation, e.OpenSession) and getattr(self, "kept", ("",))[0] == operation.key:
            self._state.sessions[operation.key].number = self.kept[1]
        return answer


class EndInTheOrderOfNames(MemoryEngine):
    """Sessions end in the order of their names."""

    def apply(self, operation):
        now = self._clock()
        for session in self._state.sessions.values():
            if session.expires <= now:
                session.expires = 0.0
        return super().apply(operation)


# ---------------------------------------------------------------------------------------------- hints


class _Hinting(MemoryEngine):
    def __init__(self, **options):
        super().__init__(**options)
        self.tell, self._state.hint = self._state.hint, self.hint


class HintsToAll(_Hinting):
    """Every process hears of everything."""

    def hint(self, process, key, name, news):
        for listener in self._listeners:
            self.tell(listener, key, name, news)


class ThunderingHerd(_Hinting):
    """All who wait are woken by each hand-over."""

    def hint(self, process, key, name, news):
        self.tell(process, key, name, news)
        if isinstance(news, e.Granted):
            for other in self._holds._lines[key].waiting.values():
                self.tell(other.session.process, key, other.holder, e.Notice.ASK)


class NoHints(_Hinting):
    """Nobody hears of anything."""

    def hint(self, process, key, name, news):
        pass


class HintsForTheAnswered(_Hinting):
    """Who is granted at once is also hinted."""

    def hint(self, process, key, name, news):
        self.tell(process, key, name, news)

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Acquire) and isinstance(answer, e.Granted):
            self.hint(
                self._state.sessions[operation.session].process, operation.key, operation.holder, answer
            )
        return answer


class WatchesStay(MemoryEngine):
    """Who watches is told of every change from then on."""

    def __init__(self, **options):
        super().__init__(**options)
        self._state.fire = self.fire

    def fire(self, topic, key, name, notice):
        for session in self._state.watches.get(topic, {}):
            self._state.hint(self._state.sessions[session].process, key, name, notice)


# ---------------------------------------------------------------------------------------------- counters


class DoubleEffect(MemoryEngine):
    """What is sent again is done again."""

    def __init__(self, **options):
        super().__init__(**options)
        self._state.cache_reply = lambda *args: None


class NumbersForAll(MemoryEngine):
    """The last answer is kept for each object, not for each session."""

    def __init__(self, **options):
        super().__init__(**options)
        self.kept = {}
        self._state.cached_reply = lambda session, n, name: self.kept.get((n, name))
        self._state.cache_reply = lambda session, n, name, answer: self.kept.__setitem__((n, name), answer)


class RefusalsAreBooked(MemoryEngine):
    """Who is refused pays all the same."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Spend) and isinstance(answer, e.Spent):
            for request, spending in zip(operation.requests, answer.answers, strict=True):
                if not spending.booked:
                    self._rates._arrival[operation.key] += request.cost / operation.rate
        return answer


class Hoarding(MemoryEngine):
    """Idle time is saved beyond the burst."""

    def __init__(self, **options):
        super().__init__(**options)
        self._rates._book = self.book

    def book(self, op, request):
        now = self._state.now
        arrival = self._rates._arrival.get(op.key, now) + request.cost / op.rate
        self._rates._arrival[op.key] = arrival
        return e.Spending(True, max(0.0, arrival - op.burst / op.rate - now), arrival)


class RefundsInFull(MemoryEngine):
    """A refund gives back all of a booking, although others were told their delays behind it."""

    def apply(self, operation):
        if isinstance(operation, e.Refund) and operation.key in self._rates._arrival:
            fields = (operation.session, operation.n, operation.key, operation.cost)
            operation = e.Refund(*fields, self._rates._arrival[operation.key], operation.rate)
        return super().apply(operation)


class WholeWindows(MemoryEngine):
    """What was spent comes back only when all of it has been paid off."""

    def apply(self, operation):
        if isinstance(operation, e.Spend) and (arrival := self._rates._arrival.get(operation.key)):
            burst = operation.burst / operation.rate
            if self._clock() < arrival:
                self._rates._arrival[operation.key] = max(arrival, self._clock() + burst)
        return super().apply(operation)


class OnePurse(MemoryEngine):
    """All keys are spent from together."""

    def apply(self, operation):
        if isinstance(operation, (e.Spend, e.Refund)):
            operation = replace(operation, key="purse")
        return super().apply(operation)


class OutcomesAreToldOnce(MemoryEngine):
    """Only the last to arrive can ask how it went."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(operation, e.Arrive) and isinstance(answer, e.Tripped):
            barrier = self._barriers._barriers[operation.key]
            for participant, (session, _) in barrier.outcomes.items():
                del session.items["arrivals"][operation.key, participant]
            barrier.outcomes.clear()
        return answer


class TheDeadStillCount(MemoryEngine):
    """What the dead have arrived at goes on as if they waited there."""

    def __init__(self, **options):
        super().__init__(**options)
        self._sessions._drop["arrivals"] = lambda session, thing: None


class BarriersAreAllAlike(MemoryEngine):
    """A barrier that was forgotten cannot be told from the one that is there now."""

    def apply(self, operation):
        answer = super().apply(operation)
        if isinstance(answer, e.Waiting):
            return replace(answer, born=1)
        return answer._replace(born=1) if isinstance(answer, e.Gathering) and answer.parties else answer


class BarrierHeals(MemoryEngine):
    """A broken barrier opens again by itself."""

    def apply(self, operation):
        for barrier in self._barriers._barriers.values():
            barrier.generation += barrier.broken
            barrier.broken = False
        return super().apply(operation)


class TrippedBreaks(MemoryEngine):
    """Who goes after the barrier has tripped breaks the generation that gathers."""

    def apply(self, operation):
        barrier = self._barriers._barriers.get(getattr(operation, "key", None))
        tripped = barrier and getattr(operation, "participant", None) in barrier.outcomes
        answer = super().apply(operation)
        if isinstance(operation, e.Withdraw) and tripped:
            self._barriers._break(operation.key, barrier)
        return answer


class ArrivalsAreCounted(MemoryEngine):
    """Who arrives twice counts twice."""

    def apply(self, operation):
        barrier = self._barriers._barriers.get(getattr(operation, "key", None))
        if isinstance(operation, e.Arrive) and barrier and operation.participant in barrier.arrived:
            operation = replace(operation, participant=operation.participant + "'")
        return super().apply(operation)


# ---------------------------------------------------------------------------------------------- batches


class NoMore(MemoryEngine):
    """Clears up all there is in one operation, however long it takes."""

    def __init__(self, **options):
        super().__init__(cap=10**9, **options)


class MoreIsForgotten(MemoryEngine):
    """Whom the cap kept from being served is not served afterwards either."""

    def apply(self, operation):
        self._state.unserved.clear()
        return super().apply(operation)


class MoreFirst(MemoryEngine):
    """Says MORE although it applied a numbered operation, and forgets that it did."""

    def apply(self, operation):
        answer = super().apply(operation)
        if answer is e.Reply.MORE and isinstance(operation, e.Spend):
            self._rates._arrival[operation.key] = self._state.now + 5.0
        return answer


class FailsTogether(MemoryEngine):
    """One operation that it cannot take spoils the batch."""

    async def execute(self, operations):
        if any("\ud800" in getattr(operation, "key", "") for operation in operations):
            await anyio.lowlevel.checkpoint()
            return [e.Reply.UNKNOWN for _ in operations]
        return await super().execute(operations)


class AnswersOutOfOrder(MemoryEngine):
    """Those that fail come last."""

    async def execute(self, operations):
        answers = list(await super().execute(operations))
        return sorted(answers, key=lambda answer: answer is e.Reply.UNKNOWN)


class NotAtomic(MemoryEngine):
    """Looks whether it has room, and takes it a moment later."""

    async def execute(self, operations):
        answers = []
        for operation in operations:
            if isinstance(operation, e.Spend):
                before = dict(self._rates._arrival)
                await anyio.lowlevel.checkpoint()
                self._rates._arrival = before
            answers.append(self.apply(operation))
        await anyio.lowlevel.checkpoint()
        return answers


# ---------------------------------------------------------------------------------------------- catching them

CAUGHT_BY = {
    TokensRepeat: "test_tokens_rise_over_the_whole_engine_whatever_happens",
    TokensFall: "test_tokens_rise_over_the_whole_engine_whatever_happens",
    TokensOnlyCount: "test_tokens_follow_the_time_of_the_engine",
    Barging: "test_a_head_that_does_not_fit_blocks_those_behind_it",
    LastInFirstOut: "test_first_come_first_served",
    LightOnesFirst: "test_readers_do_not_starve_a_writer",
    ReleaseForgetsTheLine: "test_giving_back_hands_over_in_the_same_step",
    LeavingForgetsTheLine: "test_a_heavy_waiter_that_leaves_lets_in_those_behind_it",
    ExpiryForgetsTheLine: "test_the_expiry_of_the_holder_hands_over",
    ResizeForgetsTheLine: "test_more_capacity_lets_in_those_who_wait",
    ReleaseByKey: "test_releasing_twice_takes_nothing_from_the_next",
    EveryAcquireCounts: "test_holds_may_be_asked_for_again",
    RefusalsWait: "test_who_does_not_want_to_wait_for_a_lock_leaves_nothing",
    ResizeTakesAway: "test_less_capacity_takes_nothing_away",
    ValuesForAll: "test_nobody_but_the_holder_can_change_its_value",
    CapacityOfTheLast: "test_the_first_of_a_key_sets_its_capacity",
    PatienceUnasked: "test_asking_again_when_told_to_is_enough",
    SessionsLiveOn: "test_a_session_ends_a_ttl_after_it_was_opened",
    RenewalRevives: "test_a_renewal_that_comes_late_revives_nothing",
    AnythingOpens: "test_an_unknown_session_has_no_effect",
    EverythingRenews: "test_only_renewals_are_life_signs",
    NumbersOutliveSessions: "test_with_its_session_a_numbered_answer_is_forgotten",
    EndInTheOrderOfNames: "test_sessions_end_in_the_order_of_their_expiry",
    HintsToAll: "test_only_the_one_granted_gets_the_hint",
    ThunderingHerd: "test_one_message_for_each_hand_over",
    NoHints: "test_giving_back_hands_over_in_the_same_step",
    HintsForTheAnswered: "test_what_is_answered_needs_no_hint",
    WatchesStay: "test_a_watch_is_for_one_change",
    DoubleEffect: "test_spending_sent_twice_is_booked_once",
    NumbersForAll: "test_numbers_count_for_one_session_and_one_key",
    RefusalsAreBooked: "test_who_would_have_to_wait_too_long_books_nothing",
    Hoarding: "test_idleness_saves_no_more_than_the_burst",
    RefundsInFull: "test_of_a_booking_that_was_overtaken_nothing_is_refunded",
    WholeWindows: "test_time_brings_back_what_was_spent",
    OnePurse: "test_keys_are_spent_from_apart",
    OutcomesAreToldOnce: "test_the_last_to_arrive_trips_the_barrier_for_all",
    TheDeadStillCount: "test_a_participant_that_dies_breaks_the_barrier",
    BarriersAreAllAlike: "test_a_barrier_that_was_forgotten_is_born_again",
    BarrierHeals: "test_a_broken_barrier_stays_broken_until_it_is_reset",
    TrippedBreaks: "test_who_goes_after_it_has_tripped_does_not_break_the_next_generation",
    ArrivalsAreCounted: "test_who_arrives_twice_counts_once",
    NoMore: "test_the_end_of_many_takes_several_turns",
    MoreIsForgotten: "test_a_hand_over_to_many_loses_none_of_them",
    MoreFirst: "test_what_is_answered_more_is_done_once_when_it_is_sent_again",
    FailsTogether: "test_an_operation_that_fails_fails_alone",
    AnswersOutOfOrder: "test_operations_are_answered_in_their_order",
    NotAtomic: "test_callers_at_the_same_time_book_what_there_is_and_no_more",
}


async def play(make, name):
    """One test of the contract against one engine; gives the error that it raised."""
    now = 1000.0

    async def advance(seconds):
        nonlocal now
        now += seconds

    async def hints(process):
        inbox = Inbox(process, do, suite.patience)
        await group.start(engine.serve, process, inbox.deliver)
        return inbox

    engine = make(clock=lambda: now)
    suite, do = EngineContract(), Do(engine)
    test = getattr(suite, name)
    fixtures = {"do": do, "hints": hints, "advance": advance}
    error = None
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "nobody", lambda hint: None)
        try:
            await test(**{wanted: fixtures[wanted] for wanted in inspect.signature(test).parameters})
        except Exception as caught:
            error = caught
        group.cancel_scope.cancel()
    return error


@pytest.mark.parametrize(("cheat", "test"), CAUGHT_BY.items())
async def test_a_cheat_is_caught(cheat, test, virtual_clock):
    assert isinstance(await play(cheat, test), AssertionError)


@pytest.mark.parametrize("test", sorted(set(CAUGHT_BY.values())))
async def test_the_tests_that_catch_them_pass_an_honest_engine(test, virtual_clock):
    assert await play(MemoryEngine, test) is None
