"""Barriers: what the dead leave, how one is broken by hand, and what the tokens say."""

from __future__ import annotations

from tenure import engine as e

from ._contract import Advance, ContractBase, Do, Hints


class BarrierContract(ContractBase):
    """The contract's tests of arrivals at barriers, beside the walk."""

    async def test_a_participant_that_dies_breaks_the_barrier(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("p2")
        other = await do.open("p2")
        for how in ("close", "expire"):
            mortal = await do.open("p1", ttl=2.0)
            await do.queue(other, "k", "b", 3, 0)
            await do.queue(mortal, "k", "a", 3, 0)
            if how == "close":
                await do(e.CloseSession(mortal))
            else:
                await advance(2.1 + self.margin)
                await do(e.Ping())
            assert await inbox.new() == [e.Hint("p2", "k", "b", e.Notice.ASK)]
            assert await do(e.Ask(other, "k", ("b",))) == e.HoldStatuses((e.Reply.UNKNOWN,))
            assert await do(e.Acquire(other, "k", "b", 3, 0)) == e.Mismatch(e.BROKEN)
            await do(e.Resize("k", 0))

    async def test_a_barrier_is_broken_by_hand_until_it_is_mended(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p2")
        session = await do.open("p2", ttl=2.0)
        for waiting in (0, 1):
            # before anybody has come, and again for those that wait
            meeting = (await do.queue(session, "k", "a", 3, 0)).meeting if waiting else 0
            for _ in range(2):
                assert await do(e.Resize("k", e.BROKEN)) is e.Reply.OK
            assert await inbox.new() == [e.Hint("p2", "k", "a", e.Notice.ASK)] * waiting
            assert await do(e.Acquire(session, "k", "b", 3, 0)) == e.Mismatch(e.BROKEN)
            assert await do.page(e.Scan(e.HOLDERS, "k")) == e.Holdings((), "", e.BROKEN, 0, meeting)
            for _ in range(2):
                assert await do(e.Resize("k", 0)) is e.Reply.OK
            assert await do.page(e.Scan(e.HOLDERS, "k")) == e.Holdings(())
        await do.queue(session, "k", "a", 3, 0)
        assert await do(e.Resize("k", 0)) is e.Reply.REFUSED

    async def test_a_waiter_learns_when_to_look_for_the_dead(self, do: Do, advance: Advance) -> None:
        mortal, other = await do.open("p1", ttl=2.0), await do.open("p2")
        await do.queue(mortal, "k", "a", 3, 0)
        answer = await do.queue(other, "k", "b", 3, 0)
        assert 0 < answer.ask_again_in <= 2.0 + self.margin
        await advance(answer.ask_again_in + 0.01 + self.margin)
        assert await do(e.Acquire(other, "k", "b", 3, 0)) == e.Mismatch(e.BROKEN)

    async def test_the_tokens_of_a_meeting_begin_at_a_multiple_of_the_parties(
        self, do: Do, hints: Hints
    ) -> None:
        inbox = await hints("p")
        session = await do.open("p")
        last = 0
        for parties in (3, 1, 7, 7):
            names = [f"{parties} {last} {place}" for place in range(parties)]
            for name in names[:-1]:
                await do.queue(session, "k", name, parties, 0)
            first = await do.hold(session, "k", names[-1], parties, 0) - parties + 1
            assert first % parties == 0 and first > last
            granted = [e.Granted(first + place) for place in range(parties)]
            assert await inbox.new() == [
                e.Hint("p", "k", *told) for told in zip(names[:-1], granted[:-1], strict=True)
            ]
            # the outcomes are kept while the next meeting gathers
            await do.queue(session, "k", "next", 9, 0)
            assert [await do(e.Acquire(session, "k", name, parties, 0)) for name in names] == granted
            assert [await do(e.Release("k", name)) for name in names] == granted
            assert await do(e.Release("k", names[0])) is e.Reply.UNKNOWN
            assert await do(e.Release("k", "next")) is e.Reply.LEFT
            await do(e.Resize("k", 0))
            last = first + parties - 1
            await do.hold(session, "l", "a")
            assert await do(e.Release("l", "a")) is e.Reply.RELEASED
        assert await do.page(e.Scan(e.HOLDERS, "k")) == e.Holdings(())

    async def test_the_meeting_changes_when_all_have_met(self, do: Do) -> None:
        mortal, session = await do.open("p1"), await do.open("p2")
        meeting = (await do.queue(mortal, "k", "a", 3, 0, e.DROP)).meeting
        assert (await do.queue(session, "k", "b", 3, 0, e.DROP)).meeting == meeting > 0
        await do(e.CloseSession(mortal))
        assert (await do.page(e.Scan(e.HOLDERS, "k"))).meeting == meeting
        await do.queue(session, "k", "c", 3, 0, e.DROP)
        await do.hold(session, "k", "d", 3, 0, e.DROP)
        assert (await do.page(e.Scan(e.HOLDERS, "k"))).meeting == 0
        assert (await do.queue(session, "k", "e", 3, 0, e.DROP)).meeting > meeting

    async def test_parties_meet_again_and_again(self, do: Do) -> None:
        session = await do.open("p")
        for _ in range(40):
            for name in "ab":
                await do.queue(session, "k", name, 3, 0)
            last = await do.hold(session, "k", "c", 3, 0)
            assert [await do(e.Release("k", "abc"[i])) for i in range(3)] == [
                e.Granted(last - 2 + i) for i in range(3)
            ]
        assert await do.page(e.Scan(e.HOLDERS, "k")) == e.Holdings(())
