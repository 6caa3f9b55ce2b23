"""Elections: a hold whose holder has a name, campaigns again when it is lost, and is watched."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire, on_every_engine
from explored.referees import Fair
from explored.scenarios.holds import TTL, Holder
from explored.scenarios.losses import AWAY
from explored.world import at_rest, pause

from benchmarks.soak.referees import History, one_leader
from tenure import AcquireTimeout
from tenure.engine import CloseSession
from tenure.shared.holds._election import Election
from tenure.testing import cancellable, newcomer


class Cluster:
    """Nodes that lead for a moment, under the eyes of two referees."""

    def __init__(self):
        self.history = History(clock=anyio.current_time)
        self.fair = Fair()

    async def steady(self, election, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await self._lead(election, self.fair.came())

    async def foreign(self, election):
        """One of another process: when it comes to the engine cannot be told."""
        await self._lead(election, self.fair.came(steady=False))

    async def victim(self, election):
        with cancellable():
            await self.foreign(election)

    async def _lead(self, election, place):
        async def body(term):
            with self.fair.inside(place), self.on(term):
                assert await election.leader() == term.node
                await pause()
                term.check()
                return term.number

        assert await election.lead(body) in self.numbers

    def on(self, term):
        return self.history.held("cluster", token=term.number, by=term.node)

    @property
    def numbers(self):
        return [event.facts["token"] for event in self.history if event.phase == "began"]


async def nobody_leads(election, *stores):
    """Nobody is there, and whoever comes leads at once."""
    await at_rest(*stores)
    assert await election.leader() is None
    async with election.term(timeout=5) as term:
        term.check()
    with anyio.fail_after(1):
        async with election.term():
            pass
    for store in stores:
        assert (await store.statistics()).held == 0


@on_every_engine("shared.Election.lead", "shared.Election.leader")
async def leadership_goes_down_its_line(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        cluster = Cluster()
        here = [Election(store, "x", node=name) for name in "abcd"]
        async with world.group() as group:
            group.start_soon(cluster.steady, here[0])
            group.start_soon(cluster.victim, here[1])
            group.start_soon(cluster.steady, here[2])
            group.start_soon(cluster.steady, here[3], newcomer)
            group.start_soon(cluster.foreign, Election(elsewhere, "x"))
        assert cluster.fair.served >= 4
        assert one_leader(cluster.history).held == len(cluster.numbers)
        await nobody_leads(here[0], store, elsewhere)


@on_every_engine("shared.Election.term", "shared.Election.leader")
async def terms_are_given_up_in_time(world):
    """Some campaign for a limited time, and some make one try."""
    async with world.open() as store:
        await store._handle.session(TTL)
        election, holder, timeouts = Election(store, "x", node="a"), Holder(Fair()), []

        async def campaign(timeout=None):
            # terms are as good as leases to those who hold them for a moment
            try:
                async with election.term(timeout) as term:
                    with holder.fair.inside(holder.fair.came(steady=False)):
                        term.check()
                        await pause()
            except AcquireTimeout as error:
                timeouts.append(error.seconds)

        async def victim(timeout):
            with cancellable():
                await campaign(timeout)

        async def looker():
            for _ in range(3):
                with cancellable():
                    assert await election.leader() in ("a", None)
                await pause()

        async with world.group() as group:
            group.start_soon(campaign)
            group.start_soon(campaign, 0.01)
            group.start_soon(campaign, 0)
            group.start_soon(victim, 0.015)
            group.start_soon(victim, None)
            group.start_soon(campaign)
            group.start_soon(looker)
        assert holder.fair.served + len(timeouts) >= 4 and set(timeouts) <= {0, 0.01, 0.015}
        await nobody_leads(election, store)


@on_every_engine(
    "shared.Election.watch",
    "shared.LeaderChanges.__aenter__",
    "shared.LeaderChanges.__anext__",
    "shared.LeaderChanges.__aexit__",
)
async def who_watches_hears_of_the_last(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        last = Election(elsewhere, "x", node="last")
        heard = [anyio.Event(), anyio.Event()]

        async def watch(store, heard):
            before = object()
            async with Election(store, "x").watch() as changes:
                async for leader in changes:
                    assert leader != before
                    before = leader
                    if leader == "last":
                        heard.set()
                        return

        async def victim():
            with cancellable():
                await watch(store, anyio.Event())

        async def lead(election):
            async with election.term():
                await pause()

        async with anyio.create_task_group() as group:
            group.start_soon(watch, store, heard[0])
            group.start_soon(watch, elsewhere, heard[1])
            group.start_soon(victim)
            async with world.group() as leaders:
                leaders.start_soon(lead, Election(store, "x", node="a"))
                leaders.start_soon(lead, Election(elsewhere, "x", node="b"))
            async with last.term():
                with anyio.fail_after(world.patience):
                    for event in heard:
                        await event.wait()
            group.cancel_scope.cancel()  # a victim that came too late
        await nobody_leads(last, store, elsewhere)


@on_a_wire("shared.Election.lead")
async def a_leader_that_was_lost_campaigns_again(world):
    async with world.open() as store, world.open() as elsewhere:
        link, cluster, losses = world.links[0], Cluster(), []

        async def loser():
            with cancellable():
                await Election(store, "x", node="loser").lead(body)

        async def body(term):
            with cluster.on(term):
                if losses:
                    return
                try:
                    await anyio.sleep(100)
                finally:
                    losses.append(term.lost)

        async with anyio.create_task_group() as group:
            group.start_soon(loser)
            await anyio.sleep(1)
            group.start_soon(cluster.foreign, Election(elsewhere, "x"))
            await anyio.sleep(1)
            link.pause()
            await anyio.sleep(AWAY)
            link.resume()
        assert losses in ([], [None], ["expired"])
        # not the second time, if it was cancelled while it campaigned again
        assert one_leader(cluster.history).held - 1 - len(losses) in (0, losses == ["expired"])
        assert cluster.fair.served == 1
        await nobody_leads(Election(store, "x"), store, elsewhere)


@on_a_wire("shared.Election.lead", "shared.Election.watch")
async def who_leads_and_who_watches_get_a_new_session(world):
    """The engine forgets the session of both."""
    async with world.open() as store, world.open() as elsewhere:
        cluster, leaders = Cluster(), []

        async def body(term):
            with cluster.on(term):
                if len(cluster.numbers) > 1:
                    await anyio.sleep(1)
                    return
                await anyio.sleep_forever()

        async def lead():
            with cancellable():
                await Election(elsewhere, "x", node="a").lead(body)
                assert len(cluster.numbers) == 2

        async def watch():
            with cancellable():
                async with Election(elsewhere, "x").watch() as changes:
                    async for leader in changes:
                        leaders.append(leader)

        async with anyio.create_task_group() as group:
            group.start_soon(lead)
            group.start_soon(watch)
            await anyio.sleep(1)
            for session in elsewhere._handle.sessions:
                await store._handle.call(CloseSession(session.id))
            await anyio.sleep(AWAY)
            assert all(leader in ("a", None) for leader in leaders)
            group.cancel_scope.cancel()
        one_leader(cluster.history)
        await nobody_leads(Election(store, "x"), store, elsewhere)
