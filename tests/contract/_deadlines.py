"""The contract's tests of the deadlines of tasks."""

from __future__ import annotations

import pytest

from tenure import engine as e

from ._clerk import OpenClient, QueueSession, QueueSessionBase, payloads
from ._configured import set_groups
from ._contract import Advance, Hints

_CHILD = e.NewTask(b"child")
_EXPIRED = e.Outcome("expired", b"", 0)


async def _bear(session: QueueSession, task: e.Taken, name: str, child: e.NewTask = _CHILD) -> int:
    """Put a child of a task."""
    answer = await session.do(
        e.PutChildren(session.queue, task.id, task.token, session.queue, (name,), (child,))
    )
    assert isinstance(answer, e.Accepted), answer
    (only,) = answer.ids
    assert isinstance(only, int)
    return only


async def _left(session: QueueSession, state: str) -> dict[bytes, float | None]:
    """The seconds that the tasks in a state have left, by their payloads."""
    return {record.payload: record.deadline for record in await session.browse(state)}


class DeadlineContract(QueueSessionBase):
    """Past its deadline a task ends as expired, wherever it is."""

    async def test_a_task_without_a_taker_ends_at_its_deadline(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        tasks = (
            e.NewTask(b"1", deadline=1.0),
            e.NewTask(b"2", delay=60.0, deadline=1.0, expires=30.0),
            e.NewTask(b"3", deadline=60.0, expires=1.0),
            e.NewTask(b"4", deadline=60.0),
        )
        *late, _ = await a.put(*tasks)
        await advance(0.5)
        assert (await a.count()).expired == 0
        await advance(0.7)
        assert payloads(await a.take(5)) == [b"4"]
        assert [await a.result(task) for task in late] == [_EXPIRED] * 3
        counts = await a.recount()
        assert (counts.expired, counts.waiting, counts.delayed, counts.leased) == (3, 0, 0, 1)

    async def test_a_holder_learns_of_it_and_so_does_who_looks(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"1", deadline=8.0), e.NewTask(b"2", delay=2.0, deadline=8.0), e.NewTask(b"3"))
        assert await _left(a, "waiting") == {b"1": pytest.approx(8.0, abs=0.5), b"3": None}  # pyright: ignore[reportUnknownMemberType]
        await advance(1.0)
        first, third = await a.take(2)
        assert first.deadline == pytest.approx(7.0, abs=0.5)  # pyright: ignore[reportUnknownMemberType]
        assert third.deadline is None
        assert await _left(a, "delayed") == {b"2": pytest.approx(7.0, abs=0.5)}  # pyright: ignore[reportUnknownMemberType]
        assert await _left(a, "leased") == {b"1": pytest.approx(7.0, abs=0.5), b"3": None}  # pyright: ignore[reportUnknownMemberType]
        page = await a.do.page(e.Scan(e.TASK, "jobs", only=str(first.id)))
        assert isinstance(page, e.TaskPage)
        assert 0 < page.ask_again_in <= 7.0

    async def test_the_holder_is_asked_to_stop(
        self, client: OpenClient, hints: Hints, advance: Advance
    ) -> None:
        a, news = await client("a"), await hints("a")
        await a.put(e.NewTask(b"", deadline=1.0))
        task = await a.take_one()
        await a.do(e.Progress("jobs", task.id, task.token, b"half"))
        await advance(1.2)
        assert (await a.exchange()).stop == (task.token,)
        assert await news.new() == [e.Hint("a", "jobs", str(task.token), e.Notice.STOP)]
        assert await a.do(e.Progress("jobs", task.id, task.token, b"more")) is e.Reply.REQUESTED
        assert await a.do(e.Move("jobs", (task.id,), "cancelled", ttl=None)) == e.MovedCount(1)
        assert await news.new() == [], "it was asked before"
        assert await _left(a, "leased") == {b"": 0.0}
        await a.settle(task, e.Verdict.CANCEL, b"why", ttl=None)
        assert await a.result(task.id) == _EXPIRED
        assert (await a.recount()).expired == 1

    @pytest.mark.parametrize(
        "verdict", [v for v in e.Verdict if v not in (e.Verdict.DONE, e.Verdict.NOTE, e.Verdict.ALONE)]
    )
    async def test_it_ends_as_expired_whatever_the_holder_says(
        self, client: OpenClient, advance: Advance, engine: e.Engine, verdict: e.Verdict
    ) -> None:
        if verdict in (e.Verdict.WAIT, e.Verdict.WAIT_FOR) and not engine.families:
            pytest.skip(f"{engine.url} has no families of tasks")
        a = await client("a")
        await a.put(e.NewTask(b"", deadline=1.0))
        task = await a.take_one()
        await advance(1.2)
        await a.settle(task, verdict, b"v", delay=5.0)
        assert await a.result(task.id) == _EXPIRED

    async def test_done_is_accepted_all_the_same(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"", deadline=1.0))
        task = await a.take_one()
        await advance(1.2)
        await a.settle(task, e.Verdict.DONE, b"result")
        assert await a.result(task.id) == e.Outcome("done", b"result", 0)

    async def test_one_that_was_cancelled_before_ends_as_expired_too(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(e.NewTask(b"1", deadline=1.0), e.NewTask(b"2", deadline=9.0))
        late, early = await a.take(2)
        await a.do(e.Move("jobs", (late.id, early.id), "cancelled", ttl=None))
        await advance(1.2)
        await a.settle(late, e.Verdict.RETRY)
        await a.settle(early, e.Verdict.RETRY)
        assert await a.result(late.id) == _EXPIRED
        assert await a.result(early.id) == e.Outcome("cancelled", b"", 0)

    async def test_a_lost_session_ends_it(self, client: OpenClient, advance: Advance) -> None:
        a, b = await client("a"), await client("b")
        await a.put(e.NewTask(b"1", deadline=1.0))
        task = await b.take_one(max_deliveries=1)
        await advance(1.2)
        await b.close()
        assert await a.result(task.id) == _EXPIRED

    async def test_what_goes_back_before_ends_at_its_deadline(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(*(e.NewTask(b"", deadline=1.0, expires=0.2) for _ in range(3)))
        tasks = await a.take(3)
        await advance(0.5)
        for task, verdict in zip(
            tasks, (e.Verdict.RETRY, e.Verdict.GIVE_BACK, e.Verdict.POSTPONE), strict=True
        ):
            await a.settle(task, verdict, delay=60.0)
        counts = await a.count()
        assert (counts.waiting, counts.delayed, counts.expired) == (1, 2, 0)
        await advance(0.7)
        outcomes = [await a.result(task.id) for task in tasks]
        assert outcomes == [e.Outcome("expired", b"", 1), _EXPIRED, _EXPIRED]

    async def test_a_dead_task_that_is_made_ready_again_has_none(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (task,) = await a.put(e.NewTask(b"", deadline=1.0))
        await a.settle(await a.take_one(), e.Verdict.DEAD)
        await advance(1.2)
        assert await a.do(e.Move("jobs", (task,), "waiting")) == e.MovedCount(1)
        assert await _left(a, "waiting") == {b"": None}
        assert (await a.take_one()).deadline is None

    async def test_a_task_that_is_replaced_has_the_new_one(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (task,) = await a.put(e.NewTask(b"1", key="k", deadline=1.0))
        await a.request("m", e.NewTask(b"2", key="k", deadline=3.0, on_duplicate="replace"))
        await advance(1.5)
        page: e.Page[e.Record] = await a.do.page(e.Scan(e.KEYED_TASK, "jobs", only="k"))
        assert (page.rows[0].id, page.rows[0].deadline) == (task, pytest.approx(1.5, abs=0.5))  # pyright: ignore[reportUnknownMemberType]
        await advance(2.0)
        assert await a.state(task) == "expired"
        await a.request("m", e.NewTask(b"3", key="k", deadline=1.0))
        await a.request("m", e.NewTask(b"4", key="k", on_duplicate="replace"))
        await advance(1.5)
        assert payloads(await a.take()) == [b"4"]

    async def test_a_group_goes_on_behind_it(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        await a.do(set_groups("jobs", 1))
        await a.put(e.NewTask(b"1", group="g", deadline=1.0), e.NewTask(b"2", group="g"))
        first = await a.take_one()
        await advance(1.2)
        assert await a.take(5) == ()
        await a.settle(first, e.Verdict.RETRY, delay=60.0)
        assert payloads(await a.take(5)) == [b"2"]
        await a.recount()


class FamilyDeadlineContract(QueueSessionBase):
    """A task ends as expired with its descendants."""

    async def _session(self, engine: e.Engine, client: OpenClient) -> QueueSession:
        """A session that raises families."""
        if not engine.families:
            pytest.skip(f"{engine.url} has no families of tasks")
        return await client("a")

    async def test_children_have_the_earlier_of_theirs_and_their_parent_s(
        self, engine: e.Engine, client: OpenClient
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"root", deadline=8.0))
        root = await a.take_one()
        await _bear(a, root, "heir")
        await _bear(a, root, "own", e.NewTask(b"own", deadline=4.0))
        await _bear(a, root, "late", e.NewTask(b"late", deadline=60.0))
        about = pytest.approx  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        assert await _left(a, "waiting") == {
            b"child": about(8.0, abs=0.5),
            b"own": about(4.0, abs=0.5),
            b"late": about(8.0, abs=0.5),
        }
        child = await a.take_one()
        await _bear(a, child, "x", e.NewTask(b"grandchild"))
        assert (await _left(a, "waiting"))[b"grandchild"] == about(8.0, abs=0.5)

    async def test_a_child_of_a_root_without_one_may_have_its_own(
        self, engine: e.Engine, client: OpenClient, advance: Advance
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"root"))
        root = await a.take_one()
        child = await _bear(a, root, "x", e.NewTask(b"", deadline=1.0))
        await a.settle(root, e.Verdict.WAIT)
        await advance(1.2)
        assert await a.state(child) == "expired"
        again = await a.take_one()
        assert again.id == root.id
        await a.settle(again)
        assert await a.state(root.id) == "done"

    async def test_a_suspended_task_ends_with_its_descendants(
        self, engine: e.Engine, client: OpenClient, advance: Advance
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"root", deadline=1.0))
        root = await a.take_one()
        first, second = await _bear(a, root, "a"), await _bear(a, root, "b")
        await a.settle(root, e.Verdict.WAIT)
        child = await a.take_one()
        grandchild = await _bear(a, child, "x")
        await a.settle(child, e.Verdict.WAIT)
        await advance(1.2)
        assert {await a.state(task) for task in (root.id, first, second, grandchild)} == {"expired"}
        counts = await a.recount()
        assert (counts.expired, counts.suspended, counts.ending) == (4, 0, 0)

    async def test_it_ends_after_its_leased_children(
        self, engine: e.Engine, client: OpenClient, advance: Advance
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"root", deadline=1.0))
        root = await a.take_one()
        await _bear(a, root, "a")
        await a.settle(root, e.Verdict.WAIT)
        child = await a.take_one()
        await advance(1.2)
        assert (await a.exchange()).stop == (child.token,)
        assert await a.state(root.id) == "ending"
        await a.settle(child, e.Verdict.CANCEL)
        assert await a.state(child.id) == "expired"
        assert await a.result(root.id) == _EXPIRED

    async def test_done_with_an_unfinished_child_ends_as_expired(
        self, engine: e.Engine, client: OpenClient, advance: Advance
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"root", deadline=1.0))
        root = await a.take_one()
        await _bear(a, root, "a")
        child = await a.take_one()
        await advance(1.2)
        assert set((await a.exchange()).stop) == {root.token, child.token}
        refused = e.PutChildren("jobs", root.id, root.token, "jobs", ("b",), (e.NewTask(b""),))
        assert await a.do(refused) is e.Reply.REQUESTED
        await a.settle(root, e.Verdict.DONE, b"result")
        assert await a.state(root.id) == "ending"
        await a.settle(child, e.Verdict.DONE, b"late, but done")
        assert await a.result(root.id) == _EXPIRED
        assert await a.state(child.id) == "done"

    async def test_a_task_that_is_ending_for_a_retry_ends_as_expired(
        self, engine: e.Engine, client: OpenClient, advance: Advance
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"1", deadline=1.0), e.NewTask(b"2", deadline=1.0))
        retried, dead = await a.take(2)
        for task in (retried, dead):
            await _bear(a, task, "a")
        children = await a.take(2)
        await a.settle(retried, e.Verdict.RETRY)
        await a.settle(dead, e.Verdict.DEAD, b"why")
        await advance(1.2)
        for child in children:
            await a.settle(child, e.Verdict.CANCEL)
        assert await a.result(retried.id) == e.Outcome("expired", b"", 1)
        assert await a.result(dead.id) == e.Outcome("dead", b"why", 1)

    async def test_an_expiry_ends_with_the_first_entry_and_a_deadline_does_not(
        self, engine: e.Engine, client: OpenClient, advance: Advance
    ) -> None:
        a = await self._session(engine, client)
        await a.put(e.NewTask(b"", expires=1.0, deadline=2.0))
        task = await a.take_one()
        await a.do(e.SetEntry("jobs", task.id, task.token, "v", b"value"))
        await a.settle(task, e.Verdict.WAIT_FOR, b"other", delay=60.0)
        await advance(1.2)
        page = await a.do.page(e.Scan(e.TASK, "jobs", only=str(task.id)))
        assert page.rows[0].state == "suspended"
        assert page.rows[0].deadline == pytest.approx(0.8, abs=0.5)  # pyright: ignore[reportUnknownMemberType]
        await advance(1.0)
        assert await a.result(task.id) == _EXPIRED
