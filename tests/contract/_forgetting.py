"""Tests of what an engine forgets, and until when it may not: names leave nothing."""

from __future__ import annotations

from typing import Any

from tenure import engine as e

from ._clerk import OpenClient, QueueSession, QueueSessionBase, plain
from ._contract import Advance, Do, Hints
from ._survey import survey

_TTL = 1.0


class ForgettingContract(QueueSessionBase):
    """The contract's tests of names that leave nothing."""

    async def _live_on(self, do: Do, advance: Advance, session: str, seconds: float) -> None:
        """Let time pass for a session that is renewed."""
        while seconds > 0:
            await advance(min(seconds, _TTL / 2))
            await do(e.RenewSession(session))
            seconds -= _TTL / 2

    # numbered answers

    async def test_a_numbered_answer_is_repeated_for_two_ttls_after_the_last_time(
        self, do: Do, advance: Advance
    ) -> None:
        session = await do.open(ttl=_TTL)
        spend = e.Spend(session, do.number(), "k", (e.SpendRequest((1.0,)),), (e.RateLimit("", 0.001, 1.0),))
        put = e.Put(session, do.number(), "q", (e.PutRequest("m", plain(1)),))
        exchange = e.Exchange(session, do.number(), "q", want=1)
        operations: list[e.Operation[Any]] = [spend, put, exchange]
        first = [await do(operation) for operation in operations]
        for _ in range(2):
            await self._live_on(do, advance, session, 1.5 * _TTL)
            assert [await do(operation) for operation in operations] == first
        counts = await do.count("q")
        assert (counts.put, counts.leased) == (1, 1)

    # queues

    async def _put_of(self, do: Do) -> int:
        counts = await do.count("jobs")
        assert (await do.count("jobs", recount=True)).put == counts.put
        assert await survey(do, "queues") == ["jobs"] * bool(counts.put)
        return counts.put

    async def _work(
        self, a: QueueSession, ttl: float | None = 0.0, verdict: e.Verdict = e.Verdict.DONE
    ) -> int:
        (task,) = await a.put(*plain(1))
        await a.settle(await a.take_one(), verdict, ttl=ttl)
        return task

    async def test_a_queue_is_forgotten_with_its_last_record(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a", ttl=_TTL)
        task = await self._work(a, 3.0)
        await self._work(a, 0.0)
        await advance(2.5)
        assert await self._put_of(do) == 2
        await advance(0.6 + self.margin)
        assert await self._put_of(do) == 0
        assert await a.state(task) == "unknown"
        b = await client("b")
        await b.put(*plain(1))
        assert (await b.recount()).put == 1

    async def test_what_keeps_a_queue(self, client: OpenClient, do: Do, advance: Advance) -> None:
        a = await client("a", ttl=_TTL)
        await self._work(a, ttl=60.0, verdict=e.Verdict.DEAD)
        await self._work(a, ttl=None)
        (task,) = await a.put(*plain(1))
        await do(e.SetPaused("jobs", paused=True))
        await advance(5 * _TTL)
        for state in ("dead", "done", "waiting"):
            assert await self._put_of(do) == 3
            assert await do.move("jobs", state, "purged") == 1
        assert await a.state(task) == "unknown"
        assert await self._put_of(do) == 3
        await do(e.SetPaused("jobs", paused=False))
        assert await self._put_of(do) == 0

    async def test_what_keeps_a_queue_without_tasks_lists_it(self, client: OpenClient, do: Do) -> None:
        a = await client("a")

        async def set_cursor(value: bytes) -> None:
            assert isinstance(await a.request("m", cursor=("c", value)), e.Accepted)

        async def set_paused(value: bytes) -> None:
            await do(e.SetPaused("jobs", paused=bool(value)))

        for change in (set_cursor, set_paused):
            await change(b"1")
            assert await survey(do, "queues") == ["jobs"]
            await change(b"")
            assert await survey(do, "queues") == []
        assert (await a.recount()).put == 0

    async def test_a_dead_letter_keeps_its_queue_until_its_time_has_passed(
        self, client: OpenClient, do: Do, advance: Advance
    ) -> None:
        a = await client("a", ttl=_TTL)
        task = await self._work(a, ttl=8 * _TTL, verdict=e.Verdict.DEAD)
        await advance(7 * _TTL)
        assert await self._put_of(do) == 1
        assert await a.state(task) == "dead"
        await advance(_TTL + self.margin)
        assert await self._put_of(do) == 0
        assert await a.state(task) == "unknown"

    async def test_idle_takers_outlive_what_the_queue_was(
        self, client: OpenClient, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("b")
        a, b = await client("a", ttl=_TTL), await client("b")
        await self._work(a)
        await b.idle()
        await advance(5 * _TTL)
        assert await self._put_of(do) == 0
        await do(e.Ping())
        c = await client("c")
        await c.put(e.NewTask(b"new"))
        assert [hint.news for hint in await inbox.new()] == [e.Notice.READY]
        assert (await c.recount()).put == 1
