"""Sessions: what has a life sign keeps what it has, what has none loses all of it, and nothing comes back."""

from __future__ import annotations

from typing import Any

from tenure import engine as e

from ._contract import Advance, ContractBase, Do, Hints


class SessionContract(ContractBase):
    """The contract's tests of sessions, of time, and of clearing up."""

    async def test_a_session_ends_a_ttl_after_it_was_opened(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        await advance(1.0)
        await do.hold(session, "k", "a")
        await advance(1.1 + self.margin)
        assert await do(e.Acquire(session, "k", "a", 1)) is e.Reply.GONE

    async def test_a_renewal_moves_the_end_to_a_ttl_from_now(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        token = await do.hold(session, "k", "a")
        for _ in range(3):
            await advance(1.5)
            assert await do(e.RenewSession(session)) is e.Reply.OK
        assert await do(e.Acquire(session, "k", "a", 1)) == e.Granted(token)
        await advance(2.1 + self.margin)
        assert await do(e.RenewSession(session)) is e.Reply.GONE

    async def test_only_renewals_are_life_signs(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        await advance(1.5)
        await do.hold(session, "k", "a")
        await advance(0.6 + self.margin)
        assert await do(e.Ask(session, "k", ("a",))) is e.Reply.GONE

    async def test_a_renewal_that_comes_late_revives_nothing(self, do: Do, advance: Advance) -> None:
        session, other = await do.open(ttl=2.0), await do.open("p2")
        token = await do.hold(session, "k", "a")
        await advance(2.1 + self.margin)
        assert await do.hold(other, "k", "b") > token
        assert await do(e.Release("k", "b")) is e.Reply.RELEASED
        for _ in range(2):
            assert await do(e.RenewSession(session)) is e.Reply.GONE
        assert await do.page(e.Scan(e.HOLDERS, "k")) == e.Holdings(())

    async def test_an_ended_session_has_no_effect(self, do: Do) -> None:
        session = await do.open()
        await do(e.CloseSession(session))
        for operation in _of_a_session(session):
            assert await do(operation) is e.Reply.GONE, operation
        await self._nothing_is_left(do)

    async def _nothing_is_left(self, do: Do) -> None:
        assert await do.page(e.Scan(e.HOLDERS, "k")) == e.Holdings(())
        assert (await do.page(e.Scan(e.RESOURCES, "k"))).waiting == 0
        counts = await do.count("k", recount=True)
        assert (counts.put, counts.producers, counts.reserved) == (0, 0, 0)
        session = await do.open()
        assert (await do.spend(session, "k", rate=0.001)).delay == 0
        await do.queue(session, "b", "a", 2, 0)

    async def test_expiry_gives_up_all_that_the_session_has(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        await self._take_one_of_each(do, session)
        await advance(2.1 + self.margin)
        await self._all_is_given_up(do)

    async def _take_one_of_each(self, do: Do, session: str) -> None:
        other = await do.open("other")
        await do.hold(session, "held", "a")
        await do.hold(other, "busy", "b")
        await do.queue(session, "busy", "a")
        await do(e.AddResource("pool", "r", ()))
        assert isinstance(await do(e.Claim(session, "pool", "a")), e.Claimed)
        await do.queue(session, "held", "a's other thought")
        await do.queue(session, "held", "and another")
        await do.queue(session, "barrier", "a", 3, 0, e.DROP)
        tasks = e.PutRequest("m", (e.NewTask(b"1"), e.NewTask(b"2")))
        await do.configure("q", max_size=2)
        assert isinstance(await do(e.Put(other, do.number(), "q", (tasks,))), e.PutAnswer)
        waiting = e.PutRequest("a", (e.NewTask(b"3"),))
        assert isinstance(await do(e.Put(session, do.number(), "q", (waiting,))), e.PutAnswer)
        assert len(await do.take(session, "q", 2)) == 2

    async def _all_is_given_up(self, do: Do) -> None:
        assert await do.page(e.Scan(e.HOLDERS, "held")) == e.Holdings(())
        busy = await do.page(e.Scan(e.HOLDERS, "busy"))
        assert (len(busy.holders), len(busy.waiting)) == (1, 0)
        assert [resource.state for resource in (await do.page(e.Scan(e.RESOURCES, "pool"))).rows] == ["free"]
        counts = await do.count("q", recount=True)
        assert (counts.waiting, counts.leased, counts.producers, counts.reserved) == (2, 0, 0, 0)
        session = await do.open()
        for participant in "xy":
            await do.queue(session, "barrier", participant, 3, 0, e.DROP)

    async def test_sessions_end_in_the_order_of_their_expiry(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("heir")
        late, soon = await do.open(ttl=3.0), await do.open(ttl=2.0)
        heir = await do.open("heir")
        for session, key in ((late, "k1"), (soon, "k2")):
            await do.hold(session, key, "a")
            await do.queue(heir, key, "b")
        await advance(3.1 + self.margin)
        assert await do(e.Ping()) is e.Reply.OK
        assert [hint.key for hint in await inbox.new()] == ["k2", "k1"]
        tokens = [await do.hold(heir, key, "b") for key in ("k2", "k1")]
        assert tokens == sorted(tokens)

    async def test_one_that_asks_next_clears_up(self, do: Do, hints: Hints, advance: Advance) -> None:
        inbox = await hints("p2")
        session, other = await do.open(ttl=2.0), await do.open("p2")
        await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        await advance(2.1 + self.margin)
        assert await do(e.Ping()) is e.Reply.OK
        assert [(hint.key, hint.name) for hint in await inbox.new()] == [("k", "b")]

    async def test_names_are_never_taken_for_one_another(self, do: Do) -> None:
        session = await do.open()
        for sign in (":", "/", ".", " ", "{", "}", "%", "_", "'", '"', "\\", "\n", "ä", "\U0001f512", "*"):
            names = (f"k{sign}a", f"k{sign}{sign}a", "ka", f"k{sign}", f"{sign}k", "k")
            tokens = [await do.hold(session, key, holder) for key in names for holder in (f"{key}h",)]
            assert len(set(tokens)) == len(names)
            for key in names:
                assert [held.holder for held in (await do.page(e.Scan(e.HOLDERS, key))).holders] == [
                    f"{key}h"
                ]
                assert await do(e.Release(key, f"{sign}h")) is e.Reply.UNKNOWN
                assert await do(e.Release(key, f"{key}h")) is e.Reply.RELEASED

    async def test_kinds_may_share_a_name(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do(e.AddResource("k", "a", ()))
        assert isinstance(await do(e.Claim(session, "k", "a")), e.Claimed)
        await do.queue(session, "b", "a", 2, 0)
        n = do.number()
        put = await do(e.Put(session, n, "k", (e.PutRequest("a", (e.NewTask(b""),)),)))
        spent = await do(e.Spend(session, n, "k", (e.SpendRequest((1.0,)),), (e.RateLimit("", 1.0, 1.0),)))
        taken = await do(e.Exchange(session, n, "k", want=1))
        assert [type(answer) for answer in (put, spent, taken)] == [e.PutAnswer, e.SpendResults, e.Exchanged]
        assert await do(e.Release("k", "a")) is e.Reply.RELEASED
        assert await do(e.GiveBack("k", "a")) is e.Reply.RELEASED
        assert await do(e.Release("b", "a")) is e.Reply.LEFT


def _of_a_session(session: str) -> tuple[e.Operation[Any], ...]:
    return (
        e.Acquire(session, "k", "a", 1),
        e.Acquire(session, "k", "b", 1, wait=False),
        e.Ask(session, "k", ("a",)),
        e.Scan(e.HOLDERS, "k", watch=session),
        e.Claim(session, "k", "a"),
        e.Put(session, 1, "k", (e.PutRequest("m", (e.NewTask(b""),), cursor=("c", b"1")),)),
        e.Exchange(session, 1, "k", want=1),
        e.GetResult("k", 1, watch=session),
        e.Count("k", watch=session),
        e.Spend(session, 1, "k", (e.SpendRequest((1.0,)),), (e.RateLimit("", 0.001, 1.0),)),
        e.Refund(session, 2, "k", (e.RefundRequest((e.Booking(0.0, 1.0),)),), (e.RateLimit("", 1.0, 1.0),)),
        e.HoldOff(session, 3, "k", 1000.0),
        e.Acquire(session, "b", "c", 2, 0),
    )
