"""The readers-writer lock of one process."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.referees import Fair
from explored.world import no_one_waits_behind, pause

from tenure.local import RWLock
from tenure.testing import cancellable, newcomer

MANY = 10


class Users:
    """Readers weigh 1, a writer as much as many of them."""

    def __init__(self, lock, *, ordered):
        self.lock = lock
        self.fair = Fair(MANY)
        self.ordered = ordered

    async def use(self, weight, steady=True, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        place = self.fair.came(weight, steady=steady and self.ordered)
        async with self.lock.read() if weight == 1 else self.lock.write():
            with self.fair.inside(place):
                await pause()

    async def victim(self, weight):
        with cancellable():
            await self.use(weight, steady=False)


async def all_come_and_go(policy):
    lock = RWLock(policy)
    users = Users(lock, ordered=policy == "fair")
    async with anyio.create_task_group() as group:
        group.start_soon(users.use, 1)
        group.start_soon(users.victim, MANY)
        group.start_soon(users.use, 1)
        group.start_soon(users.use, MANY)
        group.start_soon(users.victim, 1)
        group.start_soon(partial(users.use, 1, arrival=newcomer))
    assert users.fair.served >= 4
    with lock.write_nowait():
        pass
    state = lock.statistics()
    assert (state.readers, state.writers, state.tasks_waiting, state.broken) == (0, 0, 0, False)


TURNS = [f"local.{turn}Turn.__{way}__" for turn in ("Read", "Write") for way in ("aenter", "aexit")]


@scenario("local.RWLock.read", "local.RWLock.write", *TURNS)
async def a_fair_rwlock_goes_down_its_line():
    await all_come_and_go("fair")


@scenario("local.RWLock.read", "local.RWLock.write", *TURNS)
async def an_rwlock_for_readers_serves_writers_too():
    await all_come_and_go("readers")


@scenario("local.RWLock.read", "local.RWLock.write", *TURNS)
async def an_rwlock_for_writers_serves_readers_too():
    await all_come_and_go("writers")


@scenario("local.RWLock.read", "local.RWLock.write")
async def a_local_reader_goes_in_when_the_writer_ahead_gives_up():
    lock, gone, served = RWLock(), anyio.Event(), anyio.Event()

    async def writer():
        with cancellable():
            async with lock.write():
                pass
        gone.set()

    async def reader():
        async with lock.read():
            served.set()

    async with anyio.create_task_group() as group:
        async with lock.read():
            group.start_soon(writer)
            group.start_soon(reader)
            await no_one_waits_behind(gone, served, patience=1)
    with lock.write_nowait():
        pass


@scenario(
    "local.RWLock.read_nowait",
    "local.RWLock.write_nowait",
    "local.TakenTurn.__aenter__",
    "local.TakenTurn.__aexit__",
)
async def a_turn_that_was_taken_at_once_is_given_back():
    lock, fair = RWLock(), Fair(MANY)

    async def taker(take, weight, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        while True:
            try:
                turn = take()
            except anyio.WouldBlock:
                await pause()
            else:
                break
        async with turn:
            with fair.inside(fair.came(weight, steady=False)):
                await pause()

    async def victim(take, weight):
        with cancellable():
            await taker(take, weight)

    async with anyio.create_task_group() as group:
        group.start_soon(taker, lock.read_nowait, 1)
        group.start_soon(victim, lock.write_nowait, MANY)
        group.start_soon(taker, lock.write_nowait, MANY)
        group.start_soon(taker, lock.read_nowait, 1, newcomer)
    assert fair.served >= 3
    with lock.write_nowait():
        pass
