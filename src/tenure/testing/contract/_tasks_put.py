"""What an engine owes to those who put tasks: ids, keys, expiry, and a line where a full queue makes them wait."""

from __future__ import annotations

import pytest

from tenure.engine import (
    Accepted,
    Changed,
    Duplicate,
    Hint,
    Leave,
    Move,
    NewTask,
    Notice,
    Outcome,
    Ping,
    Put,
    PutAnswer,
    PutRequest,
    Queued,
    Reply,
    Settle,
    Verdict,
)

from ._clerk import Clerk, ClerkBase, OpenClerk, names, payloads, plain
from ._contract import Advance, Do, Hints

ENDINGS = ("done", "dead", "discarded", "cancelled")


class PutContract(ClerkBase):
    """Put and Leave.

    Thread safety: none needed; pytest makes one for each test.
    """

    # ------------------------------------------------------------------------------------------ accepted

    async def test_ids_rise_in_the_order_in_which_tasks_are_put(self, clerk: OpenClerk) -> None:
        a, b = await clerk("a"), await clerk("b")
        ids = [*await a.put(*plain(3)), *await b.put(*plain(2)), *await a.put(*plain(1))]
        assert ids == sorted(set(ids))
        assert (await a.count()).put == 6

    async def test_each_request_of_a_batch_is_answered_in_its_place(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        requests = (
            PutRequest("m", plain(2)),
            PutRequest("n", plain(9), wait=False),
            PutRequest("o", ()),
            PutRequest("p", plain(1)),
        )
        answer = await do(Put(a.session, do.number(), "jobs", requests, 5))
        assert isinstance(answer, PutAnswer)
        first, refused, nothing, last = answer.answers
        assert refused is Reply.REFUSED
        assert nothing == Accepted(())
        assert isinstance(first, Accepted)
        assert isinstance(last, Accepted)
        assert (len(first.ids), len(last.ids)) == (2, 1)
        assert (await a.count()).put == 3

    @pytest.mark.parametrize("payload", [b"", b"\0\xff\0", "ä\n'\"".encode(), b"x" * 2**20])
    async def test_payloads_are_any_bytes(self, clerk: OpenClerk, payload: bytes) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"before"), NewTask(payload), NewTask(b"after"))
        assert payloads(await a.take(3)) == [b"before", payload, b"after"]

    async def test_queues_do_not_know_of_each_other(self, clerk: OpenClerk) -> None:
        here, there = await clerk("a"), await clerk("b", queue="jobs:other")
        await here.put(NewTask(b"here", key="k"), max_size=1)
        await there.put(NewTask(b"there", key="k"), max_size=1)
        assert payloads(await there.take(5)) == [b"there"]
        assert payloads(await here.take(5)) == [b"here"]

    async def test_a_cursor_is_stored_with_its_tasks_or_not_at_all(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.request("m", *plain(2), max_size=3, cursor=("input", b"\0\x02"))
        assert (await a.count()).cursors == (("input", b"\0\x02"),)
        assert (
            await a.request("m", *plain(2), max_size=3, wait=False, cursor=("input", b"4")) is Reply.REFUSED
        )
        assert isinstance(await a.request("m", *plain(2), max_size=3, cursor=("input", b"4")), Queued)
        assert (await a.count()).cursors == (("input", b"\0\x02"),)
        await a.take_one()
        await a.request("n", cursor=("input", b"5"))
        await a.request("n", cursor=("a file", b"1"))
        assert (await a.count()).cursors == (("a file", b"1"), ("input", b"5"))

    # ------------------------------------------------------------------------------------------ keys

    async def test_a_duplicate_is_refused_and_told_which_task_has_its_key(self, clerk: OpenClerk) -> None:
        a, b = await clerk("a"), await clerk("b")
        waiting, delayed = await a.put(NewTask(b"1", key="w"), NewTask(b"2", delay=60.0, key="d"))
        assert (await a.take_one()).id == waiting
        answer = await b.request(
            "m", NewTask(b"3", key="w"), NewTask(b"4"), NewTask(b"5", key="d"), NewTask(b"6", key="new")
        )
        assert isinstance(answer, Accepted)
        leased, accepted, other, new = answer.ids
        assert (leased, other) == (Duplicate(waiting), Duplicate(delayed))
        assert isinstance(accepted, int)
        assert isinstance(new, int)
        assert (await a.count()).put == 4
        assert payloads(await b.take(9)) == [b"4", b"6"]

    async def test_duplicates_within_a_request_and_within_a_batch(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        twins = (NewTask(b"1", key="k"), NewTask(b"2", key="k"))
        requests = (PutRequest("m", twins), PutRequest("n", twins[:1]))
        answer = await do(Put(a.session, do.number(), "jobs", requests, 1))
        assert isinstance(answer, PutAnswer)
        first, second = answer.answers
        assert isinstance(first, Accepted)
        (task, twin) = first.ids
        assert isinstance(task, int)
        assert twin == Duplicate(task)
        assert second == Accepted((Duplicate(task),))

    async def test_duplicates_need_no_room(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"1", key="k"), max_size=1)
        again = NewTask(b"2", key="k")
        assert await a.request("m", again, max_size=1, wait=False) == Accepted((Duplicate(task),))

    @pytest.mark.parametrize("ending", [*ENDINGS, "expired", "purged"])
    async def test_a_key_is_free_again_when_its_task_has_ended(
        self, clerk: OpenClerk, do: Do, advance: Advance, ending: str
    ) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"1", key="k", expires=0.5 if ending == "expired" else None))
        match ending:
            case "expired":
                await advance(1.0)
            case "purged":
                await do(Move("jobs", frozenset({"waiting"}), "purged"))
            case _:
                await a.end(task, ending)
        (new,) = await a.put(NewTask(b"2", key="k"))
        assert new > task
        assert await a.request("m", NewTask(b"3", key="k")) == Accepted((Duplicate(new),))

    async def test_a_key_is_in_use_as_long_as_its_task_may_be_tried_again(
        self, clerk: OpenClerk, do: Do
    ) -> None:
        a, b = await clerk("a"), await clerk("b")
        (task,) = await a.put(NewTask(b"1", key="k"))
        duplicate = Accepted((Duplicate(task),))

        async def is_in_use() -> bool:
            return await b.request("m", NewTask(b"2", key="k")) == duplicate

        await a.settle(await a.take_one(), Verdict.GIVE_BACK)
        assert await is_in_use()
        await a.settle(await a.take_one(), Verdict.RETRY)
        assert await is_in_use()
        await a.take_one()
        assert await do(Move("jobs", (task,), "cancelled")) == Changed(1, more=False)
        assert await is_in_use()
        await a.close()
        assert not await is_in_use()

    async def test_a_stranded_task_keeps_its_key(self, clerk: OpenClerk) -> None:
        a, b = await clerk("a"), await clerk("b")
        (task,) = await a.put(NewTask(b"1", key="k"))
        await a.take_one()
        await a.close()
        assert await b.request("m", NewTask(b"2", key="k")) == Accepted((Duplicate(task),))

    # ------------------------------------------------------------------------------------------ expiry

    async def test_a_task_that_nobody_takes_expires(self, clerk: OpenClerk, advance: Advance) -> None:
        a = await clerk("a")
        tasks = (
            NewTask(b"1", expires=1.0),
            NewTask(b"2", delay=60.0, expires=1.0),
            NewTask(b"3", expires=60.0),
        )
        waiting, delayed, _ = await a.put(*tasks)
        await advance(0.5)
        assert (await a.count()).expired == 0
        await advance(0.7)
        assert payloads(await a.take(5)) == [b"3"]
        for task in (waiting, delayed):
            assert await a.result(task) == Outcome("expired", b"", 0)
        counts = await a.count()
        assert (counts.expired, counts.waiting, counts.delayed, counts.leased) == (2, 0, 0, 1)

    async def test_a_task_that_was_taken_in_time_does_not_expire(
        self, clerk: OpenClerk, advance: Advance
    ) -> None:
        a = await clerk("a")
        (task,) = await a.put(NewTask(b"1", expires=0.5))
        taken = await a.take_one()
        await advance(1.0)
        assert (await a.count()).leased == 1
        await a.settle(taken, result=b"in time")
        assert await a.result(task) == Outcome("done", b"in time", 0)

    # ------------------------------------------------------------------------------------------ a full queue

    async def test_a_full_queue_refuses_those_who_do_not_wait(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.put(NewTask(b"waits"), NewTask(b"is late", delay=60.0), NewTask(b"runs", priority=1))
        assert (await a.take_one()).payload == b"runs"
        assert await a.request("m", *plain(1), max_size=3, wait=False) is Reply.REFUSED
        counts = await a.count()
        assert (counts.put, counts.producers) == (3, 0)
        assert isinstance(await a.request("m", *plain(1), max_size=4, wait=False), Accepted)

    async def test_a_request_is_accepted_whole_or_not_at_all(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.put(*plain(2))
        assert await a.request("m", *plain(3), max_size=4, wait=False) is Reply.REFUSED
        assert isinstance(await a.request("m", *plain(3), max_size=4), Queued)
        assert (await a.count()).put == 2

    async def test_what_can_never_fit_is_refused_at_once(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        assert await a.request("m", *plain(5), max_size=4) is Reply.REFUSED
        assert (await a.count()).producers == 0

    async def test_a_full_queue_makes_producers_wait_in_line(self, clerk: OpenClerk, hints: Hints) -> None:
        a, b = await clerk("a"), await clerk("b")
        news_a, news_b = await hints("a"), await hints("b")
        await a.put(NewTask(b"first"), max_size=1)
        second, third = NewTask(b"second"), NewTask(b"third")
        places = [
            await b.request("m", second, max_size=1),
            await a.request("n", third, max_size=1),
            await b.request("m", second, max_size=1),
        ]
        assert [place.place for place in places if isinstance(place, Queued)] == [1, 2, 1]
        assert (await a.count()).producers == 2

        await a.settle(await a.take_one())
        assert await news_b.new() == [Hint("b", "jobs", "m", Notice.ROOM)]
        assert await news_a.new() == []
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (1, 1)

        assert isinstance(await b.request("m", second, max_size=1), Accepted)
        await b.settle(await b.take_one())
        assert await news_a.new() == [Hint("a", "jobs", "n", Notice.ROOM)]
        assert isinstance(await a.request("n", third, max_size=1), Accepted)
        counts = await a.count()
        assert (counts.reserved, counts.producers, counts.put) == (0, 0, 3)
        assert payloads(await a.take(5)) == [b"third"]

    async def test_nobody_takes_what_is_reserved_or_passes_those_who_wait(self, clerk: OpenClerk) -> None:
        a = await clerk("a")
        await a.put(*plain(4), max_size=4)
        await a.request("large", *plain(3), max_size=4)
        await a.request("small", *plain(1), max_size=4)
        for _ in range(2):
            await a.settle(await a.take_one())
        # two slots are free, but the head of the line wants three
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (0, 2)
        assert await a.request("late", *plain(1), max_size=4, wait=False) is Reply.REFUSED
        last = await a.request("last", *plain(1), max_size=4)
        assert isinstance(last, Queued)
        assert last.place == 3

        await a.settle(await a.take_one())
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (3, 2)
        assert await a.request("late", *plain(1), max_size=4, wait=False) is Reply.REFUSED
        assert isinstance(await a.request("large", *plain(3), max_size=4), Accepted)
        assert isinstance(await a.request("small", *plain(1), max_size=4), Queued)

    async def test_room_is_made_for_all_who_fit(self, clerk: OpenClerk, hints: Hints) -> None:
        a = await clerk("a")
        news = await hints("a")
        await a.put(*plain(5), max_size=5)
        for producer, size in (("m", 2), ("n", 1), ("o", 2), ("p", 1)):
            await a.request(producer, *plain(size), max_size=5)
        tasks = await a.take(4)
        await a.exchange(*(Settle(task.id, task.token, Verdict.DONE) for task in tasks))
        assert await names(news, Notice.ROOM) == ["m", "n"]
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (3, 2)

    @pytest.mark.parametrize("ending", [*ENDINGS, "expired", "purged"])
    async def test_every_ending_makes_room(
        self, clerk: OpenClerk, do: Do, hints: Hints, advance: Advance, ending: str
    ) -> None:
        a = await clerk("a")
        news = await hints("a")
        (task,) = await a.put(NewTask(b"1", expires=0.5 if ending == "expired" else None))
        await a.request("m", *plain(1), max_size=1)
        match ending:
            case "expired":
                await advance(1.0)
                await do(Ping())
            case "purged":
                await do(Move("jobs", frozenset({"waiting"}), "purged"))
            case _:
                await a.end(task, ending)
        assert await names(news, Notice.ROOM) == ["m"]

    @pytest.mark.parametrize("verdict", [Verdict.GIVE_BACK, Verdict.RETRY])
    async def test_a_task_that_comes_back_makes_no_room(self, clerk: OpenClerk, verdict: Verdict) -> None:
        a = await clerk("a")
        await a.put(*plain(1))
        await a.request("m", *plain(1), max_size=1)
        await a.settle(await a.take_one(), verdict)
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (0, 1)

    # ------------------------------------------------------------------------------------------ leaving the line

    async def test_whoever_leaves_lets_the_next_go_in(self, clerk: OpenClerk, do: Do, hints: Hints) -> None:
        a = await clerk("a")
        news = await hints("a")
        await a.put(*plain(3), max_size=4)
        await a.request("large", *plain(2), max_size=4)
        await a.request("small", *plain(1), max_size=4)
        assert await do(Leave("jobs", "large")) is Reply.LEFT
        assert await names(news, Notice.ROOM) == ["small"]

    async def test_reserved_slots_that_are_given_up_go_to_the_next(
        self, clerk: OpenClerk, do: Do, hints: Hints
    ) -> None:
        a = await clerk("a")
        news = await hints("a")
        await a.put(*plain(1), max_size=1)
        await a.request("m", *plain(1), max_size=1)
        await a.request("n", *plain(1), max_size=1)
        await a.settle(await a.take_one())
        assert await names(news, Notice.ROOM) == ["m"]
        assert await do(Leave("jobs", "m")) is Reply.RELEASED
        assert await names(news, Notice.ROOM) == ["n"]
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (1, 0)
        assert await do(Leave("jobs", "n")) is Reply.RELEASED
        assert isinstance(await a.request("o", *plain(1), max_size=1, wait=False), Accepted)

    async def test_leaving_again_finds_nothing(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        await a.put(*plain(1), max_size=1)
        await a.request("m", *plain(1), max_size=1)
        assert await do(Leave("jobs", "m")) is Reply.LEFT
        assert await do(Leave("jobs", "m")) is Reply.UNKNOWN
        assert await do(Leave("no such queue", "m")) is Reply.UNKNOWN
        assert (await a.count()).producers == 0

    @pytest.mark.parametrize("how", ["closed", "expired"])
    @pytest.mark.parametrize("place", ["waiting", "reserved"])
    async def test_the_place_of_a_dead_producer_goes_to_the_next(
        self, clerk: OpenClerk, do: Do, hints: Hints, advance: Advance, how: str, place: str
    ) -> None:
        a, b = await clerk("a"), await clerk("b", ttl=1.0)
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
            await do(Ping())
        assert await names(news, Notice.ROOM) == ["next"]
        assert await do(Leave("jobs", "dead")) is Reply.UNKNOWN
        counts = await a.count()
        assert (counts.reserved, counts.producers) == (1, 0)

    async def test_what_a_producer_does_not_need_of_its_room_goes_to_the_next(
        self, clerk: OpenClerk, hints: Hints
    ) -> None:
        a = await clerk("a")
        news = await hints("a")
        await a.put(*plain(2), max_size=2)
        twins = (NewTask(b"1", key="k"), NewTask(b"2", key="k"))
        await a.request("m", *twins, max_size=2)
        await a.request("n", *plain(1), max_size=2)
        await a.exchange(*(Settle(task.id, task.token, Verdict.DONE) for task in await a.take(2)))
        assert isinstance(await a.request("m", *twins, max_size=2), Accepted)
        assert await names(news, Notice.ROOM) == ["m", "n"]
        counts = await a.count()
        assert (counts.put, counts.reserved, counts.producers) == (3, 1, 0)

    @pytest.mark.parametrize("place", ["reserved", "accepted"])
    async def test_a_producer_whose_turn_has_come_may_die(self, clerk: OpenClerk, place: str) -> None:
        a, b = await clerk("a"), await clerk("b")
        await a.put(*plain(1), max_size=1)
        await b.request("m", *plain(1), max_size=1)
        await a.settle(await a.take_one())
        if place == "accepted":
            assert isinstance(await b.request("m", *plain(1), max_size=1), Accepted)
        await b.close()
        counts = await a.count()
        assert (counts.reserved, counts.producers, counts.put) == (0, 0, 1 + (place == "accepted"))

    # ------------------------------------------------------------------------------------------ sending again

    async def test_a_batch_that_is_sent_again_is_put_once(self, clerk: OpenClerk, do: Do) -> None:
        a = await clerk("a")
        requests = (
            PutRequest("m", (NewTask(b"1", key="k"), NewTask(b"2")), cursor=("c", b"1")),
            PutRequest("n", plain(3), wait=False),
            PutRequest("o", plain(2)),
        )
        operation = Put(a.session, do.number(), "jobs", requests, 3)
        answer = await do(operation)
        assert await do(operation) == answer
        counts = await a.count()
        assert (counts.put, counts.producers, counts.reserved) == (2, 1, 0)
        await a.settle(await a.take_one())
        # The slots are reserved by now, but this is what was answered.
        assert await do(operation) == answer
        counts = await a.count()
        assert (counts.put, counts.producers, counts.reserved) == (2, 0, 2)

    async def test_answers_are_remembered_for_each_session_and_queue(self, clerk: OpenClerk, do: Do) -> None:
        a, b = await clerk("a"), await clerk("b")
        n, requests = do.number(), (PutRequest("m", plain(1)),)
        operations = [Put(c.session, n, queue, requests, 9) for c in (a, b) for queue in ("q", "r")]
        answers = [await do(operation) for operation in operations]
        assert [await do(operation) for operation in operations] == answers
        for queue in ("q", "r"):
            assert (await Clerk(do, a.session, queue).count()).put == 2

    async def test_an_unknown_session_puts_nothing(self, clerk: OpenClerk, do: Do, advance: Advance) -> None:
        a, closed, expired = await clerk("a"), await clerk("b"), await clerk("c", ttl=1.0)
        await closed.put(*plain(1))
        await closed.close()
        await advance(1.5)
        request = PutRequest("m", plain(1), cursor=("c", b"1"))
        for session in ("no such session", closed.session, expired.session):
            operation = Put(session, do.number(), "jobs", (request,), 9)
            assert await do(operation) is Reply.GONE
            assert await do(operation) is Reply.GONE
        counts = await a.count()
        assert (counts.put, counts.cursors) == (1, ())
