"""Holds: one line, first come first served; expiry hands over, and tokens follow the engine's time."""

from __future__ import annotations

from tenure import engine as e

from ._contract import Advance, ContractBase, Do, Hints

_ALL = 2**30
"""The capacity of a lock for readers and writers: a reader weighs 1, a writer all of it."""


class HoldContract(ContractBase):
    """The contract's tests of holds, beside the walk."""

    async def test_tokens_follow_the_time_of_the_engine(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        first = await do.hold(session, "k", "a")
        await advance(1.5)
        second = await do.hold(session, "l", "a")
        assert second - first >= (1.5 - self.margin) * 1_000_000 - 1

    async def test_holders_and_then_waiters_are_listed_page_by_page(self, do: Do) -> None:
        session = await do.open()
        for holder in "abc":
            await do.hold(session, "k", holder, capacity=3)
        for holder in "def":
            await do.queue(session, "k", holder, capacity=3)
        names: list[str] = []
        page = e.Holdings((), next="")
        while page.next or not names:
            page = await do.page(e.Scan(e.HOLDERS, "k", page.next, 2))
            assert (len(page.rows) <= 2, page.capacity, page.used) == (True, 3, 3)
            names += [holder.holder for holder in page.rows]
        assert names == list("abcdef")

    # the line

    async def test_first_come_first_served(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "0")
        for i in range(1, 8):
            await do.queue(session if i % 2 else other, "k", str(i))
        tokens: list[int] = []
        for i in range(7):
            assert await do(e.Release("k", str(i))) is e.Reply.RELEASED
            tokens.append(await do.hold(session, "k", str(i + 1)))
            assert [held.holder for held in (await do.page(e.Scan(e.HOLDERS, "k"))).holders] == [str(i + 1)]
        assert tokens == sorted(set(tokens))

    async def test_places_are_upper_bounds_and_never_rise(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "0")
        last = {name: (await do.queue(session, "k", name)).place for name in "123456"}
        for leaver in ("3", "0", "5", "2"):
            await do(e.Release("k", leaver))
            waiting = [waiter.holder for waiter in (await do.page(e.Scan(e.HOLDERS, "k"))).waiting]
            for rank, name in enumerate(waiting, 1):
                place = (await do.queue(session, "k", name)).place
                assert rank <= place <= last[name]
                last[name] = place
        assert last["4"] == 1

    async def test_the_expiry_of_the_holder_hands_over(self, do: Do, hints: Hints, advance: Advance) -> None:
        inbox = await hints("p2")
        session, other = await do.open("p1", ttl=2.0), await do.open("p2")
        token = await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        await advance(1.0)
        await do.queue(other, "k", "b")
        await advance(1.1 + self.margin)
        assert await do(e.Ping()) is e.Reply.OK
        granted = e.Granted(await do.hold(other, "k", "b"))
        assert granted.token > token
        assert await inbox.new() == [e.Hint("p2", "k", "b", granted)]
        assert await do(e.Release("k", "a")) is e.Reply.UNKNOWN

    async def test_the_dead_are_passed_over(self, do: Do, advance: Advance) -> None:
        """The dead at the head of the line cost one expiry, however many they are."""
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        for i in range(100):
            mortal = await do.open(f"mortal {i}", ttl=2.0)
            await do.queue(mortal, "k", mortal)
        await do.queue(other, "k", "b")
        await advance(2.1 + self.margin)
        await do(e.Release("k", "a"))
        await do.hold(other, "k", "b")
        assert (await do.page(e.Scan(e.HOLDERS, "k"))).waiting == ()

    async def test_asking_again_after_the_hint_is_enough(self, do: Do, advance: Advance) -> None:
        """No hint needed: each pause is short enough, and following them leads to the grant when it is due."""
        mortal, other = await do.open("p1", ttl=4.0), await do.open("p2")
        await do.hold(mortal, "k", "a")
        await advance(1.0)
        answer: e.HoldAnswer = await do.queue(other, "k", "b")
        waited = 0.0
        while isinstance(answer, e.Queued):
            assert 0 <= answer.ask_again_in <= 3.01 - waited + self.margin
            pause = max(answer.ask_again_in, 0.01)
            waited += pause
            await advance(pause)
            answer = await do(e.Acquire(other, "k", "b", 1))
        assert isinstance(answer, e.Granted)
        assert waited == self.about(3.0)

    # weights

    async def _holding(self, do: Do) -> list[str]:
        return [held.holder for held in (await do.page(e.Scan(e.HOLDERS, "k"))).holders]

    async def _waiting(self, do: Do) -> list[str]:
        return [waiter.holder for waiter in (await do.page(e.Scan(e.HOLDERS, "k"))).waiting]

    async def test_a_head_that_does_not_fit_blocks_those_behind_it(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a", 3, 2)
        await do.queue(session, "k", "heavy", 3, 2)
        await do.queue(session, "k", "light", 3, 1)
        assert await do(e.Acquire(session, "k", "impatient", 3, 1, wait=False)) is e.Reply.REFUSED
        assert await self._holding(do) == ["a"]
        assert await self._waiting(do) == ["heavy", "light"]

    async def test_readers_do_not_starve_a_writer(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "r1", _ALL)
        await do.queue(session, "k", "w", _ALL, _ALL)
        await do.queue(session, "k", "r2", _ALL)
        await do(e.Release("k", "r1"))
        assert await self._holding(do) == ["w"]
        assert await self._waiting(do) == ["r2"]

    async def test_a_dead_reader_is_not_kept_alive_by_the_others(self, do: Do, advance: Advance) -> None:
        session, mortal = await do.open("p1"), await do.open("p2", ttl=2.0)
        await do.hold(session, "k", "r1", _ALL)
        await do.hold(mortal, "k", "r2", _ALL)
        await do.queue(session, "k", "w", _ALL, _ALL)
        await do(e.Release("k", "r1"))
        await advance(2.1 + self.margin)
        await do.hold(session, "k", "w", _ALL, _ALL)

    async def test_a_waiter_too_heavy_for_less_capacity_is_hinted_to_ask(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "a", 3, 2)
        await do.queue(session, "k", "heavy", 3, 3)
        await do.queue(session, "k", "light", 3, 1)
        await do(e.Resize("k", 2))
        await do(e.Release("k", "a"))
        assert await self._holding(do) == ["light"]
        assert await self._waiting(do) == []
        told = await inbox.new()
        assert e.Hint("p1", "k", "heavy", e.Notice.ASK) in told
        assert len(told) == 2
        assert await do(e.Ask(session, "k", ("heavy",))) == e.HoldStatuses((e.Reply.UNKNOWN,))
        assert await do(e.Acquire(session, "k", "heavy", 3, 3)) == e.Mismatch(2)
