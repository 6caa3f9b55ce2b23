"""Tasks: a full queue, takers and what the dead had, verdicts, and operations that look at many tasks."""

from __future__ import annotations

import pytest

from tenure import engine as e
from tenure.errors import EngineError

from ._clerk import OpenClient, QueueSession, QueueSessionBase, names, payloads, plain
from ._contract import Advance, Do, Hints


async def _bury(client: QueueSession, count: int) -> None:
    """Let the next tasks end as dead letters."""
    tasks = await client.take(count)
    assert len(tasks) == count
    for at in range(0, count, e.CAP):
        part = tasks[at : at + e.CAP]
        await client.exchange(*(e.Settle(task.id, task.token, e.Verdict.DEAD, b"error") for task in part))


class TaskContract(QueueSessionBase):
    """The contract's tests of tasks, beside the walk."""

    # putting

    async def test_each_request_of_a_batch_is_answered_in_its_place(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        requests = (
            e.PutRequest("m", plain(2)),
            e.PutRequest("n", plain(9), wait=False),
            e.PutRequest("o", ()),
            e.PutRequest("p", plain(1)),
        )
        await do.configure("jobs", max_size=5)
        answer = await do(e.Put(a.session, do.number(), "jobs", requests))
        assert isinstance(answer, e.PutAnswer)
        first, refused, nothing, last = answer.answers
        assert refused is e.Reply.REFUSED
        assert nothing == e.Accepted(())
        assert isinstance(first, e.Accepted)
        assert isinstance(last, e.Accepted)
        assert (len(first.ids), len(last.ids)) == (2, 1)
        assert (await a.count()).put == 3

    async def test_ids_follow_the_time_of_the_engine(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        token = await do.hold(a.session, "k", "a")
        first, second = await a.put(*plain(2))
        assert token < first
        assert second == first + 1
        await advance(1.5)
        (third,) = await a.put(e.NewTask(b"x", key="k"))
        assert third - second >= (1.5 - self.margin) * 1_000_000 - 2
        assert await a.put(e.NewTask(b"x", key="k", on_duplicate="keep"), *plain(1)) == (third, third + 1)
        assert [task.id for task in await a.take(9)] == [first, second, third, third + 1]

    async def test_a_task_that_nobody_takes_expires(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        tasks = (
            e.NewTask(b"1", expires=1.0),
            e.NewTask(b"2", delay=60.0, expires=1.0),
            e.NewTask(b"3", expires=60.0),
        )
        waiting, delayed, _ = await a.put(*tasks)
        await advance(0.5)
        assert (await a.count()).expired == 0
        await advance(0.7)
        assert payloads(await a.take(5)) == [b"3"]
        for task in (waiting, delayed):
            assert await a.result(task) == e.Outcome("expired", b"", 0)
        counts = await a.count()
        assert (counts.expired, counts.waiting, counts.delayed, counts.leased) == (2, 0, 0, 1)

    async def test_one_that_was_taken_in_time_does_not_expire_when_it_is_back(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (task,) = await a.put(e.NewTask(b"1", expires=1.0))
        taken = await a.take_one()
        await advance(1.5)
        await a.settle(taken, e.Verdict.GIVE_BACK)
        record = await a.do.page(e.Scan(e.TASK, "jobs", only=str(task)))
        assert record.rows[0].state == "waiting"
        assert record.ask_again_in > 1.0, "time alone changes nothing any more"
        assert (await a.take_one()).id == task

    async def test_a_record_tells_for_how_long_the_task_was_leased(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a, b = await client("a"), await client("b")
        put = await a.put(*plain(5))

        async def ran(task: int) -> float | None:
            page = await a.do.page(e.Scan(e.TASK, "jobs", only=str(task)))
            return page.rows[0].ran

        tasks = await a.take(3) + await b.take(1)
        assert await ran(put[4]) is None
        await advance(1.5)
        for task in put[:4]:
            assert await ran(task) == self.about(1.5)
        assert [record.ran for record in await a.browse("leased")] == [self.about(1.5)] * 4
        await a.settle(tasks[0])
        await a.settle(tasks[1], e.Verdict.DEAD)
        await a.settle(tasks[2], e.Verdict.GIVE_BACK)
        await b.close()
        assert await ran(put[2]) is await ran(put[3]) is None
        for task in put[2:]:
            await a.end(task, "cancelled")
        await advance(2.0)
        wanted = [self.about(1.5)] * 2 + [None] * 3
        assert [await ran(task) for task in put] == wanted
        assert [record.ran for record in await a.browse("ended")] == wanted
        assert await a.do(e.Move("jobs", put[1:2], "waiting")) == e.MovedCount(1)
        assert await ran(put[1]) is None
        (again,) = await a.take()
        await a.settle(again)
        assert await ran(put[1]) == self.about(0.0)

    async def test_a_full_queue_makes_producers_wait_in_line(self, client: OpenClient, hints: Hints) -> None:
        a, b = await client("a"), await client("b")
        news_a, news_b = await hints("a"), await hints("b")
        await a.put(e.NewTask(b"first"), max_size=1)
        second, third = e.NewTask(b"second"), e.NewTask(b"third")
        places = [
            await b.request("m", second, max_size=1),
            await a.request("n", third, max_size=1),
            await b.request("m", second, max_size=1),
        ]
        assert [place.place for place in places if isinstance(place, e.Queued)] == [1, 2, 1]
        assert (await a.count()).producers == 2

        await a.settle(await a.take_one())
        assert await news_b.new() == [e.Hint("b", "jobs", "m", e.Notice.ROOM)]
        assert await news_a.new() == []
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (1, 1)

        assert isinstance(await b.request("m", second, max_size=1), e.Accepted)
        await b.settle(await b.take_one())
        assert await news_a.new() == [e.Hint("a", "jobs", "n", e.Notice.ROOM)]
        assert isinstance(await a.request("n", third, max_size=1), e.Accepted)
        counts = await a.count()
        assert (counts.reserved, counts.producers, counts.put) == (0, 0, 3)
        assert payloads(await a.take(5)) == [b"third"]

    async def test_the_counts_have_the_size_of_the_record(self, client: OpenClient) -> None:
        a = await client("a")
        assert (await a.count()).max_size == 10_000
        await a.put(*plain(2), max_size=7)
        assert (await a.count()).max_size == 7
        assert await a.request("m", *plain(1), max_size=2, wait=False) is e.Reply.REFUSED
        assert (await a.recount()).max_size == 2

    @pytest.mark.parametrize("how", ["closed", "expired"])
    @pytest.mark.parametrize("place", ["waiting", "reserved"])
    async def test_the_place_of_a_dead_producer_goes_to_the_next(
        self, client: OpenClient, do: Do, hints: Hints, advance: Advance, how: str, place: str
    ) -> None:
        a, b = await client("a"), await client("b", ttl=1.0)
        news = await hints("a")
        await a.put(*plain(2), max_size=3 if place == "waiting" else 2)
        size = 3 if place == "waiting" else 2
        await b.request("dead", *plain(2), max_size=size)
        await a.request("next", *plain(1), max_size=size)
        if place == "reserved":
            for task in await a.take(2):
                await a.settle(task)
            assert (await a.count()).reserved == 2
        if how == "closed":
            await b.close()
        else:
            await advance(1.5)
            await do(e.Ping())
        assert await names(news, e.Notice.ROOM) == ["next"]
        assert await do(e.Leave("jobs", "dead")) is e.Reply.UNKNOWN
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (1, 0)

    # taking

    async def test_a_delayed_task_is_not_taken_before_it_is_due(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"late", priority=9, delay=2.0))
        assert await a.take(5) == ()
        await advance(1.0)
        assert await a.take(5) == ()
        counts = await a.count()
        assert (counts.delayed, counts.waiting) == (1, 0)
        await advance(1.5)
        assert payloads(await a.take(5)) == [b"late"]

    async def test_those_that_asked_in_vain_get_a_delayed_task_when_they_were_hinted_to_ask(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"late", delay=1.5), e.NewTask(b"later", delay=60.0))
        answer = await a.exchange(want=1, wait=True)
        assert 0 < answer.ask_again_in <= 1.5
        for _ in range(3):
            await advance(answer.ask_again_in)
            answer = await a.exchange(want=1, wait=True)
            if answer.tasks:
                break
        assert payloads(answer.tasks) == [b"late"]

    async def test_old_tasks_come_before_higher_priorities_if_they_age(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"old", priority=0))
        await advance(0.25)
        await a.put(e.NewTask(b"old, low", priority=-5), e.NewTask(b"old, high", priority=5))
        await advance(2.0)
        await a.put(e.NewTask(b"new", priority=0), e.NewTask(b"new, high", priority=9))
        tasks = (await a.exchange(want=9, aging=1.0)).tasks
        # The oldest first, whatever their priority; those that have not aged by priority.
        assert payloads(tasks) == [b"old", b"old, low", b"old, high", b"new, high", b"new"]

    async def test_as_many_idle_takers_are_hinted_as_are_needed_in_the_order_in_which_they_came(
        self, client: OpenClient, hints: Hints
    ) -> None:
        wants = {"a": 2, "b": 1, "c": 1, "d": 5, "e": 1}
        clerks = {name: await client(name) for name in wants}
        inboxes = {name: await hints(name) for name in wants}

        async def told() -> str:
            return "".join([name for name, inbox in inboxes.items() for _ in await inbox.new()])

        for name, want in wants.items():
            await clerks[name].idle(want)
        putter = await client("putter")
        await putter.put(*plain(1))
        assert await told() == "a"
        await putter.put(*plain(2))
        assert await told() == "bc"
        await clerks["a"].take(3)
        await putter.put(*plain(6))
        assert await told() == "de"
        await putter.put(*plain(6))
        assert await told() == ""

    @pytest.mark.parametrize("how", ["closed", "expired"])
    async def test_what_a_dead_session_had_comes_back_in_its_old_place(
        self, client: OpenClient, advance: Advance, how: str
    ) -> None:
        a, b = await client("a", ttl=2.0), await client("b")
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

    async def test_stranded_tasks_are_taken_up_when_the_waiters_were_hinted_to_ask(
        self, client: OpenClient, advance: Advance
    ) -> None:
        """A task comes without a put or a hint, because of the pause in the answer."""
        a, b = await client("a", ttl=2.0), await client("b")
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

    async def test_a_thousand_stranded_tasks_come_back_in_short_steps(
        self, client: OpenClient, do: Do
    ) -> None:
        a, b = await client("a"), await client("b")
        ids = await b.put(*plain(1000))
        await a.take(1000)
        await a.begin_to_close()
        operation = e.Exchange(b.session, do.number(), "jobs", want=1000)
        steps = 0
        while (answer := (await do.engine.execute([operation]))[0]) is e.Reply.MORE:
            steps += 1
            assert steps <= 1000
        assert isinstance(answer, e.Exchanged)
        assert steps >= 1, f"a loop of 1000 steps, though {e.CAP} is the cap"
        taken = [*answer.tasks, *await b.take(1000)]
        assert [task.id for task in taken] == list(ids)
        assert {task.deliveries for task in taken} == {2}

    async def test_a_thousand_tasks_that_are_due_at_once(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
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

    async def test_a_batch_of_puts_and_exchanges_is_applied_in_order(
        self, client: OpenClient, do: Do
    ) -> None:
        a = await client("a")
        put = e.Put(a.session, do.number(), "jobs", (e.PutRequest("m", plain(2)),))
        take, again = (e.Exchange(a.session, do.number(), "jobs", want=1) for _ in range(2))
        _, first, second = await do.batch(put, take, again)
        assert payloads(first.tasks + second.tasks) == [b"0", b"1"]

    async def test_the_engines_time_goes_on(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        before = await a.count()
        await advance(2.0)
        assert (await a.count()).now - before.now == self.about(2.0)

    async def test_the_counts_follow_the_time(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        await a.put(
            e.NewTask(b"first"), e.NewTask(b"late", delay=5.0), e.NewTask(b"in a group", delay=8.0, group="g")
        )
        assert (await a.count()).oldest == self.about(0.0)
        await advance(2.0)
        await a.put(e.NewTask(b"second"))
        counts = await a.recount()
        assert (counts.waiting, counts.delayed, counts.groups) == (2, 2, 1)
        assert counts.oldest == self.about(2.0)
        await a.settle(await a.take_one())
        assert (await a.recount()).oldest == self.about(0.0)
        await advance(7.0)
        counts = await a.recount()
        assert (counts.waiting, counts.delayed) == (3, 0)
        assert counts.oldest == self.about(7.0)
        taken = await a.take(2)
        assert payloads(taken) == [b"second", b"in a group"]
        assert (await a.count()).oldest == self.about(4.0)
        for task in [*taken, await a.take_one()]:
            await a.settle(task)
        counts = await a.recount()
        assert (counts.waiting, counts.groups, counts.oldest) == (0, 0, 0)

    # settling

    async def test_a_retry_comes_after_its_pause_and_counts_an_attempt(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (task,) = await a.put(e.NewTask(b"x", priority=2))
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=1.0)
        assert await a.state(task) == "delayed"
        await advance(0.5)
        assert await a.take() == ()
        await advance(0.7)
        again = await a.take_one()
        assert again == e.Taken(task, again.token, b"x", 2, 1, 2, self.about(0.2), b"", b"", b"", "")

    @pytest.mark.parametrize("with_entries", [False, True])
    async def test_postponed_anew_a_task_has_no_failures(
        self, client: OpenClient, engine: e.Engine, do: Do, with_entries: bool
    ) -> None:
        a = await client("a")
        (task,) = await a.put(e.NewTask(b"x"))
        await a.settle(await a.take_one(), e.Verdict.RETRY)
        if with_entries and engine.families:
            assert await do(e.SetEntry("jobs", task, 0, "v", b"x")) is e.Reply.OK
        await a.settle(await a.take_one(), e.Verdict.POSTPONE)
        postponed = await a.take_one()
        assert (postponed.attempts, postponed.deliveries) == (1, 2)
        await a.settle(postponed, e.Verdict.POSTPONE, e.NOT_BEGUN)
        await a.settle(await a.take_one(), e.Verdict.POSTPONE, e.ANEW)
        again = await a.take_one()
        assert (again.attempts, again.deliveries) == (0, 1)

    async def test_a_note_ends_nothing_and_one_that_is_alone_ends_with_its_session(
        self, client: OpenClient
    ) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"task"))
        for n, note in enumerate((b"first", b"second", b"")):
            b = await client(f"b{n}")
            task = await b.take_one()
            assert task.failure == (b"", b"first", b"second")[n]
            answer = await b.exchange(e.Settle(task.id, task.token, e.Verdict.NOTE, failure=note))
            assert (answer.refused, task.deliveries) == ((), n + 1)
            if not note:
                await b.settle(task, e.Verdict.ALONE)
            await b.close()
        (record,) = await a.browse("dead")
        assert record.failure == b"second"
        assert record.result.startswith(b"delivered 3 times without a verdict: process b2 died")
        assert record.result.endswith(b"while the task ran alone in it")

    async def test_as_many_verdicts_as_the_cap_fit_in_one_step_and_no_more(self, client: OpenClient) -> None:
        a = await client("a")
        await a.put(*plain(e.CAP))
        settle = [e.Settle(task.id, task.token, e.Verdict.DONE) for task in await a.take(e.CAP)]
        with pytest.raises(
            ValueError, match=f"settle must hold at most {e.CAP} settlements, not {e.CAP + 1}"
        ):
            await a.exchange(*settle, settle[0])
        assert (await a.exchange(*settle)).refused == ()
        assert (await a.count()).done == e.CAP

    async def test_results_are_kept_for_their_time(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
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

    # many at once

    async def test_a_listing_of_more_than_one_operation_may_look_at(self, client: OpenClient) -> None:
        a = await client("a")
        ids = await a.put(*plain(2 * e.CAP + 5))
        assert [record.id for record in await a.browse("waiting", limit=e.CAP)] == list(ids)

    async def test_a_listing_goes_on_while_tasks_come_and_go(self, client: OpenClient) -> None:
        a = await client("a")
        ids = await a.put(*plain(6))
        page = await a.page("waiting", limit=2)
        (first, second) = page.rows
        await a.end(first.id, "cancelled")
        await a.end(second.id, "cancelled")
        await a.end(ids[2], "cancelled")
        (new,) = await a.put(*plain(1))
        assert [record.id for record in await a.browse("waiting", page.next)] == [*ids[3:], new]

    async def test_a_place_that_no_page_has_given(self, client: OpenClient) -> None:
        a = await client("a")
        await a.put(*plain(1))
        for state in ("waiting", "delayed", "leased", "ended", "dead"):
            with pytest.raises(EngineError):
                await a.page(state, "nonsense")
        with pytest.raises(ValueError, match="limit"):
            e.Scan(e.TASKS["waiting"], "jobs", limit=0)

    async def test_more_dead_tasks_than_one_step_requeues(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        ids = await a.put(*plain(2 * e.CAP + 10))
        await _bury(a, len(ids))
        for count in (e.CAP, e.CAP, 10, 0):
            assert await do.move("jobs", "dead", "waiting") == count
        assert [task.id for task in await a.take(1000)] == list(ids)

    async def test_more_tasks_than_one_step_purges(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        ids = await a.put(*plain(e.CAP + 20), *plain(30, delay=60.0))
        assert await do.move("jobs", "waiting", "purged") == e.CAP
        assert [record.id for record in await a.browse("waiting")] == list(ids[e.CAP : e.CAP + 20])
        assert (await a.count()).delayed == 30
        assert [await do.move("jobs", state, "purged") for state in ("waiting", "delayed")] == [20, 30]
        # nothing is left that says anything
        assert (await a.count()).put == 0
