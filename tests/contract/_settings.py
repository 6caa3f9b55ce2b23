"""The contract's tests of the settings of a queue."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import engine as e

from ._clerk import OpenClient, QueueSessionBase, payloads, plain
from ._configured import configured
from ._contract import Advance, Do, Hints
from ._survey import survey


class SettingsContract(QueueSessionBase):
    """The contract's tests of the record, beside the walk."""

    async def _record(self, do: Do, queue: str = "jobs") -> dict[str, tuple[object, str]]:
        answer = await do(e.Configure(queue))
        assert isinstance(answer, e.Configured)
        return {it.name: (e.read(it.name, it.value), it.by) for it in answer.fields}

    async def test_the_value_that_was_sent_last_holds_for_each_field(self, do: Do, advance: Advance) -> None:
        assert await do(e.Configure("jobs")) == e.Configured((), 0)
        await do(configured("jobs", "web", max_size=7, aging=2.0))
        first = await do(configured("jobs", "worker", max_size=3, payloads=True))
        assert await self._record(do) == {
            "aging": (2.0, "web"),
            "max_size": (3, "worker"),
            "payloads": (True, "worker"),
        }
        await advance(4.0)
        second = await do(configured("jobs", "web", aging=2.0, payloads=False))
        assert isinstance(first, e.Configured)
        assert isinstance(second, e.Configured)
        assert second.revision > first.revision
        ages = {it.name: it.age for it in second.fields}
        assert (ages["aging"], ages["payloads"]) == (self.about(4.0), self.about(0.0))

    async def test_what_does_not_change_keeps_its_time_and_its_process(self, do: Do) -> None:
        first = await do(configured("jobs", "web", max_size=7))
        second = await do(configured("jobs", "worker", max_size=7, aging=None))
        assert isinstance(first, e.Configured)
        assert isinstance(second, e.Configured)
        assert second.revision == first.revision
        assert await self._record(do) == {"max_size": (7, "web")}

    async def test_fields_of_the_record_stay_if_only_missing_ones_are_sent(self, do: Do) -> None:
        await do(configured("jobs", "web", max_size=7))
        await do(configured("jobs", "old", missing=True, max_size=5, aging=1.0))
        assert await self._record(do) == {"aging": (1.0, "old"), "max_size": (7, "web")}

    async def test_a_record_of_defaults_stays(self, do: Do) -> None:
        await do(configured("jobs", "web", max_size=7))
        assert (await do.count("jobs")).max_size == 7
        await do(configured("jobs", "worker", max_size=10_000))
        assert await self._record(do) == {"max_size": (10_000, "worker")}

    @pytest.mark.parametrize("use", ["exchange", "put", "name", "move"])
    async def test_a_record_lasts_for_its_time_after_the_queue_was_used(
        self, client: OpenClient, do: Do, advance: Advance, use: str
    ) -> None:
        await do(configured("jobs", "web", max_size=7))
        for _ in range(2):
            await advance(0.9 * e.RECORD_TTL)
            if use == "name":
                await do(configured("jobs", "other", missing=True, max_size=8))
            elif use == "move":
                await do(e.Move("jobs", (1,), "cancelled"))
            else:
                a = await client("a")
                if use == "put":
                    await do(e.Put(a.session, do.number(), "jobs", (e.PutRequest("m", plain(1)),)))
                    await do.move("jobs", "waiting", "purged")
                else:
                    await do(e.Exchange(a.session, do.number(), "jobs", want=1, wait=False))
        await advance(0.9 * e.RECORD_TTL)
        assert await self._record(do) == {"max_size": (7, "web")}
        assert await survey(do, "queues") == ["jobs"]
        # this was a look, and a look keeps nothing
        await advance(1.2 * e.RECORD_TTL)
        assert await do(e.Configure("jobs")) == e.Configured((), 0)
        assert await survey(do, "queues") == []

    async def test_what_a_forgotten_record_said_has_no_effect(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        every: dict[str, Any] = {
            "max_size": 1,
            "aging": 1.0,
            "max_deliveries": 1,
            "dead": 5.0,
            "payloads": True,
        }
        of_groups: dict[str, Any] = {
            "group_limit": 1,
            "hold": False,
            "group_size": 1,
            "weights": (("x", 2.0),),
        }
        rates: dict[str, Any] = {"rate": e.Rate(600.0), "group_rate": e.Rate(600.0)}
        for _ in range(2):
            await do(configured("jobs", **every, **of_groups, **rates))
            first = await client("a")
            task = e.NewTask(b"0", group="x")
            await do(e.Put(first.session, do.number(), "jobs", (e.PutRequest("m", (task,)),)))
            taken = await do(e.Exchange(first.session, do.number(), "jobs", want=1, wait=False))
            assert isinstance(taken, e.Exchanged)
            settle = (e.Settle(taken.tasks[0].id, taken.tasks[0].token, e.Verdict.DONE, ttl=60.0),)
            await do(e.Exchange(first.session, do.number(), "jobs", settle, wait=False))
            await advance(3 * e.RECORD_TTL)
            idle = await client("c")
            await do(e.Exchange(idle.session, do.number(), "jobs", want=1))
            await advance(1.0)
            a = await client("b")
            tasks = tuple(e.NewTask(name, group="x") for name in (b"1", b"2", b"3"))
            await do(e.Put(a.session, do.number(), "jobs", (e.PutRequest("m", tasks),)))
            counts = await do.count("jobs", recount=True)
            assert (counts.put, counts.max_size, counts.rate, counts.group_rate) == (3, 10_000, None, None)
            answer = await do(e.Exchange(a.session, do.number(), "jobs", want=3, wait=False))
            assert isinstance(answer, e.Exchanged)
            assert (payloads(answer.tasks), answer.revision) == ([b"1", b"2", b"3"], 0)
            (group,) = await do.rows(e.Scan(e.GROUPS, "jobs"))
            assert (group.weight, group.leased) == (1.0, 3)
            settle = tuple(e.Settle(it.id, it.token, e.Verdict.DONE, ttl=60.0) for it in answer.tasks)
            await do(e.Exchange(a.session, do.number(), "jobs", settle, wait=False))
            assert [record.payload for record in await a.browse("ended")] == [b"", b"", b""]
            await a.close()
            await idle.close()
            await advance(7200.0)
            assert await self._record(do) == {}

    async def test_each_put_and_exchange_says_which_revision_holds(self, client: OpenClient, do: Do) -> None:
        a = await client("a")

        async def seen() -> tuple[int, int]:
            number, request = do.number(), e.PutRequest("m", plain(1))
            put = await do(e.Put(a.session, number, "jobs", (request,)))
            assert isinstance(put, e.PutAnswer)
            return put.revision, (await a.exchange()).revision

        assert await seen() == (0, 0)
        answer = await do(configured("jobs", max_size=70))
        assert isinstance(answer, e.Configured)
        assert await seen() == (answer.revision, answer.revision)
        assert answer.revision > 0

    async def test_a_larger_queue_has_room_for_producers_at_once(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a"), await client("b")
        news = await hints("b")
        await do(configured("jobs", max_size=1))
        await do(e.Put(a.session, do.number(), "jobs", (e.PutRequest("m", plain(1)),)))
        put = e.Put(b.session, do.number(), "jobs", (e.PutRequest("n", plain(1)),))
        waits = await do(put)
        assert isinstance(waits, e.PutAnswer)
        assert isinstance(waits.answers[0], e.Queued)
        await do(configured("jobs", max_size=2))
        assert [hint.news for hint in await news.new()] == [e.Notice.ROOM]

    async def test_takers_obey_the_record(self, client: OpenClient, do: Do, advance: Advance) -> None:
        a, b = await client("a"), await client("b")
        await a.put(e.NewTask(b"low"), e.NewTask(b"high", 1))
        await do(configured("jobs", aging=1.0, max_deliveries=1, dead=5.0))
        await advance(2.0)
        # the older first
        await do(e.Exchange(b.session, do.number(), "jobs", want=1, wait=False))
        await b.close()
        (dead,) = await a.browse("dead")
        assert dead.payload == b"low"
        await do(configured("jobs", payloads=True, aging=None))
        answer = await do(e.Exchange(a.session, do.number(), "jobs", want=1, wait=False))
        assert isinstance(answer, e.Exchanged)
        assert payloads(answer.tasks) == [b"high"]
        (task,) = answer.tasks
        settle = (e.Settle(task.id, task.token, e.Verdict.DONE, ttl=60.0),)
        await do(e.Exchange(a.session, do.number(), "jobs", settle, wait=False))
        await advance(6.0)
        (ended,) = await a.browse("ended")
        assert (ended.state, ended.payload) == ("done", b"high")
