"""Keys: what becomes of a task whose key another one has, for how long it has it, and what is left of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tenure import engine as e

from ._clerk import OpenClient, QueueSession, QueueSessionBase, payloads, plain
from ._configured import set_groups
from ._contract import Advance, Do, Hints
from ._survey import survey


def _task(payload: bytes, on_duplicate: e.OnDuplicate = "replace", **fields: Any) -> e.NewTask:
    return e.NewTask(payload, key="k", on_duplicate=on_duplicate, **fields)


async def _ids(a: QueueSession, *tasks: e.NewTask) -> tuple[int | e.Duplicate, ...]:
    answer = await a.request("producer", *tasks)
    assert isinstance(answer, e.Accepted)
    return answer.ids


async def _of_key(a: QueueSession) -> int:
    """The task that has the key; 0 for none."""
    rows = (await a.do.page(e.Scan(e.KEYED_TASK, a.queue, only="k"))).rows
    return rows[0].id if rows else 0


class KeyContract(QueueSessionBase):
    """The contract's tests of the keys of tasks."""

    # another one has the key

    async def test_a_task_whose_key_another_one_has(self, client: OpenClient) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1"))
        assert await _ids(a, _task(b"2", "refuse"), _task(b"3", "keep")) == (e.Duplicate(first), first)
        assert [record.payload for record in await a.browse("waiting")] == [b"1"]
        assert await _ids(a, _task(b"4"), _task(b"5", "keep"), _task(b"6")) == (first, first, first)
        assert (await a.recount()).put == 1
        taken = await a.take_one()
        assert (taken.id, taken.payload) == (first, b"6")

    async def test_a_replacement_is_the_new_task_in_all_but_its_id(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", priority=1, expires=0.5, meta=b"old"))
        tried = await a.take_one(keep=True)
        await a.do(e.Progress("jobs", first, tried.token, b"half"))
        await a.exchange(e.Settle(first, tried.token, e.Verdict.RETRY, delay=60.0, failure=b"failed"))
        assert await _ids(a, _task(b"2", priority=3, expires=20.0, meta=b"new")) == (first,)
        await a.put(e.NewTask(b"other", priority=2))
        await advance(1.0)
        (record, _) = await a.browse("waiting")
        assert record == replace(
            record,
            id=first,
            payload=b"2",
            priority=3,
            key="k",
            attempts=0,
            deliveries=0,
            progress=b"",
            failure=b"",
            meta=b"new",
        )
        assert payloads(await a.take(2)) == [b"2", b"other"]

    async def test_the_delay_begins_anew(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        for n in range(4):
            await _ids(a, _task(b"%d" % n, delay=2.0))
            await advance(1.0)
            assert await a.take() == ()
        await advance(1.5)
        assert payloads(await a.take(5)) == [b"3"]
        assert (await a.count()).put == 1

    async def test_a_task_waits_no_longer_than_it_may(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        for n in range(4):
            await _ids(a, _task(b"%d" % n, delay=2.0, max_wait=3.0))
            assert await a.take() == ()
            await advance(0.7)
        await advance(0.5)
        assert payloads(await a.take(5)) == [b"3"]
        # a new one counts from its own put on
        await _ids(a, _task(b"4", delay=2.0, max_wait=3.0))
        await advance(1.5)
        assert await a.take() == ()

    async def test_a_task_that_was_taken_is_put_anew(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        await _ids(a, _task(b"1", max_wait=1.0))
        await advance(5.0)
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=60.0)
        await _ids(a, _task(b"2", delay=4.0, max_wait=2.0))
        await advance(1.0)
        assert await a.take() == ()
        await advance(1.5)
        assert payloads(await a.take()) == [b"2"]

    async def test_a_task_that_is_due_after_its_longest_wait_is_ready(self, client: OpenClient) -> None:
        a = await client("a")
        await _ids(a, _task(b"1", delay=60.0, max_wait=0.0))
        assert payloads(await a.take()) == [b"1"]

    async def test_a_new_expiry_takes_the_place_of_the_former(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await _ids(a, _task(b"1", expires=1.0))
        await _ids(a, _task(b"2", expires=3.0))
        await advance(2.0)
        assert (await a.count()).waiting == 1
        await _ids(a, _task(b"3"))
        await advance(5.0)
        assert (await a.count()).waiting == 1
        (first,) = await _ids(a, _task(b"4", expires=1.0))
        await advance(1.5)
        assert (await a.count()).expired == 1
        assert isinstance(first, int)
        assert await a.state(first) == "expired"

    async def test_those_that_expire_do_so_in_the_order_of_their_new_times(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(_task(b"1", expires=0.5), e.NewTask(b"2", expires=1.0))
        await _ids(a, _task(b"3", expires=1.25))
        await advance(2.0)
        assert [record.key for record in await a.browse("ended")] == [None, "k"]

    async def test_those_who_follow_it_learn_of_it(self, client: OpenClient, hints: Hints) -> None:
        a, b = await client("a"), await client("b")
        news = await hints("b")
        (first,) = await a.put(_task(b"1"))
        await a.do.page(e.Scan(e.TASK, "jobs", only=str(first), watch=b.session))
        await b.result(first, b.session)
        await _ids(a, _task(b"2"))
        assert await news.new() == [e.Hint("b", "jobs", str(first), e.Notice.CHANGED)]
        await a.settle(await a.take_one())
        assert await news.new() == [e.Hint("b", "jobs", str(first), e.Notice.FINISHED)]

    async def test_an_idle_taker_learns_of_an_earlier_time(self, client: OpenClient, hints: Hints) -> None:
        a, b = await client("a"), await client("b")
        news = await hints("b")
        await _ids(a, _task(b"1", delay=60.0))
        await b.idle()
        await _ids(a, _task(b"2", delay=5.0))
        assert await news.new() == [e.Hint("b", "jobs", "", e.Notice.READY)]
        await b.idle()
        await _ids(a, _task(b"3", delay=9.0))
        assert await news.new() == []
        await _ids(a, _task(b"4"))
        assert await news.new() == [e.Hint("b", "jobs", "", e.Notice.READY)]
        assert payloads(await b.take()) == [b"4"]

    # while it is being worked on

    @pytest.mark.parametrize("how", ["retry", "give back", "postpone", "closed"])
    async def test_one_that_is_worked_on_gets_one_successor(self, client: OpenClient, how: str) -> None:
        a, b = await client("a"), await client("b")
        (first,) = await a.put(_task(b"1"))
        taken = await b.take_one()
        (two,) = await _ids(a, _task(b"2"))
        assert two != first
        assert await _ids(a, _task(b"3"), _task(b"4", "keep")) == (two, two)
        assert await _of_key(a) == two
        assert (await a.recount()).put == 2
        assert await b.do(e.Progress("jobs", first, taken.token, b"half")) is e.Reply.OK
        # it gets no further try: its payload would come after the last one
        if how == "closed":
            await b.close()
        else:
            assert (await b.exchange(e.Settle(first, taken.token, e.Verdict(how)))).stop == ()
        assert await a.state(first) == "cancelled"
        assert payloads(await a.take(5)) == [b"3"]
        assert (await a.recount()).cancelled == 1

    async def test_one_that_was_superseded_may_be_done_or_die(self, client: OpenClient) -> None:
        a = await client("a")
        for verdict in (e.Verdict.DONE, e.Verdict.DEAD, e.Verdict.DISCARD):
            (first,) = await a.put(_task(b"1"))
            taken = await a.take_one()
            (two,) = await a.put(_task(b"2"))
            await a.settle(taken, verdict)
            assert (await a.state(first), await _of_key(a)) == (verdict.value, two)
            await a.end(two, "done")
        # it has no key any more, and so may live again beside the holder of the key
        (record,) = await a.browse("dead")
        assert record.key is None
        await a.put(_task(b"3"))
        assert await a.do.move("jobs", "dead", "waiting") == 1
        assert sorted(payloads(await a.take(5))) == [b"1", b"3"]

    async def test_one_that_was_superseded_can_still_be_cancelled(
        self, client: OpenClient, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        news = await hints("b")
        (first,) = await a.put(_task(b"1"))
        taken = await b.take_one()
        await a.put(_task(b"2"))
        assert (await b.exchange()).stop == ()
        assert await a.do(e.Move("jobs", (first,), "cancelled", ttl=None)) == e.MovedCount(1)
        assert await news.new() == [e.Hint("b", "jobs", str(taken.token), e.Notice.STOP)]
        assert (await b.exchange()).stop == (taken.token,)
        assert await b.do(e.Progress("jobs", first, taken.token, b"half")) is e.Reply.REQUESTED
        await b.settle(taken, e.Verdict.RETRY)
        assert (await b.exchange()).stop == ()
        assert await a.state(first) == "cancelled"

    async def test_one_that_is_to_stop_is_superseded(self, client: OpenClient) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1"))
        taken = await a.take_one()
        await a.do(e.Move("jobs", (first,), "cancelled", ttl=None))
        await a.put(_task(b"2"))
        assert (await a.exchange()).stop == (taken.token,)
        await a.settle(taken, e.Verdict.CANCEL)
        assert payloads(await a.take(5)) == [b"2"]

    async def test_a_chain_of_successors(self, client: OpenClient) -> None:
        a = await client("a")
        for n in range(4):
            await a.put(_task(b"%d" % n))
            await a.take_one()
        counts = await a.recount()
        assert (counts.put, counts.leased) == (4, 4)
        assert (await a.browse("leased"))[-1].key == "k"
        assert [record.key for record in await a.browse("leased")] == [None, None, None, "k"]

    # for how long

    @pytest.mark.parametrize("verdict", ["done", "dead", "discarded", "cancelled"])
    async def test_an_id_is_given_again_for_as_long_as_the_key_lasts(
        self, client: OpenClient, advance: Advance, verdict: str
    ) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", key_ttl=4.0))
        await advance(1.0)
        await a.settle(await a.take_one(), e.Verdict(verdict), ttl=1.0)
        await advance(2.0)
        # of the task itself nothing is left
        assert await _ids(a, _task(b"2", "refuse", key_ttl=9.0), _task(b"3", "keep", key_ttl=9.0)) == (
            e.Duplicate(first),
            first,
        )
        await advance(1.5)
        (two,) = await a.put(_task(b"4", "refuse"))
        assert two != first

    async def test_a_key_lasts_while_its_task_is_unfinished(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", key_ttl=1.0))
        taken = await a.take_one()
        await advance(3.0)
        assert await _ids(a, _task(b"2", "keep")) == (first,)
        await a.settle(taken)
        assert await _of_key(a) == 0
        assert await _ids(a, _task(b"3", "keep")) != (first,)

    async def test_a_replacement_of_an_ended_task_has_the_key(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", key_ttl=50.0))
        await a.end(first, "done")
        assert await _of_key(a) == first
        (two,) = await a.put(_task(b"2"))
        assert (two != first, await _of_key(a)) == (True, two)
        await a.end(two, "done")
        # it had no ttl
        assert await _of_key(a) == 0
        (three,) = await a.put(_task(b"3", "refuse", key_ttl=1.0))
        assert await _ids(a, _task(b"4", key_ttl=6.0)) == (three,)
        assert await _ids(a, _task(b"5", key_ttl=1.0)) == (three,)
        await a.end(three, "cancelled")
        await advance(4.0)
        assert await _ids(a, _task(b"6", "refuse")) == (e.Duplicate(three),)
        await advance(2.5)
        assert await _of_key(a) == 0

    async def test_a_successor_has_a_ttl_of_its_own(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", key_ttl=9.0))
        await a.take_one()
        (two,) = await a.put(_task(b"2", key_ttl=2.0))
        await a.end(two, "done")
        await advance(1.0)
        assert await _ids(a, _task(b"3", "keep")) == (two,)
        await advance(1.5)
        (three,) = await a.put(_task(b"4", "keep"))
        assert three not in (first, two)

    async def test_a_dead_task_lives_again_unless_another_one_has_its_key(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", key_ttl=9.0))
        await a.end(first, "dead")
        # that it has its key itself is no hindrance
        assert await a.do.move("jobs", "dead", "waiting") == 1
        await a.end(first, "dead")
        (two,) = await a.put(_task(b"2", key_ttl=2.0))
        await a.end(two, "done")
        assert await a.do.move("jobs", "dead", "waiting") == 0
        await advance(2.5)
        assert await a.do.move("jobs", "dead", "waiting") == 1
        assert await _ids(a, _task(b"3", "keep")) == (first,)
        await a.end(first, "done")
        assert await _of_key(a) == 0

    async def test_a_key_outlives_a_purge(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        (first,) = await a.put(_task(b"1", key_ttl=2.0))
        await a.do.move("jobs", "waiting", "purged")
        assert await _ids(a, _task(b"2", "keep")) == (first,)
        assert (await a.do.page(e.Scan(e.KEYED_TASK, "jobs", only="k"))).rows == ()
        await advance(2.5)
        await a.put(_task(b"3", "refuse"))
        # the queue was forgotten with the key
        assert (await a.recount()).put == 1

    async def test_a_queue_is_not_forgotten_before_its_keys(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a", ttl=1.0)
        (first,) = await a.put(_task(b"1", key_ttl=8.0))
        await a.settle(await a.take_one(), ttl=0.0)
        await a.close()
        b = await client("b", ttl=100.0)
        await advance(7.0)
        assert await survey(do, "queues") == ["jobs"]
        assert await _ids(b, _task(b"2", "keep")) == (first,)
        assert (await b.count()).put == 1
        await advance(1.5)
        assert await survey(do, "queues") == []
        assert (await b.count()).put == 0
        (two,) = await b.put(_task(b"3", "keep"))
        assert two != first

    async def test_keys_are_kept_apart_by_queue_and_by_name(self, client: OpenClient) -> None:
        a, b = await client("a"), await client("a", queue="jobs2")
        keys = ("k", "k\0", "\u00e4", "k:k", "K", "0", "k" * 400)
        tasks = [e.NewTask(b"1", key=key, on_duplicate="keep", key_ttl=60.0) for key in keys]
        ids = [*await a.put(*tasks), *await b.put(*tasks)]
        assert len(set(ids)) == 2 * len(keys)
        for first in (a, b):
            for task in await first.take(100):
                await first.settle(task)
        assert [*await _ids(a, *tasks), *await _ids(b, *tasks)] == ids

    # room

    async def test_what_puts_no_new_task_needs_no_room(self, client: OpenClient, advance: Advance) -> None:
        a = await client("a")
        (first, _) = await a.put(_task(b"1"), e.NewTask(b"other"), max_size=2)
        assert isinstance(await a.request("waits", e.NewTask(b"x"), max_size=2), e.Queued)
        await advance(0.1)
        for n, on_duplicate in enumerate(("refuse", "keep", "replace")):
            answer = await a.request(f"m{n}", _task(b"2", on_duplicate), wait=False, max_size=2)
            assert answer == e.Accepted((e.Duplicate(first) if on_duplicate == "refuse" else first,))
        assert await a.request("n", _task(b"3"), e.NewTask(b"y"), wait=False, max_size=2) is e.Reply.REFUSED
        assert payloads(await a.take(2)) == [b"other", b"2"]
        # a successor is a new task
        assert await a.request("n", _task(b"3"), wait=False, max_size=2) is e.Reply.REFUSED
        assert isinstance(await a.request("o", _task(b"3"), max_size=2), e.Queued)
        counts = await a.recount()
        assert (counts.put, counts.producers) == (2, 2)

    async def test_a_batch_whose_tasks_have_one_key_needs_room_for_one(self, client: OpenClient) -> None:
        a = await client("a")
        tasks = [_task(b"%d" % n) for n in range(5)]
        answer = await a.request("m", *tasks, wait=False, max_size=1)
        assert isinstance(answer, e.Accepted)
        (first,) = set(answer.ids)
        assert (await a.take_one()).payload == b"4"
        # the first is the successor of the leased one, the others replace it
        answer = await a.request("m", _task(b"k", "keep"), *tasks, wait=False, max_size=2)
        assert isinstance(answer, e.Accepted)
        assert answer.ids[0] == first
        assert len({*answer.ids[1:]} - {first}) == 1

    async def test_a_replacement_lets_in_no_more_than_fit(self, client: OpenClient) -> None:
        a = await client("a")
        await a.put(*plain(3), max_size=3)
        large, small = (_task(b"1"), e.NewTask(b"x"), _task(b"2")), plain(2)
        assert isinstance(await a.request("large", *large, max_size=3), e.Queued)
        assert isinstance(await a.request("small", *small, max_size=3), e.Queued)
        for task in await a.take(3):
            await a.settle(task)
        assert isinstance(await a.request("large", *large, max_size=3), e.Accepted)
        counts = await a.recount()
        assert (counts.waiting, counts.reserved, counts.producers) == (2, 0, 1)
        await a.settle(await a.take_one())
        assert isinstance(await a.request("small", *small, max_size=3), e.Accepted)

    async def test_racing_producers_of_one_operation(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        requests = tuple(e.PutRequest(f"m{n}", (_task(b"%d" % n), e.NewTask(b"x"))) for n in range(4))
        await do.configure("jobs", max_size=5)
        answer = await do(e.Put(a.session, do.number(), "jobs", requests))
        assert isinstance(answer, e.PutAnswer)
        firsts = {first.ids[0] for first in answer.answers if isinstance(first, e.Accepted)}
        assert len(firsts) == 1
        taken = await a.take(9)
        assert sorted(payloads(taken)) == [b"3", b"x", b"x", b"x", b"x"]

    async def test_a_lost_reply(self, client: OpenClient, do: Do) -> None:
        a = await client("a")
        put = e.Put(a.session, do.number(), "jobs", (e.PutRequest("m", (_task(b"1", key_ttl=60.0),)),))
        first = await do(put)
        await a.settle(await a.take_one())
        assert await do(put) == first
        b = await client("b")
        again = e.Put(b.session, do.number(), "jobs", (e.PutRequest("m", (_task(b"1", "keep"),)),))
        assert await do(again) == first
        assert (await a.recount()).put == 1

    # groups

    @pytest.mark.parametrize("delays", [(0.0, 0.0), (60.0, 0.0), (0.0, 60.0), (60.0, 60.0)])
    async def test_a_replacement_goes_from_one_group_to_another(
        self, client: OpenClient, delays: tuple[float, float]
    ) -> None:
        a = await client("a")
        before, after = delays

        def counts(group: str, delay: float) -> tuple[e.GroupCounts, ...]:
            return (e.GroupCounts(group, int(not delay), int(delay > 0), 0),)

        (first,) = await a.put(_task(b"1", delay=before, group="a"))
        assert await a.groups() == counts("a", before)
        assert await _ids(a, _task(b"2", delay=after, group="b")) == (first,)
        assert await a.groups() == counts("b", after)
        assert await _ids(a, _task(b"3", delay=after, group="b")) == (first,)
        assert await a.groups() == counts("b", after)
        assert await _ids(a, _task(b"4", delay=after)) == (first,)
        assert await a.groups() == ()
        assert (await a.recount()).groups == 0
        assert await _ids(a, _task(b"5", group="c")) == (first,)
        (taken,) = await a.take(5)
        assert (taken.payload, taken.group) == (b"5", "c")
        assert await a.groups() == (e.GroupCounts("c", 0, 0, 1),)
        (record,) = await a.browse("leased")
        assert record.group == "c"

    async def test_a_replacement_gets_the_turn_of_its_group(
        self, client: OpenClient, advance: Advance
    ) -> None:
        a = await client("a")
        await a.put(_task(b"1", group="a"), e.NewTask(b"2", group="a"), e.NewTask(b"3", group="b"))
        await advance(0.1)
        await _ids(a, _task(b"4", group="a"))
        assert payloads(await a.take(3)) == [b"2", b"3", b"4"]

    async def test_one_that_was_tried_holds_its_group_no_more(self, client: OpenClient) -> None:
        a = await client("a")
        await a.do(set_groups("jobs", group_limit=1))
        await a.put(_task(b"1", group="a"), e.NewTask(b"2", group="a"))
        await a.settle(await a.take_one(), e.Verdict.RETRY, delay=60.0)
        assert await a.take(5) == ()
        await _ids(a, _task(b"3", group="a", delay=60.0))
        assert payloads(await a.take(5)) == [b"2"]

    async def test_one_that_was_superseded_holds_its_group_no_more(self, client: OpenClient) -> None:
        a = await client("a")
        await a.do(set_groups("jobs", group_limit=1))
        await a.put(_task(b"1", group="a"))
        taken = await a.take_one()
        await a.put(_task(b"2", group="a"))
        assert await a.take(5) == ()
        await a.settle(taken, e.Verdict.RETRY, delay=60.0)
        assert payloads(await a.take(5)) == [b"2"]
        assert await a.groups() == (e.GroupCounts("a", 0, 0, 1),)

    async def test_who_waits_for_the_group_that_it_leaves_goes_on(
        self, client: OpenClient, hints: Hints
    ) -> None:
        a = await client("a")
        news = await hints("a")
        await a.do(set_groups("jobs", group_size=1))
        await a.put(_task(b"1", group="a"))
        await a.put(e.NewTask(b"2", group="b"))
        assert isinstance(await a.request("waits", e.NewTask(b"3", group="a")), e.Queued)
        # in its own group it makes no room
        await _ids(a, _task(b"4", group="a"))
        assert await news.new() == []
        # and it needs none in another
        await _ids(a, _task(b"5", group="b"))
        assert await news.new() == [e.Hint("a", "jobs", "waits", e.Notice.ROOM)]
        assert isinstance(await a.request("waits", e.NewTask(b"3", group="a")), e.Accepted)
        assert {(g.group, g.waiting) for g in await a.groups()} == {("a", 1), ("b", 2)}
        assert (await a.recount()).reserved == 0

    async def test_keys_leave_nothing(self, client: OpenClient, do: Do, advance: Advance) -> None:
        a = await client("a", ttl=1.0)
        tasks = [e.NewTask(b"", key=f"k{n}", on_duplicate="keep", key_ttl=1.0 + n % 3) for n in range(50)]
        await a.put(*tasks)
        for task in await a.take(100):
            await a.settle(task, ttl=0.0)
        await advance(5.0)
        for _ in range(20):
            await do(e.Ping())
        b = await client("b")
        assert await survey(do, "queues") == []
        assert (await b.count()).put == 0
        await b.put(*plain(1))
        assert (await b.recount()).put == 1
