"""Claims: named resources, matched by metadata, each lent to one claimer at a time."""

from __future__ import annotations

import pytest

from tenure import engine as e

from ._contract import Advance, ContractBase, Do, Hints, Inbox

EU: e.Metadata = (("zone", b"eu"),)
US: e.Metadata = (("zone", b"us"),)
BIG_EU: e.Metadata = (("size", b"\0\xff"), ("zone", b"eu"))


async def _add(do: Do, *resources: str, metadata: e.Metadata = (), preference: int = 0) -> None:
    for resource in resources:
        assert await do(e.AddResource("pool", resource, metadata, preference)) is e.Reply.OK


async def _claim(
    do: Do, session: str, holder: str, where: e.Metadata = (), quarantine: float = 0.0, pool: str = "pool"
) -> e.Claimed:
    """Claim a free resource."""
    answer = await do(e.Claim(session, pool, holder, where, quarantine))
    assert isinstance(answer, e.Claimed), f"{holder} was to get a resource at once, not {answer}"
    return answer


async def _queue(
    do: Do, session: str, holder: str, where: e.Metadata = (), quarantine: float = 0.0
) -> e.Queued:
    """Wait for a resource that is not free."""
    answer = await do(e.Claim(session, "pool", holder, where, quarantine))
    assert isinstance(answer, e.Queued), f"{holder} was to wait, not {answer}"
    return answer


async def _back(do: Do, *holders: str) -> None:
    for holder in holders:
        assert await do(e.GiveBack("pool", holder)) is e.Reply.RELEASED


async def _edit(
    do: Do,
    holder: str,
    claimed: e.Claimed,
    *,
    metadata: e.Metadata | None = None,
    cool_down: float | None = None,
    retire: str | None = None,
) -> None:
    assert await do(e.EditClaim("pool", holder, claimed.token, metadata, cool_down, retire)) is e.Reply.OK


async def _handed_over(inbox: Inbox) -> tuple[str, e.Claimed]:
    """The only news: who got what."""
    hints = await inbox.new()
    assert len(hints) == 1, hints
    got = hints[0].news
    assert isinstance(got, e.Claimed)
    assert hints[0] == e.Hint(inbox.process, "pool", hints[0].name, got)
    return hints[0].name, got


async def _pool(do: Do) -> dict[str, e.Resource]:
    return {resource.resource: resource for resource in (await do.page(e.Scan(e.RESOURCES, "pool"))).rows}


class ClaimContract(ContractBase):
    """The contract's tests of claims."""

    # the line

    async def test_first_come_first_served_among_those_that_match(self, do: Do, hints: Hints) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        await _add(do, "eu", metadata=EU)
        await _add(do, "us", metadata=US)
        await _claim(do, session, "in eu", EU)
        await _claim(do, session, "in us", US)
        for holder, where in (("big", BIG_EU), ("us 1", US), ("any", ()), ("eu 1", EU), ("us 2", US)):
            await _queue(do, session, holder, where)
        told: list[tuple[str, str]] = []
        for holder in ("in us", "in eu", "us 1", "any"):
            await _back(do, holder)
            for hint in await news.new():
                assert isinstance(hint.news, e.Claimed)
                told.append((hint.name, hint.news.resource))
        # "big" matches nothing and blocks no other claim.
        assert told == [("us 1", "us"), ("any", "eu"), ("us 2", "us"), ("eu 1", "eu")]
        assert (await do.page(e.Scan(e.RESOURCES, "pool"))).waiting == 1

    async def test_a_waiter_learns_when_the_next_resource_will_have_rested(
        self, do: Do, hints: Hints
    ) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        await _add(do, "x", "y", "z")
        claimed = {holder: await _claim(do, session, holder) for holder in "abc"}
        for holder, where in {"d": EU, "e": (), "f": ()}.items():
            await _queue(do, session, holder, where)

        async def asked() -> list[str]:
            told = await news.new()
            assert all(hint.news is e.Notice.ASK for hint in told)
            return [hint.name for hint in told]

        async def rests(holder: str, seconds: float) -> None:
            await _edit(do, holder, claimed[holder], cool_down=seconds)
            await _back(do, holder)

        await rests("a", 20.0)
        assert await asked() == ["d"]
        assert 0 < (await _queue(do, session, "d", EU)).ask_again_in <= 20.0
        await rests("b", 25.0)
        assert await asked() == []
        await rests("c", 15.0)
        assert await asked() == ["d"]
        assert 0 < (await _queue(do, session, "d", EU)).ask_again_in <= 15.0
        # The next head has to know it, too: the head is told whoever leaves.
        assert await do(e.GiveBack("pool", "e")) is e.Reply.LEFT
        assert await asked() == ["d"]
        assert await do(e.GiveBack("pool", "d")) is e.Reply.LEFT
        assert await asked() == ["f"]
        await _queue(do, session, "g")
        await _add(do, "new")
        served, told = await news.new()
        assert (served.name, told.name, told.news) == ("f", "g", e.Notice.ASK)
        assert isinstance(served.news, e.Claimed)
        await _add(do, "another new one")
        assert (await _handed_over(news))[0] == "g"

    # the end of a session

    @pytest.mark.parametrize("how", ["closed", "expired"])
    async def test_what_a_dead_claimer_had_goes_to_the_next(
        self, do: Do, hints: Hints, advance: Advance, how: str
    ) -> None:
        dead, session = await do.open("dead", 1.0), await do.open("p1")
        news = await hints("p1")
        await _add(do, "x")
        old = await _claim(do, dead, "a")
        await _queue(do, dead, "also dead")
        await _queue(do, session, "b")
        if how == "closed":
            assert await do(e.CloseSession(dead)) is not e.Reply.GONE
        else:
            await advance(1.5)
            await do(e.Ping())
        name, got = await _handed_over(news)
        assert (name, got.resource) == ("b", "x")
        assert got.token > old.token
        assert await do(e.GiveBack("pool", "a")) is e.Reply.UNKNOWN
        assert await do(e.GiveBack("pool", "also dead")) is e.Reply.UNKNOWN
        assert (await do.page(e.Scan(e.RESOURCES, "pool"))).waiting == 0
        stale = e.EditClaim("pool", "a", old.token, retire="late")
        assert await do(stale) is e.Reply.REFUSED
        assert await do(e.EditClaim("pool", "b", old.token, retire="late")) is e.Reply.REFUSED

    async def test_what_a_dead_claimer_had_rests_for_its_quarantine(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        dead, session = await do.open("dead", 1.0), await do.open("p1")
        news = await hints("p1")
        await _add(do, "x")
        await _claim(do, dead, "a", quarantine=4.0)
        waiting = await _queue(do, session, "b")
        assert waiting.ask_again_in <= 1.0
        await advance(1.5)
        answer = await do(e.Claim(session, "pool", "c", wait=False))
        assert answer is e.Reply.REFUSED
        resource = (await _pool(do))["x"]
        assert (resource.state, resource.process, resource.token) == ("resting", "", 0)
        # It begins when the end of the session is noticed, and not before it was due.
        assert 3.4 - self.margin <= resource.rest <= 4.0
        waiting = await _queue(do, session, "b")
        assert 0 < waiting.ask_again_in <= 4.0
        assert [hint.news for hint in await news.new()] == [e.Notice.ASK]
        await advance(4.5)
        assert isinstance(await do(e.Claim(session, "pool", "b")), e.Claimed)
        assert [hint.name for hint in await news.new()] == ["b"]

    # editing

    async def test_a_cool_down_keeps_the_resource_back(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        claimed = await _claim(do, session, "a")
        await _edit(do, "a", claimed, cool_down=2.0)
        assert (await _pool(do))[claimed.resource].state == "claimed"
        await advance(0.5)
        await _back(do, "a")
        resource = (await _pool(do))[claimed.resource]
        assert (resource.state, resource.rest) == ("resting", self.about(1.5))
        assert (await _claim(do, session, "b")).resource != claimed.resource
        assert await do(e.Claim(session, "pool", "c", wait=False)) is e.Reply.REFUSED
        waiting = await _queue(do, session, "d")
        assert 0 < waiting.ask_again_in <= 1.5
        await advance(2.0)
        assert isinstance(await do(e.Claim(session, "pool", "d")), e.Claimed)

    async def test_names_with_colons_keep_apart(self, do: Do, hints: Hints) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        for pool, name in (("a", "b:c"), ("a:b", "c")):
            await do(e.AddResource(pool, name, ()))
            assert (await do(e.Claim(session, pool, "first"))).resource == name
        for n in range(3):
            await do(e.Claim(session, "a", f"{n}", group="b:c"))
        for holder, group in (("x", "d"), ("y", "c"), ("z", "d")):
            await do(e.Claim(session, "a:b", holder, group=group))
        for holder in ("first", "x"):
            await do(e.GiveBack("a:b", holder))
        assert [hint.name for hint in await news.new()] == ["x", "y"]

    # slots

    async def test_a_resource_has_as_many_claimers_as_slots(self, do: Do, hints: Hints) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        for resource in "xy":
            await do(e.AddResource("pool", resource, (), slots=2))
        claimed = [await _claim(do, session, holder) for holder in "abcd"]
        assert [claim.resource for claim in claimed] == ["x", "y", "x", "y"]  # each claim is a use
        assert await do(e.Claim(session, "pool", "a")) == claimed[0]
        shown = (await _pool(do))["x"]
        assert (shown.state, shown.slots, shown.claimed) == ("claimed", 2, 2)
        assert (shown.process, shown.token) == ("p1", claimed[2].token)
        for holder in "efgh":
            await _queue(do, session, holder)
        await _back(do, "c")
        assert (await _handed_over(news))[0] == "e"
        await do(e.AddResource("pool", "x", (), slots=4))
        assert [hint.name for hint in await news.new()] == ["f", "g"]
        await do(e.AddResource("pool", "x", ()))
        await _back(do, "e", "f", "g")
        assert await news.new() == []
        shown = (await _pool(do))["x"]
        assert (shown.state, shown.slots, shown.claimed, shown.process, shown.token) == (
            "claimed",
            1,
            1,
            "",
            0,
        )
        await _back(do, "a")
        assert (await _handed_over(news))[0] == "h"
        with pytest.raises(ValueError, match="slots must be between 1 and 256, not 0"):
            e.AddResource("pool", "x", (), slots=0)

    async def test_what_one_claimer_says_of_a_resource_is_true_of_all_slots(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        dead, session = await do.open("dead", 1.0), await do.open("p1", 60.0)
        news = await hints("p1")
        await do(e.AddResource("pool", "x", (), slots=3))
        claimed = await _claim(do, session, "a")
        await _claim(do, dead, "b", quarantine=4.0)
        await _edit(do, "a", claimed, cool_down=2.0)
        shown = (await _pool(do))["x"]
        assert (shown.state, shown.claimed) == ("resting", 2)
        assert await do(e.Claim(session, "pool", "c", wait=False)) is e.Reply.REFUSED
        waiting = await _queue(do, session, "d", EU)
        assert 0 < waiting.ask_again_in <= 2.0
        await _edit(do, "a", claimed, metadata=EU, cool_down=0.0)
        assert (await _handed_over(news))[0] == "d"
        await _back(do, "d")
        await advance(1.5)  # the dead one's
        await do(e.Ping())
        shown = (await _pool(do))["x"]
        assert (shown.state, shown.claimed) == ("resting", 1)
        await _edit(do, "a", claimed, retire="revoked")
        shown = (await _pool(do))["x"]
        assert (shown.state, shown.claimed, shown.reason) == ("retired", 1, "revoked")
        await do(e.AddResource("pool", "x", EU, revive=True, slots=3))
        await _claim(do, session, "e")
        await do(e.RemoveResource("pool", "x"))
        assert (await _pool(do))["x"].state == "claimed"
        assert await do(e.Claim(session, "pool", "f", wait=False)) is e.Reply.REFUSED
        await _back(do, "a", "e")
        assert await _pool(do) == {}

    # the pool

    async def test_a_large_pool_is_shown_in_pages(self, do: Do) -> None:
        names = [f"r{n:03}" for n in range(e.CAP + 2)]
        await _add(do, *names)
        first = await do.page(e.Scan(e.RESOURCES, "pool"))
        assert ([item.resource for item in first.rows], bool(first.next)) == (names[: e.CAP], True)
        await do(e.RemoveResource("pool", names[e.CAP - 1]))
        last = await do.page(e.Scan(e.RESOURCES, "pool", first.next))
        assert ([item.resource for item in last.rows], last.next) == (names[e.CAP :], "")
        await do(e.RemoveResource("pool", names[-1]))
        full = await do.page(e.Scan(e.RESOURCES, "pool"))
        assert (len(full.rows), full.next) == (e.CAP, "")
