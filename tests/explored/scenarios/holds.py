"""Locks, semaphores and read-write locks: one hold in three readings."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from explored.catalogue import on_every_engine
from explored.referees import Fair
from explored.world import at_rest, no_one_waits_behind, pause

from tenure import AcquireTimeout, CapacityMismatch, Lock, RWLock, Semaphore
from tenure.shared.holds._rwlock import READERS
from tenure.testing import cancellable, newcomer

TTL = 30.0


class Holder:
    """Holds something for a moment, under the eyes of a referee."""

    def __init__(self, fair):
        self.fair = fair

    async def steady(self, hold, weight=1, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        place = self.fair.came(weight)
        async with hold() as lease:
            with self.fair.inside(place, lease):
                lease.check()
                await pause()

    async def foreign(self, hold, weight=1):
        """One of another process: when it comes to the engine cannot be told."""
        place = self.fair.came(weight, steady=False)
        async with hold() as lease:
            with self.fair.inside(place, lease):
                await pause()

    async def victim(self, hold, weight=1):
        with cancellable():
            await self.foreign(hold, weight)


async def nothing_is_held(thing, hold, *stores):
    """Nobody is there, and whoever comes is served at once."""
    await at_rest(*stores)
    for listing in (thing.holders(), thing.waiters()):
        assert not [party async for party in listing]
    async with hold(timeout=5):
        pass
    with anyio.move_on_after(1) as late:
        async with hold() as lease:
            lease.check()
    assert not late.cancelled_caught
    for store in stores:
        assert (await store.statistics()).held == 0


@on_every_engine(
    "shared.Lock.hold",
    "shared.Hold.__aenter__",
    "shared.Hold.__aexit__",
    "store.read_pages",
)
async def a_lock_goes_down_its_line(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        lock, fair = Lock(store, "x"), Fair()
        holder = Holder(fair)
        async with world.group() as group:
            group.start_soon(holder.steady, lock.hold)
            group.start_soon(holder.victim, lock.hold)
            group.start_soon(holder.steady, lock.hold)
            group.start_soon(holder.steady, lock.hold, 1, newcomer)
            group.start_soon(holder.foreign, Lock(elsewhere, "x").hold)
        assert fair.served >= 4
        await nothing_is_held(lock, lock.hold, store, elsewhere)


@on_every_engine("shared.Lock.__aenter__", "shared.Lock.__aexit__", "shared.Lock.locked")
async def a_lock_is_its_own_context_manager(world):
    async with world.open() as store:
        await store._handle.session(TTL)
        lock, fair = Lock(store, "x"), Fair()
        holder = Holder(fair)

        async def watcher():
            for _ in range(3):
                with cancellable():
                    assert len([party async for party in lock.holders()]) <= 1
                    await lock.locked()
                await pause()

        async with world.group() as group:
            group.start_soon(holder.steady, lambda: lock)
            group.start_soon(holder.victim, lambda: lock)
            group.start_soon(holder.victim, lambda: lock)
            group.start_soon(holder.steady, lambda: lock)
            group.start_soon(watcher)
        assert fair.served >= 2
        assert not await lock.locked()
        await nothing_is_held(lock, lock.hold, store)


@on_every_engine("shared.Lock.hold", "shared.Hold.__aenter__")
async def a_lock_is_given_up_in_time(world):
    """Some wait for a limited time, and some make one try."""
    async with world.open() as store:
        await store._handle.session(TTL)
        lock, fair, timeouts = Lock(store, "x"), Fair(), []
        holder = Holder(fair)

        async def impatient(timeout):
            start = anyio.current_time()
            try:
                await holder.foreign(lambda: lock.hold(timeout=timeout))
            except AcquireTimeout as error:
                timeouts.append(error.seconds)
                waited = anyio.current_time() - start
                assert waited >= timeout - 1e-9

        async def victim():
            with cancellable():
                await impatient(0.015)

        async with world.group() as group:
            group.start_soon(holder.steady, lock.hold)
            group.start_soon(impatient, 0.01)
            group.start_soon(impatient, 0)
            group.start_soon(victim)
            group.start_soon(holder.steady, lock.hold)
        assert fair.served + len(timeouts) >= 4 and set(timeouts) <= {0, 0.01, 0.015}
        await nothing_is_held(lock, lock.hold, store)


@on_every_engine("shared.Semaphore.hold")
async def permits_go_down_their_line(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        semaphore, fair = Semaphore(store, "x", 3), Fair(3)
        other = Semaphore(elsewhere, "x", 3)
        holder = Holder(fair)

        async def watcher():
            with cancellable():
                assert sum([party.weight async for party in semaphore.holders()]) <= 3

        async with world.group() as group:
            group.start_soon(holder.steady, lambda: semaphore.hold(2), 2)
            group.start_soon(holder.victim, lambda: semaphore.hold(3), 3)
            group.start_soon(holder.steady, semaphore.hold)
            group.start_soon(holder.steady, lambda: semaphore.hold(3), 3, newcomer)
            group.start_soon(holder.foreign, lambda: other.hold(2), 2)
            group.start_soon(watcher)
        assert fair.served >= 4
        await nothing_is_held(semaphore, lambda timeout=None: semaphore.hold(3, timeout), store, elsewhere)


@on_every_engine("shared.Semaphore.__aenter__", "shared.Semaphore.__aexit__")
async def a_semaphore_is_its_own_context_manager(world):
    """One task may hold several permits, one inside the other."""
    async with world.open() as store:
        await store._handle.session(TTL)
        semaphore, fair = Semaphore(store, "x", 2), Fair(2)
        holder = Holder(fair)

        async def twice():
            with cancellable():
                async with semaphore as outer:
                    await pause()
                    with anyio.move_on_after(0.05):  # two who hold one each would wait for each other
                        async with semaphore as inner:
                            assert inner.token > outer.token
                            inner.check()
                    outer.check()

        async with world.group() as group:
            group.start_soon(twice)
            group.start_soon(twice)
            group.start_soon(holder.steady, lambda: semaphore)
            group.start_soon(holder.steady, lambda: semaphore, 1, newcomer)
        assert fair.served == 2
        await nothing_is_held(semaphore, lambda timeout=None: semaphore.hold(2, timeout), store)


@on_every_engine("shared.Semaphore.resize")
async def a_semaphore_is_resized_under_load(world):
    """From 2 permits to 3, whether or not the first who says so is cancelled; then to 1."""
    async with world.open() as store:
        await store._handle.session(TTL)
        semaphore, fair, mismatches = Semaphore(store, "x", 2), Fair(3), []
        holder = Holder(fair)

        async def resizer():
            await fair.came_by(2)
            with cancellable():
                await semaphore.resize(3)
            await semaphore.resize(3)

        async def wants_all():
            await newcomer()
            try:
                await holder.foreign(lambda: semaphore.hold(2), 2)
            except CapacityMismatch as error:  # of one who asks between the engine's answer and ours
                mismatches.append((error.asked, error.stored))

        async def victim():
            with cancellable():
                await wants_all()

        async with world.group() as group:
            group.start_soon(holder.steady, lambda: semaphore.hold(2), 2)
            group.start_soon(holder.steady, lambda: semaphore.hold(1))
            group.start_soon(victim)
            group.start_soon(wants_all)
            group.start_soon(resizer)
        assert fair.served + len(mismatches) >= 3 and semaphore.permits == 3
        assert set(mismatches) <= {(2, 3)}
        await nothing_is_held(semaphore, lambda timeout=None: semaphore.hold(3, timeout), store)
        old = semaphore.hold(2)
        await semaphore.resize(1)
        with pytest.raises(CapacityMismatch, match="capacity of 3, but 1"):
            async with old:
                pass


@on_every_engine("shared.RWLock.read", "shared.RWLock.write")
async def readers_share_and_writers_do_not(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        lock, fair = RWLock(store, "x"), Fair(READERS)
        other = RWLock(elsewhere, "x")
        holder = Holder(fair)

        async def watcher():
            with cancellable():
                assert sum([party.weight async for party in lock.holders()]) <= READERS

        async with world.group() as group:
            group.start_soon(holder.steady, lock.read)
            group.start_soon(holder.victim, lock.write, READERS)
            group.start_soon(holder.steady, lock.read)
            group.start_soon(holder.steady, lock.read, 1, newcomer)
            group.start_soon(holder.steady, lock.write, READERS)
            group.start_soon(holder.victim, lock.read)
            group.start_soon(holder.foreign, other.write, READERS)
            group.start_soon(watcher)
        assert fair.served >= 5
        await nothing_is_held(lock, lock.write, store, elsewhere)


@on_every_engine("shared.RWLock.write", "shared.RWLock.read")
async def a_reader_goes_in_when_the_writer_ahead_gives_up(world):
    async with world.open() as store:
        await store._handle.session(TTL)
        await store._handle.session(TTL)
        lock, writer_ended, reader_ended = RWLock(store, "x"), anyio.Event(), anyio.Event()

        async def writer():
            with cancellable():
                async with lock.write():
                    pass
            writer_ended.set()

        async def reader():
            async with lock.read():
                reader_ended.set()

        async with world.group() as group:
            async with lock.read():
                group.start_soon(writer)
                group.start_soon(reader)
                await no_one_waits_behind(writer_ended, reader_ended, patience=world.patience)
        await nothing_is_held(lock, lock.write, store)


@on_every_engine("shared.Hold.__aenter__")
async def what_an_ended_task_held_is_given_back(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        lock, other = Lock(store, "x"), Lock(elsewhere, "x")

        async def forgetful():
            await lock.hold().__aenter__()

        async def victim():
            with cancellable():
                async with lock.hold():
                    pass

        try:
            async with world.group() as group:
                group.start_soon(victim)
                group.start_soon(forgetful)
        except* RuntimeError:  # the loops complain of the scope that was not left
            pass
        async with other.hold(timeout=5 + world.patience):
            pass
        await nothing_is_held(lock, lock.hold, store, elsewhere)
