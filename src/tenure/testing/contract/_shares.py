"""Holds as shares of a capacity: semaphores with weights, locks for readers and writers, and capacities that change."""

from __future__ import annotations

from tenure.engine import (
    Acquire,
    Ask,
    Asked,
    CloseSession,
    Granted,
    Hint,
    Holders,
    Holdings,
    Mismatch,
    Notice,
    Ping,
    Queued,
    Release,
    Reply,
    Resize,
)

from ._contract import Advance, ContractBase, Do, Hints

_ALL = 2**30
"""The capacity of a lock for readers and writers: a reader weighs 1, a writer all of it."""


class ShareContract(ContractBase):
    """What the contract says of holds, seen with weights.

    Thread safety: none needed; pytest makes one for each test.
    """

    async def _holding(self, do: Do, key: str = "k") -> list[str]:
        return [held.holder for held in (await do(Holders(key))).holders]

    async def _waiting(self, do: Do, key: str = "k") -> list[str]:
        return [waiter.holder for waiter in (await do(Holders(key))).waiting]

    # weights

    async def test_as_many_hold_as_there_are_permits(self, do: Do) -> None:
        session = await do.open()
        tokens = [await do.hold(session, "k", holder, 3) for holder in "abc"]
        assert tokens == sorted(set(tokens))
        await do.queue(session, "k", "d", 3)
        assert (await do(Holders("k"))).used == 3

    async def test_a_hold_takes_what_it_weighs_and_gives_it_back(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a", 5, 3)
        await do.hold(session, "k", "b", 5, 2)
        assert await do(Acquire(session, "k", "c", 5, 1, wait=False)) is Reply.REFUSED
        await do(Release("k", "a"))
        assert (await do(Holders("k"))).used == 2
        await do.hold(session, "k", "c", 5, 3)

    async def test_permits_of_the_dead_come_back_once(self, do: Do, advance: Advance) -> None:
        session, mortal = await do.open("p1"), await do.open("p2", ttl=2.0)
        await do.hold(session, "k", "a", 5, 1)
        await do.hold(mortal, "k", "b", 5, 3)
        await do.hold(mortal, "k", "c", 5, 1)
        await advance(2.1 + self.margin)
        assert (await do(Holders("k"))).used == 1
        assert await do(Release("k", "b")) is Reply.UNKNOWN
        assert (await do(Holders("k"))).used == 1
        await do.hold(session, "k", "d", 5, 4)

    async def test_a_head_that_does_not_fit_blocks_those_behind_it(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a", 3, 2)
        await do.queue(session, "k", "heavy", 3, 2)
        await do.queue(session, "k", "light", 3, 1)
        assert await do(Acquire(session, "k", "impatient", 3, 1, wait=False)) is Reply.REFUSED
        assert await self._holding(do) == ["a"]
        assert await self._waiting(do) == ["heavy", "light"]

    async def test_giving_back_lets_in_as_many_as_fit_in_their_order(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "a", 4, 4)
        for holder, weight in (("b", 1), ("c", 2), ("d", 2), ("e", 1)):
            await do.queue(session, "k", holder, 4, weight)
        await do(Release("k", "a"))
        assert await self._holding(do) == ["b", "c"]
        assert await self._waiting(do) == ["d", "e"]
        told = await inbox.new()
        assert [hint.name for hint in told] == ["b", "c"]
        tokens = [await do.hold(session, "k", holder, 4) for holder in "bc"]
        assert [hint.news for hint in told] == [Granted(token) for token in tokens]
        assert tokens == sorted(set(tokens))

    async def test_little_by_little_the_heavy_head_gets_its_room(self, do: Do) -> None:
        session = await do.open()
        for holder in "abc":
            await do.hold(session, "k", holder, 3)
        await do.queue(session, "k", "heavy", 3, 3)
        for holder in "abc":
            assert await self._waiting(do) == ["heavy"]
            await do(Release("k", holder))
            await do(Acquire(session, "k", f"barger {holder}", 3, wait=False))
        assert await self._holding(do) == ["heavy"]

    async def test_a_heavy_waiter_that_leaves_lets_in_those_behind_it(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "a", 3, 2)
        await do.queue(session, "k", "heavy", 3, 2)
        await do.queue(session, "k", "light", 3, 1)
        assert await do(Release("k", "heavy")) is Reply.LEFT
        assert await self._holding(do) == ["a", "light"]
        token = await do.hold(session, "k", "light", 3)
        assert await inbox.new() == [Hint("p1", "k", "light", Granted(token))]

    async def test_a_heavy_waiter_that_dies_lets_in_those_behind_it(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        for how in ("close", "expire"):
            mortal = await do.open("p2", ttl=2.0)
            await do.hold(session, how, "a", 3, 2)
            await do.queue(mortal, how, "heavy", 3, 2)
            await do.queue(session, how, "light", 3, 1)
            if how == "close":
                await do(CloseSession(mortal))
            else:
                await advance(2.1 + self.margin)
                await do(Ping())
            assert [(hint.key, hint.name) for hint in await inbox.new()] == [(how, "light")]
            assert await self._holding(do, how) == ["a", "light"]

    # readers and writers

    async def test_readers_share_and_a_writer_does_not(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "r1", _ALL)
        await do.hold(session, "k", "r2", _ALL)
        await do.queue(session, "k", "w", _ALL, _ALL)
        await do(Release("k", "r1"))
        assert await self._holding(do) == ["r2"]
        await do(Release("k", "r2"))
        assert await self._holding(do) == ["w"]
        await do.queue(session, "k", "r3", _ALL)

    async def test_readers_do_not_starve_a_writer(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "r1", _ALL)
        await do.queue(session, "k", "w", _ALL, _ALL)
        await do.queue(session, "k", "r2", _ALL)
        await do(Release("k", "r1"))
        assert await self._holding(do) == ["w"]
        assert await self._waiting(do) == ["r2"]

    async def test_a_writer_lets_in_all_the_readers_up_to_the_next_writer(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "w1", _ALL, _ALL)
        for reader in ("r1", "r2", "r3"):
            await do.queue(session, "k", reader, _ALL)
        await do.queue(session, "k", "w2", _ALL, _ALL)
        await do.queue(session, "k", "r4", _ALL)
        await do(Release("k", "w1"))
        assert await self._holding(do) == ["r1", "r2", "r3"]
        assert await self._waiting(do) == ["w2", "r4"]

    async def test_a_dead_reader_is_not_kept_alive_by_the_others(self, do: Do, advance: Advance) -> None:
        session, mortal = await do.open("p1"), await do.open("p2", ttl=2.0)
        await do.hold(session, "k", "r1", _ALL)
        await do.hold(mortal, "k", "r2", _ALL)
        await do.queue(session, "k", "w", _ALL, _ALL)
        await do(Release("k", "r1"))
        await advance(2.1 + self.margin)
        await do.hold(session, "k", "w", _ALL, _ALL)

    # capacities that change

    async def test_more_capacity_lets_in_those_who_wait(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p2")
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a", 1)
        for holder in "bcd":
            await do.queue(other, "k", holder, 1)
        assert await do(Resize("k", 3)) is Reply.OK
        assert await self._holding(do) == ["a", "b", "c"]
        assert [(hint.name, type(hint.news)) for hint in await inbox.new()] == [
            ("b", Granted),
            ("c", Granted),
        ]
        assert await do(Resize("k", 3)) is Reply.OK
        assert await self._waiting(do) == ["d"]

    async def test_less_capacity_takes_nothing_away(self, do: Do) -> None:
        session = await do.open()
        tokens = [await do.hold(session, "k", holder, 3) for holder in "abc"]
        await do.queue(session, "k", "d", 3)
        assert await do(Resize("k", 1)) is Reply.OK
        holdings = await do(Holders("k"))
        assert (holdings.capacity, holdings.used) == (1, 3)
        assert [held.token for held in holdings.holders] == tokens
        for holder, left in (("a", ["b", "c"]), ("b", ["c"]), ("c", ["d"])):
            await do(Release("k", holder))
            assert await self._holding(do) == left

    async def test_a_waiter_too_heavy_for_less_capacity_is_hinted_to_ask(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "a", 3, 2)
        await do.queue(session, "k", "heavy", 3, 3)
        await do.queue(session, "k", "light", 3, 1)
        await do(Resize("k", 2))
        await do(Release("k", "a"))
        assert await self._holding(do) == ["light"]
        assert await self._waiting(do) == []
        told = await inbox.new()
        assert Hint("p1", "k", "heavy", Notice.ASK) in told
        assert len(told) == 2
        assert await do(Ask(session, "k", ("heavy",))) == Asked((Reply.UNKNOWN,))
        assert await do(Acquire(session, "k", "heavy", 3, 3)) == Mismatch(2)

    async def test_a_capacity_that_was_set_stays(self, do: Do) -> None:
        session = await do.open()
        assert await do(Resize("k", 2)) is Reply.OK
        assert await do(Holders("k")) == Holdings(2, 0, (), ())
        assert await do(Acquire(session, "k", "a", 1)) == Mismatch(2)
        await do.hold(session, "k", "a", 2)
        await do(Release("k", "a"))
        assert await do(Acquire(session, "k", "a", 1)) == Mismatch(2)
        assert (await do(Holders("k"))).capacity == 2

    async def test_who_holds_keeps_its_standing_when_the_capacity_changes(self, do: Do) -> None:
        session = await do.open()
        token = await do.hold(session, "k", "a", 1)
        await do.queue(session, "k", "b", 1)
        await do(Resize("k", 1))
        asked = await do(Ask(session, "k", ("a", "b")))
        assert isinstance(asked, Asked)
        assert asked.answers[0] == Granted(token)
        assert isinstance(asked.answers[1], Queued)
