"""A clock that is set back: what was ready stays ready. For engines whose clock can be set back."""

from __future__ import annotations

import pytest

from tenure import engine as e

from ._clerk import OpenClient, QueueSessionBase, plain
from ._contract import Advance, Do

_LEAP = 500.0


class SetBackContract(QueueSessionBase):
    """Demands on an engine whose clock is set back."""

    @pytest.mark.parametrize("group", ["", "g"])
    @pytest.mark.parametrize("how", ["given back", "lost"])
    async def test_a_task_that_goes_back_is_ready_at_once(
        self, client: OpenClient, advance: Advance, how: str, group: str
    ) -> None:
        a, b = await client("a"), await client("b")
        await a.put(e.NewTask(b"1", group=group), e.NewTask(b"2", group=group, priority=1))
        taken = await a.take(2)
        await advance(-_LEAP)
        if how == "lost":
            await a.close()
        else:
            for task in taken:
                await a.settle(task, e.Verdict.GIVE_BACK)
        assert (await b.count()).waiting == 2
        assert {task.id for task in await b.take(2)} == {task.id for task in taken}
        await b.recount()

    async def test_a_task_that_is_changed_stays_ready(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        (task,) = await a.put(*plain(1))
        await advance(-_LEAP)
        assert [record.state for record in await a.browse("waiting")] == ["waiting"]
        change = e.Move("jobs", (task,), "delayed", delay=None, priority=1, state="waiting")
        assert await do(change) == e.MovedCount(1)
        assert (await a.take_one()).id == task

    async def test_a_parent_whose_child_has_ended_is_ready_at_once(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(*plain(1))
        root = await a.take_one()
        await do(e.PutChildren("jobs", root.id, root.token, "jobs", ("c",), plain(1)))
        child = await a.take_one()
        await a.settle(root, e.Verdict.WAIT)
        await advance(-_LEAP)
        await a.settle(child)
        assert (await a.take_one()).id == root.id

    async def test_what_is_delayed_is_late_by_the_leap(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        delayed, retried = await a.put(e.NewTask(b"1", delay=5.0), e.NewTask(b"2"))
        taken = await a.take_one()
        await advance(-_LEAP)
        await a.settle(taken, e.Verdict.RETRY, delay=5.0)
        change = e.Move("jobs", (delayed,), "delayed", delay=None, priority=1, state="delayed")
        assert await do(change) == e.MovedCount(1)
        await advance(6)
        assert [task.id for task in await a.take(2)] == [retried]
        await advance(_LEAP)
        assert [task.id for task in await a.take(2)] == [delayed]
