"""What an engine owes to those who settle tasks and to those who wait for them: verdicts, fences, outcomes."""

from __future__ import annotations

import pytest

from tenure.engine import (
    CAP,
    Changed,
    Count,
    GetResult,
    Hint,
    Move,
    NewTask,
    Notice,
    Outcome,
    Ping,
    Progress,
    QueueCounts,
    Reply,
    Settle,
    Taken,
    Unfinished,
    Verdict,
)

from ._clerk import ClerkBase, OpenClerk, names, payloads, plain
from ._contract import Advance, Do, Hints


class SettleContract(ClerkBase):
    """Exchange, as far as it settles, and the life of a single task.

    Thread safety: none needed; pytest makes one for each test.
    """

    # ------------------------------------------------------------------------------------------ verdicts

    @pytest.mark.parametrize(
        ("verdict", "outcome"),
        [
            (Verdict.DONE, Outcome("done", b"\0result", 0)),
            (Verdict.DISCARD, Outcome("discarded", b"\0result", 0)),
            (Verdict.DEAD, Outcome("dead", b"\0result", 1)),
        ],
    )
    async def test_a_verdict_that_ends_a_task_is_its_outcome(
        self, clerk: OpenClerk, verdict: Verdict, outcome: Outcome
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        (task,) = await a.put(*plain(1))
        await a.settle(await a.take_one(), verdict, b"\0result")
        assert await b.result(task) == outcome
        counts = await b.count()
        assert (counts.waiting, counts.delayed, counts.leased) == (0, 0, 0)
        assert {s: getattr(counts, s) for s in ("done", "dead", "discarded", "cancelled")} == {
            "done": 0,
            "dead": 0,
            "discarded": 0,
            "cancelled": 0,
            outcome.state: 1,
        }
        assert await b.take() == ()

    async def test_a_retry_comes_after_its_pause_and_counts_an_attempt(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"x", priority=2))
        await a.settle(await a.take_one(), Verdict.RETRY, delay=1.0)
        assert await a.state(task) == "delayed"
        await advance(0.5)
        assert await a.take() == ()
        await advance(0.7)
        again = await a.take_one()
        assert again == Taken(task, again.token, b"x", 2, 1, 2, self.about(0.2), b"")

    async def test_a_retry_goes_behind_those_that_are_ready(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        await a.put(*plain(2))
        await advance(0.1)
        await a.settle(await a.take_one(), Verdict.RETRY)
        await advance(0.1)
        await a.put(NewTask(b"2"))
        assert payloads(await a.take(3)) == [b"1", b"0", b"2"]

    async def test_what_is_given_back_is_as_if_it_had_not_been_taken(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(*plain(3))
        tasks = await a.take(2)
        await advance(0.1)
        await a.put(NewTask(b"3"))
        for task in tasks[::-1]:
            await a.settle(task, Verdict.GIVE_BACK, delay=60.0)
        again = await a.take(9)
        assert payloads(again) == [b"0", b"1", b"2", b"3"]
        assert [(task.attempts, task.deliveries) for task in again] == [(0, 1)] * 4
        assert again[0].waited == self.about(0.1)

    async def test_what_is_postponed_comes_after_its_pause_and_counts_nothing(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"x", priority=2))
        for _ in range(3):
            await a.settle(await a.take_one(max_deliveries=1), Verdict.POSTPONE, delay=1.0)
            assert await a.state(task) == "delayed"
            assert await a.take() == ()
            await advance(1.2)
        again = await a.take_one()
        assert again == Taken(task, again.token, b"x", 2, 0, 1, self.about(0.2), b"")

    async def test_what_is_postponed_goes_behind_those_that_are_ready(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(*plain(2))
        await advance(0.1)
        await a.settle(await a.take_one(), Verdict.POSTPONE)
        await advance(0.1)
        await a.put(NewTask(b"2"))
        assert payloads(await a.take(3)) == [b"1", b"0", b"2"]

    async def test_settling_and_taking_are_one_step(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        await a.put(*plain(3))
        await advance(0.1)
        first, second = await a.take(2)
        settle = (
            Settle(first.id, first.token, Verdict.DONE),
            Settle(second.id, second.token, Verdict.GIVE_BACK),
        )
        answer = await a.exchange(*settle, want=5)
        assert payloads(answer.tasks) == [b"1", b"2"]
        assert answer.refused == ()

    # ------------------------------------------------------------------------------------------ fences

    @pytest.mark.parametrize("verdict", Verdict)
    async def test_a_verdict_of_one_whose_session_has_ended_changes_nothing(
        self, clerk: OpenClerk, advance: Advance, verdict: Verdict
    ) -> None:
        """The zombie: it took the task, was stopped, and goes on when somebody else has the task."""
        a, b = await clerk("a", ttl=1.0), await clerk("b")
        await b.put(NewTask(b"x", key="k"))
        stale = await a.take_one()
        await advance(1.5)
        fresh = await b.take_one()
        again = await clerk("a")
        before = await b.portrait()
        late = Settle(stale.id, stale.token, verdict, b"late")
        for c in (again, b):
            assert (await c.exchange(late)).refused == (stale.token,)
        assert await b.portrait() == before
        await b.settle(fresh, result=b"in time")
        assert (await again.exchange(late)).refused == (stale.token,)
        assert await b.result(stale.id) == Outcome("done", b"in time", 0)
        assert (await b.count()).put == 1

    @pytest.mark.parametrize("verdict", Verdict)
    async def test_a_verdict_that_was_given_stands(self, clerk: OpenClerk, verdict: Verdict) -> None:
        a = await clerk("a")
        await a.put(*plain(1))
        task = await a.take_one()
        await a.settle(task, Verdict.DONE, b"first")
        before = await a.portrait()
        assert (await a.exchange(Settle(task.id, task.token, verdict, b"second"))).refused == (task.token,)
        assert await a.portrait() == before
        assert await a.result(task.id) == Outcome("done", b"first", 0)

    @pytest.mark.parametrize("first", [Verdict.RETRY, Verdict.GIVE_BACK, Verdict.POSTPONE])
    async def test_the_token_of_an_earlier_delivery_is_refused(
        self, clerk: OpenClerk, do: Do, first: Verdict
    ) -> None:
        """Also when the same session has the task again."""
        a = await clerk("a")
        await a.put(*plain(1))
        old = await a.take_one()
        await a.settle(old, first)
        late = Settle(old.id, old.token, Verdict.DONE, b"late")
        assert (await a.exchange(late)).refused == (old.token,)
        new = await a.take_one()
        assert (await a.exchange(late)).refused == (old.token,)
        assert await do(Progress("jobs", old.id, old.token, b"late")) is Reply.REFUSED
        await a.settle(new, result=b"good")
        assert await a.result(new.id) == Outcome("done", b"good", first is Verdict.RETRY)

    async def test_what_does_not_belong_together_is_refused(self, clerk: OpenClerk) -> None:
        a, b, other = await clerk("a"), await clerk("b"), await clerk("a", queue="other")
        await a.put(*plain(2))
        mine, waiting = await a.take_one(), (await a.browse("waiting"))[0]
        before = await a.portrait()
        for c, task, token in (
            (b, mine.id, mine.token),
            (other, mine.id, mine.token),
            (a, waiting.id, mine.token),
            (a, waiting.id, 0),
            (a, mine.id, mine.token + 1),
            (a, mine.id, 0),
            (a, 10**9, mine.token),
        ):
            assert (await c.exchange(Settle(task, token, Verdict.DONE))).refused == (token,)
        assert await a.portrait() == before

    async def test_one_refusal_stops_no_other_verdict(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.put(*plain(3))
        first, second, third = await a.take(3)
        await a.settle(second)
        settle = [Settle(task.id, task.token, Verdict.DONE) for task in (first, second, third, first)]
        assert (await a.exchange(*settle)).refused == (second.token, first.token)
        assert (await a.count()).done == 3

    async def test_as_many_verdicts_as_the_cap_fit_in_one_step_and_no_more(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.put(*plain(CAP))
        settle = [Settle(task.id, task.token, Verdict.DONE) for task in await a.take(CAP)]
        with pytest.raises(ValueError, match=f"settle must hold at most {CAP} settlements, not {CAP + 1}"):
            await a.exchange(*settle, settle[0])
        assert (await a.exchange(*settle)).refused == ()
        assert (await a.count()).done == CAP

    # ------------------------------------------------------------------------------------------ deliveries, attempts

    async def test_attempts_count_failures_and_deliveries_count_takings(self, clerk: OpenClerk) -> None:
        a, b = await clerk("a"), await clerk("b")
        await b.put(*plain(1))
        await a.settle(await a.take_one(), Verdict.RETRY)
        await a.settle(await a.take_one(), Verdict.GIVE_BACK)
        await a.take_one()
        await a.close()
        task = await b.take_one()
        assert (task.attempts, task.deliveries) == (1, 3)

    @pytest.mark.parametrize(
        ("failures", "crashes", "dead"), [(4, 1, False), (4, 2, True), (0, 1, False), (0, 2, True)]
    )
    async def test_only_deliveries_without_a_verdict_bury_a_task(
        self, clerk: OpenClerk, failures: int, crashes: int, dead: bool
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        (task,) = await b.put(NewTask(b"poison", key="k"))
        for _ in range(failures):
            await b.settle(await b.take_one(max_deliveries=2), Verdict.RETRY)
            await b.settle(await b.take_one(max_deliveries=2), Verdict.GIVE_BACK)
            await b.settle(await b.take_one(max_deliveries=2), Verdict.POSTPONE)
        for _ in range(crashes):
            await a.take_one(max_deliveries=2)
            await a.close()
            a = await clerk("a")
        assert await b.state(task) == ("dead" if dead else "waiting")
        counts = await b.count()
        assert (counts.dead, counts.waiting) == ((1, 0) if dead else (0, 1))
        if dead:
            (record,) = await b.browse("dead")
            assert (record.payload, record.attempts, record.key) == (b"poison", failures, "k")

    # ------------------------------------------------------------------------------------------ outcomes

    async def test_what_is_asked_of_an_unfinished_task(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        leased, waiting, delayed = await a.put(*plain(2), NewTask(b"2", delay=60.0))
        task = await a.take_one()
        await do(Progress("jobs", task.id, task.token, b"half"))
        for asked, state, progress in (
            (leased, "leased", b"half"),
            (waiting, "waiting", b""),
            (delayed, "delayed", b""),
        ):
            answer = await a.result(asked)
            assert isinstance(answer, Unfinished)
            assert (answer.state, answer.progress) == (state, progress)
            assert answer.ask_again_in >= 0

    async def test_what_nobody_knows(self, clerk: OpenClerk, do: Do) -> None:
        a, other = await clerk("a"), await clerk("b", queue="other")
        (task,) = await a.put(*plain(1))
        assert await a.result(task + 1) is Reply.UNKNOWN
        assert await other.result(task) is Reply.UNKNOWN
        assert await do(GetResult("no such queue", task)) is Reply.UNKNOWN
        assert await a.result(task, watch="no such session") is Reply.GONE
        assert await do(Move("no such queue", (task,), "cancelled")) == Changed(0, more=False)
        assert await do(Move("other", (task,), "cancelled")) == Changed(0, more=False)
        assert await do(Progress("jobs", task, 1, b"")) is Reply.REFUSED
        assert await do(Progress("no such queue", task, 1, b"")) is Reply.REFUSED

    async def test_results_are_kept_for_their_time(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        short, long, for_good = await a.put(*plain(3))
        for ttl in (1.0, 2.5, None):
            await a.settle(await a.take_one(), result=b"result", ttl=ttl)
        await advance(0.5)
        assert [await a.state(task) for task in (short, long, for_good)] == ["done"] * 3
        await advance(0.7)
        assert [await a.state(task) for task in (short, long, for_good)] == ["unknown", "done", "done"]
        assert [record.id for record in await a.browse("ended")] == [long, for_good]
        await advance(2.0)
        assert [await a.state(task) for task in (short, long, for_good)] == ["unknown", "unknown", "done"]
        # They count all the same.
        assert (await a.count()).done == 3

    @pytest.mark.parametrize("keep", [False, True])
    async def test_the_payload_stays_on_record_if_asked_for(self, clerk: OpenClerk, keep: bool) -> None:
        a = await clerk("a")
        await a.put(*plain(1))
        await a.settle(await a.take_one(keep=keep), result=b"result")
        (record,) = await a.browse("ended")
        assert (record.payload, record.result) == (b"0" if keep else b"", b"result")

    @pytest.mark.parametrize(
        "ending", ["done", "dead", "discarded", "cancelled", "stopped", "expired", "purged", "buried"]
    )
    async def test_a_watcher_of_a_task_gets_one_hint_when_it_ends(
        self, clerk: OpenClerk, do: Do, hints: Hints, advance: Advance, ending: str
    ) -> None:
        a, b, c = await clerk("a"), await clerk("b"), await clerk("c")
        inboxes = [await hints("b"), await hints("c")]
        expires = 1.0 if ending == "expired" else None
        task, other = await a.put(NewTask(b"0", expires=expires), NewTask(b"1"))
        for watcher in (b, c, b):
            assert isinstance(await watcher.result(task, watcher.session), Unfinished)
        match ending:
            case "expired":
                await advance(1.5)
                await do(Ping())
            case "purged":
                await do(Move("jobs", frozenset({"waiting"}), "purged"))
            case "stopped" | "buried":
                await a.take_one(max_deliveries=1)
                if ending == "stopped":
                    await do(Move("jobs", (task,), "cancelled"))
                await a.close()
            case _:
                await a.end(task, ending)
        assert [await names(inbox, Notice.FINISHED) for inbox in inboxes] == [[str(task)], [str(task)]]
        await b.result(task, b.session)
        await do(Move("jobs", frozenset({"dead"}), "waiting"))
        for left in await c.take(2):
            await c.settle(left)
        await c.recount()
        assert [await inbox.new() for inbox in inboxes] == [[], []]
        assert await b.state(other) == ("unknown" if ending == "purged" else "done")

    async def test_a_watched_task_that_is_tried_again_has_not_ended(
        self, clerk: OpenClerk, hints: Hints
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("b")
        (task,) = await a.put(*plain(1))
        await b.result(task, b.session)
        await a.settle(await a.take_one(), Verdict.RETRY)
        await a.settle(await a.take_one(), Verdict.GIVE_BACK)
        await a.take_one()
        await a.close()
        assert await news.new() == []
        await b.settle(await b.take_one())
        assert await news.new() == [Hint("b", "jobs", str(task), Notice.FINISHED)]

    async def test_a_session_that_has_ended_watches_nothing(self, clerk: OpenClerk, hints: Hints) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("b")
        (task,) = await a.put(*plain(1))
        await b.result(task, b.session)
        await b.close()
        await a.settle(await a.take_one())
        assert await news.new() == []

    async def test_a_waiter_for_an_empty_queue_gets_one_hint(
        self, clerk: OpenClerk, do: Do, hints: Hints
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("b")
        assert await do(Count("jobs", "no such session")) is Reply.GONE
        (late, *_) = await a.put(NewTask(b"late", delay=60.0), *plain(2))
        for _ in range(2):
            assert isinstance(await do(Count("jobs", b.session)), QueueCounts)
        await a.settle(await a.take_one())
        await a.settle(await a.take_one(), Verdict.DEAD)
        assert await news.new() == []
        await do(Move("jobs", (late,), "cancelled"))
        assert await news.new() == [Hint("b", "jobs", "", Notice.DRAINED)]
        await a.put(*plain(1))
        await a.settle(await a.take_one())
        assert await news.new() == []

    async def test_there_is_nothing_to_wait_for_in_an_empty_queue(
        self, clerk: OpenClerk, do: Do, hints: Hints
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("b")
        for _ in range(2):
            assert isinstance(await do(Count("jobs", b.session)), QueueCounts)
            await a.put(*plain(1))
            await a.settle(await a.take_one(), Verdict.DEAD)
            assert await news.new() == []

    # ------------------------------------------------------------------------------------------ progress

    async def test_progress_is_there_for_whoever_has_the_task_next(self, clerk: OpenClerk, do: Do) -> None:
        a, b = await clerk("a"), await clerk("b")
        (task,) = await b.put(*plain(1))
        for step, how in enumerate((Verdict.RETRY, Verdict.GIVE_BACK, None)):
            taken = await a.take_one()
            assert taken.progress == (b"" if step == 0 else b"step %d" % (step - 1))
            for report in (b"\0\xff", b"step %d" % step):
                assert await do(Progress("jobs", task, taken.token, report)) is Reply.OK
            if how:
                await a.settle(taken, how)
        await a.close()
        assert (await b.take_one()).progress == b"step 2"

    async def test_progress_of_one_who_has_lost_the_task_is_refused(
        self, clerk: OpenClerk, do: Do, advance: Advance
    ) -> None:
        a, b = await clerk("a", ttl=1.0), await clerk("b")
        (task,) = await b.put(*plain(1))
        stale = await a.take_one()
        await advance(1.5)
        late = Progress("jobs", task, stale.token, b"late")
        assert await do(late) is Reply.REFUSED
        fresh = await b.take_one()
        assert await do(late) is Reply.REFUSED
        await b.settle(fresh)
        assert await do(late) is Reply.REFUSED
        assert fresh.progress == b""

    # ------------------------------------------------------------------------------------------ cancelling

    @pytest.mark.parametrize("delay", [0.0, 60.0])
    async def test_a_task_that_nobody_has_is_cancelled_at_once(
        self, clerk: OpenClerk, do: Do, advance: Advance, delay: float
    ) -> None:
        a = await clerk("a")
        task, other = await a.put(NewTask(b"0", delay=delay), NewTask(b"1", delay=delay))
        assert await do(Move("jobs", (task,), "cancelled", ttl=2.0)) == Changed(1, more=False)
        assert await do(Move("jobs", (task,), "cancelled", ttl=2.0)) == Changed(0, more=False)
        assert await a.result(task) == Outcome("cancelled", b"", 0)
        counts = await a.count()
        assert (counts.cancelled, counts.waiting + counts.delayed) == (1, 1)
        await advance(2.5)
        assert await a.result(task) is Reply.UNKNOWN
        assert await a.state(other) == ("delayed" if delay else "waiting")

    @pytest.mark.parametrize("ending", ["done", "dead", "discarded", "cancelled", "expired"])
    async def test_a_task_that_has_ended_cannot_be_cancelled(
        self, clerk: OpenClerk, do: Do, advance: Advance, ending: str
    ) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"0", expires=0.5 if ending == "expired" else None))
        if ending == "expired":
            await advance(1.0)
        else:
            await a.end(task, ending)
        assert await do(Move("jobs", (task,), "cancelled")) == Changed(0, more=False)
        assert await a.state(task) == ending

    @pytest.mark.parametrize(
        ("how", "state"),
        [
            (Verdict.CANCEL, "cancelled"),
            (Verdict.RETRY, "cancelled"),
            (Verdict.GIVE_BACK, "cancelled"),
            (Verdict.POSTPONE, "cancelled"),
            ("close", "cancelled"),
            ("expire", "cancelled"),
            (Verdict.DONE, "done"),
            (Verdict.DEAD, "dead"),
            (Verdict.DISCARD, "discarded"),
        ],
    )
    async def test_how_a_task_ends_whose_holder_was_told_to_stop(
        self, clerk: OpenClerk, do: Do, advance: Advance, how: Verdict | str, state: str
    ) -> None:
        a, b = await clerk("a", ttl=1.0), await clerk("b")
        (task,) = await b.put(*plain(1))
        taken = await a.take_one()
        for _ in range(2):
            assert await do(Move("jobs", (task,), "cancelled")) == Changed(1, more=False)
        assert await b.state(task) == "leased"
        assert await do(Progress("jobs", task, taken.token, b"half")) is Reply.REQUESTED
        answer = await b.result(task)
        assert isinstance(answer, Unfinished)
        assert answer.progress == b"half"
        if isinstance(how, Verdict):
            await a.settle(taken, how)
        elif how == "close":
            await a.close()
        else:
            await advance(1.5)
        assert await b.state(task) == state
        assert await b.take() == ()
        counts = await b.recount()
        assert (getattr(counts, state), counts.leased) == (1, 0)
