"""Looking around: what there is, what a session has, and how the engine is doing."""

from __future__ import annotations

from tenure.engine import (
    FAMILIES,
    AddResource,
    Arrive,
    CheckHealth,
    Claim,
    Claimed,
    CloseSession,
    DescribeSession,
    Exchange,
    Exchanged,
    GiveBack,
    ListKeys,
    Move,
    NewTask,
    Put,
    PutRequest,
    Release,
    RemoveResource,
    Reply,
    Resize,
    SessionItem,
    SessionPage,
)

from ._contract import Advance, ContractBase, Do


async def survey(do: Do, kind: str, prefix: str = "", limit: int = 100) -> list[str]:
    """All the names, page by page."""
    names: list[str] = []
    after = ""
    for _ in range(10_000):
        page = await do(ListKeys(kind, prefix, after, limit))
        assert len(page.names) <= limit
        names += page.names
        if not page.next:
            return names
        after = page.next
    raise AssertionError(f"the survey of {kind} never ends")


async def inspected(do: Do, session: str, limit: int = 100) -> list[SessionItem]:
    """All that a session has, page by page."""
    found: list[SessionItem] = []
    after = ""
    for _ in range(10_000):
        page = await do(DescribeSession(session, after, limit))
        assert isinstance(page, SessionPage)
        assert len(page.items) <= limit
        found += page.items
        if not page.next:
            return found
        after = page.next
    raise AssertionError("the inspection never ends")


class SurveyContract(ContractBase):
    """What the contract says of surveys.

    Thread safety: none needed; pytest makes one for each test.
    """

    async def test_a_key_is_seen_while_somebody_holds_it(self, do: Do) -> None:
        session = await do.open()
        await do(Resize("unused", 3))
        for key in ("k", "l\0ä", "m"):
            await do.hold(session, key, "a")
        await do.queue(session, "k", "b")
        assert sorted(await survey(do, "holds")) == ["k", "l\0ä", "m"]
        for holder in "ab":
            await do(Release("k", holder))
        assert sorted(await survey(do, "holds")) == ["l\0ä", "m"]
        await do(CloseSession(session))
        assert await survey(do, "holds") == []

    async def test_a_pool_is_seen_while_it_has_a_resource(self, do: Do) -> None:
        session = await do.open()
        await do(Claim(session, "nothing", "a"))
        for pool, resource in (("p", "x"), ("p", "y"), ("q", "x")):
            await do(AddResource(pool, resource, ()))
        await do(Claim(session, "q", "a"))
        assert sorted(await survey(do, "pools")) == ["p", "q"]
        for resource in "xy":
            await do(RemoveResource("p", resource))
        assert await survey(do, "pools") == ["q"]
        await do(RemoveResource("q", "x"))
        await do(GiveBack("q", "a"))
        assert await survey(do, "pools") == []

    async def test_a_queue_is_seen_while_it_says_something(self, do: Do) -> None:
        session = await do.open()
        await do(Exchange(session, do.number(), "looked at", want=1))
        await do(Put(session, do.number(), "cursor", (PutRequest("m", (), cursor=("c", b"1")),), 10))
        assert await survey(do, "queues") == []
        for queue in ("q", "r"):
            request = PutRequest("m", (NewTask(b"1"),))
            await do(Put(session, do.number(), queue, (request,), 10))
        assert sorted(await survey(do, "queues")) == ["q", "r"]
        await do(Exchange(session, do.number(), "q", want=1, keep=True))
        assert sorted(await survey(do, "queues")) == ["q", "r"]
        await do(Move("r", frozenset({"waiting"}), "purged"))
        assert await survey(do, "queues") == ["q"]

    async def test_open_sessions_are_seen(self, do: Do, advance: Advance) -> None:
        lasting, closed = await do.open("p1"), await do.open("p2")
        mortal = await do.open("p3", ttl=2.0)
        assert set(await survey(do, "sessions")) == {lasting, closed, mortal}
        await do(CloseSession(closed))
        assert set(await survey(do, "sessions")) == {lasting, mortal}
        await advance(2.1 + self.margin)
        assert set(await survey(do, "sessions")) == {lasting}

    async def test_pages_together_tell_everything_once(self, do: Do) -> None:
        session = await do.open()
        names = [f"n{i}" for i in range(12)]
        for name in names:
            await do.hold(session, name, "a")
            await do(AddResource(name, "x", ()))
            await do(Put(session, do.number(), name, (PutRequest("m", (NewTask(b"1"),)),), 10))
        for kind in ("holds", "pools", "queues"):
            for limit in (1, 5, 12, 13):
                assert sorted(await survey(do, kind, limit=limit)) == sorted(names)
        assert set(await survey(do, "sessions", limit=1)) == {session}

    async def test_only_names_with_the_prefix_are_told(self, do: Do) -> None:
        session = await do.open()
        for name in ("a:1", "b:1", "b:22", "b", "c:1", "bb:1"):
            await do.hold(session, name, "a")
            await do(AddResource(name, "x", ()))
            await do(Put(session, do.number(), name, (PutRequest("m", (NewTask(b"1"),)),), 10))
        for kind in ("holds", "pools", "queues"):
            for limit in (1, 2, 100):
                assert sorted(await survey(do, kind, "b:", limit)) == ["b:1", "b:22"]
            assert await survey(do, kind, "none") == []
        assert set(await survey(do, "sessions", session[:-1])) == {session}
        assert await survey(do, "sessions", "none") == []

    async def test_a_session_tells_what_it_has_and_waits_for(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        assert await do(DescribeSession(session)) == SessionPage("p1", (), "")
        await do.hold(other, "k", "z")
        for holder in "ab":
            await do.queue(session, "k", holder)
        tokens = [await do.hold(session, "j", holder, capacity=2) for holder in "ab"]
        await do(AddResource("p", "x", ()))
        claimed = await do(Claim(session, "p", "a"))
        assert isinstance(claimed, Claimed)
        await do(Claim(session, "p", "b"))
        await do(Arrive(session, "b", "a", 2))
        for participant in "ab":
            await do(Arrive(session, "c", participant, 2))
        tasks = (NewTask(b"1"), NewTask(b"2"))
        for queue, producer in (("q", "m"), ("q", "n"), ("r", "m")):
            await do(Put(session, do.number(), queue, (PutRequest(producer, tasks),), 2))
        exchanged = await do(Exchange(session, do.number(), "r", want=2))
        assert isinstance(exchanged, Exchanged)
        await do(Exchange(session, do.number(), "s", want=1))
        found = await inspected(do, session)
        families = [one.family for one in found]
        assert families == sorted(families, key=FAMILIES.index)
        assert set(found) == {
            SessionItem("holds", "j", "a", True, tokens[0]),
            SessionItem("holds", "j", "b", True, tokens[1]),
            SessionItem("holds", "k", "a", False),
            SessionItem("holds", "k", "b", False),
            SessionItem("claims", "p", "a", True, claimed.token),
            SessionItem("claims", "p", "b", False),
            SessionItem("arrivals", "b", "a", False),
            SessionItem("arrivals", "c", "a", True),
            SessionItem("arrivals", "c", "b", True),
            SessionItem("producers", "q", "n", False),
            *(
                SessionItem("tasks", "r", f"{task.id} {task.token}", True, task.token)
                for task in exchanged.tasks
            ),
            SessionItem("takers", "s", "", False),
        }
        assert len(found) == 13
        for limit in (1, 5, 13):
            assert await inspected(do, session, limit) == found
        await do(Move("q", frozenset({"waiting"}), "purged"))
        assert SessionItem("producers", "q", "n", True) in await inspected(do, session)
        await do(Release("k", "z"))
        found = await inspected(do, session)
        assert {one.held for one in found if one.key == "k"} == {True, False}

    async def test_a_session_that_has_ended_is_unknown(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do(CloseSession(session))
        assert await do(DescribeSession(session)) is Reply.UNKNOWN
        assert await do(DescribeSession("never opened")) is Reply.UNKNOWN

    async def test_what_stays_is_listed_once_while_other_things_come_and_go(self, do: Do) -> None:
        session = await do.open()
        for number in range(9):
            await do.hold(session, "a", f"{number}", capacity=100)
        found: list[str] = []
        after = ""
        for number in range(9):
            page = await do(DescribeSession(session, after, 3))
            assert isinstance(page, SessionPage)
            found += [one.name for one in page.items]
            if not (after := page.next):
                break
            if found:
                await do(Release("a", found[0]))
            await do.hold(session, "a", f"{number} more", capacity=100)
        lasting = {one.name for one in await inspected(do, session)} & set("012345678")
        assert all(found.count(name) == 1 for name in lasting)

    async def test_looking_changes_nothing(self, do: Do) -> None:
        session = await do.open()
        for kind in ("holds", "pools", "queues", "sessions"):
            await survey(do, kind)
        await do(DescribeSession(session))
        assert await do(DescribeSession(session)) == SessionPage("p1", (), "")

    async def test_the_engine_tells_how_it_is_doing(self, do: Do) -> None:
        examined = await do(CheckHealth())
        assert dict(examined.facts)["engine"]
        assert all(name and value for name, value in examined.facts)
        for problem in examined.problems:
            assert problem
            assert "\n" not in problem
