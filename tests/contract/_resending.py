"""Sending again: because an answer was lost, or because it was MORE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tenure import engine as e

from ._contract import LASTING, Advance, ContractBase, Do, Hints


class ResendingContract(ContractBase):
    """The contract's tests of sending again, and of MORE."""

    async def _twice(self, do: Do, *batch: e.Operation[Any]) -> list[Any]:
        """Send a batch, and send it again as if the answers had got lost."""
        first = [_timeless(answer) for answer in await do.batch(*batch)]
        again = [_timeless(answer) for answer in await do.batch(*batch)]
        assert again == first
        return first

    async def test_sessions_may_be_asked_for_again(self, do: Do) -> None:
        session = await do.open()
        await self._twice(do, e.OpenSession("s", "p1", LASTING), e.RenewSession("s"), e.RenewSession(session))

    async def test_holds_may_be_asked_for_again(self, do: Do) -> None:
        session = await do.open()
        token = await do.hold(session, "mine", "a")
        await self._twice(
            do,
            e.Acquire(session, "k", "a", 2),
            e.Acquire(session, "k", "b", 2, 2),
            e.Acquire(session, "k", "c", 2, wait=False),
            e.SetValue("mine", "a", token, b"value"),
            e.Resize("l", 3),
        )
        holdings = await do.page(e.Scan(e.HOLDERS, "k"))
        assert (holdings.used, len(holdings.holders), len(holdings.waiting)) == (1, 1, 1)

    async def test_resources_may_be_asked_for_again(self, do: Do) -> None:
        session = await do.open()
        claims = [e.Claim(session, "k", holder) for holder in "ab"]
        _, claimed, queued = await self._twice(do, e.AddResource("k", "r", ()), *claims)
        assert isinstance(claimed, e.Claimed)
        assert isinstance(queued, e.Queued)
        page = await do.page(e.Scan(e.RESOURCES, "k"))
        assert (len(page.rows), page.waiting) == (1, 1)
        assert await do.batch(e.GiveBack("k", "a"), e.GiveBack("k", "a")) == [
            e.Reply.RELEASED,
            e.Reply.UNKNOWN,
        ]
        assert isinstance(await do(e.Claim(session, "k", "b")), e.Claimed)

    async def test_tasks_may_be_asked_for_again(self, do: Do) -> None:
        """A store can have a put and an exchange under way at the same time, and may send both again."""
        session = await do.open()
        await do.configure("q", max_size=2)
        put = e.PutRequest("m", (e.NewTask(b"1"), e.NewTask(b"2")))
        crowded = e.PutRequest("n", (e.NewTask(b"3"),), wait=False)
        answer, taken = await self._twice(
            do,
            e.Put(session, do.number(), "q", (put, crowded)),
            e.Exchange(session, do.number(), "q", want=1),
        )
        assert isinstance(answer.answers[0], e.Accepted)
        assert answer.answers[1] is e.Reply.REFUSED
        (task,) = taken.tasks
        done = e.Settle(task.id, task.token, e.Verdict.DONE, b"result")
        (settled,) = await self._twice(do, e.Exchange(session, do.number(), "q", (done,)))
        assert settled.refused == ()
        counts = await do.count("q", recount=True)
        assert (counts.put, counts.waiting, counts.leased, counts.done) == (2, 1, 0, 1)

    async def test_spendings_may_be_asked_for_again(self, do: Do) -> None:
        session = await do.open()
        twice = (e.SpendRequest((2.0,)), e.SpendRequest((2.0,)))
        limits = (e.RateLimit("", 1.0, 3.0),)
        (spent,) = await self._twice(do, e.Spend(session, do.number(), "k", twice, limits))
        last = spent.answers[-1].bookings
        await self._twice(do, e.Refund(session, do.number(), "k", (e.RefundRequest(last),), limits))
        await self._twice(do, e.Refund(session, do.number(), "k", (e.RefundRequest(last, (-2.0,)),), limits))
        assert (await do.spend(session, "k", 2.0, rate=1.0, burst=3.0)).delay == self.about(3.0)
        before = await do.row(e.Scan(e.LIMITER, "k"))
        await self._twice(do, e.HoldOff(session, do.number(), "k", 5.0))
        assert (await do.row(e.Scan(e.LIMITER, "k"))).held - before.held == self.about(5.0)

    async def test_arrivals_may_be_asked_for_again(self, do: Do) -> None:
        session = await do.open()
        a, b, c = (e.Acquire(session, "k", name, 3, 0) for name in "abc")
        await self._twice(do, a, b)
        (granted,) = await self._twice(do, c)
        assert isinstance(granted, e.Granted)
        assert await self._twice(do, a) == [e.Granted(granted.token - 2)]

    async def test_giving_back_again_gives_back_nothing_more(self, do: Do) -> None:
        session = await do.open()
        for holder in "abc":
            await do(e.Acquire(session, "k", holder, 1))
        releases = [e.Release("k", "a"), e.Release("k", "c")]
        assert await do.batch(*releases) == [e.Reply.RELEASED, e.Reply.LEFT]
        assert await do.batch(*releases) == [e.Reply.UNKNOWN, e.Reply.UNKNOWN]
        assert [held.holder for held in (await do.page(e.Scan(e.HOLDERS, "k"))).holders] == ["b"]

    # MORE

    async def _populate(self, do: Do, count: int) -> None:
        """Fill the engine with sessions that will end together, with a hold each."""
        batch: list[e.Operation[Any]] = []
        for i in range(count):
            batch += e.OpenSession(f"s{i}", "p1", 2.0), e.Acquire(f"s{i}", "k", f"s{i}", 10**6)
            if len(batch) == e.CAP or i == count - 1:
                await do.batch(*batch)
                batch.clear()

    async def test_the_end_of_many_takes_several_turns(self, do: Do, advance: Advance) -> None:
        """The end of many sessions is spread, so that everybody else gets a turn between."""
        await self._populate(do, 1000)
        heir = await do.open("p2")
        await do.queue(heir, "k", "heir", 10**6, 10**6)
        await advance(2.1 + self.margin)
        turns = 1
        while await do.engine.execute([e.Ping()]) == [e.Reply.MORE]:
            turns += 1
            assert turns <= 1000
        assert turns >= 1000 // e.CAP
        assert [held.holder for held in (await do.page(e.Scan(e.HOLDERS, "k"))).holders] == ["heir"]

    async def test_what_is_answered_more_is_done_once_when_it_is_sent_again(
        self, do: Do, advance: Advance
    ) -> None:
        session = await do.open()
        await self._populate(do, 2 * e.CAP + 1)
        await advance(2.1 + self.margin)
        batch: tuple[e.Operation[Any], ...] = (
            e.Acquire(session, "k", "a", 10**6),
            e.Spend(session, do.number(), "k", (e.SpendRequest((1.0,)),), (e.RateLimit("", 1.0, 2.0),)),
            e.Put(session, do.number(), "k", (e.PutRequest("m", (e.NewTask(b""),)),)),
        )
        assert e.Reply.MORE in await do.engine.execute(batch)
        answers = await do.batch(*batch)
        assert [type(answer) for answer in answers] == [e.Granted, e.SpendResults, e.PutAnswer]
        assert isinstance(answers[2].answers[0], e.Accepted)
        assert (await do.spend(session, "k", 2.0, rate=1.0, burst=2.0)).delay == self.about(1.0)
        assert (await do.page(e.Scan(e.HOLDERS, "k"))).used == 1

    async def test_a_hand_over_to_many_loses_none_of_them(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "writer", 2**30, 2**30)
        readers = [f"reader {i:04}" for i in range(2 * e.CAP + 9)]
        for reader in readers:
            await do.queue(session, "k", reader, 2**30)
        await do(e.Release("k", "writer"))
        await do(e.Ping())
        held = await do.rows(e.Scan(e.HOLDERS, "k"))
        assert [holder.holder for holder in held] == readers
        tokens = [holder.token for holder in held]
        assert tokens == sorted(set(tokens))
        assert [hint.name for hint in await inbox.new()] == readers


def _timeless(answer: Any) -> Any:
    """The answer without what changes by itself while time passes."""
    return replace(answer, ask_again_in=0.0) if hasattr(answer, "ask_again_in") else answer
