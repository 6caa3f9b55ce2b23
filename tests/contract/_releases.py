"""The contract's tests of releases: what is undone when a task ends, however it ends."""

from __future__ import annotations

from typing import Literal

import pytest

from tenure import engine as e

from ._clerk import OpenClient, QueueSessionBase
from ._contract import Advance, Hints
from ._families import FamilySession

_DONE, _DEAD, _RETRY, _WAIT = e.Verdict.DONE, e.Verdict.DEAD, e.Verdict.RETRY, e.Verdict.WAIT
_Held = Literal["end", "unless_done"]


class _Owner(FamilySession):
    """A session whose tasks have releases, in the queue "undo"."""

    async def name(
        self,
        task: e.Taken,
        *names: str,
        held: _Held = "end",
        together: bool = False,
        payload: bytes = b"",
        to: str = "undo",
        deadline: float | None = None,
    ) -> object:
        """Name releases of a task."""
        tasks = (e.NewTask(payload, deadline=deadline),) * len(names)
        return await self.do(
            e.PutChildren(self.queue, task.id, task.token, to, names, tasks, 100, held, together)
        )

    async def named(
        self, task: e.Taken, *names: str, held: _Held = "end", together: bool = False
    ) -> list[int]:
        """Name releases that are accepted."""
        answer = await self.name(task, *names, held=held, together=together)
        assert isinstance(answer, e.Named), answer
        return [i for i in answer.ids if isinstance(i, int)]

    async def change(self, task: e.Taken, name: str, change: Literal["begin", "keep"]) -> object:
        """Undo or keep."""
        return await self.do(e.SetEntry(self.queue, task.id, task.token, name, change=change))

    def at(self, queue: str) -> _Owner:
        """The same session, at another queue."""
        return _Owner(self.do, self.session, queue)

    async def undo_one(self, verdict: e.Verdict = _DONE) -> int:
        """Take the only release that has begun, and settle it."""
        undo = self.at("undo")
        release = await undo.take_one()
        await undo.settle(release, verdict, b"why")
        return release.id

    async def recounted(self) -> e.QueueCounts:
        """The counts of the releases' queue; both queues are counted anew."""
        await self.recount()
        return await self.at("undo").recount()


class ReleaseContract(QueueSessionBase):
    """What a task has named is undone when it ends."""

    @pytest.fixture
    async def owner(self, engine: e.Engine, client: OpenClient) -> _Owner:
        """A session whose tasks have releases."""
        if not engine.families:
            pytest.skip(f"{engine.url} has no families of tasks")
        opened = await client("a")
        return _Owner(opened.do, opened.session, opened.queue)

    async def test_a_record_says_whether_its_task_has_releases(self, owner: _Owner) -> None:
        """Until it has ended, or as long as it is a dead letter; in another life it has none."""

        async def has_releases() -> bool:
            (record,) = (await owner.do(e.Scan(e.TASK, owner.queue, only=str(task.id)))).rows
            return record.releases

        await owner.put(e.NewTask(b""))
        task = await owner.take_one()
        assert not await has_releases()
        await owner.named(task, "a")
        assert await has_releases()
        await owner.settle(task, _DEAD, b"why")
        assert await has_releases()
        await owner.undo_one()
        assert await has_releases()
        await owner.do(e.Move(owner.queue, (task.id,), "waiting"))
        assert not await has_releases()

    # laws 1, 4, 5 and 10

    @pytest.mark.parametrize("verdict", [_DONE, _DEAD, e.Verdict.DISCARD, e.Verdict.CANCEL])
    async def test_each_verdict_that_ends_a_task_is_kept_until_its_releases_have_ended(
        self, owner: _Owner, verdict: e.Verdict
    ) -> None:
        root = await owner.root()
        x, y = await owner.named(root, "x", "y")
        assert await owner.at("undo").state(x) == "held"
        assert (await owner.recounted()).held == 2
        assert (await owner.at("undo").take()) == ()
        await owner.settle(root, verdict, b"why")
        assert await owner.state(root.id) == "ending"
        assert await owner.entries(root.id) == {"x": "held", "y": "unfinished"}
        assert await owner.undo_one() == y
        assert await owner.state(root.id) == "ending"
        assert await owner.undo_one() == x
        assert await owner.outcome(root.id) == (verdict.value, b"why")
        counts = await owner.recounted()
        assert (counts.put, counts.done, counts.held) == (2, 2, 0)

    async def test_a_release_waits_for_the_children_of_its_owner(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x")
        await owner.bear(root, "a", to="work")
        child = await owner.at("work").take_one()
        await owner.settle(root, _DEAD)
        assert await owner.at("undo").take() == ()
        await owner.at("work").settle(child, e.Verdict.CANCEL)
        assert await owner.state(root.id) == "ending"
        await owner.undo_one()
        assert await owner.state(root.id) == "dead"

    async def test_releases_named_together_begin_together_but_for_eight_at_once(self, owner: _Owner) -> None:
        root = await owner.root()
        (first,) = await owner.named(root, "first")
        await owner.named(root, *map(str, range(10)), together=True)
        (last,) = await owner.named(root, "last")
        await owner.settle(root)
        assert await owner.undo_one() == last
        undo = owner.at("undo")
        begun = await undo.take(20)
        assert len(begun) == 8
        await undo.settle(begun[0])
        (ninth,) = await undo.take(20)
        for release in begun[1:]:
            await undo.settle(release)
        (tenth,) = await undo.take(20)
        await undo.settle(ninth)
        assert await undo.take() == ()
        await undo.settle(tenth)
        assert await owner.undo_one() == first
        assert await owner.state(root.id) == "done"
        await owner.recounted()

    async def test_releases_of_a_later_life_wait_for_its_children(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x", together=True)
        await owner.settle(root, _DEAD)
        await owner.undo_one()
        await owner.do(e.Move("jobs", (root.id,), "waiting"))
        root = await owner.take_one()
        await owner.named(root, "x", together=True)
        await owner.bear(root, "a", "b", to="work")
        first, second = await owner.at("work").take(2)
        await owner.settle(root, _DEAD)
        await owner.at("work").settle(first)
        assert (await owner.entries(root.id))["x"] == "held"
        await owner.at("work").settle(second)
        await owner.undo_one()
        assert await owner.state(root.id) == "dead"

    async def test_a_dead_release_changes_nothing_of_its_owner(self, owner: _Owner) -> None:
        root = await owner.root()
        x, y = await owner.named(root, "x", "y")
        await owner.settle(root, _DONE, b"result")
        assert await owner.undo_one(_DEAD) == y
        assert await owner.undo_one() == x
        assert await owner.outcome(root.id) == ("done", b"result")
        assert await owner.at("undo").state(y) == "dead"

    # law 2

    async def test_no_interruption_begins_a_release(self, owner: _Owner, client: OpenClient) -> None:
        await owner.put(e.NewTask(b"root"))
        other = await client("b")
        root = await other.take_one()
        assert isinstance(await owner.name(root, "x"), e.Named)
        await other.close()
        for verdict in (_RETRY, e.Verdict.GIVE_BACK, _WAIT):
            again = await owner.take_one()
            await owner.settle(again, verdict)
        again = await owner.take_one()
        await owner.settle(again, e.Verdict.WAIT_FOR, b"signal")
        assert await owner.state(root.id) == "suspended"
        assert await owner.entries(root.id) == {"x": "held"}
        assert await owner.do(e.Move("jobs", (root.id,), "cancelled")) == e.MovedCount(1)
        await owner.undo_one()
        assert await owner.state(root.id) == "cancelled"

    async def test_undo_waits_for_the_children_and_for_the_release(self, owner: _Owner) -> None:
        root = await owner.root()
        (x,) = await owner.named(root, "x")
        await owner.bear(root, "a", to="work")
        assert await owner.change(root, "x", "begin") is e.Reply.CHILDREN
        await owner.at("work").settle(await owner.at("work").take_one())
        assert await owner.change(root, "x", "begin") is e.Reply.OK
        again = await owner.change(root, "x", "begin")
        assert isinstance(again, e.Entry)
        assert (again.kind, again.state, again.id) == ("release", "unfinished", x)
        assert await owner.change(root, "a", "begin") is e.Reply.UNKNOWN
        await owner.settle(root, _WAIT)
        assert await owner.state(root.id) == "suspended"
        await owner.undo_one(_DEAD)
        root = await owner.take_one()
        assert await owner.entries(root.id) == {"a": "done", "x": "dead"}
        await owner.settle(root)
        assert await owner.state(root.id) == "done"

    # laws 3, 7 and 12

    async def test_a_naming_that_is_there_is_given_with_its_state(self, owner: _Owner) -> None:
        root = await owner.root()
        answer = await owner.name(root, "x", payload=b"1")
        assert isinstance(answer, e.Named)
        again = await owner.name(root, "x", "y", payload=b"1")
        assert isinstance(again, e.Named)
        assert (again.ids[0], again.states) == (answer.ids[0], ("held", "held"))
        for other in (owner.name(root, "x", payload=b"2"), owner.name(root, "x", payload=b"1", to="else")):
            assert isinstance(await other, e.Entry)
        assert await owner.change(root, "x", "keep") is e.Reply.OK
        kept = await owner.name(root, "x", payload=b"1")
        assert kept == e.Named(answer.ids, ("kept",))
        assert isinstance(await owner.bear_some(root, "y"), e.Entry)

    async def test_only_the_delivery_in_force_names_undoes_and_keeps(
        self, owner: _Owner, client: OpenClient
    ) -> None:
        await owner.put(e.NewTask(b"root"))
        other = await client("b")
        ghost = await other.take_one()
        assert isinstance(await owner.name(ghost, "x"), e.Named)
        await other.close()
        root = await owner.take_one()
        assert await owner.name(ghost, "y") is e.Reply.REFUSED
        assert await owner.change(ghost, "x", "begin") is e.Reply.REFUSED
        assert await owner.change(ghost, "x", "keep") is e.Reply.REFUSED
        await owner.do(e.Move("jobs", (root.id,), "cancelled"))
        assert await owner.do(e.SetEntry("jobs", root.id, 0, "x", change="keep")) is e.Reply.REFUSED
        assert await owner.name(root, "y") is e.Reply.REQUESTED
        assert await owner.change(root, "x", "keep") is e.Reply.OK
        await owner.settle(root, e.Verdict.CANCEL)
        assert await owner.state(root.id) == "cancelled"
        assert (await owner.recounted()).put == 0

    async def test_who_waits_for_a_release_that_is_kept_is_told(self, owner: _Owner, hints: Hints) -> None:
        root = await owner.root()
        (x,) = await owner.named(root, "x")
        inbox = await hints("a")
        assert isinstance(await owner.do(e.GetResult("undo", x, owner.session)), e.Unfinished)
        await owner.change(root, "x", "keep")
        assert await inbox.new() == [e.Hint("a", "undo", str(x), e.Notice.FINISHED)]
        assert await owner.do(e.GetResult("undo", x)) is e.Reply.UNKNOWN

    # law 8, and holes 7, 9 and 13

    async def test_a_requeue_begins_before_the_first_naming_if_a_release_has_run(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.do(e.SetEntry("jobs", root.id, root.token, "before", b""))
        await owner.named(root, "x")
        await owner.do(e.SetEntry("jobs", root.id, root.token, "behind", b""))
        await owner.do(e.SetEntry("jobs", root.id, 0, "signal", b""))
        await owner.bear(root, "a", to="work")
        await owner.at("work").settle(await owner.at("work").take_one())
        await owner.settle(root, _DEAD)
        letter = await owner.undo_one(_DEAD)
        assert await owner.do(e.Move("jobs", (root.id,), "waiting")) == e.MovedCount(1)
        assert await owner.entries(root.id) == {"before": "done", "signal": "done"}
        root = await owner.take_one()
        assert (await owner.named(root, "x")) != [letter]
        # hole 10: a letter that is made ready tells nobody
        assert await owner.at("undo").do(e.Move("undo", (letter,), "waiting")) == e.MovedCount(1)
        assert await owner.undo_one() == letter
        assert await owner.entries(root.id) == {"before": "done", "signal": "done", "x": "held"}
        await owner.settle(root)
        assert await owner.undo_one() != letter
        assert await owner.state(root.id) == "done"
        await owner.recounted()

    async def test_a_requeue_forgets_nothing_if_all_was_kept(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x")
        await owner.do(e.SetEntry("jobs", root.id, root.token, "behind", b""))
        assert await owner.change(root, "x", "keep") is e.Reply.OK
        await owner.settle(root, _DEAD)
        await owner.do(e.Move("jobs", (root.id,), "waiting"))
        assert await owner.entries(root.id) == {"behind": "done", "x": "kept"}

    async def test_in_another_life_nothing_is_named_and_nothing_has_run(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x")
        await owner.settle(root, _DEAD)
        await owner.undo_one()
        await owner.do(e.Move("jobs", (root.id,), "waiting"))
        root = await owner.take_one()
        await owner.do(e.SetEntry("jobs", root.id, root.token, "v", b""))
        await owner.named(root, "x")
        assert await owner.change(root, "x", "keep") is e.Reply.OK
        await owner.settle(root, _DEAD)
        await owner.do(e.Move("jobs", (root.id,), "waiting"))
        assert await owner.entries(root.id) == {"v": "done", "x": "kept"}
        root = await owner.take_one()
        await owner.named(root, "y")
        await owner.settle(root, _DEAD)
        await owner.undo_one()
        await owner.do(e.Move("jobs", (root.id,), "waiting"))
        assert await owner.entries(root.id) == {"v": "done"}

    async def test_a_letter_with_releases_of_its_own_forgets_too(self, owner: _Owner) -> None:
        root, undo = await owner.root(), owner.at("undo")
        await owner.named(root, "x")
        await owner.settle(root)
        release = await undo.take_one()
        assert isinstance(await undo.name(release, "z", to="inner"), e.Named)
        await undo.settle(release, _DEAD)
        await owner.at("inner").settle(await owner.at("inner").take_one())
        assert await owner.state(root.id) == "done"
        await undo.do(e.Move("undo", (release.id,), "waiting"))
        assert await undo.entries(release.id) == {}

    async def test_the_end_of_a_try_leaves_the_entry_of_a_release(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x")
        assert await owner.change(root, "x", "begin") is e.Reply.OK
        await owner.settle(root, _RETRY)
        assert await owner.state(root.id) == "ending"
        await owner.undo_one(_DEAD)
        assert await owner.entries(root.id) == {"x": "dead"}
        assert (await owner.take_one()).attempts == 1

    # law 9, and hole 14

    async def test_what_is_handed_over_is_dropped_with_the_verdict(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, *map(str, range(20)), held="unless_done")
        (x,) = await owner.named(root, "x")
        await owner.settle(root, _DONE, b"result")
        assert await owner.undo_one() == x
        for _ in range(4):
            await owner.do(e.Ping())
        assert await owner.outcome(root.id) == ("done", b"result")
        counts = await owner.recounted()
        assert (counts.put, counts.held) == (1, 0)

    async def test_what_is_handed_over_is_passed_over_in_the_step_of_the_verdict(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x")
        await owner.named(root, "y", "z", held="unless_done")
        await owner.settle(root)
        assert await owner.entries(root.id) == {"x": "unfinished", "y": "dropped", "z": "dropped"}

    async def test_what_is_to_be_handed_over_is_undone_as_a_whole(self, owner: _Owner) -> None:
        root = await owner.root()
        named = await owner.named(root, "x", "y", held="unless_done")
        await owner.settle(root, _DEAD)
        assert [await owner.undo_one(), await owner.undo_one()] == named[::-1]
        assert await owner.state(root.id) == "dead"

    async def test_a_delivery_hands_over_only_what_it_has_named(
        self, owner: _Owner, client: OpenClient
    ) -> None:
        await owner.put(e.NewTask(b"root"))
        other = await client("b")
        former = await other.take_one()
        answer = await owner.name(former, "x", "y", held="unless_done")
        assert isinstance(answer, e.Named)
        await other.close()
        root = await owner.take_one()
        await owner.named(root, "y", held="unless_done")
        await owner.settle(root)
        assert await owner.undo_one() == answer.ids[0]
        assert await owner.state(root.id) == "done"

    # law 11, and holes 6 and 11

    async def test_sweeps_deadlines_and_purges_pass_releases_by(
        self, owner: _Owner, advance: Advance
    ) -> None:
        root = await owner.root(e.NewTask(b"root", deadline=5.0))
        await owner.name(root, "x", deadline=7.0)
        await owner.change(root, "x", "begin")
        await owner.do(e.Move("jobs", (root.id,), "cancelled"))
        undo = owner.at("undo")
        (x,) = await undo.take()
        await advance(6.0)
        assert (await undo.exchange()).stop == ()
        await undo.settle(x, e.Verdict.GIVE_BACK)
        assert await undo.do.move("undo", "waiting", "purged") == 0
        await advance(2.0)
        assert await undo.outcome(x.id) == ("dead", b"its deadline has passed")
        await owner.settle(root, e.Verdict.CANCEL)
        assert await owner.state(root.id) == "expired"

    async def test_its_deadline_begins_with_a_release(self, owner: _Owner, advance: Advance) -> None:
        root = await owner.root()
        await owner.name(root, "x", deadline=5.0)
        await advance(10.0)
        await owner.settle(root)
        release = await owner.at("undo").take_one()
        assert release.deadline is not None
        assert 4.0 < release.deadline <= 5.0

    @pytest.mark.parametrize("is_leased", [False, True])
    async def test_an_operator_ends_a_release_as_a_dead_letter(self, owner: _Owner, is_leased: bool) -> None:
        root, undo = await owner.root(), owner.at("undo")
        (x,) = await owner.named(root, "x")
        assert await owner.do(e.Move("undo", (x,), "cancelled")) == e.MovedCount(0)
        await owner.settle(root)
        taken = await undo.take(int(is_leased))
        assert await owner.do(e.Move("undo", (x,), "cancelled", ttl=1.0)) == e.MovedCount(1)
        for release in taken:
            await undo.settle(release, e.Verdict.CANCEL)
        assert await undo.outcome(x) == ("dead", b"cancelled by an operator")
        assert await owner.state(root.id) == "done"
        assert await owner.do(e.Move("undo", (x,), "waiting")) == e.MovedCount(1)
        assert await owner.undo_one() == x
        await owner.recounted()

    async def test_a_letter_of_a_suspended_release_waits_for_nothing(
        self, owner: _Owner, advance: Advance
    ) -> None:
        root, undo = await owner.root(), owner.at("undo")
        (x,) = await owner.named(root, "x")
        await owner.settle(root)
        await undo.settle(await undo.take_one(), e.Verdict.WAIT_FOR, b"signal", delay=5.0)
        assert await owner.do(e.Move("undo", (x,), "cancelled")) == e.MovedCount(1)
        await advance(6.0)
        assert await undo.outcome(x) == ("dead", b"cancelled by an operator")
        assert await undo.entries(x) == {}
        await owner.do(e.Move("undo", (x,), "waiting"))
        await undo.do(e.SetEntry("undo", x, 0, "signal", b""))
        assert await owner.undo_one() == x
        await owner.recounted()

    async def test_a_lost_task_that_is_replaced_undoes_what_it_has_named(
        self, owner: _Owner, client: OpenClient
    ) -> None:
        await owner.put(e.NewTask(b"root", key="k"))
        other = await client("b")
        root = await other.take_one()
        assert isinstance(await owner.name(root, "x"), e.Named)
        await other.close()
        (new,) = await owner.put(e.NewTask(b"new", key="k", on_duplicate="replace"))
        assert new != root.id
        assert await owner.state(root.id) == "ending"
        await owner.undo_one()
        assert await owner.state(root.id) == "cancelled"

    async def test_purging_an_owner_begins_its_releases(self, owner: _Owner) -> None:
        root = await owner.root()
        await owner.named(root, "x")
        await owner.settle(root, e.Verdict.GIVE_BACK)
        assert await owner.do.move("jobs", "waiting", "purged") == 1
        await owner.undo_one()
        assert await owner.result(root.id) is e.Reply.UNKNOWN
        await owner.recounted()

    async def test_a_lost_session_that_ends_an_owner_begins_its_releases(
        self, owner: _Owner, client: OpenClient
    ) -> None:
        await owner.put(e.NewTask(b"root"))
        other = await client("b")
        root = await other.take_one(max_deliveries=1)
        assert isinstance(await owner.name(root, "x"), e.Named)
        await other.close()
        assert await owner.state(root.id) == "ending"
        await owner.undo_one()
        assert await owner.state(root.id) == "dead"
