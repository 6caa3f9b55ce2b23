"""Groups of tasks: turns, limits and order, each in a few operations."""

from __future__ import annotations

from tenure import engine as e

from ._clerk import OpenClient, QueueSession, QueueSessionBase, payloads
from ._configured import set_groups
from ._contract import Advance, Do, Hints


def _tasks(group: str, count: int, first: int = 0) -> tuple[e.NewTask, ...]:
    """Tasks whose payloads are the group and a number."""
    return tuple(e.NewTask(b"%s%d" % (group.encode(), n), group=group) for n in range(first, first + count))


async def _all(client: QueueSession) -> str:
    """The groups of all tasks that can be taken, in the order of taking."""
    return " ".join(task.group or "-" for task in await client.take(100))


class GroupContract(QueueSessionBase):
    """The contract's tests of groups, beside the walk."""

    async def test_groups_take_turns_whatever_their_length(self, client: OpenClient) -> None:
        a = await client("a")
        await a.put(*_tasks("big", 200))
        assert payloads(await a.take(2)) == [b"big0", b"big1"]
        await a.put(*(task for n in range(20) for task in _tasks(f"small{n:02}", 1)))
        groups = [task.group for task in await a.take(22)]
        assert groups.count("big") == 2
        assert len(set(groups)) == 21

    async def test_turns_are_taken_by_weight(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        await do(set_groups("jobs", weights=(("gold", 4.0), ("slow", 0.5))))
        await a.put(*_tasks("gold", 8), *_tasks("slow", 8), *_tasks("x", 8), *_tasks("", 8))
        assert " ".join([task.group or "-" for task in await a.take(14)]) == (
            "gold gold gold - gold x gold gold gold - gold slow x -"
        )

    async def test_a_group_that_comes_back_saved_nothing_up_and_lost_nothing(
        self, client: OpenClient
    ) -> None:
        a = await client("a")
        await a.put(*_tasks("a", 9))
        await a.take(4)
        await a.put(*_tasks("b", 4))
        assert await _all(a) == "a b a b a b a b a"

    async def test_one_that_always_puts_a_single_task_takes_turns_too(self, client: OpenClient) -> None:
        a = await client("a")
        await a.put(*_tasks("a", 9))
        order = ""
        for _ in range(4):
            await a.put(*_tasks("b", 1))
            for _ in range(2):
                task = await a.take_one()
                await a.settle(task)
                order += task.group
        assert order == "abababab"

    async def test_what_goes_back_untried_costs_no_turn(self, client: OpenClient) -> None:
        a, b = await client("a"), await client("b")
        await a.put(*_tasks("a", 3), *_tasks("b", 3))
        await a.settle(await a.take_one(), e.Verdict.GIVE_BACK)
        assert (await b.take_one()).group == "a"
        await b.close()
        assert await _all(a) == "a b a b a b"

    async def test_what_failed_costs_a_turn(self, client: OpenClient) -> None:
        a = await client("a")
        await a.put(*_tasks("a", 3), *_tasks("b", 3))
        await a.settle(await a.take_one(), e.Verdict.RETRY)
        assert await _all(a) == "b a b a b a"

    async def test_no_more_of_a_group_are_leased_than_its_limit(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        await do(set_groups("jobs", group_limit=2))
        await a.put(*_tasks("a", 5), *_tasks("b", 1), *_tasks("", 3))
        first = await a.take(100)
        assert sorted(task.group for task in first) == ["", "", "", "a", "a", "b"]
        assert await a.take(1) == ()
        tasks = [task for task in first if task.group == "a"]
        done = e.Settle(tasks[0].id, tasks[0].token, e.Verdict.DONE)
        assert payloads((await a.exchange(done, want=5)).tasks) == [b"a2"]
        await do(set_groups("jobs", group_limit=3))
        assert payloads(await a.take(5)) == [b"a3"]
        await do(set_groups("jobs", group_limit=1))
        await a.settle(tasks[1])
        assert await a.take(5) == ()
        await do(set_groups("jobs"))
        assert payloads(await a.take(5)) == [b"a4"]

    async def test_the_end_of_a_task_wakes_an_idle_taker_for_the_next_of_its_group(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        await do(set_groups("jobs", group_limit=1))
        await a.put(*_tasks("a", 2))
        task = await a.take_one()
        assert (await b.exchange(want=1, wait=True)).tasks == ()
        await a.settle(task)
        assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]
        task = await b.take_one()
        assert (await b.exchange(want=1, wait=True)).tasks == ()
        await a.put(*_tasks("a", 1))
        assert await inbox.new() == []

    async def test_a_task_that_rests_holds_its_group(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await do(set_groups("jobs", group_limit=1))
        await a.put(*_tasks("a", 1), e.NewTask(b"urgent", 9, delay=0.5, group="a"), *_tasks("b", 1))
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=1.0)
        assert payloads(await a.take(5)) == [b"b0"]
        await advance(0.75)
        assert await a.take(5) == ()
        await advance(0.5)
        tasks = await a.take(5)
        assert payloads(tasks) == [b"a0"]
        await a.settle(tasks[0])
        assert payloads(await a.take(5)) == [b"urgent"]

    async def test_a_resting_task_that_ends_frees_its_group(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a = await client("a")
        inbox = await hints("a")
        await do(set_groups("jobs", group_limit=1))
        first, _ = await a.put(*_tasks("a", 2))
        await a.settle(await a.take_one(), e.Verdict.POSTPONE, delay=1000.0)
        assert (await a.exchange(want=1, wait=True)).tasks == ()
        await do(e.Move("jobs", (first,), "cancelled"))
        assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]
        assert payloads(await a.take(5)) == [b"a1"]

    async def test_others_may_pass_a_resting_task(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        await do(set_groups("jobs", group_limit=1, hold=False))
        await a.put(*_tasks("a", 2))
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=1000.0)
        assert payloads(await a.take(5)) == [b"a1"]

    async def test_a_full_group_delays_its_own_producers_only(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        await do(set_groups("jobs", group_size=2))
        await a.put(*_tasks("a", 2))
        for producer in "xy":
            answer = await b.request(producer, *_tasks("a", 1, 2))
            assert isinstance(answer, e.Queued)
        assert await a.request("m", *_tasks("a", 1), wait=False) is e.Reply.REFUSED
        assert await a.request("m", *_tasks("a", 1), *_tasks("b", 1)) is e.Reply.REFUSED
        assert await a.request("m", *_tasks("b", 3)) is e.Reply.REFUSED
        await a.put(*_tasks("b", 2), *_tasks("", 3))
        assert (await a.count()).producers == 2
        await a.settle(next(task for task in await a.take(100) if task.group == "a"))
        assert [(hint.news, hint.name) for hint in await inbox.new()] == [(e.Notice.ROOM, "x")]
        assert await a.request("m", *_tasks("a", 1), wait=False) is e.Reply.REFUSED
        assert isinstance(await b.request("x", *_tasks("a", 1, 2)), e.Accepted)
        await do(set_groups("jobs", group_size=3))
        assert [(hint.news, hint.name) for hint in await inbox.new()] == [(e.Notice.ROOM, "y")]
        assert await do(e.Leave("jobs", "y")) is e.Reply.RELEASED
        await a.recount()

    async def test_a_request_that_is_larger_than_a_lowered_limit_waits_for_an_empty_group(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        await do(set_groups("jobs", group_size=3))
        await a.put(*_tasks("a", 2))
        for producer, count in (("x", 3), ("y", 1)):
            assert isinstance(await b.request(producer, *_tasks("a", count, 5)), e.Queued)
        await do(set_groups("jobs", group_size=1))
        first, second = await a.take(2)
        await a.settle(first)
        assert await inbox.new() == []
        await a.settle(second)
        assert [(hint.news, hint.name) for hint in await inbox.new()] == [(e.Notice.ROOM, "x")]
        assert isinstance(await b.request("x", *_tasks("a", 3, 5)), e.Accepted)
        for task in await a.take(2):
            await a.settle(task)
        assert await inbox.new() == []
        await a.settle(await a.take_one())
        assert [(hint.news, hint.name) for hint in await inbox.new()] == [(e.Notice.ROOM, "y")]
        assert isinstance(await b.request("y", *_tasks("a", 1, 5)), e.Accepted)
        await a.recount()

    async def test_the_longest_groups_are_listed(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        await a.put(*_tasks("a", 1), *_tasks("b", 3), *_tasks("c", 1), *_tasks("", 9))
        await a.put(e.NewTask(b"", delay=1000.0, group="c"))
        await a.take(3)
        assert await a.groups() == (
            e.GroupCounts("b", 2, 0, 1),
            e.GroupCounts("c", 1, 1, 0),
            e.GroupCounts("a", 0, 0, 1),
        )
        assert (await do.page(e.Scan(e.GROUPS, "jobs", limit=1))).rows == (e.GroupCounts("b", 2, 0, 1),)
        assert (await a.recount()).groups == 3
        assert (await do.page(e.Scan(e.GROUPS, "none"))).rows == ()

    async def test_groups_leave_nothing(self, client: OpenClient) -> None:
        a = await client("a")
        for n in range(30):
            await a.put(*_tasks(f"g{n}", 1))
        for task in await a.take(100):
            await a.settle(task, ttl=0.0)
        assert await a.groups() == ()
        assert (await a.recount()).groups == 0

    async def test_records_name_the_group_to_the_end(self, client: OpenClient) -> None:
        a = await client("a")
        (task,) = await a.put(*_tasks("a", 1))
        assert [record.group for record in await a.browse("waiting")] == ["a"]
        await a.end(task, "dead")
        assert [record.group for record in await a.browse("dead")] == ["a"]
        await a.do(e.Move("jobs", (task,), "waiting"))
        assert (await a.take_one()).group == "a"

    async def test_a_cursor_that_is_not_as_expected_puts_nothing(self, client: OpenClient) -> None:
        a = await client("a")
        assert isinstance(await a.request("m", e.NewTask(b"1"), cursor=("c", b"1"), expected=b""), e.Accepted)
        assert await a.request("m", e.NewTask(b"2"), cursor=("c", b"2"), expected=b"") == e.Conflict(b"1")
        assert await a.request("m", e.NewTask(b"2"), cursor=("c", b"2"), expected=b"0") == e.Conflict(b"1")
        assert await a.request("m", e.NewTask(b"2"), cursor=("d", b"2"), expected=b"0") == e.Conflict(b"")
        assert isinstance(
            await a.request("m", e.NewTask(b"2"), cursor=("c", b"2"), expected=b"1"), e.Accepted
        )
        assert (await a.count()).cursors == (("c", b"2"),)
        assert payloads(await a.take(9)) == [b"1", b"2"]

    async def test_a_cursor_without_a_value_is_removed(self, client: OpenClient) -> None:
        a = await client("a")
        assert isinstance(await a.request("m", cursor=("c", b"1"), expected=b""), e.Accepted)
        assert isinstance(await a.request("m", cursor=("c", b"")), e.Accepted)
        assert (await a.count()).cursors == ()
        assert await a.request("m", cursor=("c", b"2"), expected=b"1") == e.Conflict(b"")
