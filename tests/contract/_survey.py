"""Looking around: what there is, what a session has, and how the engine is doing."""

from __future__ import annotations

from tenure import engine as e

from ._contract import Advance, ContractBase, Do


async def survey(do: Do, kind: str, prefix: str = "", limit: int = 100) -> list[str]:
    """The names of a kind, page by page."""
    return await do.rows(e.Scan(e.NAMES[kind], limit=limit, only=prefix))


async def inspected(do: Do, session: str, limit: int = 100) -> list[e.SessionItem]:
    """The items of a session, page by page."""
    return await do.rows(e.Scan(e.SESSION, session, limit=limit))


class SurveyContract(ContractBase):
    """The contract's tests of surveys."""

    async def test_open_sessions_are_seen(self, do: Do, advance: Advance) -> None:
        lasting, closed = await do.open("p1"), await do.open("p2")
        mortal = await do.open("p3", ttl=2.0)
        assert set(await survey(do, "sessions")) == {lasting, closed, mortal}
        await do(e.CloseSession(closed))
        assert set(await survey(do, "sessions")) == {lasting, mortal}
        await advance(2.1 + self.margin)
        assert set(await survey(do, "sessions")) == {lasting}

    async def test_what_stays_is_listed_once_while_other_things_come_and_go(self, do: Do) -> None:
        session = await do.open()
        for number in range(9):
            await do.hold(session, "a", f"{number}", capacity=100)
        names: list[str] = []
        after = ""
        for number in range(9):
            page = await do.page(e.Scan(e.SESSION, session, after, limit=3))
            names += [item.name for item in page.rows]
            if not (after := page.next):
                break
            if names:
                await do(e.Release("a", names[0]))
            await do.hold(session, "a", f"{number} more", capacity=100)
        lasting = {item.name for item in await inspected(do, session)} & set("012345678")
        assert all(names.count(name) == 1 for name in lasting)

    async def test_the_engine_reports_its_health(self, do: Do) -> None:
        examined = await do.row(e.Scan(e.HEALTH))
        assert dict(examined.facts)["engine"]
        assert all(name and value for name, value in examined.facts)
        for problem in examined.problems:
            assert problem
            assert "\n" not in problem
