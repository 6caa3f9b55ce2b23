"""Rates of queues and groups, and those that are held off: what may not start yet is not taken."""

from __future__ import annotations

from tenure import engine as e

from ._clerk import OpenClient, QueueSessionBase, payloads, plain
from ._configured import set_groups
from ._contract import Advance, Do, Hints


def _tasks(group: str, count: int) -> tuple[e.NewTask, ...]:
    return tuple(e.NewTask(b"%s%d" % (group.encode(), n), group=group) for n in range(count))


class PaceContract(QueueSessionBase):
    """The contract's tests of rates before the lease."""

    async def test_a_group_whose_time_has_not_come_is_out_of_the_turns(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await do(set_groups("jobs", group_rate=e.Rate(1.0, 2.0)))
        await a.put(*_tasks("a", 6), *_tasks("b", 1), *_tasks("", 2))
        answer = await a.exchange(want=100)
        assert sorted(payloads(answer.tasks)) == [b"0", b"1", b"a0", b"a1", b"b0"]
        assert answer.ask_again_in == self.about(1.0)
        assert await a.take(100) == ()
        await advance(1.125)
        assert payloads(await a.take(100)) == [b"a2"]
        await advance(0.5)
        await a.put(e.NewTask(b"late", group="a"))
        assert await a.take(100) == ()
        await advance(0.5)
        assert payloads(await a.take(100)) == [b"a3"]
        await advance(0.5)
        await do(set_groups("jobs"))
        assert payloads(await a.take(100)) == [b"a4", b"a5", b"late"]  # without a rate nothing waits

    async def test_a_burst_comes_back_with_time_and_no_more(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await do(set_groups("jobs", rate=e.Rate(0.5, 3.0)))
        await a.put(*plain(20))
        assert len(await a.take(2)) == 2
        await advance(30)
        assert len(await a.take(20)) == 3
        assert len(await a.take(20)) == 0
        await advance(1.125)
        assert len(await a.take(1)) == 1
        answer = await a.exchange(want=20)
        assert len(answer.tasks) == 1
        assert answer.ask_again_in == self.about(0.375)

    async def test_all_idle_takers_come_to_the_tasks_that_may_start(
        self, client: OpenClient, do: Do, hints: Hints, advance: Advance
    ) -> None:
        a, b, c = await client("a"), await client("b"), await client("c")
        told = [await hints("b"), await hints("c")]

        async def news() -> list[int]:
            return [len(await inbox.new()) for inbox in told]

        for settings in (
            set_groups("jobs", rate=e.Rate(1.0, 2.0)),
            set_groups("jobs", group_rate=e.Rate(1.0, 2.0)),
        ):
            await do(settings)
            await b.idle()
            await c.idle()
            await a.put(*_tasks("a", 5))
            assert await news() == [1, 0]
            await b.take_one()
            assert await news() == [0, 1]  # each has the next hinted
            await c.take_one()
            assert (await b.idle()).ask_again_in == self.about(1.0)
            await c.idle()
            await advance(2.125)
            assert await news() == [0, 0]
            await a.take_one()  # whoever comes first has the time pass for all
            assert (await news())[0] == 1
            await b.take_one()
            await c.take(0)
            await do.move("jobs", "waiting", "purged")
            await advance(10)
            await a.take(0)

    async def test_all_idle_takers_come_once_a_queue_is_held_off_no_longer(
        self, client: OpenClient, do: Do, hints: Hints, advance: Advance
    ) -> None:
        a, b, c = await client("a"), await client("b"), await client("c")
        told = [await hints("b"), await hints("c")]
        await do(e.SetPaused("jobs", paused=False, seconds=2.0))
        await a.put(*plain(4))
        await b.idle()
        await c.idle()
        await advance(2.125)
        await a.take_one()
        assert [len(await inbox.new()) for inbox in told] == [1, 1]

    async def test_what_is_put_where_nothing_may_start_yet_has_an_idle_taker_ask(
        self, client: OpenClient, do: Do, hints: Hints, advance: Advance
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        for group, other in (("g", "h"), ("", "")):
            await do(e.SetPaused("jobs", paused=True, seconds=4.0, group=group))
            await do(e.SetPaused("jobs", paused=True, seconds=2.0, group=group))
            await b.idle()
            await a.put(*_tasks("g", 2))
            assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]
            assert (await b.idle()).ask_again_in == self.about(4.0)
            await a.put(*_tasks("g", 1))
            assert await inbox.new() == []
            if other:
                await a.put(*_tasks(other, 1))
                assert len(await inbox.new()) == 1
                assert (await b.take_one()).group == other
            assert not (await a.count()).paused
            await advance(4.125)
            assert len(await b.take(5)) == 3
            await advance(10)

    async def test_no_idle_taker_asks_for_what_is_due_behind_the_next_start(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        await do(set_groups("jobs", rate=e.Rate(4.0, 2.0)))
        await a.put(*plain(2))
        first, last = await a.take(2)
        await b.idle()
        await a.exchange(
            e.Settle(first.id, first.token, e.Verdict.RETRY),
            e.Settle(last.id, last.token, e.Verdict.POSTPONE, delay=8.0),
        )
        assert await inbox.new() == []

    async def test_what_was_held_off_starts_one_by_one(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await do(set_groups("jobs", group_rate=e.Rate(0.5, 10.0), group_limit=2))
        await a.put(*_tasks("a", 6))
        task = (await a.take(6))[0]
        await do(e.SetPaused("jobs", paused=True, seconds=2.0, group="a"))
        await a.settle(task, e.Verdict.GIVE_BACK)
        assert await a.take(6) == ()
        await advance(2.125)
        assert len(await a.take(6)) == 1
        await advance(0.25)
        assert await a.take(6) == ()
        await advance(0.25)
        assert await a.take(6) == ()  # two are leased

    async def test_the_counts_say_when_the_next_task_may_start(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")

        async def groups() -> dict[str, object]:
            return {row.group: self.about(row.starts_in) for row in await a.groups()}

        counts = await a.count()
        assert (counts.starts_in, counts.rate, counts.group_rate) == (0, None, None)
        await do(set_groups("jobs", rate=e.Rate(2.0), group_rate=e.Rate(4.0, 2.0)))
        await a.put(*_tasks("g", 4), *_tasks("h", 1), *_tasks("", 1))
        counts = await a.count()
        assert (counts.starts_in, counts.rate, counts.group_rate) == (0, e.Rate(2.0), e.Rate(4.0, 2.0))
        assert await groups() == {"g": 0, "h": 0}
        await do(set_groups("jobs", group_rate=e.Rate(4.0, 2.0)))
        assert len(await a.take(5)) == 4
        assert await groups() == {"g": 4.0, "h": 0}
        await do(e.SetPaused("jobs", paused=True, seconds=8.0, group="h"))
        await do(e.SetPaused("jobs", paused=True, seconds=6.0))
        counts = await a.count()
        assert (counts.starts_in, counts.rate, counts.paused) == (self.about(6.0), None, False)
        await advance(1.0)
        assert (await a.count()).starts_in == self.about(5.0)
        assert await groups() == {"g": 3.0, "h": 7.0}
        await advance(6.125)
        assert (await a.count()).starts_in == 0
        assert await groups() == {"g": 0, "h": 0.875}

    async def test_a_queue_that_is_held_off_is_remembered(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        for group in ("", "g"):
            await do(e.SetPaused("jobs", paused=True, seconds=60.0, group=group))
            await advance(50)
            await a.put(e.NewTask(b"x", group="g"))
            assert await a.take(5) == ()
            await do.move("jobs", "waiting", "purged")
            await advance(30)
            await a.put(e.NewTask(b"x", group="g"))
            await a.settle(await a.take_one())
            await advance(10)

    async def test_a_group_with_a_rate_keeps_the_order_of_its_tasks(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await do(set_groups("jobs", group_rate=e.Rate(1.0, 1.0)))
        await a.put(*(e.NewTask(b"%d" % priority, priority, group="g") for priority in (0, 2, 1)))
        taken: list[bytes] = []
        for _ in range(3):
            taken += payloads(await a.take(5))
            await advance(1.125)
        assert taken == [b"2", b"1", b"0"]
        await a.put(e.NewTask(b"old", group="g"))
        await advance(5)
        await a.put(e.NewTask(b"urgent", 9, group="g"), e.NewTask(b"other", 8, group="h"))
        assert payloads((await a.exchange(want=5, aging=2.0)).tasks) == [b"old", b"other"]
        await advance(1.125)
        assert payloads((await a.exchange(want=5, aging=2.0)).tasks) == [b"urgent"]

    async def test_another_rate_holds_at_once_in_both_directions(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        for of_groups in (False, True):

            async def have(every: float, burst: float = 1.0, of_groups: bool = of_groups) -> None:
                rate = e.Rate(every, burst) if every else None
                await do(set_groups("jobs", group_rate=rate) if of_groups else set_groups("jobs", rate=rate))

            async def soon() -> float:
                return (await a.exchange(want=5)).ask_again_in

            await have(65536.0)
            await a.put(*_tasks("g", 12))
            assert len(await a.take(5)) == 1
            assert await soon() > 10  # an end of the session is due before
            await have(1.0)  # one start counts as one start
            assert await soon() == self.about(1.0)
            await have(1.0)
            assert await soon() == self.about(1.0)
            await advance(0.5)
            await have(4.0)
            assert await soon() == self.about(2.0)
            await have(4.0, 3.0)
            assert len(await a.take(5)) == 2
            await have(4.0, 2.0)  # as much has started as before, at most for one interval of waiting
            assert await soon() == self.about(4.0)
            await have(0.5, 2.0)
            assert await soon() == self.about(0.5)
            await have(65536.0)
            assert await a.take(5) == ()
            await have(0)
            assert len(await a.take(3)) == 3
            await have(65536.0)  # without a rate, nothing was counted
            assert len(await a.take(5)) == 1
            await do(set_groups("jobs"))
            assert len(await a.take(20)) >= 4
            await advance(10)

    async def test_a_hold_ends_at_once_and_leaves_the_rate(
        self, client: OpenClient, do: Do, hints: Hints, advance: Advance
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        for group in ("", "g"):
            for rate in (None, e.Rate(2.0)):
                await do(set_groups("jobs", group_rate=rate) if group else set_groups("jobs", rate=rate))
                hold = e.SetPaused("jobs", paused=True, seconds=3600.0, group=group)
                go_on = e.SetPaused("jobs", paused=True, seconds=0.0, group=group)
                await do(go_on)
                await a.put(*_tasks("g", 3))
                await do(hold)
                await do(e.SetPaused("jobs", paused=True, seconds=1.0, group=group))
                await b.idle()
                assert await inbox.new() == []
                await do(go_on)
                assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]
                assert not (await a.count()).paused
                assert len(await b.take(1)) == 1
                await do(hold)
                assert await a.take(3) == ()
                assert (await b.idle()).ask_again_in > 2.0
                await do(go_on)
                if rate is not None:
                    assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]  # to ask sooner
                    assert (await b.exchange(want=3)).tasks == ()
                    await do(go_on)  # no start is won by it
                    assert await b.take(1) == ()
                    await advance(2.125)
                assert len(await b.take(3)) == (2 if rate is None else 1)
                await do.move("jobs", "waiting", "purged")
                await inbox.new()
                await advance(10)

    async def test_another_rate_leaves_a_hold(self, client: OpenClient, do: Do, advance: Advance) -> None:
        a = await client("a")
        for group in ("", "g"):
            await do(set_groups("jobs", rate=e.Rate(4.0), group_rate=e.Rate(4.0)))
            await a.put(*_tasks("g", 4))
            assert len(await a.take(2)) == 1
            await do(e.SetPaused("jobs", paused=True, seconds=8.0, group=group))
            await do(set_groups("jobs", rate=e.Rate(0.5), group_rate=e.Rate(0.5)))
            assert await a.take(1) == ()
            await do(set_groups("jobs"))
            await advance(7.0)
            assert await a.take(1) == ()
            await do(e.SetPaused("jobs", paused=True, seconds=0.0, group=group))
            assert len(await a.take(9)) == 3
            await advance(10)

    async def test_a_queue_that_is_resumed_is_held_off_no_longer(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        await do(e.SetPaused("jobs", paused=True, seconds=3600.0))
        await do(e.SetPaused("jobs", paused=True))
        await a.put(*plain(2))
        await b.idle()
        await do(e.SetPaused("jobs", paused=True, seconds=0.0))
        assert (await a.count()).paused
        assert await inbox.new() == []
        assert await b.take(1) == ()
        await do(e.SetPaused("jobs", paused=True, seconds=3600.0))
        await b.idle()
        await do(e.SetPaused("jobs", paused=False))
        assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]
        counts = await a.count()
        assert (counts.paused, counts.held_off, counts.starts_in) == (False, 0, 0)
        assert len(await b.take(2)) == 2

    async def test_the_counts_show_rates_and_groups_their_weights(self, client: OpenClient, do: Do) -> None:
        a = await client("a")

        async def shown() -> tuple[object, ...]:
            counts = await a.count()
            return (counts.max_size, counts.rate, counts.group_rate)

        await a.put(*_tasks("g", 1), *_tasks("h", 1))
        assert await shown() == (10_000, None, None)
        weights = (("g", 2.0), ("other", 0.25))
        await do(set_groups("jobs", 1, 5, weights, False, e.Rate(2.0)))
        assert await shown() == (10_000, e.Rate(2.0), None)
        await do(e.SetPaused("jobs", paused=True, seconds=8.0, group="h"))
        await do(e.SetPaused("jobs", paused=True, seconds=6.0))
        assert [(row.group, row.weight, row.held_off) for row in await a.groups()] == [
            ("g", 2.0, 0),
            ("h", 1.0, self.about(8.0)),
        ]
        assert (await a.count()).held_off == self.about(6.0)
        await do(set_groups("jobs"))
        assert await shown() == (10_000, None, None)
        assert [row.weight for row in await a.groups()] == [1.0, 1.0]

    async def test_a_taker_asks_again_for_the_first_group_that_still_has_a_task(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        ids: list[int] = []
        for group, seconds in (("g", 2.0), ("h", 4.0), ("i", 3.0)):
            await do(e.SetPaused("jobs", paused=True, seconds=seconds, group=group))
            ids += await a.put(*_tasks(group, 1))
        assert (await a.exchange(want=5)).ask_again_in == self.about(2.0)
        assert await do(e.Move("jobs", (ids[0],), "purged")) == e.MovedCount(1)
        assert (await a.exchange(want=5)).ask_again_in == self.about(3.0)
        await advance(3.125)
        answer = await a.exchange(want=5)
        assert [task.group for task in answer.tasks] == ["i"]
        assert answer.ask_again_in == self.about(0.875)

    async def test_a_taker_does_not_ask_again_for_a_group_that_went_after_many_others(
        self, client: OpenClient, do: Do
    ) -> None:
        a = await client("a")
        await a.put(*(e.NewTask(b"x", group=f"g{n}") for n in range(300)))
        first, last, *rest = [*await a.take(150), *await a.take(150)]
        for some in (rest[:150], rest[150:]):
            await a.exchange(*(e.Settle(task.id, task.token, e.Verdict.DONE) for task in some))
        await a.settle(last, e.Verdict.GIVE_BACK)
        await do(e.SetPaused("jobs", paused=True, seconds=2.0, group=last.group))
        assert (await a.exchange(want=5)).ask_again_in == self.about(2.0)
        assert await do(e.Move("jobs", (last.id,), "purged")) == e.MovedCount(1)
        assert (await a.exchange(want=5)).ask_again_in > 3.0
        await a.settle(first)

    async def test_a_queue_that_is_held_off_is_as_old_as_its_oldest_task(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await do(e.SetPaused("jobs", paused=True, seconds=2.0))
        await advance(4)
        await a.put(*plain(1))
        await advance(1)
        assert (await a.count()).oldest == self.about(1.0)
