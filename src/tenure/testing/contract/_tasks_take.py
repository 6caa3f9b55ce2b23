"""What an engine owes to those who take tasks: their order, leases, wake-ups for the idle, and what the dead had."""

from __future__ import annotations

import pytest

from tenure.engine import (
    CAP,
    Changed,
    Exchange,
    Exchanged,
    Hint,
    Move,
    NewTask,
    Notice,
    Ping,
    Put,
    PutRequest,
    Reply,
    SetPaused,
    Settle,
    Taken,
    Verdict,
)

from ._clerk import ClerkBase, OpenClerk, payloads, plain
from ._contract import Advance, Do, Hints


class TakeContract(ClerkBase):
    """Exchange, as far as it takes.

    Thread safety: none needed; pytest makes one for each test.
    """

    # ------------------------------------------------------------------------------------------ the order

    async def test_tasks_of_one_priority_are_taken_in_the_order_in_which_they_were_put(
        self, clerk: OpenClerk
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        ids = [*await a.put(*plain(5)), *await b.put(*plain(5)), *await a.put(*plain(5))]
        taken = [*await b.take(7), *await a.take(1), *await b.take(9)]
        assert [task.id for task in taken] == ids

    async def test_higher_priorities_come_first(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        for payload, priority in (
            (b"3", 0),
            (b"1", 7),
            (b"5", -(2**31)),
            (b"2", 7),
            (b"4", 0),
            (b"0", 2**31 - 1),
        ):
            await a.put(NewTask(payload, priority))
        assert payloads(await a.take(2)) == [b"0", b"1"]
        assert payloads(await a.take(9)) == [b"2", b"3", b"4", b"5"]

    async def test_a_delayed_task_is_not_taken_before_it_is_due(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"late", priority=9, delay=2.0))
        assert await a.take(5) == ()
        await advance(1.0)
        assert await a.take(5) == ()
        counts = await a.count()
        assert (counts.delayed, counts.waiting) == (1, 0)
        await advance(1.5)
        assert payloads(await a.take(5)) == [b"late"]

    async def test_the_place_of_a_delayed_task_is_when_it_became_due(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"3", delay=2.0), NewTask(b"2", delay=1.0), NewTask(b"0", priority=1, delay=2.0))
        await advance(0.25)
        await a.put(NewTask(b"1"))
        await advance(2.5)
        await a.put(NewTask(b"4"))
        assert payloads(await a.take(9)) == [b"0", b"1", b"2", b"3", b"4"]

    async def test_those_who_asked_in_vain_get_a_delayed_task_when_they_were_told_to_ask(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"late", delay=1.5), NewTask(b"later", delay=60.0))
        answer = await a.exchange(want=1, wait=True)
        assert 0 < answer.ask_again_in <= 1.5
        for _ in range(3):
            await advance(answer.ask_again_in)
            answer = await a.exchange(want=1, wait=True)
            if answer.tasks:
                break
        assert payloads(answer.tasks) == [b"late"]

    async def test_old_tasks_come_before_higher_priorities_if_they_age(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"old", priority=0))
        await advance(0.25)
        await a.put(NewTask(b"old, low", priority=-5), NewTask(b"old, high", priority=5))
        await advance(2.0)
        await a.put(NewTask(b"new", priority=0), NewTask(b"new, high", priority=9))
        tasks = (await a.exchange(want=9, aging=1.0)).tasks
        # The oldest first, whatever their priority; those who have not aged by priority.
        assert payloads(tasks) == [b"old", b"old, low", b"old, high", b"new, high", b"new"]

    async def test_nobody_has_aged_yet(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"low"))
        await advance(1.0)
        await a.put(NewTask(b"high", priority=1))
        assert payloads((await a.exchange(want=9, aging=60.0)).tasks) == [b"high", b"low"]

    async def test_a_delayed_task_ages_from_when_it_is_due(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"was delayed", delay=2.5))
        await advance(3.0)
        await a.put(NewTask(b"high", priority=1))
        assert payloads((await a.exchange(want=9, aging=2.0)).tasks) == [b"high", b"was delayed"]

    # ------------------------------------------------------------------------------------------ taking

    async def test_what_a_taker_learns_of_a_task(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"payload", priority=3, delay=1.0))
        await advance(3.0)
        taken = await a.take_one()
        assert taken.token > 0
        assert taken == Taken(task, taken.token, b"payload", 3, 0, 1, self.about(2.0), b"")

    async def test_nobody_gets_more_than_he_wants_or_than_there_is(self, clerk: OpenClerk) -> None:
        a, b = await clerk("a"), await clerk("b")
        await a.put(*plain(5))
        sizes = [len(await c.take(want)) for c, want in ((a, 0), (b, 2), (a, 2), (b, 2), (a, 2))]
        assert sizes == [0, 2, 2, 1, 0]
        counts = await a.count()
        assert (counts.waiting, counts.leased) == (0, 5)

    async def test_no_task_is_taken_twice(self, clerk: OpenClerk, advance: Advance) -> None:
        clerks = [await clerk(name) for name in "abc"]
        await clerks[0].put(*plain(20), *plain(10, delay=1.0))
        taken = [task.id for c in clerks for task in await c.take(4)]
        await advance(2.0)
        for _ in range(4):
            taken += [task.id for c in clerks for task in await c.take(3)]
        assert len(taken) == len(set(taken)) == 30

    async def test_each_taking_has_a_higher_token(self, clerk: OpenClerk, advance: Advance) -> None:
        a, b = await clerk("a"), await clerk("b", queue="other")
        await a.put(*plain(3))
        await b.put(*plain(3))
        tokens = [task.token for c in (a, b, a) for task in await c.take(2)]
        assert tokens == sorted(set(tokens))
        await a.close()
        await b.close()
        c = await clerk("c")
        await advance(0.1)
        for _ in range(3):
            task = await c.take_one()
            tokens.append(task.token)
            await c.settle(task, Verdict.GIVE_BACK)
        assert tokens == sorted(set(tokens))

    # ------------------------------------------------------------------------------------------ the idle

    async def test_an_idle_taker_gets_one_hint(self, clerk: OpenClerk, hints: Hints) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("a")
        await a.idle()
        await b.put(*plain(1))
        await b.put(*plain(2))
        assert await news.new() == [Hint("a", "jobs", "", Notice.READY)]

    async def test_as_many_idle_takers_are_told_as_are_needed_in_the_order_in_which_they_came(
        self, clerk: OpenClerk, hints: Hints
    ) -> None:
        wants = {"a": 2, "b": 1, "c": 1, "d": 5, "e": 1}
        clerks = {name: await clerk(name) for name in wants}
        inboxes = {name: await hints(name) for name in wants}

        async def told() -> str:
            return "".join([name for name, inbox in inboxes.items() for _ in await inbox.new()])

        for name, want in wants.items():
            await clerks[name].idle(want)
        putter = await clerk("putter")
        await putter.put(*plain(1))
        assert await told() == "a"
        await putter.put(*plain(2))
        assert await told() == "bc"
        await clerks["a"].take(3)
        await putter.put(*plain(6))
        assert await told() == "de"
        await putter.put(*plain(6))
        assert await told() == ""

    async def test_who_comes_again_keeps_the_place(self, clerk: OpenClerk, hints: Hints) -> None:
        a, b = await clerk("a"), await clerk("b")
        first, second = await hints("a"), await hints("b")
        await a.idle()
        await b.idle()
        await a.idle()
        await b.put(*plain(1))
        assert (len(await first.new()), len(await second.new())) == (1, 0)

    @pytest.mark.parametrize(
        "how", ["does not wait", "wants nothing any more", "got all it wanted", "closed"]
    )
    async def test_who_is_not_idle_is_not_told(self, clerk: OpenClerk, hints: Hints, how: str) -> None:
        a, b = await clerk("a"), await clerk("b")
        news, other = await hints("a"), await hints("b")
        match how:
            case "does not wait":
                await a.idle()
                await a.exchange(want=1)
            case "wants nothing any more":
                await a.idle()
                await a.exchange(want=0, wait=True)
            case "got all it wanted":
                await b.put(*plain(1))
                assert len((await a.exchange(want=1, wait=True)).tasks) == 1
            case _:
                await a.idle()
                await a.close()
        await b.idle()
        await b.put(*plain(1))
        assert await news.new() == []
        assert len(await other.new()) == 1

    @pytest.mark.parametrize("how", ["told", "busy", "idle"])
    async def test_a_taker_may_die_whatever_it_waits_for(
        self, clerk: OpenClerk, hints: Hints, how: str
    ) -> None:
        a, b, c = await clerk("a"), await clerk("b"), await clerk("c")
        news = await hints("c")
        await a.idle()
        if how == "told":
            await b.put(*plain(1))
        elif how == "busy":
            await a.exchange()
        await a.close()
        await c.exchange(want=2, wait=True)
        await b.put(*plain(1))
        assert len(await news.new()) == 1
        assert (await b.count()).waiting + (await b.count()).leased == 1 + (how == "told")

    async def test_who_got_a_part_waits_for_the_rest(self, clerk: OpenClerk, hints: Hints) -> None:
        a = await clerk("a")
        news = await hints("a")
        await a.put(*plain(1))
        assert len((await a.exchange(want=2, wait=True)).tasks) == 1
        await a.put(*plain(1))
        assert len(await news.new()) == 1

    @pytest.mark.parametrize("how", ["retry", "give back", "requeue", "close", "expire", "resume"])
    async def test_whatever_becomes_ready_is_offered_to_the_idle(
        self, clerk: OpenClerk, do: Do, hints: Hints, advance: Advance, how: str
    ) -> None:
        a, b = await clerk("a", ttl=1.0), await clerk("b")
        news = await hints("b")
        await a.put(*plain(1))
        task = await a.take_one()
        if how == "resume":
            await do(SetPaused("jobs", paused=True))
            await a.settle(task, Verdict.RETRY)
        await b.idle()
        match how:
            case "retry" | "give back":
                await a.settle(task, Verdict(how))
            case "requeue":
                await a.settle(task, Verdict.DEAD)
                await do(Move("jobs", frozenset({"dead"}), "waiting"))
            case "close":
                await a.close()
            case "expire":
                await advance(1.5)
                await do(Ping())
            case _:
                await do(SetPaused("jobs", paused=False))
        assert await news.new() == [Hint("b", "jobs", "", Notice.READY)]
        assert len(await b.take()) == 1

    @pytest.mark.parametrize("how", ["put", "retry"])
    async def test_a_task_that_is_due_sooner_is_hinted_to_one_idle_taker(
        self, clerk: OpenClerk, hints: Hints, how: str
    ) -> None:
        a, b, c = await clerk("a"), await clerk("b"), await clerk("c")
        first, second = await hints("a"), await hints("b")
        await c.put(NewTask(b"later", delay=60.0), NewTask(b"fails", priority=1))
        failed = await c.take_one()
        await a.idle()
        await b.idle()
        await c.put(NewTask(b"later still", delay=90.0))
        assert (len(await first.new()), len(await second.new())) == (0, 0)
        if how == "put":
            await c.put(NewTask(b"sooner", delay=10.0))
        else:
            await c.settle(failed, Verdict.RETRY, delay=10.0)
        assert (len(await first.new()), len(await second.new())) == (1, 0)
        assert (await a.idle()).ask_again_in <= 10.0

    async def test_those_told_of_due_tasks_are_as_many_as_are_left(
        self, clerk: OpenClerk, hints: Hints, advance: Advance
    ) -> None:
        """Who asks first finds three tasks due and takes one: the other two are offered on."""
        a, b, c, d = [await clerk(name) for name in "abcd"]
        inboxes = [await hints(name) for name in "bcd"]
        await a.put(*plain(3, delay=1.0))
        for idle in (b, c, d):
            await idle.idle()
        await advance(1.5)
        assert len(await a.take(1)) == 1
        assert [len(await inbox.new()) for inbox in inboxes] == [1, 1, 0]

    # ------------------------------------------------------------------------------------------ the end of a session

    @pytest.mark.parametrize("how", ["closed", "expired"])
    async def test_what_a_dead_session_had_comes_back_in_its_old_place(
        self, clerk: OpenClerk, advance: Advance, how: str
    ) -> None:
        a, b = await clerk("a", ttl=2.0), await clerk("b")
        await b.put(*plain(3), *plain(2, priority=1))
        await a.take(4)
        await advance(0.1)
        await b.put(*plain(3), *plain(2, priority=1))
        if how == "closed":
            await a.close()
        else:
            await advance(2.5)
        counts = await b.count()
        assert (counts.waiting, counts.leased, counts.put) == (10, 0, 10)
        tasks = await b.take(20)
        assert [task.priority for task in tasks] == [1] * 4 + [0] * 6
        assert payloads(tasks) == [b"%d" % n for n in (0, 1, 0, 1, 0, 1, 2, 0, 1, 2)]
        ids = [task.id for task in tasks]
        assert ids == sorted(ids[:4]) + sorted(ids[4:])
        assert [task.deliveries for task in tasks] == [2, 2, 1, 1, 2, 2, 1, 1, 1, 1]
        assert [task.attempts for task in tasks] == [0] * 10

    async def test_a_session_that_is_renewed_keeps_its_tasks(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a, b = await clerk("a", ttl=2.0), await clerk("b")
        await b.put(*plain(1))
        task = await a.take_one()
        for _ in range(3):
            await advance(1.0)
            await a.renew()
            assert await b.take() == ()
        await a.settle(task)
        assert (await b.count()).done == 1

    async def test_enough_takers_are_told_of_tasks_that_come_back(
        self, clerk: OpenClerk, hints: Hints, do: Do, advance: Advance
    ) -> None:
        dead = await clerk("dead", ttl=1.0)
        await dead.put(*plain(3))
        await dead.take(3)
        inboxes = [await hints(name) for name in "abc"]
        for name, want in zip("abc", (2, 2, 1), strict=True):
            await (await clerk(name)).idle(want)
        await advance(1.5)
        await do(Ping())
        told = [len(await inbox.new()) for inbox in inboxes]
        # Who is told may be one more than needed: the tasks come back one by one.
        assert told[:2] == [1, 1]
        assert told[2] <= 1

    async def test_stranded_tasks_are_taken_up_when_those_who_wait_were_told_to_ask(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        """Nobody puts anything, no hint comes: the pause that was told is what helps."""
        a, b = await clerk("a", ttl=2.0), await clerk("b")
        await a.put(*plain(1))
        await a.take_one()
        answer = await b.idle()
        assert 0 < answer.ask_again_in <= 2.0
        for _ in range(3):
            await advance(answer.ask_again_in)
            answer = await b.exchange(want=1, wait=True)
            if answer.tasks:
                break
        assert payloads(answer.tasks) == [b"0"]

    async def test_a_thousand_stranded_tasks_come_back_in_short_steps(self, clerk: OpenClerk, do: Do) -> None:
        a, b = await clerk("a"), await clerk("b")
        ids = await b.put(*plain(1000))
        await a.take(1000)
        await a.begin_to_close()
        operation = Exchange(b.session, do.number(), "jobs", want=1000)
        steps = 0
        while (answer := (await do.engine.execute([operation]))[0]) is Reply.MORE:
            steps += 1
            assert steps <= 1000
        assert isinstance(answer, Exchanged)
        assert steps >= 1, f"a loop of 1000 steps, though {CAP} is the cap"
        taken = [*answer.tasks, *await b.take(1000)]
        assert [task.id for task in taken] == list(ids)
        assert {task.deliveries for task in taken} == {2}

    async def test_a_thousand_tasks_that_are_due_at_once(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        ids = await a.put(*plain(1000, delay=1.0))
        await advance(2.0)
        taken: list[int] = []
        for _ in range(10):
            answer = await a.exchange(want=1000, wait=True)
            taken += [task.id for task in answer.tasks]
            if len(taken) == 1000:
                break
            assert answer.ask_again_in == 0
        assert taken == list(ids)

    # ------------------------------------------------------------------------------------------ paused, stopped

    async def test_a_paused_queue_gives_out_nothing_but_takes_verdicts(
        self, clerk: OpenClerk, do: Do, hints: Hints
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("b")
        await a.put(*plain(2))
        task = await a.take_one()
        assert await do(SetPaused("jobs", paused=True)) is Reply.OK
        answer = await b.exchange(want=5, wait=True)
        assert (answer.tasks, answer.paused) == ((), True)
        await a.settle(task)
        await a.put(*plain(1))
        assert await news.new() == []
        counts = await a.count()
        assert (counts.paused, counts.done, counts.waiting) == (True, 1, 2)

        assert await do(SetPaused("jobs", paused=False)) is Reply.OK
        assert len(await news.new()) == 1
        answer = await b.exchange(want=5, wait=True)
        assert (len(answer.tasks), answer.paused) == (2, False)

    async def test_pausing_one_queue_leaves_others_alone(self, clerk: OpenClerk, do: Do) -> None:
        other = await clerk("a", queue="other")
        await other.put(*plain(1))
        await do(SetPaused("jobs", paused=True))
        assert len(await other.take()) == 1

    async def test_a_holder_of_a_task_is_hinted_to_stop_it(
        self, clerk: OpenClerk, do: Do, hints: Hints
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        news = await hints("a")
        await a.put(*plain(3))
        first, second, third = await a.take(3)
        for task in (second, first, second):
            assert await do(Move("jobs", (task.id,), "cancelled")) == Changed(1, more=False)
        assert await news.new() == [Hint("a", "jobs", str(t.token), Notice.STOP) for t in (second, first)]
        # Hints get lost, so every exchange tells it again; and only to the holder.
        for _ in range(2):
            assert set((await a.exchange()).stop) == {first.token, second.token}
        assert (await b.exchange()).stop == ()
        await a.settle(second, Verdict.CANCEL)
        await a.settle(third)
        assert (await a.exchange()).stop == (first.token,)

    # ------------------------------------------------------------------------------------------ sending again

    async def test_an_exchange_that_is_sent_again_takes_nothing_more(self, clerk: OpenClerk, do: Do) -> None:
        a, b = await clerk("a"), await clerk("b")
        await a.put(*plain(6))
        operation = Exchange(a.session, do.number(), "jobs", want=2)
        answer = await do(operation)
        assert isinstance(answer, Exchanged)
        assert len(answer.tasks) == 2
        assert await do(operation) == answer
        assert await do(operation) == answer
        assert (await a.count()).leased == 2
        same_number = Exchange(b.session, operation.n, "jobs", want=2)
        other = await do(same_number)
        assert isinstance(other, Exchanged)
        assert {task.id for task in other.tasks}.isdisjoint(task.id for task in answer.tasks)
        assert len(await a.take(2)) == 2

    async def test_a_verdict_that_is_sent_again_counts_once(
        self, clerk: OpenClerk, do: Do, advance: Advance
    ) -> None:
        a = await clerk("a")
        await a.put(*plain(4))
        await advance(0.1)
        done, retry, dead, back = await a.take(4)
        settle = tuple(
            Settle(task.id, task.token, verdict, b"result")
            for task, verdict in (
                (done, Verdict.DONE),
                (retry, Verdict.RETRY),
                (dead, Verdict.DEAD),
                (back, Verdict.GIVE_BACK),
            )
        )
        operation = Exchange(a.session, do.number(), "jobs", settle, want=2)
        answer = await do(operation)
        assert isinstance(answer, Exchanged)
        assert answer.refused == ()
        # Given back, a task keeps its place; retried, it is as new.
        assert [(t.id, t.attempts, t.deliveries) for t in answer.tasks] == [(back.id, 0, 1), (retry.id, 1, 2)]
        assert await do(operation) == answer
        counts = await a.count()
        assert (counts.done, counts.dead, counts.leased, counts.waiting) == (1, 1, 2, 0)

    async def test_an_unknown_session_takes_and_settles_nothing(
        self, clerk: OpenClerk, do: Do, advance: Advance
    ) -> None:
        b = await clerk("b")
        await b.put(*plain(2))
        held = await b.take_one()
        closed, expired = await clerk("c"), await clerk("d", ttl=1.0)
        await closed.close()
        await advance(1.5)
        settle = (Settle(held.id, held.token, Verdict.DONE),)
        for session in ("no such session", closed.session, expired.session):
            operation = Exchange(session, do.number(), "jobs", settle, want=5)
            assert await do(operation) is Reply.GONE
            assert await do(operation) is Reply.GONE
        counts = await b.count()
        assert (counts.waiting, counts.leased, counts.done) == (1, 1, 0)
        await b.settle(held)

    async def test_a_batch_of_puts_and_exchanges_is_applied_in_order(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        put = Put(a.session, do.number(), "jobs", (PutRequest("m", plain(2)),), 9)
        take, again = (Exchange(a.session, do.number(), "jobs", want=1) for _ in range(2))
        _, first, second = await do.batch(put, take, again)
        assert payloads(first.tasks + second.tasks) == [b"0", b"1"]
