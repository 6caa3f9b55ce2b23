"""What comes with a hold: its token, which rises, its value, which others see, and the capacity that it sets."""

from __future__ import annotations

from tenure.engine import (
    Acquire,
    CloseSession,
    Granted,
    Holder,
    Holders,
    Holdings,
    Mismatch,
    Release,
    Reply,
    SetValue,
)

from ._contract import Advance, ContractBase, Do


class HoldingContract(ContractBase):
    """What the contract says of tokens, values and listings.

    Thread safety: none needed; pytest makes one for each test.
    """

    # tokens

    async def test_tokens_rise_over_the_whole_engine_whatever_happens(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        tokens: list[int] = []
        for i in range(5):
            for key in ("k", "l"):
                tokens.append(await do.hold(session, key, f"a{i}"))
                await do(Release(key, f"a{i}"))
        for how in ("close", "expire", "release"):
            mortal = await do.open("p2", ttl=2.0)
            tokens.append(await do.hold(mortal, "k", how))
            await do.queue(session, "k", f"after {how}")
            if how == "close":
                await do(CloseSession(mortal))
            elif how == "expire":
                await advance(2.1 + self.margin)
            else:
                await do(Release("k", how))
            tokens.append(await do.hold(session, "k", f"after {how}"))
            await do(Release("k", f"after {how}"))
        assert tokens == sorted(set(tokens))

    async def test_tokens_follow_the_time_of_the_engine(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        first = await do.hold(session, "k", "a")
        await advance(1.5)
        second = await do.hold(session, "l", "a")
        assert second - first >= (1.5 - self.margin) * 1_000_000 - 1

    # values

    async def test_the_values_of_holders_and_waiters_are_seen(self, do: Do, advance: Advance) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        token = await do.hold(session, "k", "a", value=b"\0one\xff")
        await do.queue(other, "k", "b", value=b"two")
        await advance(1.0)
        holdings = await do(Holders("k"))
        assert (holdings.capacity, holdings.used) == (1, 1)
        (held,), (waiting,) = holdings.holders, holdings.waiting
        assert held == Holder("p1", "a", token, 1, b"\0one\xff", held.age)
        assert waiting == Holder("p2", "b", 0, 1, b"two", waiting.age)
        assert held.age == self.about(1.0)
        assert waiting.age == self.about(1.0)

    async def test_the_age_of_a_hold_begins_with_its_grant(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        await advance(2.0)
        await do(Release("k", "a"))
        await advance(1.0)
        (held,) = (await do(Holders("k"))).holders
        assert held.age == self.about(1.0)

    async def test_the_holder_can_change_its_value(self, do: Do) -> None:
        session = await do.open()
        token = await do.hold(session, "k", "a", value=b"old")
        for _ in range(2):
            assert await do(SetValue("k", "a", token, b"new")) is Reply.OK
        assert [held.value for held in (await do(Holders("k"))).holders] == [b"new"]
        assert await do(Acquire(session, "k", "a", 1)) == Granted(token)

    async def test_nobody_but_the_holder_can_change_its_value(self, do: Do) -> None:
        session = await do.open()
        stale = await do.hold(session, "k", "a", value=b"old")
        await do(Release("k", "a"))
        assert await do(SetValue("k", "a", stale, b"x")) is Reply.REFUSED
        token = await do.hold(session, "k", "a", value=b"value")
        await do.queue(session, "k", "b", value=b"value")
        for holder, tried in (("a", stale), ("b", token), ("b", 0), ("c", token), ("a", token + 1)):
            assert await do(SetValue("k", holder, tried, b"x")) is Reply.REFUSED
        holdings = await do(Holders("k"))
        assert [h.value for h in holdings.holders + holdings.waiting] == [b"value"] * 2

    async def test_nobody_uses_an_unused_key(self, do: Do) -> None:
        assert await do(Holders("k")) == Holdings(0, 0, (), ())
        session = await do.open()
        await do.hold(session, "k", "a")
        await do(Release("k", "a"))
        assert await do(Holders("k")) == Holdings(0, 0, (), ())

    async def test_a_listing_of_holders_is_cut_at_its_limit(self, do: Do) -> None:
        session = await do.open()
        for holder in "abc":
            await do.hold(session, "k", holder, capacity=3)
        for holder in "def":
            await do.queue(session, "k", holder, capacity=3)
        holdings = await do(Holders("k", limit=2))
        assert [h.holder for h in holdings.holders] == ["a", "b"]
        assert [h.holder for h in holdings.waiting] == ["d", "e"]
        assert (holdings.capacity, holdings.used) == (3, 3)

    # capacity

    async def test_the_first_of_a_key_sets_its_capacity(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a", capacity=2)
        for wait in (True, False):
            assert await do(Acquire(session, "k", "b", 3, wait=wait)) == Mismatch(2)
        holdings = await do(Holders("k"))
        assert (holdings.capacity, holdings.used, holdings.waiting) == (2, 1, ())

    async def test_the_capacity_is_forgotten_with_the_last(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a", capacity=2)
        await do(Release("k", "a"))
        await do.hold(session, "k", "a", capacity=3)
        await do(CloseSession(session))
        await do.hold(await do.open(), "k", "a", capacity=4)
