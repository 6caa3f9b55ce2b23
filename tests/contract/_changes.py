"""Changes of tasks that wait, and moves of tasks in a state: what a move leaves as it was."""

from __future__ import annotations

import pytest

from tenure import engine as e

from ._clerk import OpenClient, QueueSessionBase, names, payloads
from ._configured import set_groups
from ._contract import Advance, Do, Hints

NONE, ONE = e.MovedCount(0), e.MovedCount(1)


class ChangeContract(QueueSessionBase):
    """The contract's tests of changed tasks, beside the walk."""

    async def test_a_changed_task_stands_where_it_would_have_been_put(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        first, second = await a.put(e.NewTask(b"1"), e.NewTask(b"2", 5))
        await advance(0.1)
        await a.put(e.NewTask(b"3", 5), e.NewTask(b"4", 0, group="g"))
        # its time stays: behind the second task, which came with it, and before the third
        assert await do(e.Move("jobs", (first,), "delayed", delay=None, priority=5, payload=b"new")) == ONE
        assert [task.id for task in await a.browse("waiting")][:2] == [first, second]
        assert await do(e.Move("jobs", (second,), "delayed", delay=None, priority=0, group="g")) == ONE
        assert [(task.payload, task.group) for task in await a.browse("waiting")] == [
            *((b"new", ""), (b"3", ""), (b"2", "g"), (b"4", "g"))
        ]
        await a.recount()
        assert sorted(payloads(await a.take(9))) == [b"2", b"3", b"4", b"new"]

    async def test_a_delay_begins_anew_and_else_stays(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        late, ready = await a.put(e.NewTask(b"late", delay=2.0), e.NewTask(b"ready"))
        assert await do(e.Move("jobs", (late,), "delayed", delay=None, priority=3)) == ONE
        assert await do(e.Move("jobs", (ready,), "delayed", delay=5.0, payload=b"later")) == ONE
        assert await a.take(5) == ()
        await advance(2.5)
        assert [(task.id, task.priority) for task in await a.take(5)] == [(late, 3)]
        await advance(3.0)
        assert payloads(await a.take(5)) == [b"later"]

    async def test_a_new_payload_leaves_a_task_in_its_place(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a = await client("a")
        inbox = await hints("a")
        await do(set_groups("jobs", group_limit=1))
        first, _ = await a.put(e.NewTask(b"1", group="g"), e.NewTask(b"2", group="g"))
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=60.0)
        await do.page(e.Scan(e.TASK, "jobs", only=str(first), watch=a.session))
        assert await do(e.Move("jobs", (first,), "delayed", delay=None, payload=b"new")) == ONE
        assert await names(inbox, e.Notice.CHANGED) == [str(first)]
        # it rests still, and holds its group
        assert await a.take(5) == ()
        (record,) = await a.browse("delayed")
        assert (record.id, record.payload, record.attempts) == (first, b"new", 1)

    async def test_a_task_that_goes_to_another_group_frees_its_own(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        inbox = await hints("b")
        await do(set_groups("jobs", group_limit=1, group_size=2))
        first, _ = await a.put(e.NewTask(b"1", group="g"), e.NewTask(b"2", group="g"))
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=60.0)
        await b.request("m", e.NewTask(b"3", group="g"))
        assert await do(e.Move("jobs", (first,), "delayed", delay=None, group="h")) == ONE
        assert await names(inbox, e.Notice.ROOM) == ["m"]
        assert [(row.group, row.waiting, row.delayed) for row in await a.groups()] == [
            ("g", 1, 0),
            ("h", 0, 1),
        ]
        assert payloads(await a.take(5)) == [b"2"]
        assert await do(e.Move("jobs", (first,), "delayed", delay=None, group="")) == ONE
        assert [row.group for row in await a.groups()] == ["g"]
        await a.recount()

    async def test_only_tasks_that_wait_are_changed(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        taken, done = await a.put(e.NewTask(b"taken"), e.NewTask(b"done"))
        tasks = await a.take(2)
        await a.settle(tasks[1])
        for task in (taken, done, done + 1):
            assert await do(e.Move("jobs", (task,), "delayed", delay=None, payload=b"new", group="g")) == NONE
        await a.settle(tasks[0], e.Verdict.GIVE_BACK)
        assert payloads(await a.take(5)) == [b"taken"]
        with pytest.raises(ValueError, match='to must be "delayed" for a change'):
            e.Move("jobs", (taken,), "cancelled", priority=1)

    async def test_only_tasks_in_the_state_are_moved(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a")
        ids = await a.put(*(e.NewTask(b"%d" % n) for n in range(5)), e.NewTask(b"late", delay=60.0))
        waiting, dead, done, leased = ids[4], *ids[:3]
        tasks = await a.take(4)
        await a.settle(tasks[0], e.Verdict.DEAD)
        await a.settle(tasks[1], ttl=1.0)
        await a.settle(tasks[3], ttl=None)
        assert await do(e.Move("jobs", ids, "cancelled", state="dead")) == NONE
        assert await do(e.Move("jobs", ids, "purged", state="dead")) == ONE
        assert await do(e.Move("jobs", ids, "purged", state="leased")) == NONE
        assert await do(e.Move("jobs", ids, "cancelled", state="delayed")) == ONE
        counts = await a.recount()
        assert (counts.waiting, counts.leased, counts.delayed, counts.cancelled) == (1, 1, 0, 1)
        assert (counts.dead, counts.done, counts.purged) == (0, 2, 1)
        assert [await a.result(task) for task in (dead, done + 99)] == [e.Reply.UNKNOWN, e.Reply.UNKNOWN]
        await advance(2.0)
        # a record that has expired is not there
        assert await do(e.Move("jobs", (done, ids[3]), "purged", state="done")) == ONE
        assert await do(e.Move("jobs", ids, "purged")) == e.MovedCount(2)
        assert await a.state(leased) == "leased"
        assert await a.state(waiting) == "unknown"
        await a.settle(tasks[2])
