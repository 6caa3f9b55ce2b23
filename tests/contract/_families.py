"""The contract's tests of children, entries and signals of tasks."""

from __future__ import annotations

import pytest

from tenure import engine as e
from tenure.errors import EngineError

from ._clerk import OpenClient, QueueSession, QueueSessionBase
from ._configured import set_groups
from ._contract import Advance, Hints

_DONE, _DEAD, _RETRY, _WAIT = e.Verdict.DONE, e.Verdict.DEAD, e.Verdict.RETRY, e.Verdict.WAIT


class FamilySession(QueueSession):
    """A session that raises families."""

    async def root(self, task: e.NewTask = e.NewTask(b"root")) -> e.Taken:  # noqa: B008 it never changes
        """A task that was put and taken."""
        await self.put(task)
        return await self.take_one()

    async def bear(
        self, task: e.Taken, *names: str, to: str = "", most: int = 100, group: str = ""
    ) -> tuple[int, ...]:
        """Put children of a task, which are accepted."""
        answer = await self.bear_some(task, *names, to=to, most=most, group=group)
        assert isinstance(answer, e.Accepted), answer
        return tuple(i for i in answer.ids if isinstance(i, int))

    async def bear_some(
        self, task: e.Taken, *names: str, to: str = "", most: int = 100, group: str = ""
    ) -> object:
        """Put children of a task."""
        tasks = tuple(e.NewTask(name.encode(), group=group and e.OF_CHILDREN + group) for name in names)
        return await self.do(
            e.PutChildren(self.queue, task.id, task.token, to or self.queue, names, tasks, most)
        )

    async def entries(self, task: int) -> dict[str, str]:
        """The states of the entries of a task."""
        page = await self.do.page(e.Scan(e.ENTRIES, self.queue, only=str(task)))
        return {entry.name: entry.state for entry in page.rows}

    async def outcome(self, task: int) -> tuple[str, bytes]:
        """The state and the result of a task that has ended."""
        found = await self.result(task)
        assert isinstance(found, e.Outcome), found
        return found.state, found.result

    async def take_each(self, want: int) -> dict[bytes, e.Taken]:
        """Take tasks, by their payloads."""
        return {task.payload: task for task in await self.take(want)}


class FamilyContract(QueueSessionBase):
    """A task ends after its children."""

    @pytest.fixture
    async def family(self, engine: e.Engine, client: OpenClient) -> FamilySession:
        """A session that raises families."""
        if not engine.families:
            pytest.skip(f"{engine.url} has no families of tasks")
        opened = await client("a")
        return FamilySession(opened.do, opened.session, opened.queue)

    async def test_ids_of_children_follow_the_time_of_the_engine(
        self, family: FamilySession, advance: Advance
    ) -> None:
        root = await family.root()
        await advance(1.5)
        first, second = await family.bear(root, "a", "b")
        assert second == first + 1
        assert first - root.id >= (1.5 - self.margin) * 1_000_000 - 2

    # law 1: a task ends only when it has no unfinished child

    @pytest.mark.parametrize("verdict", [_DEAD, e.Verdict.DISCARD, e.Verdict.CANCEL])
    async def test_a_verdict_is_kept_until_the_children_have_ended(
        self, family: FamilySession, verdict: e.Verdict
    ) -> None:
        root = await family.root()
        await family.bear(root, "a", "b")
        taken = await family.take_one()
        await family.settle(root, verdict, b"why")
        assert await family.state(root.id) == "ending"
        assert await family.entries(root.id) == {"a": "unfinished", "b": "cancelled"}
        assert (await family.exchange()).stop == (taken.token,)
        await family.settle(taken, e.Verdict.CANCEL)
        assert await family.outcome(root.id) == (verdict.value, b"why")
        ran = {record.id: record.ran for record in await family.browse("ended")}
        assert ran[root.id] is None, "its lease ended before"
        assert ran[taken.id] is not None
        await family.recount()

    async def test_the_last_delivery_says_whether_the_payload_is_kept(self, family: FamilySession) -> None:
        await family.put(e.NewTask(b"root"))
        await family.settle(await family.take_one(keep=True), e.Verdict.GIVE_BACK)
        root = await family.take_one()
        await family.bear(root, "a")
        child = await family.take_one()
        await family.settle(root, e.Verdict.DISCARD)
        await family.settle(child, e.Verdict.CANCEL)
        assert [record.payload for record in await family.browse("ended")] == [b"", b""]

    async def test_done_waits_for_the_children(self, family: FamilySession) -> None:
        root = await family.root()
        await family.bear(root, "a", to="other")
        await family.settle(root, _DONE, b"early")
        assert await family.state(root.id) == "suspended"
        other = FamilySession(family.do, family.session, "other")
        await other.settle(await other.take_one(), _DONE, b"result")
        again = await family.take_one()
        assert (again.id, again.entries) == (root.id, 1)
        await family.settle(again, _DONE, b"late")
        assert await family.outcome(root.id) == ("done", b"late")

    async def test_a_lost_session_that_ends_a_task_ends_its_children_first(
        self, family: FamilySession, client: OpenClient
    ) -> None:
        await family.put(e.NewTask(b"root"))
        other = await client("b")
        root = await other.take_one(max_deliveries=1)
        await family.do(e.PutChildren("jobs", root.id, root.token, "jobs", ("a",), (e.NewTask(b"a"),)))
        child = await family.take_one()
        await other.close()
        assert await family.state(root.id) == "ending"
        await family.settle(child, e.Verdict.CANCEL)
        assert await family.state(root.id) == "dead"

    async def test_purging_ends_the_children_too(self, family: FamilySession) -> None:
        root = await family.root()
        await family.bear(root, "a")
        await family.settle(root, e.Verdict.GIVE_BACK)
        first, second = await family.take(2)
        assert first.id == root.id
        await family.settle(first, e.Verdict.GIVE_BACK)
        assert await family.do.move("jobs", "waiting", "purged") == 1
        assert await family.state(root.id) == "ending"
        await family.settle(second)
        assert await family.result(root.id) is e.Reply.UNKNOWN
        counts = await family.recount()
        assert (counts.put, counts.purged, counts.done) == (2, 1, 1)

    # law 2: a try ends only when it has no unfinished child

    async def test_a_retry_waits_for_the_children_and_for_its_pause(
        self, family: FamilySession, advance: Advance
    ) -> None:
        root = await family.root()
        await family.bear(root, "a")
        child = await family.take_one()
        await family.settle(root, _RETRY, delay=5.0)
        assert await family.state(root.id) == "ending"
        await family.settle(child, e.Verdict.CANCEL)
        assert await family.state(root.id) == "delayed"
        assert await family.entries(root.id) == {}
        await family.recount()

    async def test_an_interruption_leaves_the_children_alone(self, family: FamilySession) -> None:
        await family.settle(await family.root(), _RETRY)
        root = await family.take_one()
        (child,) = await family.bear(root, "a")
        await family.settle(root, e.Verdict.POSTPONE, e.ANEW, delay=0.0)
        await family.settle(await family.take_one(), e.Verdict.GIVE_BACK)
        assert await family.state(root.id) == await family.state(child) == "waiting"

    # law 3: only the delivery in force writes

    async def test_a_stale_token_writes_nothing(self, family: FamilySession) -> None:
        root = await family.root()
        await family.settle(root, e.Verdict.GIVE_BACK)
        assert await family.bear_some(root, "a") is e.Reply.REFUSED
        assert await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"x")) is e.Reply.REFUSED
        assert await family.entries(root.id) == {}
        assert (await family.recount()).put == 1

    async def test_a_task_that_is_to_stop_writes_nothing(self, family: FamilySession) -> None:
        root = await family.root()
        await family.do(e.Move("jobs", (root.id,), "cancelled"))
        assert await family.bear_some(root, "a") is e.Reply.REQUESTED
        assert await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"x")) is e.Reply.REQUESTED

    async def test_a_root_that_is_replaced_while_it_runs_still_writes(self, family: FamilySession) -> None:
        root = await family.root(e.NewTask(b"root", key="k"))
        (new,) = await family.put(e.NewTask(b"new", key="k", on_duplicate="replace"))
        assert await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"x")) is e.Reply.OK
        await family.bear(root, "a")
        await family.settle(root, _WAIT)  # it would go back
        assert (await family.state(root.id), await family.state(new)) == ("cancelled", "waiting")

    # law 4: the first write of a name wins

    async def test_the_first_write_of_a_name_wins(self, family: FamilySession) -> None:
        root = await family.root()
        first = await family.bear(root, "a", "b")
        assert await family.bear(root, "b", "c") == (first[1], first[1] + 1)
        assert await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"1")) is e.Reply.OK
        entry = e.Entry("v", "value", "done", b"1")
        assert await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"2")) == entry
        assert await family.do(e.SetEntry("jobs", root.id, 0, "v", b"2")) == entry
        assert await family.bear_some(root, "d", "v") == entry
        assert await family.do(e.Scan(e.ENTRIES, "jobs", "b", 2, only=str(root.id))) == e.Page(
            (e.Entry("c", "child", "unfinished", b"", "jobs", first[1] + 1), entry)
        )
        assert (await family.recount()).put == 4

    async def test_unfinished_children_are_listed_by_name(self, family: FamilySession) -> None:
        root = await family.root()
        ids = await family.bear(root, "c", "b", "a")
        await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"1"))
        await family.settle((await family.take_each(3))[b"b"])
        first = await family.do.page(e.Scan(e.UNFINISHED_CHILDREN, "jobs", limit=1, only=str(root.id)))
        assert first == e.Page((e.Entry("a", "child", "unfinished", b"", "jobs", ids[2]),), "a")
        rest = await family.do.page(e.Scan(e.UNFINISHED_CHILDREN, "jobs", first.next, only=str(root.id)))
        assert [entry.name for entry in rest.rows] == ["c"]
        assert await family.do(e.Scan(e.UNFINISHED_CHILDREN, "jobs", only=str(ids[0]))) == e.Page(())

    async def test_a_result_outlasts_the_record_of_the_child(self, family: FamilySession) -> None:
        root = await family.root()
        (child,) = await family.bear(root, "a")
        await family.settle(await family.take_one(), _DONE, b"result", ttl=0.0)
        assert await family.result(child) is e.Reply.UNKNOWN
        page = await family.do(e.Scan(e.ENTRIES, "jobs", only=str(root.id)))
        assert page == e.Page((e.Entry("a", "child", "done", b"result", "jobs", child, ended=1),))
        assert await family.bear(root, "a") == (child,)

    # law 5: a failed child

    async def test_a_failed_child_cancels_the_others_of_the_names_that_are_awaited(
        self, family: FamilySession
    ) -> None:
        root = await family.root()
        await family.bear(root, "x/a", "x/b", "y/a")
        (child,) = await family.take(1)
        await family.settle(root, _WAIT, b"x/")
        await family.settle(child, _DEAD, b"oops")
        assert await family.entries(root.id) == {"x/a": "dead", "x/b": "cancelled", "y/a": "unfinished"}
        await family.settle(await family.take_one())
        assert (await family.take_one()).id == root.id

    async def test_a_child_that_failed_before_the_wait_cancels_the_others(
        self, family: FamilySession
    ) -> None:
        root = await family.root()
        await family.bear(root, "x/a", "x/b")
        await family.settle((await family.take(1))[0], _DEAD)
        await family.settle(root, _WAIT, b"x/")
        assert await family.entries(root.id) == {"x/a": "dead", "x/b": "cancelled"}
        assert (await family.take_one()).id == root.id

    async def test_without_names_the_others_go_on(self, family: FamilySession) -> None:
        root = await family.root()
        await family.bear(root, "x/a", "x/b")
        await family.settle((await family.take(1))[0], _DEAD)
        await family.settle(root, _WAIT)
        assert await family.entries(root.id) == {"x/a": "dead", "x/b": "unfinished"}

    async def test_at_the_end_of_a_try_the_failed_are_gone(self, family: FamilySession) -> None:
        root = await family.root()
        first, second = await family.bear(root, "a", "b")
        children = await family.take_each(2)
        await family.settle(children[b"a"], _DEAD)
        await family.settle(children[b"b"], _DONE)
        await family.settle(root, _RETRY)
        assert await family.entries(root.id) == {"b": "done"}
        root = await family.take_one()
        again = await family.bear(root, "a", "b", most=2)
        assert again[0] > second == again[1]
        assert again[0] != first

    async def test_a_dead_root_keeps_its_entries_for_the_next_try_and_a_dead_child_stays_dead(
        self, family: FamilySession
    ) -> None:
        root = await family.root()
        dead, _ = await family.bear(root, "a", "b")
        children = await family.take_each(2)
        await family.settle(children[b"a"], _DEAD)
        await family.settle(children[b"b"], _DONE)
        await family.settle(root, _DEAD)
        assert await family.entries(root.id) == {"a": "dead", "b": "done"}
        assert await family.do(e.Move("jobs", (dead, root.id), "waiting")) == e.MovedCount(1)
        assert await family.entries(root.id) == {"b": "done"}
        assert await family.state(dead) == "dead"
        assert (await family.browse("dead"))[0].parent == root.id
        await family.settle(await family.take_one(), _DEAD)
        await family.do.move("jobs", "dead", "purged")
        assert await family.entries(root.id) == {}

    # law 6: cancelling goes down

    async def test_cancelling_goes_down_before_the_holder_answers(
        self, family: FamilySession, hints: Hints
    ) -> None:
        inbox = await hints("a")
        root = await family.root()
        await family.bear(root, "a", "b")
        leased = await family.take_one()
        assert leased.payload == b"a"
        await family.do(e.PutChildren("jobs", leased.id, leased.token, "jobs", ("c",), (e.NewTask(b"c"),)))
        await family.do(e.Move("jobs", (root.id,), "cancelled"))
        assert await family.entries(root.id) == {"a": "unfinished", "b": "cancelled"}
        assert await family.entries(leased.id) == {"c": "cancelled"}
        stops = [int(hint.name) for hint in await inbox.new() if hint.news is e.Notice.STOP]
        assert stops == [root.token, leased.token]
        await family.settle(root, e.Verdict.CANCEL)
        await family.settle(leased, _DONE)
        assert await family.state(root.id) == "cancelled"

    async def test_a_child_that_is_ending_for_a_retry_is_cancelled(self, family: FamilySession) -> None:
        root = await family.root()
        (middle,) = await family.bear(root, "a")
        child = await family.take_one()
        await family.do(e.PutChildren("jobs", child.id, child.token, "jobs", ("b",), (e.NewTask(b"b"),)))
        grandchild = await family.take_one()
        await family.settle(child, _RETRY)
        assert await family.state(middle) == "ending"
        await family.do(e.Move("jobs", (root.id,), "cancelled"))
        await family.settle(grandchild)
        assert await family.state(middle) == "cancelled"

    async def test_who_begins_a_sweep_does_not_ask_again_at_once(self, family: FamilySession) -> None:
        begins, waits = await family.root(), await family.root()
        await family.bear(begins, "c/a")
        await family.bear(waits, "c/a")
        answer = await family.exchange(
            e.Settle(begins.id, begins.token, _RETRY),
            e.Settle(waits.id, waits.token, e.Verdict.WAIT_FOR, b"v", delay=4.5),
        )
        assert answer.ask_again_in == self.about(e.SWEEP_PAUSE)

    async def test_a_sweep_of_many_goes_on_with_later_operations_and_holds_up_none(
        self, family: FamilySession, advance: Advance
    ) -> None:
        root = await family.root()
        children = 3 * e.SWEEP_STEPS + 1
        await family.bear(root, *(f"{i:03}" for i in range(children)), most=10_000)
        await family.settle(root, e.Verdict.CANCEL)
        for visited in (e.SWEEP_STEPS, 2 * e.SWEEP_STEPS, 3 * e.SWEEP_STEPS):
            counts = await family.count()
            assert counts.cancelled >= visited
            assert counts.waiting + counts.cancelled + counts.ending == children + 1
            await advance(e.SWEEP_PAUSE)
            answers = [
                *await family.do.engine.execute([e.Ping()]),
                *await family.do.engine.execute([e.Ping()]),
            ]
            assert answers[1] is e.Reply.OK
        counts = await family.recount()
        assert (counts.cancelled, counts.waiting, counts.ending) == (children + 1, 0, 0)

    async def test_a_sweep_that_finds_another_one_goes_on_later_too(
        self, family: FamilySession, advance: Advance
    ) -> None:
        root = await family.root()
        await family.bear(root, *(f"{i}" for i in range(e.SWEEP_STEPS + 1)))
        children = await family.take_each(e.SWEEP_STEPS + 1)
        last = children.pop(str(e.SWEEP_STEPS).encode())
        for child in children.values():
            await family.settle(child, e.Verdict.GIVE_BACK)
        many = 3 * e.SWEEP_STEPS
        await family.do(
            e.PutChildren(
                "jobs", last.id, last.token, "jobs", tuple(map(str, range(many))), (e.NewTask(b"a"),) * many
            )
        )
        await family.settle(root, e.Verdict.CANCEL)
        assert (await family.count()).cancelled == e.SWEEP_STEPS
        await advance(e.SWEEP_PAUSE)
        assert (await family.count()).cancelled < 2 * e.SWEEP_STEPS

    async def test_an_operation_that_begins_no_sweep_leaves_the_others_to_their_pause(
        self, family: FamilySession
    ) -> None:
        root, other = await family.root(), await family.root()
        await family.bear(root, *(f"{i:02}" for i in range(3 * e.SWEEP_STEPS)))
        await family.do(e.SetEntry("jobs", other.id, other.token, "v", b"x"))
        await family.settle(root, e.Verdict.CANCEL)
        assert (await family.count()).cancelled == e.SWEEP_STEPS
        await family.settle(other, _DONE)
        assert (await family.count()).cancelled == e.SWEEP_STEPS

    async def test_a_lost_session_gives_up_tasks_of_several_queues_in_the_order_of_taking(
        self, family: FamilySession, client: OpenClient
    ) -> None:
        lost = await client("b")
        other, lost_other = (
            FamilySession(family.do, family.session, "other"),
            FamilySession(lost.do, lost.session, "other"),
        )
        await family.put(e.NewTask(b"first"))
        await lost.take_one()
        await other.put(e.NewTask(b"second"))
        second = await lost_other.take_one(max_deliveries=1)
        parent = await other.root()
        await other.bear(parent, "third", to="jobs")
        await lost.take_one()
        await other.settle(parent, _DEAD)
        await lost.close()
        assert [record.id for record in await other.browse("ended")] == [second.id, parent.id]

    # laws 7 and 8: waiting holds nothing

    async def test_who_waits_has_no_lease_and_comes_before_newer_tasks(
        self, family: FamilySession, client: OpenClient
    ) -> None:
        root = await family.root()
        await family.bear(root, "a")
        child = await family.take_one()
        await family.put(e.NewTask(b"newer"))
        await family.settle(root, _WAIT)
        counts = await family.recount()
        assert (counts.suspended, counts.leased, counts.waiting) == (1, 1, 1)
        assert [record.id for record in await family.browse("suspended", limit=1)] == [root.id]
        await family.settle(child)
        again = await family.take_one()
        assert (again.id, again.attempts, again.deliveries) == (root.id, 0, 1)

    async def test_a_wait_for_what_is_there_is_over_at_once(self, family: FamilySession) -> None:
        root = await family.root()
        await family.do(e.SetEntry("jobs", root.id, 0, "v", b"x"))
        await family.settle(root, e.Verdict.WAIT_FOR, b"v")
        root = await family.take_one()
        await family.settle(root, _WAIT, b"x/")
        assert (await family.take_one()).id == root.id

    async def test_ends_have_rising_numbers_and_wake_who_waits_for_the_next(
        self, family: FamilySession
    ) -> None:
        root = await family.root()
        await family.bear(root, "a", "b", "c")
        children = await family.take_each(3)
        for unfinished, name in ((3, b"b"), (2, b"c"), (1, b"a")):
            await family.settle(root, e.Verdict.WAIT_FOR_END, b"%d" % (unfinished - 1))
            assert await family.state(root.id) == "suspended"
            await family.settle(children[name], _DEAD if name == b"c" else _DONE)
            root = await family.take_one()
            assert (root.attempts, root.deliveries) == (0, 1)
        page = await family.do.page(e.Scan(e.ENTRIES, family.queue, only=str(root.id)))
        assert {entry.name: entry.ended for entry in page.rows} == {"a": 3, "b": 1, "c": 2}
        # an end that the delivery has not seen
        await family.settle(root, e.Verdict.WAIT_FOR_END, b"0")
        root = await family.take_one()
        # a child of the next try has a later end, also in the place of one that failed
        await family.settle(root, _RETRY)
        root = await family.take_one()
        await family.bear(root, "c")
        (again,) = await family.take(1)
        await family.settle(again)
        page = await family.do.page(e.Scan(e.ENTRIES, family.queue, only=str(root.id)))
        assert {entry.name: entry.ended for entry in page.rows} == {"a": 3, "b": 1, "c": 4}
        # any other wait is for all ends
        await family.bear(root, "d", "e")
        children = await family.take_each(2)
        await family.settle(root, _WAIT)
        await family.settle(children[b"d"])
        assert await family.state(root.id) == "suspended"
        await family.settle(children[b"e"])
        await family.settle(await family.take_one())
        await family.recount()

    async def test_a_wait_for_an_end_without_children_is_over_at_once(self, family: FamilySession) -> None:
        root = await family.root()
        await family.settle(root, e.Verdict.WAIT_FOR_END, b"0")
        assert (await family.take_one()).id == root.id

    async def test_who_goes_on_is_taken_by_an_idle_taker(
        self, family: FamilySession, client: OpenClient, hints: Hints
    ) -> None:
        root = await family.root()
        await family.bear(root, "a", to="other")
        await family.settle(root, _WAIT)
        inbox = await hints("b")
        await (await client("b")).idle()
        other = FamilySession(family.do, family.session, "other")
        await other.settle(await other.take_one())
        assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]

    async def test_the_end_of_a_session_wakes_nobody_who_waits(self, family: FamilySession) -> None:
        root = await family.root()
        await family.bear(root, "a")
        await family.settle(root, _WAIT)
        await family.do(e.CloseSession(family.session))
        assert await family.state(root.id) == "suspended"

    # laws 9 and 10: roots and children

    async def test_a_full_queue_takes_children(self, family: FamilySession) -> None:
        await family.put(e.NewTask(b"root"), max_size=1)
        root = await family.take_one()
        assert len(await family.bear(root, "a", "b")) == 2

    async def test_a_full_group_takes_children(self, family: FamilySession) -> None:
        await family.do(set_groups("jobs", group_size=1))
        root = await family.root(e.NewTask(b"root", group="g"))
        assert len(await family.bear(root, "a", "b", group="g")) == 2

    async def test_a_group_of_children_is_apart(self, family: FamilySession) -> None:
        await family.do(set_groups("jobs", group_limit=1))
        root = await family.root(e.NewTask(b"root", group="g"))
        (first, _) = await family.bear(root, "a", "b", group="g")
        assert await family.groups() == (e.GroupCounts("\0g", 2, 0, 0), e.GroupCounts("g", 0, 0, 1))
        (child,) = await family.take(3)
        assert (child.id, child.group) == (first, "\0g")
        shown = [(record.id, record.group) for record in await family.browse("leased")]
        assert shown == [(root.id, "g"), (first, "\0g")]
        await family.settle(child, _DEAD)
        assert (await family.browse("dead"))[0].group == "\0g"
        assert (await family.recount()).groups == 2

    async def test_groups_of_children_take_turns_with_all_others(self, family: FamilySession) -> None:
        await family.do(set_groups("jobs", weights=(("\0g", 2.0),)))
        root = await family.root()
        await family.put(*(e.NewTask(b"r", group="g"),) * 3)
        await family.bear(root, *(f"{i}" for i in range(5)), group="g")
        await family.bear(root, "x", "y", group="h")
        groups = [task.group for task in await family.take(10)]
        assert groups == ["\0g", "\0g", "\0h", "g", "\0g", "\0g", "\0h", "g", "\0g", "g"]

    async def test_an_ordered_group_holds_no_child_of_another_root_back(self, family: FamilySession) -> None:
        await family.do(set_groups("jobs", group_limit=1))
        await family.put(e.NewTask(b"root", group="g"), e.NewTask(b"root", group="h"))
        first, second = await family.take(2)
        await family.bear(first, "a", group=second.group)
        await family.bear(second, "b", group=first.group)
        await family.settle(first, _WAIT)
        await family.settle(second, _WAIT)
        for child in await family.take(3):
            await family.settle(child)
        assert [task.id for task in await family.take(3)] == [first.id, second.id]

    async def test_a_child_holds_no_group(self, family: FamilySession) -> None:
        await family.do(set_groups("jobs", group_limit=1))
        root = await family.root()
        await family.bear(root, "a", "b", "c", group="g")
        (waits,) = await family.take(2)
        await family.bear(waits, "d", group="g")
        await family.settle(waits, _WAIT)
        (fails,) = await family.take(2)
        await family.settle(fails, _RETRY, delay=5.0)
        (ends,) = await family.take(2)
        assert ends.payload == b"c"
        await family.bear(ends, "e", group="h")
        grandchild = await family.take_one()
        await family.settle(ends, _DEAD)
        assert await family.state(ends.id) == "ending"
        (last,) = await family.take(2)
        assert last.payload == b"d"
        await family.settle(last)
        await family.settle(grandchild, e.Verdict.CANCEL)
        assert (await family.take_one()).id == waits.id
        await family.recount()

    async def test_a_root_that_is_replaced_holds_its_group_until_its_children_have_ended(
        self, family: FamilySession
    ) -> None:
        await family.do(set_groups("jobs", group_limit=1))
        root = await family.root(e.NewTask(b"root", key="k", group="g"))
        await family.bear(root, "a", "b", group="g")
        await family.settle(root, _WAIT)
        child = await family.take_one()
        await family.put(e.NewTask(b"new", key="k", group="g", on_duplicate="replace"))
        assert await family.entries(root.id) == {"a": "unfinished", "b": "cancelled"}
        assert await family.take() == ()
        await family.settle(child, e.Verdict.CANCEL)
        assert await family.state(root.id) == "cancelled"
        assert (await family.take_one()).payload == b"new"

    @pytest.mark.parametrize(
        "task", [e.NewTask(b"", key="k"), e.NewTask(b"", expires=1.0), e.NewTask(b"", group="g")]
    )
    async def test_a_child_has_no_key_no_expiry_and_no_group_of_roots(
        self, family: FamilySession, task: e.NewTask
    ) -> None:
        with pytest.raises(ValueError, match="as children"):
            e.PutChildren("jobs", 1, 1, "jobs", ("a",), (task,))

    async def test_there_are_only_so_many_children(self, family: FamilySession) -> None:
        root = await family.root()
        await family.bear(root, "a")
        assert await family.bear_some(root, "b", "c", most=2) == e.TooMany(2)
        await family.settle(await family.take_one())
        assert await family.bear_some(root, "b", "c", most=2) == e.TooMany(2)
        await family.bear(root, "a", "c", most=2)

    async def test_there_are_only_so_many_levels(self, family: FamilySession) -> None:
        task = await family.root()
        for _ in range(32):
            await family.bear(task, "a")
            task = await family.take_one()
        with pytest.raises(EngineError, match="32 levels"):
            await family.bear_some(task, "a")

    async def test_an_ordered_group_waits_for_a_root_that_waits(self, family: FamilySession) -> None:
        await family.do(set_groups("jobs", group_limit=1))
        root = await family.root(e.NewTask(b"root", group="g"))
        await family.put(e.NewTask(b"next", group="g"))
        await family.bear(root, "a")
        child = await family.take_one()
        await family.settle(root, _WAIT)
        assert await family.take() == ()
        await family.settle(child)
        again = await family.take_one()
        assert again.id == root.id
        await family.settle(again)
        assert (await family.take_one()).payload == b"next"

    async def test_a_root_with_entries_does_not_expire(self, family: FamilySession, advance: Advance) -> None:
        root = await family.root(e.NewTask(b"root", expires=0.05))
        await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"x"))
        await family.settle(root, e.Verdict.GIVE_BACK)
        await advance(0.1)
        assert await family.state(root.id) == "waiting"

    async def test_replacing_a_root_with_children_puts_another_and_cancels_it(
        self, family: FamilySession
    ) -> None:
        root = await family.root(e.NewTask(b"root", key="k"))
        await family.bear(root, "a")
        child = await family.take_one()
        await family.settle(root, _WAIT)
        (new,) = await family.put(e.NewTask(b"new", key="k", on_duplicate="replace"))
        assert await family.state(root.id) == "ending"
        await family.settle(child)
        assert await family.state(root.id) == "cancelled"
        assert (await family.take_one()).id == new

    async def test_replacing_a_root_without_children_drops_its_entries(self, family: FamilySession) -> None:
        root = await family.root(e.NewTask(b"root", key="k"))
        await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"x"))
        await family.settle(root, e.Verdict.GIVE_BACK)
        await family.put(e.NewTask(b"new", key="k", on_duplicate="replace"))
        assert await family.entries(root.id) == {}
        root = await family.take_one()
        assert await family.do(e.SetEntry("jobs", root.id, root.token, "v", b"y")) is e.Reply.OK

    # law 13: a value is progress

    async def test_no_failure_before_a_value_counts_and_silent_deliveries_do(
        self, family: FamilySession
    ) -> None:
        root = await family.root()
        await family.settle(root, _RETRY)
        again = await family.take_one()
        await family.exchange(e.Settle(again.id, again.token, _RETRY, failure=b"twice"))
        again = await family.take_one()
        assert (again.attempts, again.deliveries) == (2, 3)
        assert await family.do(e.SetEntry("jobs", root.id, again.token, "v", b"x")) is e.Reply.OK
        (record,) = await family.browse("leased")
        assert (record.attempts, record.deliveries) == (0, 1)
        await family.settle(again, _RETRY)
        again = await family.take_one()
        assert (again.attempts, again.deliveries, again.failure) == (1, 2, b"twice")
        assert await family.do(e.SetEntry("jobs", root.id, 0, "signal", b"x")) is e.Reply.OK
        known = e.Entry("v", "value", "done", b"x")
        assert await family.do(e.SetEntry("jobs", root.id, again.token, "v", b"y")) == known
        await family.settle(again, _DEAD)
        assert (await family.browse("dead"))[0].attempts == 2

    # law 12: signals

    async def test_a_signal_wakes_who_waits_for_it(self, family: FamilySession) -> None:
        root = await family.root()
        await family.settle(root, e.Verdict.WAIT_FOR, b"v")
        assert await family.do(e.SetEntry("jobs", root.id, 0, "w", b"x")) is e.Reply.OK
        assert await family.state(root.id) == "suspended"
        assert await family.do(e.SetEntry("jobs", root.id, 0, "v", b"x")) is e.Reply.OK
        assert (await family.take_one()).entries == 2
        assert await family.do(e.SetEntry("jobs", root.id + 1, 0, "v", b"x")) is e.Reply.UNKNOWN

    async def test_who_waits_for_a_signal_is_cancelled_at_once(self, family: FamilySession) -> None:
        root = await family.root()
        await family.settle(root, e.Verdict.WAIT_FOR, b"v")
        assert await family.do(e.Move("jobs", (root.id,), "cancelled")) == e.MovedCount(1)
        assert await family.state(root.id) == "cancelled"

    async def test_a_signal_that_does_not_come_in_time_is_expired(
        self, family: FamilySession, advance: Advance
    ) -> None:
        root = await family.root()
        await family.settle(root, e.Verdict.WAIT_FOR, b"v", delay=0.05)
        await advance(0.1)
        late = await family.do(e.SetEntry("jobs", root.id, 0, "v", b"x"))
        assert late == e.Entry("v", "signal", "expired")
        assert (await family.take_one()).id == root.id

    async def test_nothing_is_left_of_a_family(self, family: FamilySession) -> None:
        root = await family.root()
        await family.bear(root, *(f"{i}" for i in range(e.SWEEP_STEPS)))
        (found,) = (await family.do.page(e.Scan(e.TASK, "jobs", only=str(root.id)))).rows
        assert found.children == e.SWEEP_STEPS
        await family.settle(root, e.Verdict.CANCEL)
        assert await family.entries(root.id) == {}
