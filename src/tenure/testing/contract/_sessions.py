"""Sessions: what has a life sign keeps what it has, what has none loses all of it, and nothing comes back."""

from __future__ import annotations

from typing import Any

from tenure.engine import (
    HOLDERS,
    RESOURCES,
    Acquire,
    AddResource,
    Arrive,
    Ask,
    Booking,
    Claim,
    Claimed,
    CloseSession,
    Count,
    Exchange,
    Exchanged,
    GetResult,
    GiveBack,
    Granted,
    Holdings,
    HoldOff,
    NewTask,
    Operation,
    Ping,
    Put,
    PutAnswer,
    PutRequest,
    RateLimit,
    Refund,
    RefundRequest,
    Release,
    RenewSession,
    Reply,
    Scan,
    Spend,
    SpendRequest,
    SpendResults,
    Waiting,
    Withdraw,
)

from ._contract import Advance, ContractBase, Do, Hints


class SessionContract(ContractBase):
    """The contract's tests of sessions, of time, and of clearing up."""

    async def test_a_session_ends_a_ttl_after_it_was_opened(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        await advance(1.0)
        await do.hold(session, "k", "a")
        await advance(1.1 + self.margin)
        assert await do(Acquire(session, "k", "a", 1)) is Reply.GONE

    async def test_a_renewal_moves_the_end_to_a_ttl_from_now(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        token = await do.hold(session, "k", "a")
        for _ in range(3):
            await advance(1.5)
            assert await do(RenewSession(session)) is Reply.OK
        assert await do(Acquire(session, "k", "a", 1)) == Granted(token)
        await advance(2.1 + self.margin)
        assert await do(RenewSession(session)) is Reply.GONE

    async def test_only_renewals_are_life_signs(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=2.0)
        await advance(1.5)
        await do.hold(session, "k", "a")
        await advance(0.6 + self.margin)
        assert await do(Ask(session, "k", ("a",))) is Reply.GONE

    async def test_a_renewal_that_comes_late_revives_nothing(self, do: Do, advance: Advance) -> None:
        session, other = await do.open(ttl=2.0), await do.open("p2")
        token = await do.hold(session, "k", "a")
        await advance(2.1 + self.margin)
        assert await do.hold(other, "k", "b") > token
        assert await do(Release("k", "b")) is Reply.RELEASED
        for _ in range(2):
            assert await do(RenewSession(session)) is Reply.GONE
        assert await do.page(Scan(HOLDERS, "k")) == Holdings(())

    async def test_an_ended_session_has_no_effect(self, do: Do) -> None:
        session = await do.open()
        await do(CloseSession(session))
        for operation in _of_a_session(session):
            assert await do(operation) is Reply.GONE, operation
        await self._nothing_is_left(do)

    async def _nothing_is_left(self, do: Do) -> None:
        assert await do.page(Scan(HOLDERS, "k")) == Holdings(())
        assert (await do.page(Scan(RESOURCES, "k"))).waiting == 0
        counts = await do(Count("k", recount=True))
        assert not isinstance(counts, Reply)
        assert (counts.put, counts.producers, counts.reserved) == (0, 0, 0)
        session = await do.open()
        spent = await do(
            Spend(session, do.number(), "k", (SpendRequest((1.0,)),), (RateLimit("", 0.001, 1.0),))
        )
        assert isinstance(spent, SpendResults)
        assert spent.answers[0].delay == 0
        assert isinstance(await do(Arrive(session, "k", "a", 2)), Waiting)

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
        await do(AddResource("pool", "r", ()))
        assert isinstance(await do(Claim(session, "pool", "a")), Claimed)
        await do.queue(session, "held", "a's other thought")
        await do.queue(session, "held", "and another")
        assert isinstance(await do(Arrive(session, "barrier", "a", 3, "drop")), Waiting)
        tasks = PutRequest("m", (NewTask(b"1"), NewTask(b"2")))
        assert isinstance(await do(Put(other, do.number(), "q", (tasks,), 2)), PutAnswer)
        waiting = PutRequest("a", (NewTask(b"3"),))
        assert isinstance(await do(Put(session, do.number(), "q", (waiting,), 2)), PutAnswer)
        taken = await do(Exchange(session, do.number(), "q", want=2))
        assert isinstance(taken, Exchanged)
        assert len(taken.tasks) == 2

    async def _all_is_given_up(self, do: Do) -> None:
        assert await do.page(Scan(HOLDERS, "held")) == Holdings(())
        busy = await do.page(Scan(HOLDERS, "busy"))
        assert (len(busy.holders), len(busy.waiting)) == (1, 0)
        assert [resource.state for resource in (await do.page(Scan(RESOURCES, "pool"))).rows] == ["free"]
        counts = await do(Count("q", recount=True))
        assert not isinstance(counts, Reply)
        assert (counts.waiting, counts.leased, counts.producers, counts.reserved) == (2, 0, 0, 0)
        session = await do.open()
        for participant in "xy":
            assert isinstance(await do(Arrive(session, "barrier", participant, 3, "drop")), Waiting)

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
        assert await do(Ping()) is Reply.OK
        assert [hint.key for hint in await inbox.new()] == ["k2", "k1"]
        tokens = [await do.hold(heir, key, "b") for key in ("k2", "k1")]
        assert tokens == sorted(tokens)

    async def test_one_that_asks_next_clears_up(self, do: Do, hints: Hints, advance: Advance) -> None:
        inbox = await hints("p2")
        session, other = await do.open(ttl=2.0), await do.open("p2")
        await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        await advance(2.1 + self.margin)
        assert await do(Ping()) is Reply.OK
        assert [(hint.key, hint.name) for hint in await inbox.new()] == [("k", "b")]

    async def test_names_are_never_taken_for_one_another(self, do: Do) -> None:
        session = await do.open()
        for sign in (":", "/", ".", " ", "{", "}", "%", "_", "'", '"', "\\", "\n", "ä", "\U0001f512", "*"):
            names = (f"k{sign}a", f"k{sign}{sign}a", "ka", f"k{sign}", f"{sign}k", "k")
            tokens = [await do.hold(session, key, holder) for key in names for holder in (f"{key}h",)]
            assert len(set(tokens)) == len(names)
            for key in names:
                assert [held.holder for held in (await do.page(Scan(HOLDERS, key))).holders] == [f"{key}h"]
                assert await do(Release(key, f"{sign}h")) is Reply.UNKNOWN
                assert await do(Release(key, f"{key}h")) is Reply.RELEASED

    async def test_kinds_may_share_a_name(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do(AddResource("k", "a", ()))
        assert isinstance(await do(Claim(session, "k", "a")), Claimed)
        assert isinstance(await do(Arrive(session, "k", "a", 2)), Waiting)
        n = do.number()
        put = await do(Put(session, n, "k", (PutRequest("a", (NewTask(b""),)),), 1))
        spent = await do(Spend(session, n, "k", (SpendRequest((1.0,)),), (RateLimit("", 1.0, 1.0),)))
        taken = await do(Exchange(session, n, "k", want=1))
        assert [type(answer) for answer in (put, spent, taken)] == [PutAnswer, SpendResults, Exchanged]
        assert await do(Release("k", "a")) is Reply.RELEASED
        assert await do(GiveBack("k", "a")) is Reply.RELEASED
        assert await do(Withdraw("k", "a")) is Reply.WITHDRAWN


def _of_a_session(session: str) -> tuple[Operation[Any], ...]:
    return (
        Acquire(session, "k", "a", 1),
        Acquire(session, "k", "b", 1, wait=False),
        Ask(session, "k", ("a",)),
        Scan(HOLDERS, "k", watch=session),
        Claim(session, "k", "a"),
        Put(session, 1, "k", (PutRequest("m", (NewTask(b""),), cursor=("c", b"1")),), 10),
        Exchange(session, 1, "k", want=1),
        GetResult("k", 1, watch=session),
        Count("k", watch=session),
        Spend(session, 1, "k", (SpendRequest((1.0,)),), (RateLimit("", 0.001, 1.0),)),
        Refund(session, 2, "k", (RefundRequest((Booking(0.0, 1.0),)),), (RateLimit("", 1.0, 1.0),)),
        HoldOff(session, 3, "k", 1000.0),
        Arrive(session, "k", "c", 2),
    )
