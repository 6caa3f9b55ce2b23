"""What an engine owes to those who look after a queue: counts, listings, dead letters, purging."""

from __future__ import annotations

import pytest

from tenure.engine import (
    CAP,
    Browse,
    Changed,
    Count,
    Move,
    NewTask,
    Page,
    QueueCounts,
    Record,
    Reply,
    SetPaused,
    Settle,
    Verdict,
)
from tenure.errors import EngineError

from ._clerk import Clerk, ClerkBase, OpenClerk, payloads, plain
from ._contract import Advance, Do, Hints

_STATES: tuple[str, ...] = (
    "done",
    "dead",
    "discarded",
    "leased",
    "cancelled",
    "expired",
    "delayed",
    "waiting",
)


async def _bury(clerk: Clerk, count: int) -> None:
    """Let the next tasks end as dead letters."""
    tasks = await clerk.take(count)
    assert len(tasks) == count
    for at in range(0, count, CAP):
        part = tasks[at : at + CAP]
        await clerk.exchange(*(Settle(task.id, task.token, Verdict.DEAD, b"error") for task in part))


async def _one_in_each_state(clerk: Clerk, advance: Advance) -> dict[str, int]:
    """A task for each state, by the name of the state."""
    tasks = (
        NewTask(
            b"task", expires=0.5 if state == "expired" else None, delay=60.0 if state == "delayed" else 0.0
        )
        for state in _STATES
    )
    ids = dict(zip(_STATES, await clerk.put(*tasks), strict=True))
    for state in ("done", "dead", "discarded"):
        await clerk.end(ids[state], state)
    await clerk.take_one()
    await clerk.end(ids["cancelled"], "cancelled")
    await advance(1.0)
    return ids


class AdminContract(ClerkBase):
    """Move, Browse, SetPaused and Count.

    Thread safety: none needed; pytest makes one for each test.
    """

    # ------------------------------------------------------------------------------------------ counting

    async def test_each_task_counts_in_its_state(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        ids = await _one_in_each_state(a, advance)
        for counted in (a.count, a.recount):
            counts = await counted()
            assert {state: getattr(counts, state) for state in ids} == dict.fromkeys(ids, 1)
            assert (counts.put, counts.purged, counts.reserved, counts.producers) == (8, 0, 0, 0)
            assert counts.paused is False
            assert counts.oldest == self.about(1.0)
        assert {state: await a.state(task) for state, task in ids.items()} == {state: state for state in ids}

    async def test_a_queue_that_nobody_has_used(self, do: Do) -> None:
        counts = await do(Count("no such queue"))
        assert isinstance(counts, QueueCounts)
        assert (counts.put, counts.waiting, counts.paused, counts.oldest, counts.cursors) == (
            0,
            0,
            False,
            0,
            (),
        )
        assert await do(Browse("no such queue", "waiting")) == Page(())
        assert await do(Move("no such queue", frozenset({"waiting", "done"}), "purged")) == Changed(
            0, more=False
        )
        assert await do(Move("no such queue", frozenset({"dead"}), "waiting")) == Changed(0, more=False)

    async def test_how_long_the_oldest_has_been_ready(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"high", priority=1), NewTask(b"late", delay=1.0))
        await advance(2.0)
        assert (await a.count()).oldest == self.about(2.0)
        await a.take_one()
        assert (await a.count()).oldest == self.about(1.0)
        await a.take_one()
        assert (await a.count()).oldest == 0

    async def test_a_task_that_is_due_counts_as_waiting(self, clerk: OpenClerk, advance: Advance) -> None:
        """Though nobody has moved it."""
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"late", delay=0.5))
        await advance(1.0)
        counts = await a.count()
        assert (counts.waiting, counts.delayed) == (1, 0)
        assert await a.state(task) == "waiting"
        assert [[record.id for record in await a.browse(s)] for s in ("waiting", "delayed")] == [[task], []]

    @pytest.mark.parametrize("paused", [True, False])
    async def test_pausing_twice(self, clerk: OpenClerk, do: Do, paused: bool) -> None:
        a = await clerk("a")
        for _ in range(2):
            assert await do(SetPaused("jobs", paused)) is Reply.OK
            assert (await a.count()).paused is paused

    # ------------------------------------------------------------------------------------------ browsing

    async def test_what_is_shown_of_a_task(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"\0payload", priority=-3, key="clé"))
        await advance(1.0)
        shown = Record(0, task, "waiting", b"\0payload", -3, "clé", 0, 0, b"", self.about(1.0))
        assert await a.browse("waiting") == (shown,)
        taken = await a.take_one()
        assert await a.browse("leased") == (shown._replace(state="leased", deliveries=1),)
        await a.settle(taken, Verdict.DEAD, b"error")
        await advance(2.0)
        for state in ("ended", "dead"):
            (record,) = await a.browse(state)
            assert record.seq > 0
            assert record == shown._replace(
                seq=record.seq, state="dead", attempts=1, deliveries=1, result=b"error", age=self.about(2.0)
            )
        assert [await a.browse(state) for state in ("waiting", "delayed", "leased")] == [(), (), ()]

    @pytest.mark.parametrize("state", ["waiting", "delayed", "leased", "ended", "dead"])
    async def test_a_listing_page_by_page(self, clerk: OpenClerk, state: str) -> None:
        a = await clerk("a")
        # priorities, so that the order of ids is not the order of taking
        tasks = [
            NewTask(b"%d" % n, priority=n % 3, delay=60.0 - n if state == "delayed" else 0.0)
            for n in range(7)
        ]
        ids = list(await a.put(*tasks))
        if state == "delayed":
            ids.reverse()
        else:
            priorities = {i: task.priority for i, task in zip(ids, tasks, strict=True)}
            ids.sort(key=lambda i: -priorities[i])
        if state in ("leased", "ended", "dead"):
            taken = await a.take(7)
            assert [task.id for task in taken] == ids
            if state != "leased":
                # the last taken ends first
                verdict = Verdict.DEAD if state == "dead" else Verdict.DONE
                await a.exchange(*(Settle(task.id, task.token, verdict) for task in taken[::-1]))
                ids.reverse()
        for limit in (1, 3, 7, 8, 10_000):
            records = await a.browse(state, limit=limit)
            assert [record.id for record in records] == ids
        ended = state in ("ended", "dead")
        seqs = [record.seq for record in records]
        assert seqs == sorted(set(seqs)) if ended else seqs == [0] * 7
        if ended:
            assert [record.id for record in await a.browse(state, str(seqs[4]))] == ids[5:]

    async def test_a_listing_of_more_than_one_operation_may_look_at(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        ids = await a.put(*plain(2 * CAP + 5))
        assert [record.id for record in await a.browse("waiting", limit=10_000)] == list(ids)

    async def test_due_tasks_are_listed_among_the_waiting_ones(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        """In the order in which they will be taken, though nobody has moved them."""
        a = await clerk("a")
        early = [NewTask(b"", priority=n % 3, delay=0.5 + n / 16) for n in range(7)]
        due = await a.put(*early, NewTask(b"", delay=60.0, priority=9))
        await advance(1.0)
        ready = await a.put(*(NewTask(b"", priority=n) for n in (2, 1, 0, 3, -1)))
        wanted = [ready[3]]
        for priority, one in ((2, ready[0]), (1, ready[1]), (0, ready[2])):
            wanted += [due[n] for n in range(7) if n % 3 == priority] + [one]
        wanted.append(ready[4])
        for limit in (1, 2, 5, 100):
            assert [record.id for record in await a.browse("waiting", limit=limit)] == wanted
            assert [record.id for record in await a.browse("delayed", limit=limit)] == [due[7]]
        assert [task.id for task in await a.take(100)] == wanted

    async def test_a_listing_goes_on_while_tasks_come_and_go(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        ids = await a.put(*plain(6))
        page = await a.page("waiting", limit=2)
        (first, second) = page.records
        await a.end(first.id, "cancelled")
        await a.end(second.id, "cancelled")
        await a.end(ids[2], "cancelled")
        (new,) = await a.put(*plain(1))
        assert [record.id for record in await a.browse("waiting", page.next)] == [*ids[3:], new]

    async def test_a_place_that_no_page_has_given(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.put(*plain(1))
        for state in ("waiting", "delayed", "leased", "ended", "dead"):
            with pytest.raises(EngineError):
                await a.page(state, "nonsense")
        with pytest.raises(ValueError, match="limit"):
            Browse("jobs", "waiting", limit=0)

    async def test_endings_are_listed_in_their_order(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        ids = await _one_in_each_state(a, advance)
        await a.count()
        await a.end(ids["waiting"], "done")
        order = ["done", "dead", "discarded", "cancelled", "expired", "waiting"]
        records = await a.browse("ended")
        assert [record.id for record in records] == [ids[state] for state in order]
        assert [record.state for record in records] == [*order[:-1], "done"]
        assert [record.id for record in await a.browse("dead")] == [ids["dead"]]
        assert [record.id for record in await a.browse("ended", str(records[3].seq))] == [
            ids[s] for s in order[4:]
        ]

    # ------------------------------------------------------------------------------------------ dead letters

    async def test_a_requeued_task_begins_anew(self, clerk: OpenClerk, do: Do, advance: Advance) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"x", priority=2, key="k"))
        await a.settle(await a.take_one(), Verdict.RETRY)
        await _bury(a, 1)
        await advance(1.0)
        await a.put(NewTask(b"before", priority=2))
        await advance(0.1)
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(1, more=False)
        assert await a.state(task) == "waiting"
        assert await a.browse("dead") == await a.browse("ended") == ()
        counts = await a.count()
        assert (counts.dead, counts.waiting, counts.put) == (0, 2, 2)
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(0, more=False)
        _, again = await a.take(2)
        assert (again.id, again.payload, again.priority) == (task, b"x", 2)
        assert (again.attempts, again.deliveries, again.waited) == (0, 1, self.about(0.0))
        await a.settle(again, result=b"at last")
        assert await a.state(task) == "done"

    async def test_only_the_dead_that_are_meant_are_requeued(
        self, clerk: OpenClerk, do: Do, advance: Advance
    ) -> None:
        a = await clerk("a")
        dead = await a.put(*plain(3))
        await _bury(a, 3)
        others = await _one_in_each_state(a, advance)
        meant = (dead[2], dead[0], *(task for state, task in others.items() if state != "dead"), 10**9)
        assert await do(Move("jobs", meant, "waiting")) == Changed(2, more=False)
        assert [record.id for record in await a.browse("dead")] == [dead[1], others["dead"]]
        assert await do(Move("jobs", (), "waiting")) == Changed(0, more=False)
        assert [await a.state(task) for task in others.values()] == list(others)

    async def test_a_dead_task_whose_key_is_in_use_stays_dead(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        old: list[int] = []
        for _ in range(2):
            old += await a.put(NewTask(b"old", key="k"))
            await _bury(a, 1)
        (new,) = await a.put(NewTask(b"new", key="k"))
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(0, more=False)
        assert await do(Move("jobs", (old[0],), "waiting")) == Changed(0, more=False)
        await a.end(new, "done")
        # only one of them can have it
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(1, more=False)
        assert [await a.state(task) for task in old] == ["waiting", "dead"]
        assert (await a.count()).dead == 1

    async def test_requeued_tasks_need_no_room(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        await a.put(*plain(2), max_size=2)
        await _bury(a, 2)
        await a.put(*plain(2), max_size=2)
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(2, more=False)
        assert len(await a.take(9)) == 4

    async def test_more_dead_tasks_than_one_step_requeues(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        ids = await a.put(*plain(2 * CAP + 10))
        await _bury(a, len(ids))
        seqs = [record.seq for record in await a.browse("dead")]
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(
            CAP, more=True, after=seqs[CAP - 1]
        )
        answer = await do(Move("jobs", frozenset({"dead"}), "waiting", seqs[CAP - 1]))
        assert answer == Changed(CAP, more=True, after=seqs[2 * CAP - 1])
        assert await do(Move("jobs", frozenset({"dead"}), "waiting", seqs[2 * CAP - 1])) == Changed(
            10, more=False
        )
        assert [task.id for task in await a.take(1000)] == list(ids)

    async def test_dead_tasks_that_stay_dead_are_looked_at_once(self, clerk: OpenClerk, do: Do) -> None:
        """Else many whose keys are in use would hide those behind them."""
        a = await clerk("a")
        twins = [NewTask(b"old", key=f"k{n}") for n in range(CAP)]
        await a.put(*twins)
        await _bury(a, CAP)
        (other,) = await a.put(NewTask(b"other"))
        await _bury(a, 1)
        seqs = [record.seq for record in await a.browse("dead")]
        await a.put(*twins)
        assert await do(Move("jobs", frozenset({"dead"}), "waiting")) == Changed(
            0, more=True, after=seqs[CAP - 1]
        )
        assert await do(Move("jobs", frozenset({"dead"}), "waiting", seqs[CAP - 1])) == Changed(1, more=False)
        assert await a.state(other) == "waiting"

    async def test_requeued_by_id_among_many(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        ids = await a.put(*plain(2 * CAP + 10))
        await _bury(a, len(ids))
        meant = (ids[-1], ids[CAP], ids[-1])
        assert await do(Move("jobs", meant, "waiting")) == Changed(2, more=False)
        assert {task.id for task in await a.take(9)} == {ids[-1], ids[CAP]}
        with pytest.raises(ValueError, match="ids"):
            Move("jobs", tuple(range(CAP + 1)), "waiting")
        with pytest.raises(ValueError, match="ids"):
            Move("jobs", meant, "purged")

    # ------------------------------------------------------------------------------------------ purging

    @pytest.mark.parametrize(
        "states",
        [
            frozenset({state})
            for state in ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")
        ]
        + [frozenset({"waiting", "expired", "dead"}), frozenset[str]()],
        ids=lambda states: "+".join(sorted(states)),
    )
    async def test_purging_takes_what_is_in_these_states(
        self, clerk: OpenClerk, do: Do, advance: Advance, states: frozenset[str]
    ) -> None:
        a = await clerk("a")
        ids = await _one_in_each_state(a, advance)
        assert await do(Move("jobs", states, "purged")) == Changed(len(states), more=False)
        assert await do(Move("jobs", states, "purged")) == Changed(0, more=False)
        assert {state: await a.state(task) for state, task in ids.items()} == {
            state: "unknown" if state in states else state for state in ids
        }
        for counted in (a.count, a.recount):
            counts = await counted()
            deleted = states & {"waiting", "delayed", "dead"}
            # What has ended still counts when its record is forgotten; dead letters are tasks.
            assert {state: getattr(counts, state) for state in ids} == {
                state: int(state not in deleted) for state in ids
            }
            assert (counts.put, counts.purged) == (8, len(deleted))

    async def test_purging_spares_what_runs(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        await a.put(*plain(3))
        task = await a.take_one()
        await do(Move("jobs", frozenset({"waiting", "delayed", "leased"}), "purged"))
        assert (await a.count()).leased == 1
        await a.settle(task)
        assert await a.state(task.id) == "done"
        assert await a.take() == ()

    async def test_more_tasks_than_one_step_purges(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        ids = await a.put(*plain(CAP + 20), *plain(30, delay=60.0))
        purge = Move("jobs", frozenset({"waiting", "delayed"}), "purged")
        assert await do(purge) == Changed(CAP, more=True)
        assert [record.id for record in await a.browse("waiting")] == list(ids[CAP : CAP + 20])
        assert (await a.count()).delayed == 30
        assert await do(purge) == Changed(50, more=False)
        # nothing is left that says anything
        assert (await a.count()).put == 0

    async def test_what_is_purged_first(self, clerk: OpenClerk, do: Do, advance: Advance) -> None:
        """What a listing shows first."""
        a = await clerk("a")
        await a.put(*plain(10), *plain(10, priority=1), *plain(10, priority=2, delay=0.5), *plain(1))
        await a.put(*(NewTask(b"", delay=60.0 - n / 16) for n in range(2 * CAP)))
        await advance(1.0)
        await do(Move("jobs", frozenset({"waiting"}), "purged"))
        listed = [record.id for record in await a.browse("delayed", limit=CAP)]
        assert await do(Move("jobs", frozenset({"delayed"}), "purged")) == Changed(CAP, more=True)
        assert [record.id for record in await a.browse("delayed", limit=CAP)] == listed[CAP:]
        await a.put(*plain(CAP), *plain(CAP, priority=1))
        listed = [record.id for record in await a.browse("waiting", limit=CAP)]
        assert await do(Move("jobs", frozenset({"waiting"}), "purged")) == Changed(CAP, more=True)
        assert [record.id for record in await a.browse("waiting", limit=CAP)] == listed[CAP:]

    async def test_what_was_purged_is_not_taken(
        self, clerk: OpenClerk, do: Do, hints: Hints, advance: Advance
    ) -> None:
        a = await clerk("a")
        news = await hints("a")
        await a.put(*plain(2), NewTask(b"late", delay=0.5))
        await do(Move("jobs", frozenset({"waiting", "delayed"}), "purged"))
        await a.idle()
        await advance(1.0)
        await a.put(NewTask(b"new"))
        assert len(await news.new()) == 1
        assert payloads(await a.take(9)) == [b"new"]
