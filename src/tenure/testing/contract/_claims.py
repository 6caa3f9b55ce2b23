"""Claims: named resources, matched by metadata, each lent to one claimer at a time."""

from __future__ import annotations

from random import Random

import pytest

from tenure.engine import (
    CAP,
    AddResource,
    Claim,
    ClaimAnswer,
    Claimed,
    CloseSession,
    EditClaim,
    GiveBack,
    Hint,
    Metadata,
    Notice,
    Ping,
    Queued,
    RemoveResource,
    Reply,
    Resource,
    ResourcePage,
    Resources,
)

from ._contract import Advance, ContractBase, Do, Hints, Inbox

EU: Metadata = (("zone", b"eu"),)
US: Metadata = (("zone", b"us"),)
BIG_EU: Metadata = (("size", b"\0\xff"), ("zone", b"eu"))


async def _add(do: Do, *resources: str, metadata: Metadata = (), preference: int = 0) -> None:
    for resource in resources:
        assert await do(AddResource("pool", resource, metadata, preference)) is Reply.OK


async def _claim(
    do: Do, session: str, holder: str, where: Metadata = (), quarantine: float = 0.0, pool: str = "pool"
) -> Claimed:
    """Claim what is free."""
    answer = await do(Claim(session, pool, holder, where, quarantine))
    assert isinstance(answer, Claimed), f"{holder} was to get a resource at once, not {answer}"
    return answer


async def _queue(do: Do, session: str, holder: str, where: Metadata = (), quarantine: float = 0.0) -> Queued:
    """Claim what is not free."""
    answer = await do(Claim(session, "pool", holder, where, quarantine))
    assert isinstance(answer, Queued), f"{holder} was to wait, not {answer}"
    return answer


async def _back(do: Do, *holders: str) -> None:
    for holder in holders:
        assert await do(GiveBack("pool", holder)) is Reply.RELEASED


async def _edit(
    do: Do,
    holder: str,
    claimed: Claimed,
    *,
    metadata: Metadata | None = None,
    cool_down: float | None = None,
    retire: str | None = None,
) -> None:
    assert await do(EditClaim("pool", holder, claimed.token, metadata, cool_down, retire)) is Reply.OK


async def _handed_over(inbox: Inbox) -> tuple[str, Claimed]:
    """The only news: who got what."""
    hints = await inbox.new()
    assert len(hints) == 1, hints
    got = hints[0].news
    assert isinstance(got, Claimed)
    assert hints[0] == Hint(inbox.process, "pool", hints[0].name, got)
    return hints[0].name, got


async def _pool(do: Do) -> dict[str, Resource]:
    return {resource.resource: resource for resource in (await do(Resources("pool"))).resources}


async def _states(do: Do) -> dict[str, str]:
    return {name: resource.state for name, resource in (await _pool(do)).items()}


class ClaimContract(ContractBase):
    """What the contract says of claims.

    Thread safety: none needed; pytest makes one for each test.
    """

    # ------------------------------------------------------------------------------------------ which one

    async def test_a_claimer_gets_a_resource_with_its_metadata(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", metadata=BIG_EU)
        claimed = await _claim(do, session, "a")
        assert claimed == Claimed("x", BIG_EU, claimed.token)
        assert claimed.token > 0

    async def test_the_preferred_resource_comes_first(self, do: Do) -> None:
        session = await do.open()
        for resource, preference in (("w", 0), ("x", 2), ("y", -1), ("z", 1)):
            await _add(do, resource, preference=preference)
        assert [(await _claim(do, session, holder)).resource for holder in "abcd"] == ["x", "z", "w", "y"]

    async def test_of_equal_ones_the_least_recently_used_comes_first(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", "y", "z")
        used = [(await _claim(do, session, holder)).resource for holder in "abc"]
        assert sorted(used) == ["x", "y", "z"]
        await _back(do, "b", "c", "a")
        again = [(await _claim(do, session, holder)).resource for holder in "def"]
        assert again == [used[1], used[2], used[0]]

    async def test_preference_goes_before_rest(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "best", preference=1)
        await _add(do, "other")
        for n in range(3):
            assert (await _claim(do, session, f"holder {n}")).resource == "best"
            await _back(do, f"holder {n}")

    async def test_only_what_matches_in_all_fields_is_given(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "none", preference=9)
        await _add(do, "us", metadata=US, preference=8)
        await _add(do, "eu", metadata=EU, preference=7)
        await _add(do, "big", metadata=BIG_EU, preference=6)
        assert (await _claim(do, session, "a", BIG_EU)).resource == "big"
        assert (await _claim(do, session, "b", EU)).resource == "eu"
        misses: tuple[Metadata, ...] = (
            EU,
            (("zone", b""),),
            (("zone2", b"us"),),
            (("size", b"\0\xff"), ("zone", b"us")),
        )
        for where in misses:
            assert await do(Claim(session, "pool", "c", where, wait=False)) is Reply.REFUSED
        assert (await _claim(do, session, "d")).resource == "none"

    async def test_pools_have_nothing_to_do_with_one_another(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        await do(AddResource("other", "x", EU))
        await _claim(do, session, "a")
        assert (await _claim(do, session, "a", pool="other")).metadata == EU
        await _back(do, "a")
        assert (await do(Resources("other"))).resources[0].state == "claimed"
        assert await do(GiveBack("no such pool", "a")) is Reply.UNKNOWN
        assert await do(Resources("no such pool")) == ResourcePage((), 0)

    # ------------------------------------------------------------------------------------------ one at a time

    async def test_no_resource_is_claimed_twice(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await _add(do, "x", "y")
        first, second = await _claim(do, session, "a"), await _claim(do, other, "b")
        assert {first.resource, second.resource} == {"x", "y"}
        assert await do(Claim(other, "pool", "c", wait=False)) is Reply.REFUSED
        await _add(do, "x", "y", metadata=EU)
        await _queue(do, other, "d", EU)
        assert (await do(Resources("pool"))).waiting == 1

    async def test_each_claim_has_a_higher_token(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        tokens: list[int] = []
        for n in range(4):
            tokens.append((await _claim(do, session, f"holder {n}")).token)
            if n:
                await _back(do, f"holder {n}")
            await advance(0.01 * (n % 2))
        await do(RemoveResource("pool", "x"))
        await _back(do, "holder 0")
        await _add(do, "x")
        tokens.append((await _claim(do, session, "again")).token)
        assert tokens == sorted(set(tokens))

    async def test_claiming_again_tells_where_one_stands(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        claimed = await _claim(do, session, "a")
        assert await do(Claim(session, "pool", "a")) == claimed
        assert sorted((await _states(do)).values()) == ["claimed", "free"]
        await _claim(do, session, "b")
        for _ in range(2):
            assert [(await _queue(do, session, holder)).place for holder in "cd"] == [1, 2]
        assert (await do(Resources("pool"))).waiting == 2
        await _back(do, "a")
        served = await do(Claim(session, "pool", "c"))
        assert isinstance(served, Claimed)
        assert served.resource == claimed.resource
        assert await do(Claim(session, "pool", "c")) == served
        # Told again, also if it would no longer be refused or matched.
        assert await do(Claim(session, "pool", "c", wait=False)) == served

    async def test_an_unknown_session_claims_nothing(self, do: Do, advance: Advance) -> None:
        closed, expired = await do.open(), await do.open(ttl=1.0)
        await do(CloseSession(closed))
        await advance(1.5)
        await _add(do, "x")
        for session in ("no such session", closed, expired):
            for wait in (True, False):
                assert await do(Claim(session, "pool", "a", wait=wait)) is Reply.GONE
        assert await _states(do) == {"x": "free"}
        assert (await do(Resources("pool"))).waiting == 0

    # ------------------------------------------------------------------------------------------ the line

    async def test_what_is_given_back_goes_to_the_first_in_line(self, do: Do, hints: Hints) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        mine, others = await hints("p1"), await hints("p2")
        await _add(do, "x", metadata=EU)
        old = await _claim(do, session, "a")
        assert [(await _queue(do, s, h)).place for s, h in ((other, "b"), (session, "c"))] == [1, 2]
        await _back(do, "a")
        name, got = await _handed_over(others)
        assert (name, got) == ("b", Claimed("x", EU, got.token))
        assert got.token > old.token
        assert await do(Claim(other, "pool", "b")) == got
        assert await mine.new() == []
        assert (await _queue(do, session, "c")).place == 1
        await _back(do, "b")
        assert [(hint.name, type(hint.news)) for hint in await mine.new()] == [("c", Claimed)]
        assert (await do(Resources("pool"))).waiting == 0

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
                assert isinstance(hint.news, Claimed)
                told.append((hint.name, hint.news.resource))
        # "big" matches nothing and blocks nobody.
        assert told == [("us 1", "us"), ("any", "eu"), ("us 2", "us"), ("eu 1", "eu")]
        assert (await do(Resources("pool"))).waiting == 1

    @pytest.mark.parametrize("how", ["added", "changed", "edited", "rested"])
    async def test_a_resource_that_comes_to_match_goes_to_who_waits(
        self, do: Do, hints: Hints, advance: Advance, how: str
    ) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        await _add(do, "x", metadata=US)
        claimed = await _claim(do, session, "a")
        await _queue(do, session, "b", EU)
        match how:
            case "added":
                await _add(do, "new", metadata=BIG_EU)
            case "changed":
                await _back(do, "a")
                await _add(do, "x", metadata=EU)
            case "edited":
                await _edit(do, "a", claimed, metadata=EU)
                await _back(do, "a")
            case _:
                await _edit(do, "a", claimed, metadata=EU, cool_down=1.0)
                await _back(do, "a")
                assert [hint.news for hint in await news.new()] == [Notice.ASK]
                await advance(1.5)
                await do(Ping())
        assert [hint.name for hint in await news.new()] == ["b"]

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
            assert all(hint.news is Notice.ASK for hint in told)
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
        # The next head has to know it, too.
        assert await do(GiveBack("pool", "e")) is Reply.LEFT
        assert await asked() == []
        assert await do(GiveBack("pool", "d")) is Reply.LEFT
        assert await asked() == ["f"]
        await _queue(do, session, "g")
        await _add(do, "new")
        served, told = await news.new()
        assert (served.name, told.name, told.news) == ("f", "g", Notice.ASK)
        assert isinstance(served.news, Claimed)
        await _add(do, "another new one")
        assert (await _handed_over(news))[0] == "g"

    async def test_a_claimer_who_does_not_want_to_wait_is_refused(self, do: Do, hints: Hints) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        await _add(do, "x")
        await _claim(do, session, "a")
        assert await do(Claim(session, "pool", "b", wait=False)) is Reply.REFUSED
        assert (await do(Resources("pool"))).waiting == 0
        await _back(do, "a")
        assert await news.new() == []
        assert await _states(do) == {"x": "free"}

    async def test_leaving_the_line(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        await _claim(do, session, "a")
        await _queue(do, session, "b")
        await _queue(do, session, "c")
        assert await do(GiveBack("pool", "b")) is Reply.LEFT
        assert await do(GiveBack("pool", "b")) is Reply.UNKNOWN
        assert (await do(Resources("pool"))).waiting == 1
        await _back(do, "a")
        assert isinstance(await do(Claim(session, "pool", "c")), Claimed)

    async def test_giving_a_resource_back_twice_takes_nothing_from_the_next(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        await _claim(do, session, "a")
        await _queue(do, session, "b")
        await _back(do, "a")
        assert await do(GiveBack("pool", "a")) is Reply.UNKNOWN
        assert await do(GiveBack("pool", "no such holder")) is Reply.UNKNOWN
        assert await _states(do) == {"x": "claimed"}
        await _back(do, "b")

    # ------------------------------------------------------------------------------------------ the end of a session

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
            assert await do(CloseSession(dead)) is not Reply.GONE
        else:
            await advance(1.5)
            await do(Ping())
        name, got = await _handed_over(news)
        assert (name, got.resource) == ("b", "x")
        assert got.token > old.token
        assert await do(GiveBack("pool", "a")) is Reply.UNKNOWN
        assert await do(GiveBack("pool", "also dead")) is Reply.UNKNOWN
        assert (await do(Resources("pool"))).waiting == 0
        stale = EditClaim("pool", "a", old.token, retire="late")
        assert await do(stale) is Reply.REFUSED
        assert await do(EditClaim("pool", "b", old.token, retire="late")) is Reply.REFUSED

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
        answer = await do(Claim(session, "pool", "c", wait=False))
        assert answer is Reply.REFUSED
        resource = (await _pool(do))["x"]
        assert (resource.state, resource.process, resource.token) == ("resting", "", 0)
        # It begins when the end of the session is noticed, and not before it was due.
        assert 3.4 - self.margin <= resource.rest <= 4.0
        waiting = await _queue(do, session, "b")
        assert 0 < waiting.ask_again_in <= 4.0
        assert [hint.news for hint in await news.new()] == [Notice.ASK]
        await advance(4.5)
        assert isinstance(await do(Claim(session, "pool", "b")), Claimed)
        assert [hint.name for hint in await news.new()] == ["b"]

    async def test_who_gives_back_alive_leaves_no_quarantine(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        await _claim(do, session, "a", quarantine=60.0)
        await _back(do, "a")
        await _claim(do, session, "b")

    async def test_the_quarantine_of_who_had_to_wait_counts_too(self, do: Do, advance: Advance) -> None:
        dead, session = await do.open("dead", 1.0), await do.open("p1")
        await _add(do, "x")
        await _claim(do, session, "a")
        await _queue(do, dead, "b", quarantine=0.9)
        await _back(do, "a")
        await advance(1.5)
        assert await _states(do) == {"x": "resting"}

    # ------------------------------------------------------------------------------------------ editing

    async def test_a_claimer_changes_the_metadata(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", metadata=EU)
        claimed = await _claim(do, session, "a")
        await _edit(do, "a", claimed, metadata=BIG_EU)
        assert (await _pool(do))["x"].metadata == BIG_EU
        assert await do(Claim(session, "pool", "a")) == Claimed("x", BIG_EU, claimed.token)
        await _back(do, "a")
        assert (await _claim(do, session, "b", BIG_EU)).metadata == BIG_EU

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
        assert await do(Claim(session, "pool", "c", wait=False)) is Reply.REFUSED
        waiting = await _queue(do, session, "d")
        assert 0 < waiting.ask_again_in <= 1.5
        await advance(2.0)
        assert isinstance(await do(Claim(session, "pool", "d")), Claimed)

    async def test_a_cool_down_that_is_over_before_the_return(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await _add(do, "x")
        await _edit(do, "a", await _claim(do, session, "a"), cool_down=0.5)
        await advance(1.0)
        await _back(do, "a")
        await _edit(do, "b", await _claim(do, session, "b"), cool_down=60.0)
        await _edit(do, "b", await _claim(do, session, "b"), cool_down=0.0)
        await _back(do, "b")
        await _claim(do, session, "c")

    async def test_a_cool_down_is_over_for_the_next_claim(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await _add(do, "x")
        await _edit(do, "a", await _claim(do, session, "a"), cool_down=1.0)
        await _back(do, "a")
        await advance(1.5)
        await _claim(do, session, "b")
        await _back(do, "b")
        await _claim(do, session, "c")

    async def test_a_retired_resource_is_not_given_out(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        claimed = await _claim(do, session, "a")
        await _queue(do, session, "b")
        await _edit(do, "a", claimed, retire="broken")
        assert (await _pool(do))["x"].state == "claimed"
        assert await do(Claim(session, "pool", "a")) == claimed
        await _back(do, "a")
        resource = (await _pool(do))["x"]
        assert (resource.state, resource.reason, resource.process) == ("retired", "broken", "")
        await _queue(do, session, "b")

    async def test_a_retired_resource_that_is_added_stays_retired(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        await _edit(do, "a", await _claim(do, session, "a"), retire="broken")
        await _add(do, "x", metadata=EU, preference=1)
        await _back(do, "a")
        await _queue(do, session, "b")
        await _add(do, "x", metadata=EU, preference=2)
        resource = (await _pool(do))["x"]
        assert (resource.state, resource.reason) == ("retired", "broken")
        assert (resource.metadata, resource.preference) == (EU, 2)
        assert isinstance(await do(Claim(session, "pool", "b")), Queued)

    async def test_a_revived_resource_is_as_good_as_new(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        for resource, holder in (("x", "a"), ("y", "b")):
            await _edit(do, holder, await _claim(do, session, holder), retire=f"broken {resource}")
        await _back(do, "a")
        await _queue(do, session, "c")
        await do(AddResource("pool", "x", EU, 3, revive=True))
        claimed = await do(Claim(session, "pool", "c"))
        assert isinstance(claimed, Claimed)
        assert (claimed.resource, claimed.metadata) == ("x", EU)
        assert (await _pool(do))["x"].reason == ""
        # also while it is claimed
        await do(AddResource("pool", "y", (), revive=True))
        await _back(do, "b")
        assert (await _states(do))["y"] == "free"

    async def test_only_its_claimer_edits_a_claim(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        mine, other = await _claim(do, session, "a"), await _claim(do, session, "b")
        await _queue(do, session, "c")
        before = await do(Resources("pool"))
        for pool, holder, token in (
            ("pool", "a", other.token),
            ("pool", "a", 0),
            ("pool", "c", 0),
            ("pool", "d", mine.token),
            ("no such pool", "a", mine.token),
        ):
            assert await do(EditClaim(pool, holder, token, EU, 60.0, "stolen")) is Reply.REFUSED
        assert await do(Resources("pool")) == before
        await _back(do, "a")
        assert await do(EditClaim("pool", "a", mine.token, retire="late")) is Reply.REFUSED
        assert (await _states(do))[mine.resource] == "claimed"
        await _back(do, "c")
        assert (await _states(do))[mine.resource] == "free"

    async def test_nothing_to_edit(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", metadata=EU)
        claimed = await _claim(do, session, "a")
        before = await do(Resources("pool"))
        await _edit(do, "a", claimed)
        assert await do(Resources("pool")) == before

    # ------------------------------------------------------------------------------------------ the pool

    async def test_what_is_shown_of_a_pool(self, do: Do) -> None:
        session = await do.open("p1")
        await _add(do, "z", metadata=EU, preference=3)
        await _add(do, "a free one")
        claimed = await _claim(do, session, "a", EU)
        await _queue(do, session, "b", EU)
        assert await do(Resources("pool")) == ResourcePage(
            (
                Resource("a free one", (), 0, "free", "", 0, 0.0, ""),
                Resource("z", EU, 3, "claimed", "p1", claimed.token, 0.0, ""),
            ),
            1,
        )

    async def test_a_large_pool_is_shown_in_pages(self, do: Do) -> None:
        names = [f"r{n:03}" for n in range(CAP + 2)]
        await _add(do, *names)
        first = await do(Resources("pool"))
        assert ([one.resource for one in first.resources], first.next) == (names[:CAP], names[CAP - 1])
        await do(RemoveResource("pool", first.next))
        last = await do(Resources("pool", first.next))
        assert ([one.resource for one in last.resources], last.next) == (names[CAP:], "")
        await do(RemoveResource("pool", names[-1]))
        full = await do(Resources("pool"))
        assert (len(full.resources), full.next) == (CAP, "")

    async def test_adding_again_changes_the_resource_and_not_its_claim(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        claimed = await _claim(do, session, "a")
        for _ in range(2):
            await _add(do, claimed.resource, metadata=EU, preference=5)
        resource = (await _pool(do))[claimed.resource]
        assert (resource.metadata, resource.preference) == (EU, 5)
        assert (resource.state, resource.token) == ("claimed", claimed.token)
        await _back(do, "a")
        assert (await _claim(do, session, "b")).resource == claimed.resource
        assert len(await _pool(do)) == 2

    async def test_adding_again_ends_no_rest(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await _add(do, "x")
        await _edit(do, "a", await _claim(do, session, "a"), cool_down=1.0)
        await _back(do, "a")
        await _add(do, "x", metadata=EU)
        assert await do(Claim(session, "pool", "b", wait=False)) is Reply.REFUSED
        await advance(1.5)
        assert (await _claim(do, session, "b")).metadata == EU

    async def test_a_removed_resource_is_gone(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x", "y")
        assert await do(RemoveResource("pool", "x")) is Reply.OK
        assert await do(RemoveResource("pool", "x")) is Reply.UNKNOWN
        assert await do(RemoveResource("no such pool", "x")) is Reply.UNKNOWN
        assert await _states(do) == {"y": "free"}
        assert (await _claim(do, session, "a")).resource == "y"
        await _queue(do, session, "b")

    @pytest.mark.parametrize("how", ["given back", "closed", "expired"])
    async def test_a_claimed_resource_is_removed_when_it_comes_back(
        self, do: Do, advance: Advance, how: str
    ) -> None:
        session, other = await do.open(ttl=1.0), await do.open()
        await _add(do, "x")
        claimed = await _claim(do, session, "a", quarantine=60.0)
        await _queue(do, other, "b")
        for _ in range(2):
            assert await do(RemoveResource("pool", "x")) is Reply.OK
        assert await do(Claim(session, "pool", "a")) == claimed
        match how:
            case "given back":
                await _back(do, "a")
            case "closed":
                await do(CloseSession(session))
            case _:
                await advance(1.5)
        assert await _pool(do) == {}
        await _queue(do, other, "b")
        assert await do(RemoveResource("pool", "x")) is Reply.UNKNOWN

    async def test_a_resource_that_is_added_again_before_it_comes_back_stays(self, do: Do) -> None:
        session = await do.open()
        await _add(do, "x")
        claimed = await _claim(do, session, "a")
        await do(RemoveResource("pool", "x"))
        await _add(do, "x")
        assert await do(Claim(session, "pool", "a")) == claimed
        await _back(do, "a")
        assert await _states(do) == {"x": "free"}

    async def test_a_resting_resource_that_is_removed_does_not_come_back(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        session = await do.open("p1")
        news = await hints("p1")
        await _add(do, "x", "y")
        first, second = await _claim(do, session, "a"), await _claim(do, session, "b")
        await _edit(do, "a", first, cool_down=1.0)
        await _edit(do, "b", second, cool_down=1.0)
        await _back(do, "a", "b")
        await do(RemoveResource("pool", first.resource))
        await _queue(do, session, "c")
        await _queue(do, session, "d")
        await advance(1.5)
        await do(Ping())
        assert [hint.name for hint in await news.new()] == ["c"]
        assert await _states(do) == {second.resource: "claimed"}

    # ------------------------------------------------------------------------------------------ a long walk

    @pytest.mark.parametrize("seed", range(2))
    async def test_whatever_happens_a_resource_has_one_claimer_and_no_match_lies_idle(
        self, do: Do, advance: Advance, seed: int
    ) -> None:
        random = Random(seed)
        sessions = [await do.open(f"p{n}") for n in range(3)]
        claims: dict[str, tuple[str, Metadata]] = {}
        for n in range(150):
            match random.choice(
                ("add", "remove", "claim", "claim", "claim", "back", "edit", "time", "close")
            ):
                case "add":
                    metadata = random.choice(((), EU, US, BIG_EU))
                    await _add(do, random.choice("vwxyz"), metadata=metadata, preference=random.randrange(2))
                case "remove":
                    await do(RemoveResource("pool", random.choice("vwxyz")))
                case "claim":
                    claim = (random.choice(sessions), random.choice(((), EU, US)))
                    claims[f"holder {n}"] = claim
                    await do(Claim(claim[0], "pool", f"holder {n}", claim[1], random.choice((0.0, 0.5))))
                case "back" if claims:
                    holder = random.choice(sorted(claims))
                    del claims[holder]
                    assert await do(GiveBack("pool", holder)) in {Reply.RELEASED, Reply.LEFT}
                case "edit" if claims:
                    holder = random.choice(sorted(claims))
                    answer = await do(Claim(claims[holder][0], "pool", holder))
                    if isinstance(answer, Claimed):
                        retire = random.choice((None, None, "broken"))
                        await _edit(do, holder, answer, cool_down=random.choice((0.0, 0.5)), retire=retire)
                case "time":
                    await advance(0.25)
                case "close":
                    i = random.randrange(3)
                    await do(CloseSession(sessions[i]))
                    claims = {h: claim for h, claim in claims.items() if claim[0] != sessions[i]}
                    sessions[i] = await do.open(f"p{i}")
                case _:
                    pass
            before = await _states(do)
            answers: dict[str, ClaimAnswer] = {}
            for holder, (session, where) in claims.items():
                answers[holder] = await do(Claim(session, "pool", holder, where))
            page = await do(Resources("pool"))
            if {r.resource: r.state for r in page.resources} != before:
                continue  # on a real clock a rest may be over meanwhile
            claimed = [answer for answer in answers.values() if isinstance(answer, Claimed)]
            assert sorted((c.resource, c.token) for c in claimed) == [
                (r.resource, r.token) for r in page.resources if r.state == "claimed"
            ]
            assert page.waiting == len(answers) - len(claimed)
            free = [set(r.metadata) for r in page.resources if r.state == "free"]
            for holder, answer in answers.items():
                assert isinstance(answer, Claimed) or not any(set(claims[holder][1]) <= f for f in free)
