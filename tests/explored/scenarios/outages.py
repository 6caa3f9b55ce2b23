"""Sessions while the engine is away, refuses, or has forgotten them; each says where it draws the line."""

from __future__ import annotations

import anyio
from explored.catalogue import on_a_wire
from explored.referees import Fair
from explored.scenarios.holds import TTL, Holder, nothing_is_held
from explored.world import at_rest

from tenure import LeaseLost, Lock
from tenure.engine import CloseSession, Release, RenewSession
from tenure.testing import Fault, cancellable

LATE = 1.0
"""Seconds: schedules let timers come late. Losses are noticed 3 seconds before the engine's ttl ends."""
HEARTBEAT = TTL / 3


class Loser:
    """Holds something until it is lost, and then takes a second to clean up."""

    def __init__(self, fair):
        self.fair = fair
        self.has_it = anyio.Event()  # or will have it no more
        self.lost = []

    async def run(self, hold):
        with cancellable():
            try:
                async with hold() as lease:
                    with self.fair.inside(self.fair.came(steady=False), lease):
                        self.has_it.set()
                        try:
                            await anyio.sleep_forever()
                        finally:
                            with anyio.CancelScope(shield=True):
                                await anyio.sleep(1)
            except LeaseLost as error:
                self.lost.append((error.reason, anyio.current_time()))
        self.has_it.set()


async def renewed_late_and_then_no_more(world, prevent):
    """The engine renews at once and answers late: what counts is when it was asked."""
    async with world.open() as store, world.open() as elsewhere:
        link, lock, fair = world.links[0], Lock(store, "x"), Fair()
        loser, holder = Loser(fair), Holder(fair)
        await store._handle.session(TTL)
        async with anyio.create_task_group() as group:
            group.start_soon(loser.run, lock.hold)
            await anyio.sleep(HEARTBEAT / 2)
            link.pause()
            await anyio.sleep(HEARTBEAT)
            prevent(link)
            await anyio.sleep(HEARTBEAT / 2)
            link.resume()
            group.start_soon(holder.foreign, Lock(elsewhere, "x").hold)
            group.start_soon(holder.victim, lock.hold)
        assert [reason for reason, _ in loser.lost] in ([], ["expired"]) and fair.served >= 1
        await nothing_is_held(lock, lock.hold, store, elsewhere)


@on_a_wire("shared.Hold.__aenter__", "shared.Hold.__aexit__", "store.Session.keep")
async def a_late_answer_buys_no_time(world):
    await renewed_late_and_then_no_more(
        world, lambda link: link.plan(Fault.LOST_REQUEST, on=RenewSession, times=60)
    )


@on_a_wire("shared.Hold.__aenter__", "shared.Hold.__aexit__", "store.Session.keep")
async def a_refused_renewal_buys_no_time(world):
    await renewed_late_and_then_no_more(world, lambda link: setattr(link, "refuses", RenewSession))


@on_a_wire("shared.Hold.__aenter__", "shared.Hold.__aexit__", "store.Session.keep")
async def an_outage_of_a_third_of_the_ttl_costs_nothing(world):
    async with world.open() as store:
        link, lock, fair = world.links[0], Lock(store, "x"), Fair()
        await store._handle.session(TTL)

        async def keeper():
            async with lock.hold() as lease:
                await anyio.sleep(HEARTBEAT * 4)
                lease.check()

        async def victim():
            with cancellable():
                await keeper()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(keeper)
            for _ in range(8):
                await anyio.sleep(HEARTBEAT * 0.93)
                link.pause(before_effect=True)
                await anyio.sleep(HEARTBEAT)
                link.resume()
        await nothing_is_held(lock, lock.hold, store)
        assert fair.served == 0


@on_a_wire("shared.Hold.__aexit__", "store.Session.keep")
async def a_session_that_the_engine_has_forgotten_is_noticed(world):
    async with world.open() as store, world.open() as elsewhere:
        lock, fair = Lock(store, "x"), Fair(2)
        loser, holder = Loser(fair), Holder(fair)
        session = await store._handle.session(TTL)
        async with anyio.create_task_group() as group:
            group.start_soon(loser.run, lock.hold)
            await loser.has_it.wait()
            await elsewhere._handle.call(CloseSession(session.id))
            forgotten = anyio.current_time()
            group.start_soon(holder.foreign, Lock(elsewhere, "x").hold)
        for reason, when in loser.lost:
            assert reason == "gone" and when - forgotten <= HEARTBEAT + LATE
        await nothing_is_held(lock, lock.hold, store, elsewhere)


@on_a_wire("shared.Hold.__aexit__", "store.Session.keep")
async def a_release_that_was_refused_is_sent_again(world):
    async with world.open() as store, world.open() as elsewhere:
        link, lock, other = world.links[0], Lock(store, "x"), Lock(elsewhere, "x")
        with cancellable():
            async with lock.hold():
                link.refuses = Release
        link.refuses = Release
        async with lock.hold():
            pass
        link.refuses = ()
        async with other.hold(timeout=HEARTBEAT + LATE):
            pass
        session = await store._handle.session(TTL)
        assert session.lost is None, "there was no need to give up the session"
        await nothing_is_held(lock, lock.hold, store, elsewhere)


@on_a_wire("shared.Hold.__aexit__", "store.Session.keep")
async def what_cannot_be_released_goes_with_its_session(world):
    async with world.open() as store, world.open() as elsewhere:
        link, lock, other = world.links[0], Lock(store, "x"), Lock(elsewhere, "x")
        link.refuses = Release
        async with lock.hold():
            pass
        with cancellable():
            async with other.hold():
                pass
        async with other.hold(timeout=TTL + 2 * HEARTBEAT + LATE):
            pass
        link.refuses = ()
        await nothing_is_held(other, other.hold, elsewhere)


@on_a_wire("shared.Hold.__aexit__")
async def leaving_waits_for_the_engine_but_not_for_long(world):
    async with world.open(settle_timeout=2) as store, world.open() as elsewhere:
        link, lock = world.links[0], Lock(store, "x")

        async def leave(after):
            """Leave by a cancellation, and wait in the shield of that for the engine."""
            async with anyio.create_task_group() as group:
                with anyio.move_on_after(1):
                    async with lock.hold():
                        link.pause(before_effect=True)
                        group.start_soon(resume_after, after)
                        await anyio.sleep_forever()
                return anyio.current_time()

        async def resume_after(seconds):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(seconds)
                link.resume()

        start = anyio.current_time()
        left = await leave(2)
        assert 2 <= left - start <= 2 + LATE
        start = anyio.current_time()
        left = await leave(8)
        assert 3 <= left - start <= 3 + LATE
        with cancellable():
            async with lock.hold():
                pass
        await nothing_is_held(lock, lock.hold, store, elsewhere)
        await at_rest(store, elsewhere)


@on_a_wire("store.Store.ping", "store.Store.statistics")
async def a_store_tells_that_its_engine_is_away(world):
    async with world.open() as store:
        link = world.links[0]
        await store.ping()
        link.plan(Fault.LOST_REQUEST, times=3)

        async def victim():
            with cancellable():
                await store.ping()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(store.ping)
            while (state := await store.statistics()).available:
                await anyio.sleep(0.01)
            assert 1 <= state.pending <= 2
        state = await store.statistics()
        assert state.available and state.pending == 0
        await at_rest(store)


@on_a_wire("shared.Hold.__aexit__", "shared.Lock.hold")
async def who_worked_on_through_a_loss_is_reported(world):
    async with world.open() as store, world.open() as elsewhere:
        link, lock, told = world.links[0], Lock(store, "x"), []

        async def stubborn(name):
            try:
                async with Lock(store, name).hold():
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(2 * TTL)
            except LeaseLost as error:
                told.append((name, error.reason))

        async def victim():
            with cancellable():
                await stubborn("victim")

        async with anyio.create_task_group() as group:
            group.start_soon(stubborn, "x")
            group.start_soon(victim)
            await anyio.sleep(1)
            link.pause(before_effect=True)
            await anyio.sleep(1.5 * TTL)
            link.resume()
        assert ("x", "expired") in told
        await nothing_is_held(lock, lock.hold, store, elsewhere)


@on_a_wire("shared.Hold.__aexit__", "store.Store.__asynccontextmanager__")
async def a_body_that_cleans_up_for_long_still_holds(world):
    """Also when the whole program is cancelled, its stores with it."""
    async with world.open() as elsewhere:
        fair = Fair()

        async def program():
            async with world.open() as store, Lock(store, "x").hold() as lease:
                with fair.inside(fair.came(steady=False), lease):
                    try:
                        await anyio.sleep_forever()
                    finally:
                        with anyio.CancelScope(shield=True):
                            await anyio.sleep(2 * TTL)
                        lease.check()

        async def victim():
            with cancellable(), anyio.move_on_after(1):
                await program()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            await anyio.sleep(0.5)
            group.start_soon(Holder(fair).foreign, Lock(elsewhere, "x").hold)
        assert fair.served == 1
        lock = Lock(elsewhere, "x")
        await nothing_is_held(lock, lock.hold, elsewhere)
